"""The law of recipes: exact stationary laws of the discretised chains by quadrature, and samples against the target."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scirocco as sc
from scirocco.samplers import Gradient

pytestmark = pytest.mark.law

GRID = np.linspace(-7.0, 7.0, 1_401)


def metric(theta):
    return 1.0 / (1.0 + 0.5 * theta**2) + 0.25


def log_density(theta):
    return -(theta**2) / 2


def stationary_moment(recipe, eps):
    """E θ² under the exact stationary law of θ' ~ N(θ + ε drift, 2εD): the kernel on a grid, iterated.

    The drift and D are the recipe's own.
    """
    slope = jax.vmap(jax.grad(log_density))(jnp.asarray(GRID))
    z = jax.vmap(lambda theta, g: recipe.drift({"position": theta}, g, "position"))(jnp.asarray(GRID), slope)
    level = jax.vmap(lambda theta: recipe.diffusion_blocks({"position": theta})["position"].value)(
        jnp.asarray(GRID)
    )
    mean = GRID + eps * np.asarray(z, np.float64)
    deviation = np.sqrt(2 * eps * np.asarray(level, np.float64))
    kernel = stats.norm.pdf(GRID[None, :], mean[:, None], deviation[:, None])
    kernel /= kernel.sum(axis=1, keepdims=True)
    law = np.exp(-(GRID**2) / 2)
    law /= law.sum()
    for _ in range(12):  # K, K², K⁴, ...: 4,096 steps
        kernel = kernel @ kernel
    law = law @ kernel
    return float(law @ GRID**2)


EPSILONS = (0.4, 0.2, 0.1, 0.05)


def test_the_weak_error_is_of_first_order():
    recipe = sc.SGRLD(0.1, metric)
    errors = [abs(stationary_moment(recipe, eps) - 1.0) for eps in EPSILONS]
    slope = np.polyfit(np.log(EPSILONS), np.log(errors), 1)[0]
    assert abs(slope - 1.0) < 0.25, (slope, errors)
    assert errors[-1] < 0.05


@pytest.mark.parametrize(
    ("gamma", "wrong"), [("naive", True), (lambda z: -jax.grad(metric)(z["position"]), True), (None, False)]
)
def test_without_gamma_or_with_its_sign_flipped_the_law_is_wrong_at_any_step(gamma, wrong):
    recipe = sc.Recipe(0.1, diffusion=lambda z: metric(z["position"]), gamma=gamma)
    error = abs(stationary_moment(recipe, 0.02) - 1.0)
    assert (error > 0.2) == wrong, error
    assert sc.verify_recipe(recipe, [jnp.array(0.7), jnp.array(-1.5)]).ok != wrong


# -- samples against the target ----------------------------------------------------------------------------------------


def simulate(recipe, slope, num_chains, num_steps, seed, start=0.0):
    """Positions of many independent chains at the end, with exact gradients."""

    @jax.jit
    def run(key):
        def chain(key):
            key, begin = jax.random.split(key)
            state = recipe.init(jnp.asarray(start), begin)

            def one(state, number):
                noise = recipe.noise(jax.random.fold_in(key, number), state.position)
                return recipe.step(state, Gradient(slope(state.position)), noise, number), None

            return jax.lax.scan(one, state, jnp.arange(num_steps))[0].position

        return jax.vmap(chain)(jax.random.split(key, num_chains))

    return np.asarray(run(jax.random.key(seed)), np.float64)


CHAINS = 8_000
CLOSE = 2.7 / np.sqrt(CHAINS)
"""KS distance that exact draws exceed with probability 1e-6."""


def root(theta):
    return 0.25 + 2.0 / (1.0 + theta**2)


@pytest.mark.parametrize(
    "options", [{}, {"resample_every": 200}, {"temperature": 0.5}], ids=["", "resampled", "cold"]
)
def test_generalised_riemannian_dynamics_hit_the_target(options, seed):
    """KS of independent chains against the exact law; the discretisation error is far below its resolution."""
    recipe = sc.SGRHMC(0.005, root, **options)
    draws = simulate(recipe, jax.grad(log_density), CHAINS, 1_400, seed)
    scale = options.get("temperature", 1.0) ** 0.5
    assert stats.kstest(draws, stats.norm(scale=scale).cdf).statistic < CLOSE


def test_the_naive_variant_misses_it(seed):
    """Its law is exp(-U)/G^(-1/2), at a distance of 0.091; 0.06 is more than five standard deviations below that."""
    recipe = sc.SGRHMC(0.005, root, gamma="naive")
    draws = simulate(recipe, jax.grad(log_density), CHAINS, 1_400, seed)
    assert stats.kstest(draws, stats.norm.cdf).statistic > 0.06


def test_hamiltonian_dynamics_alone_hit_the_target(seed):
    """With few steps between refreshes, where a whole kick after each would leave 5/6 of the variance."""
    draws = simulate(sc.HMCDynamics(0.2, resample_every=5), jax.grad(log_density), CHAINS, 200, seed)
    assert stats.kstest(draws, stats.norm.cdf).statistic < CLOSE
    z = (draws.var() - 1 / (1 - 0.2**2 / 4)) / np.sqrt(2 / CHAINS)  # leapfrog's own variance
    assert abs(z) < 5


# -- the noise of the estimate -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SGLD", "SGHMC"])
def test_taking_the_noise_out_brings_the_variance_home(name, seed):
    """N = 1,000 Gaussian rows, batches of 10 at a step where their noise adds half: corrected it is closer by far."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(1_000).astype(np.float32)
    model = sc.Model(lambda mu, row: -0.5 * (row - mu) ** 2)
    noise = 1_000.0**2 / 10 * x.var()
    ratios = []
    for kind in ("none", "diagonal"):
        if name == "SGLD":
            sampler = sc.Recipe(1.0 / noise, diffusion=1.0, correct_noise=kind)
            exact = 1.0 / (1 - 0.5 * 1_000.0 / noise) / 1_000.0
        else:
            sampler = sc.Recipe(
                2e-3,
                diffusion={"momentum": 2e-3 * noise},
                curl={("position", "momentum"): -1.0},
                auxiliaries=("momentum",),
                correct_noise=kind,
            )
            exact = 1e-3
        run = sc.sample(
            model,
            x,
            jnp.array(x.mean()),
            sampler=sampler,
            estimator=sc.Minibatch(10, sampling="with_replacement"),
            num_samples=4_000,
            num_burnin=1_000,
            num_chains=16,
            seed=seed,
            progress=False,
        )
        ratios.append(float(run.draws.astype(np.float64).var(axis=1).mean() / exact))
    off, on = abs(ratios[0] - 1), abs(ratios[1] - 1)
    assert off > 0.2
    assert on < off / 3, ratios
