"""The law of recipes: exact stationary laws of the discretised chains by quadrature, and samples against the target."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scirocco as sc
from law import laws
from scirocco.samplers import Gradient

pytestmark = pytest.mark.law

GRID = np.linspace(-7.0, 7.0, 351)
"""Its spacing is a third of the shortest step's deviation: sums over it are integrals to 1e-70."""


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of a thousand steps."""


def metric(theta):
    return 1.0 / (1.0 + 0.5 * theta**2) + 0.25


def log_density(theta):
    return -(theta**2) / 2


def stationary_moment(recipe, eps):
    """E θ² under the exact stationary law of θ' ~ N(θ + ε drift, 2εD): the kernel on a grid, iterated.

    The drift and D are the recipe's own.
    """

    @jax.jit
    @jax.vmap
    def drift_and_level(theta):
        drift = recipe.drift({"position": theta}, jax.grad(log_density)(theta), "position")
        return drift, recipe.diffusion_blocks({"position": theta})["position"].value

    z, level = drift_and_level(jnp.asarray(GRID))
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


@partial(jax.jit, static_argnums=(0, 1))
def _ends(num_chains, num_steps, recipe, key):
    def chain(key):
        key, begin = jax.random.split(key)
        state = recipe.init(jnp.asarray(0.0), begin)

        def one(state, number):
            noise = recipe.noise(jax.random.fold_in(key, number), state.position)
            gradient = Gradient(jax.grad(log_density)(state.position))
            return recipe.step(state, gradient, noise, number), None

        return jax.lax.scan(one, state, jnp.arange(num_steps))[0].position

    return jax.vmap(chain)(jax.random.split(key, num_chains))


def simulate(recipe, num_chains, num_steps, seed):
    """Positions of many independent chains at the end, with exact gradients."""
    return np.asarray(_ends(num_chains, num_steps, recipe, jax.random.key(seed)), np.float64)


CHAINS = 4_000
CLOSE = 2.7 / np.sqrt(CHAINS)
"""KS distance that exact draws exceed with probability 1e-6."""


def root(theta):
    return 0.25 + 2.0 / (1.0 + theta**2)


RIEMANNIAN = sc.SGRHMC(0.005, root)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.5}, {"resample_every": 200}], ids=["", "cold", "resampled"])
def test_generalised_riemannian_dynamics_hit_the_target(options, seed):
    """KS of independent chains against the exact law; the discretisation error is far below its resolution."""
    recipe = dataclasses.replace(RIEMANNIAN, **options)
    draws = simulate(recipe, CHAINS, 1_400, seed)
    scale = options.get("temperature", 1.0) ** 0.5
    assert stats.kstest(draws, stats.norm(scale=scale).cdf).statistic < CLOSE


def test_the_naive_variant_misses_it(seed):
    """Its law is exp(-U)/G^(-1/2), at a distance of 0.091, which is seen with an error of at most ½/√n."""
    recipe = sc.SGRHMC(0.005, root, gamma="naive")
    draws = simulate(recipe, CHAINS, 1_400, seed)
    assert CLOSE < 0.091 - 5 * 0.5 / np.sqrt(CHAINS) < stats.kstest(draws, stats.norm.cdf).statistic


def test_hamiltonian_dynamics_alone_hit_the_target(seed):
    """With few steps between refreshes, where a whole kick after each would leave 5/6 of the variance."""
    draws = simulate(sc.HMCDynamics(0.2, resample_every=5), CHAINS, 200, seed)
    assert stats.kstest(draws, stats.norm.cdf).statistic < CLOSE
    z = (draws.var() - 1 / (1 - 0.2**2 / 4)) / np.sqrt(2 / CHAINS)  # leapfrog's own variance
    assert abs(z) < 5


# -- the noise of the estimate -----------------------------------------------------------------------------------------


@pytest.mark.rotates(2)
@pytest.mark.parametrize("name", ["SGLD", "SGHMC"])
def test_taking_the_noise_out_brings_the_variance_home(name, seed):
    """N = 1,000 Gaussian rows, batches of 10 at a step where their noise would add half: corrected it is gone.

    What it would add is known from the linear recursions. A draw remembers about 200 steps, so that 256 chains of 1,500
    know their variance to 3.3 %: a third of what would be added is five errors.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(1_000).astype(np.float32)
    noise = float(1_000.0**2 / 10 * x.var())
    if name == "SGLD":
        eps = 1.0 / noise
        sampler = sc.Recipe(eps, diffusion=1.0, correct_noise="diagonal")
        exact, plain = (laws.sgld_variance(eps, 1_000.0, level) for level in (0.0, noise))
    else:
        eps, friction = 2e-3, 2e-3 * noise
        sampler = sc.Recipe(
            eps,
            diffusion={"momentum": friction},
            curl={("position", "momentum"): -1.0},
            auxiliaries=("momentum",),
            correct_noise="diagonal",
        )
        exact, plain = (laws.sghmc_variance(eps, friction, 1_000.0, level) for level in (0.0, noise))
    run = sc.sample(
        sc.Model(laws.log_likelihood),
        x,
        jnp.array(x.mean()),
        sampler=sampler,
        estimator=sc.Minibatch(10, sampling="with_replacement"),
        num_samples=1_500,
        num_burnin=600,
        num_chains=256,
        chain_method="vmap",
        seed=seed,
        progress=False,
    )
    off = plain / exact - 1
    _, seconds = laws.moments(run.draws, float(x.astype(np.float64).mean()))
    assert off > 0.45
    assert abs(seconds.mean() / exact - 1) < off / 3, (seconds.mean() / exact, off)
