"""Recipes: the known samplers, the law of a step, the noise that is taken out, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import helpers
import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.samplers import Gradient
from scirocco.samplers.matrices import inject

pytestmark = pytest.mark.compile

DIMENSION, A = 5, 10.0
CANONICAL = {("position", "momentum"): -1.0}


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of a few steps."""


def half_square(tree):
    return 0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree))


def thermostat_curl(z):
    return {**CANONICAL, ("momentum", "thermostat"): jax.tree.map(lambda r: r / DIMENSION, z["momentum"])}


KNOWN = {
    "SGLD with a schedule and temperature": (
        sc.SGLD(sc.schedules.polynomial(1e-3, 10.0, 0.5), temperature=2.0),
        sc.Recipe(sc.schedules.polynomial(1e-3, 10.0, 0.5), diffusion=1.0, temperature=2.0),
    ),
    "SGHMC with fresh momenta": (
        sc.SGHMC(5e-3, friction=60.0, gradient_noise=0.0, resample_every=3),
        sc.Recipe(5e-3, diffusion={"momentum": 60.0}, curl=CANONICAL, auxiliaries=("momentum",), resample_every=3),
    ),
    "SGNHT": (
        sc.SGNHT(5e-3, diffusion=A),
        sc.Recipe(
            5e-3,
            diffusion={"momentum": A},
            curl=thermostat_curl,
            auxiliaries={"momentum": "normal", "thermostat": A},
            hamiltonian=lambda z: half_square(z["momentum"]) + DIMENSION / 2 * (z["thermostat"] - A) ** 2,
        ),
    ),
}


@pytest.mark.rotates(3)
@pytest.mark.parametrize("name", KNOWN)
def test_known_samplers_are_recipes(name):
    """The same key, the same trajectory."""
    runs = [
        sc.sample(
            helpers.MODEL,
            helpers.make_data(),
            helpers.make_params(),
            sampler=sampler,
            estimator=sc.Minibatch(16),
            num_samples=40,
            num_chains=2,
            progress=False,
        )
        for sampler in KNOWN[name]
    ]
    helpers.assert_close(runs[0].draws, runs[1].draws, rtol=1e-4)


# -- the noise of a step -----------------------------------------------------------------------------------------------

POINT = jnp.array([0.3, -1.2, 0.8])
ROOT = jnp.array([[1.0, 0.2, 0.0], [0.2, 2.0, 0.3], [0.0, 0.3, 0.5]])
FACTOR = jnp.array([[1.0], [0.5], [-1.0]])
DIFFUSIONS = {
    "scalar": (2.0, 2.0 * jnp.eye(3)),
    "diagonal": (jnp.array([1.0, 2.0, 0.0]), jnp.diag(jnp.array([1.0, 2.0, 0.0]))),
    "dense": (ROOT @ ROOT, ROOT @ ROOT),
    "low rank": (sc.LowRank(0.5, FACTOR), 0.5 * jnp.eye(3) + FACTOR @ FACTOR.T),
}
NOISE = {"diagonal": jnp.array([0.1, 0.3, 0.2]), "full": ROOT @ ROOT / 10}


def covariance_of_move(recipe, eps, noise=None):
    """The move is linear in the normals: M ξ; its covariance is M Mᵀ."""
    z = {"position": POINT}
    like, _ = recipe.noise(jax.random.key(0), POINT)
    flat, back = ravel_pytree(like)

    def move(normals):
        return inject(recipe, z, jnp.asarray(eps), back(normals), noise)[0]["position"]

    matrix = jax.vmap(move)(jnp.eye(flat.size)).T
    return matrix @ matrix.T, inject(recipe, z, jnp.asarray(eps), like, noise)[1]


@pytest.mark.rotates(2)
@pytest.mark.parametrize("form", DIFFUSIONS)
def test_the_injected_noise_has_the_covariance_of_the_recipe(form):
    written, exact = DIFFUSIONS[form]
    recipe = sc.Recipe(0.1, diffusion=written, temperature=1.5)
    found, clipped = covariance_of_move(recipe, 0.1)
    np.testing.assert_allclose(found, 2 * 0.1 * 1.5 * exact, rtol=1e-4, atol=1e-5)
    assert int(clipped) == 0


@pytest.mark.parametrize("written", [2, np.int64(2), np.full(3, 2), jnp.full(3, 2), 2 * np.eye(3, dtype=int)])
def test_whole_numbers_are_numbers(written):
    found, _ = covariance_of_move(sc.Recipe(0.1, diffusion=written), 0.1)
    np.testing.assert_allclose(found, 0.4 * jnp.eye(3), rtol=1e-5, atol=1e-6)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("form", DIFFUSIONS)
