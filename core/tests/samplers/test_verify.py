"""`verify_recipe` tells right recipes from wrong ones, and says why."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError

pytestmark = pytest.mark.compile

POINTS = [jnp.array([0.3, -1.0]), jnp.array([2.0, 0.5]), jnp.array([-0.7, 0.1])]


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of one step."""


def metric(theta):
    return 1.0 + theta**2


def shared(theta):
    return 1.0 / (1.0 + 0.3 * jnp.sum(theta**2))


def dense(theta):
    root = jnp.array([[1.0, 0.3 * theta[0]], [0.3 * theta[0], 2.0 + jnp.sin(theta[1])]])
    return root @ root


def thermostat(share):
    return sc.Recipe(
        0.1,
        diffusion={"momentum": 2.0},
        curl=lambda z: {("position", "momentum"): -1.0, ("momentum", "thermostat"): z["momentum"] / share},
        auxiliaries={"momentum": "normal", "thermostat": 2.0},
        hamiltonian=lambda z: 0.5 * jnp.sum(z["momentum"] ** 2) + 1.0 * (z["thermostat"] - 2.0) ** 2,
    )


def rotating(z):
    strength = jnp.sin(z["position"][0])
    return jnp.array([[0.0, 1.0], [-1.0, 0.0]]) * strength


RIGHT = {
    "SGLD": sc.Recipe(0.1, diffusion=1.0),
    "SGRLD diagonal": sc.SGRLD(0.1, metric),
    "SGRLD scalar": sc.SGRLD(0.1, shared),
    "SGRLD dense": sc.SGRLD(0.1, dense),
    "SGRLD low rank": sc.SGRLD(0.1, lambda t: sc.LowRank(1.0, jnp.stack([t, jnp.sin(t)], axis=1))),
    "SGRLD cold": sc.SGRLD(0.1, metric, temperature=0.3),
    "curl without diffusion": sc.Recipe(0.1, curl=rotating),
    "curl and diffusion": sc.Recipe(0.1, diffusion=lambda z: metric(z["position"]), curl=rotating),
    "SGRHMC diagonal": sc.SGRHMC(0.1, lambda t: 1.0 / metric(t)),
    "SGRHMC scalar": sc.SGRHMC(0.1, shared),
    "SGRHMC dense": sc.SGRHMC(0.1, dense),
    "HMC": sc.HMCDynamics(0.1),
    "SGFS": sc.SGFS(0.1, jnp.array([[2.0, 0.5], [0.5, 1.0]])),
    "thermostat": thermostat(2.0),
    "thermostat with another coupling": thermostat(5.0),
}


@pytest.mark.rotates(3)
@pytest.mark.parametrize("name", RIGHT)
def test_right_recipes(name, seed):
    found = sc.verify_recipe(RIGHT[name], POINTS, seed=seed)
    assert found.ok, str(found)
    assert found.residual < 1e-4
    assert "correct recipe" in str(found)


WRONG = {
    "naive SGRLD": (sc.SGRLD(0.1, metric, gamma="naive"), "Γ is missing"),
    "naive SGRHMC": (sc.SGRHMC(0.1, lambda t: 1.0 / metric(t), gamma="naive"), "Γ is missing"),
    "sign": (sc.SGRLD(0.1, metric, gamma=lambda z: -2 * z["position"]), "wrong sign"),
    "half": (sc.SGRLD(0.1, metric, gamma=lambda z: z["position"]), r"Γ is wrong: entry \d"),
    "Q": (sc.Recipe(0.1, diffusion=1.0, curl=jnp.array([[0.0, 1.0], [1.0, 0.0]])), r"Q\[0,1\] \+ Q\[1,0\] = 2\."),
    "D": (sc.Recipe(0.1, diffusion=-0.5), "smallest eigenvalue is -0.5"),
    "D asymmetric": (sc.Recipe(0.1, diffusion=jnp.array([[1.0, 1.0], [0.0, 1.0]])), "D is not symmetric"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_recipes(name, seed):
    recipe, message = WRONG[name]
    found = sc.verify_recipe(recipe, POINTS, seed=seed)
    assert not found.ok
    assert re.search(message, str(found)), str(found)


def test_any_smooth_density_tells_the_same():
    def log_density(theta):
        return -jnp.sum(theta**4) + jnp.cos(theta[0] * theta[1])

    assert sc.verify_recipe(RIGHT["SGRHMC dense"], POINTS, log_density).ok
    assert not sc.verify_recipe(WRONG["naive SGRLD"][0], POINTS, log_density).ok


def test_parameters_of_any_structure():
    points = [{"a": jnp.array([0.1, 0.5]), "b": jnp.array(1.0)}]
    recipe = sc.SGRHMC(0.1, lambda p: jax.tree.map(lambda v: 1.0 / (1.0 + v**2), p))
    assert sc.verify_recipe(recipe, points).ok


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((sc.SGLD(0.1), POINTS), InvalidTypeError, "requires a sc.Recipe"),
        ((RIGHT["SGLD"], []), InvalidTypeError, "list of points"),
        ((RIGHT["SGLD"], {"a": 1.0}), InvalidTypeError, "list of points"),
        ((RIGHT["SGLD"], [jnp.zeros(100)]), InvalidValueError, "100 numbers"),
    ],
)
def test_what_cannot_be_looked_at(arguments, error, message):
    with pytest.raises(error, match=message):
        sc.verify_recipe(*arguments)