def test_the_noise_of_the_estimate_is_taken_out(form, kind):
    """2εD - ε² D V D, exactly."""
    written, exact = DIFFUSIONS[form]
    recipe = sc.Recipe(0.1, diffusion=written, correct_noise=kind)
    if kind == "diagonal" and form in ("dense", "low rank"):
        with pytest.raises(InvalidValueError, match='use correct_noise="full"'):
            covariance_of_move(recipe, 0.1, NOISE[kind])
        return
    variance = jnp.diag(NOISE[kind]) if kind == "diagonal" else NOISE[kind]
    found, _ = covariance_of_move(recipe, 0.1, NOISE[kind])
    np.testing.assert_allclose(found, 0.2 * exact - 0.01 * exact @ variance @ exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", NOISE)
def test_negative_variances_are_clipped_and_counted(kind):
    """V so large that nothing is left to inject."""
    recipe = sc.Recipe(1.0, diffusion=2.0, correct_noise=kind)
    large = 100.0 * jnp.ones(3) if kind == "diagonal" else 100.0 * jnp.eye(3)
    found, clipped = covariance_of_move(recipe, 1.0, large)
    np.testing.assert_array_equal(found, jnp.zeros((3, 3)))
    assert int(clipped) == 3


@pytest.mark.parametrize("eps", [1e-3, 0.1])
def test_the_injected_noise_is_continuous_in_the_noise_of_the_estimate(eps, seed):
    """|δR|_F <= |δM|_F / (2 √λ_min) for the root R of M = 2εD - ε²V, however close the eigenvalues of M are."""
    recipe = sc.Recipe(eps, diffusion=1.0, correct_noise="full")
    keys = jax.random.split(jax.random.key(seed))
    normals, change = jax.random.normal(keys[0], (3,)), jax.random.normal(keys[1], (3, 3))
    first, second = NOISE["full"], NOISE["full"] + 1e-3 * (change + change.T)
    z = {"position": jnp.zeros(3)}
    moves = [
        inject(recipe, z, jnp.asarray(eps), {"position": normals}, noise)[0]["position"] for noise in (first, second)
    ]
    variances = [2 * eps * np.eye(3) - eps**2 * np.asarray(noise, np.float64) for noise in (first, second)]
    least = min(np.linalg.eigvalsh(variance)[0] for variance in variances)
    bound = np.linalg.norm(variances[1] - variances[0]) / (2 * np.sqrt(least))
    rounding = 100 * np.finfo(np.float32).eps * np.sqrt(2 * eps)
    assert np.linalg.norm(moves[1] - moves[0]) <= (bound + rounding) * np.linalg.norm(normals)


def test_friction_has_the_noise_of_the_gradient_taken_out_of_its_own():
    """SGHMC: the gradient drives the momentum, 2εC - ε²V."""
    recipe = sc.Recipe(
        0.1, diffusion={"momentum": 3.0}, curl=CANONICAL, auxiliaries=("momentum",), correct_noise="diagonal"
    )
    z = {"position": POINT, "momentum": POINT}
    moves, _ = inject(recipe, z, jnp.asarray(0.1), {"momentum": jnp.ones(3)}, NOISE["diagonal"])
    np.testing.assert_allclose(moves["momentum"] ** 2, 0.6 - 0.01 * NOISE["diagonal"], rtol=1e-5)
    assert set(moves) == {"momentum"}


# -- cost -------------------------------------------------------------------------------------------------------------


def test_a_diagonal_metric_on_a_million_numbers_costs_a_few_copies_of_them():
    recipe = sc.SGRLD(1e-3, lambda theta: jax.tree.map(lambda v: 1.0 + v**2, theta))
    params = {"a": jnp.zeros(900_000), "b": jnp.zeros((100, 1_000))}
    recipe.check_params(params, 10)
    state = recipe.init(params, jax.random.key(0))
    noise = recipe.noise(jax.random.key(1), params)
    compiled = jax.jit(recipe.step).lower(state, Gradient(params), noise, jnp.array(0)).compile()
    nbytes = 4 * 1_000_000
    assert compiled.memory_analysis().temp_size_in_bytes <= 8 * nbytes
    assert compiled.cost_analysis()["flops"] <= 100 * 1_000_000


def test_a_large_diagonal_that_is_not_elementwise_is_refused():
    recipe = sc.SGRLD(1e-3, lambda theta: 1.0 + theta**2 + jnp.sum(theta))
    with pytest.raises(InvalidValueError, match=r"derivative for each of 100 numbers.*elementwise=False"):
        recipe.check_params(jnp.ones(100), 10)
    sc.SGRLD(1e-3, lambda theta: 1.0 + theta**2 + jnp.sum(theta), elementwise=False).check_params(jnp.ones(100), 10)
    sc.SGRLD(1e-3, lambda theta: 1.0 + theta**2 + jnp.sum(theta)).check_params(jnp.ones(10), 10)


def test_another_step_size_compiles_nothing():
    options = {"estimator": sc.Minibatch(16), "num_samples": 5, "progress": False}
    arguments = (helpers.MODEL, helpers.make_data(), helpers.make_params())
    curl, metric = CANONICAL, lambda z: {"momentum": 1.0 + 0.0 * z["position"]["bias"]}

    def draw(eps, temperature):
        recipe = sc.Recipe(eps, diffusion=metric, curl=curl, auxiliaries=("momentum",), temperature=temperature)
        return sc.sample(*arguments, sampler=recipe, **options)

    draw(1e-3, 1.0)
    with helpers.compiled() as programs:
        draw(2e-3, 0.5)
    assert not programs


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sc.Recipe(-1.0, diffusion=1.0), "step_size"),
        (lambda: sc.Recipe(0.1, diffusion=1.0, auxiliaries=("momentum",)), "dict of blocks by parts"),
        (lambda: sc.Recipe(0.1, diffusion={"momentun": 1.0}, auxiliaries=("momentum",)), "parts are"),
        (lambda: sc.Recipe(0.1, curl={("position", "r"): 1.0}, auxiliaries=("momentum",)), "pairs of"),
        (
            lambda: sc.Recipe(
                0.1, curl={("position", "momentum"): 1.0, ("momentum", "position"): 1.0}, auxiliaries=("momentum",)
            ),
            "negative transpose",
        ),
        (lambda: sc.Recipe(0.1, auxiliaries=("position",)), "other than 'position'"),
        (lambda: sc.Recipe(0.1, auxiliaries={"xi": "cold"}), "'normal' or at a number"),
        (lambda: sc.Recipe(0.1, diffusion=1.0, gamma="wrong"), "`gamma`"),
        (lambda: sc.Recipe(0.1, diffusion=1.0, correct_noise="some"), "`correct_noise`"),
        (lambda: sc.Recipe(0.1, diffusion=1.0, hamiltonian=3), "`hamiltonian`"),
        (lambda: sc.Recipe(0.1, diffusion=1.0, resample_every=0), "`resample_every`"),
        (lambda: sc.SGRLD(0.1, 2.0), "must be a function"),
        (lambda: sc.SGRHMC(0.1, 2.0), "must be a function"),
    ],
)
def test_what_is_no_recipe_is_refused_at_once(make, message):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=message):
        make()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (sc.Recipe(0.1, diffusion=lambda z: -1.0 + 0 * z["position"][0]), "not positive semidefinite at the start"),
        (sc.Recipe(0.1, diffusion=jnp.array([[1.0, 2.0], [2.0, 1.0]])), "smallest eigenvalue is -1"),
        (sc.Recipe(0.1, diffusion=jnp.array([[1.0, 2.0], [0.0, 1.0]])), r"D\[0,1\] - D\[1,0\] = 2"),
        (sc.Recipe(0.1, diffusion=1.0, curl=jnp.ones((2, 2))), r"Q\[0,0\] \+ Q\[0,0\] = 2"),
        (sc.Recipe(0.1, diffusion=jnp.ones(3)), "not a matrix between parts"),
        (
            sc.Recipe(0.1, diffusion=lambda z: 1.0 + z["position"] ** 2, gamma=lambda z: -2 * z["position"]),
            "wrong sign",
        ),
        (sc.Recipe(0.1, diffusion=lambda z: 1.0 + z["position"] ** 2, gamma=lambda z: z["position"]), "Γ is wrong"),
    ],
)
def test_a_wrong_recipe_is_refused_before_it_runs(recipe, message):
    model = sc.Model(lambda theta, x: -0.5 * jnp.sum((x - theta) ** 2))
    with pytest.raises(InvalidValueError, match=message):
        sc.sample(model, jnp.ones((10, 2)), jnp.ones(2), sampler=recipe, num_samples=2, progress=False)