# -- from a drift to a recipe (theorem 2) ------------------------------------------------------------------------------


def bent(z):
    """A log density that is not Gaussian."""
    return -(z[0] ** 4 / 4 + z[1] ** 2 / 2 + 0.3 * jnp.sin(z[0] * z[1]))


def diffusion(z):
    return jnp.array([[1 + 0.5 * z[0] ** 2, 0.2], [0.2, 1.0]])


def turning(z):
    return (1.0 + z[0] * z[1]) * jnp.array([[0.0, 1.0], [-1.0, 0.0]])


def drift(z):
    def both(z):
        return diffusion(z) + turning(z)

    return both(z) @ jax.grad(bent)(z) + jnp.einsum("ijj->i", jax.jacfwd(both)(z))


def test_curl_is_found_from_the_drift():
    """Q of a process that was made from one."""
    points = [jnp.array(point) for point in ([0.5, -1.0], [1.2, 0.3], [-0.7, 0.8], [0.25, 0.0])]
    recipe = sc.Recipe.from_drift(drift, diffusion, bent, points)
    found = jax.jit(jax.vmap(lambda point: recipe.curl_blocks({"position": point})["position", "position"].value))
    np.testing.assert_allclose(found(jnp.stack(points)), [turning(point) for point in points], atol=1e-4)
    with pytest.raises(InvalidValueError, match="does not have this stationary density"):
        sc.Recipe.from_drift(lambda z: drift(z) + 0.1 * z, diffusion, bent, points)


def test_in_one_dimension_the_drift_is_determined():
    points = [jnp.array([0.3]), jnp.array([-2.0])]
    with_gamma = lambda z: -z * (1 + z**2) + 2 * z  # noqa: E731
    recipe = sc.Recipe.from_drift(with_gamma, lambda z: 1 + z**2, lambda z: -0.5 * z @ z, points)
    assert recipe.curl_blocks({"position": points[0]}) == {}
    with pytest.raises(InvalidValueError, match="∇·D"):
        sc.Recipe.from_drift(lambda z: -z * (1 + z**2), lambda z: 1 + z**2, lambda z: -0.5 * z @ z, points)
    with pytest.raises(InvalidTypeError, match="one and two dimensions"):
        sc.Recipe.from_drift(lambda z: -z, 1.0, lambda z: -0.5 * z @ z, [jnp.zeros(3)])


def test_any_drift_in_four_dimensions(seed):
    """-(D + Q)∇H of a correlated normal density keeps it; a drift that is 2 % longer, or another D, does not."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.standard_normal((3, 4, 4)) / 2
    precision, diffusion, curl = a @ a.T + np.eye(4), b @ b.T + np.eye(4), c - c.T
    points = [jnp.asarray(rng.standard_normal(4)) for _ in range(3)]

    def log_density(z):
        return -0.5 * z @ precision @ z

    def drift(z):
        return -(diffusion + curl) @ precision @ z

    found = sc.verify_recipe(drift, points, log_density, diffusion=diffusion)
    assert found.ok and found.residual < 1e-4
    wrong = sc.verify_recipe(lambda z: 1.02 * drift(z), points, log_density, diffusion=diffusion)
    assert not wrong.ok and "leaks" in wrong.problems[0]
    assert "semidefinite" in sc.verify_recipe(drift, points, log_density, diffusion=-diffusion).problems[0]
    with pytest.raises(InvalidTypeError, match="which density it should have"):
        sc.verify_recipe(drift, points)