def test_a_right_gamma_of_the_users_own_is_used():
    given = sc.Recipe(0.1, diffusion=lambda z: 1.0 + z["position"] ** 2, gamma=lambda z: 2 * z["position"])
    derived = sc.Recipe(0.1, diffusion=lambda z: 1.0 + z["position"] ** 2)
    z = {"position": POINT}
    np.testing.assert_allclose(given.drift(z, POINT, "position"), derived.drift(z, POINT, "position"), rtol=1e-6)


@pytest.mark.rotates(3, "resumed runs")
def test_a_stored_recipe_goes_on_when_it_is_given_again(tmp_path):
    """Constants are stored; functions are not."""
    arguments = (helpers.MODEL, helpers.make_data(), helpers.make_params())
    options = {"estimator": sc.Minibatch(16), "progress": False}
    constant = sc.Recipe(5e-3, diffusion={"momentum": 60.0}, curl=CANONICAL, auxiliaries=("momentum",))
    varying = sc.SGRLD(1e-3, lambda p: jax.tree.map(lambda v: 1.0 + v**2, p))
    for name, recipe in (("constant", constant), ("varying", varying)):
        whole = sc.sample(*arguments, sampler=recipe, num_samples=20, **options)
        sc.sample(*arguments, sampler=recipe, num_samples=8, store=tmp_path / name, **options)
        again = {"sampler": recipe} if name == "varying" else {}
        if again:
            with pytest.raises(InvalidTypeError, match="pass sampler="):
                sc.resume(tmp_path / name, *arguments[:2], num_samples=20, progress=False)
        done = sc.resume(tmp_path / name, *arguments[:2], num_samples=20, progress=False, **again)
        helpers.assert_equal(jax.tree.map(np.asarray, done.draws), whole.draws)
