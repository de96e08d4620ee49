"""Every sampler's stationary mean and variance, as the discretised minibatch chain has them, not as the limit does.

The chains are independent, so the z-score of the average over chains is standard normal when the law is right.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from law import laws
from scirocco.data.batching import Blocks
from scirocco.samplers import scales

pytestmark = pytest.mark.law

CHAINS = 64
EPS_LANGEVIN = 0.01  # ελ = 0.62: the discretisation shows
EPS = 0.04  # ε√λ = 0.31
FRICTION = 6.0


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of a few thousand steps on 64 numbers."""


def run_chains(seed, sampler, estimator, num_samples=2_000, num_burnin=600, thin=1):
    x, mean, precision = laws.gaussian_problem(seed)
    run = sc.sample(
        laws.MODEL,
        x,
        jnp.array(mean, jnp.float32),
        sampler=sampler,
        estimator=estimator,
        num_samples=num_samples,
        num_burnin=num_burnin,
        thin=thin,
        num_chains=CHAINS,
        seed=seed,
        chain_method="vmap",
        progress=False,
    )
    return run, x, mean, precision


def assert_law(draws, mean, variance):
    means, seconds = laws.moments(draws, mean)
    assert abs(laws.z_score(means, mean)) < 5
    assert abs(laws.z_score(seconds, variance)) < 5


@pytest.mark.rotates(2)
@pytest.mark.parametrize("sampling", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_sgld(seed, sampling, temperature):
    sampler = sc.SGLD(EPS_LANGEVIN, temperature=temperature)
    run, x, mean, precision = run_chains(seed, sampler, sc.Minibatch(laws.BATCH, sampling))
    noise = laws.gradient_noise(x, sampling)
    assert_law(run.draws, mean, laws.sgld_variance(EPS_LANGEVIN, precision, noise, temperature))


def test_sgld_with_the_full_gradient(seed):
    run, _, mean, precision = run_chains(seed, sc.SGLD(EPS_LANGEVIN), sc.Full())
    assert_law(run.draws, mean, laws.sgld_variance(EPS_LANGEVIN, precision, 0.0))


def test_sgld_with_blocks_has_the_law_of_reshuffled_epochs(seed):
    """Exact law given the one shuffle of the rows; a clear distance from that of independent batches."""
    run, x, mean, precision = run_chains(seed, sc.SGLD(EPS_LANGEVIN), sc.Minibatch(laws.BATCH))
    arranged = Blocks(laws.NUM_ROWS, laws.BATCH).arrange(x, seed)[: laws.NUM_ROWS]
    expected = laws.blocks_variance(EPS_LANGEVIN, precision, arranged)
    assert_law(run.draws, mean, expected)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("eps", [0.002, EPS_LANGEVIN])
def test_sgld_with_saga(seed, eps):
    """Rows must be drawn whatever the table remembers of them: those left of an epoch would be the stalest."""
    run, _, mean, precision = run_chains(seed, sc.SGLD(eps), sc.SAGA(laws.BATCH), thin=4)
    assert_law(run.draws, mean, laws.saga_variance(eps, precision))


def test_sgld_with_importance_weights(seed):
    x, mean, precision = laws.gaussian_problem(seed)
    p = np.abs(x - mean) + 0.5
    p = p / p.sum()
    run, *_ = run_chains(seed, sc.SGLD(EPS_LANGEVIN), sc.Weighted(laws.BATCH, p))
    # g_i = x_i - θ, estimate Σ g_i / (n p_i): its variance (Σ g_i²/p_i - (Σ g_i)²) / n is a quadratic in θ, and
    # the linear term drops out of the second moment because E[θ] is the posterior mean
    g = x.astype(np.float64) - mean
    at_mean = (np.sum(g**2 / p) - g.sum() ** 2) / laws.BATCH
    curve = (np.sum(1 / p) - laws.NUM_ROWS**2) / laws.BATCH
    eps = EPS_LANGEVIN
    variance = (2 * eps + eps**2 * at_mean) / (1 - (1 - eps * precision) ** 2 - eps**2 * curve)
    assert_law(run.draws, mean, variance)


def test_sgld_with_control_variates_on_rows_of_unequal_weight(seed):
    """Rows -½ τ_i (x_i - θ)²: the CV error is multiplicative, (θ̂ - θ) times the error of the batch's Σ τ_i."""
    rng = np.random.default_rng([seed, 11])
    tau, x = rng.exponential(1.0, laws.NUM_ROWS), rng.normal(1.0, 2.0, laws.NUM_ROWS)
    data = {"tau": tau.astype(np.float32), "x": x.astype(np.float32)}
    tau, x = data["tau"].astype(np.float64), data["x"].astype(np.float64)
    model = sc.Model(lambda theta, d: -0.5 * d["tau"] * (d["x"] - theta) ** 2)
    mode, precision, eps = float((tau * x).sum() / tau.sum()), tau.sum(), 0.008
    run = sc.sample(
        model,
        data,
        jnp.array(0.0),
        sampler=sc.SGLD(eps),
        estimator=sc.ControlVariates(laws.BATCH, centre=jnp.array(mode), sampling="with_replacement"),
        num_samples=2_000,
        num_burnin=600,
        num_chains=CHAINS,
        seed=seed,
        chain_method="vmap",
        progress=False,
    )
    spread = laws.NUM_ROWS**2 / laws.BATCH * tau.var()
    variance = 2 * eps / (1 - (1 - eps * precision) ** 2 - eps**2 * spread)
    assert_law(run.draws, mode, variance)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_sghmc(seed, temperature):
    sampler = sc.SGHMC(EPS, friction=FRICTION, gradient_noise=0.0, temperature=temperature)
    run, x, mean, precision = run_chains(seed, sampler, sc.Minibatch(laws.BATCH, "with_replacement"))
    noise = laws.gradient_noise(x, "with_replacement")
    assert_law(run.draws, mean, laws.sghmc_variance(EPS, FRICTION, precision, noise, temperature))


def test_sghmc_takes_known_gradient_noise_out(seed):
    x, mean, precision = laws.gaussian_problem(seed)
    noise = laws.gradient_noise(x, "with_replacement")
    friction = 20.0
    eps = 1.4 * friction / noise  # the gradient noise makes up 70 % of what the friction asks for
    sampler = sc.SGHMC(eps, friction=friction, gradient_noise=noise)
    run, *_ = run_chains(seed, sampler, sc.Minibatch(laws.BATCH, "with_replacement"), num_burnin=2_000, thin=3)
    assert_law(run.draws, mean, laws.sghmc_variance(eps, friction, precision, 0.0))


def test_sghmc_in_rs_form_with_fresh_momenta(seed):
    """R's form refreshes the momentum every L steps; draws are taken when the refresh is due."""
    eta, alpha, length = EPS**2, 0.2, 5
    run, _, mean, precision = run_chains(seed, sc.SGHMC.from_r(eta, alpha, length), sc.Full(), thin=length)
    a = 1 - alpha
    kick = 2 * alpha * np.array([[EPS], [1.0]]) @ np.array([[EPS, 1.0]])
    variance = 1 / precision
    for _ in range(200):  # momentum N(0, 1) afresh, then L linear steps: iterate the second moments to their limit
        moments = np.diag([variance, 1.0])
        for inner in range(length):
            push = (0.5 if inner == 0 else 1.0) * EPS * precision  # half a kick after a refresh
            step = np.array([[1 - EPS * push, EPS * a], [-push, a]])
            moments = step @ moments @ step.T + kick
        variance = moments[0, 0]
    assert abs(variance * precision - 1) < 0.03  # the refresh costs no variance; with a whole kick 15 % would be lost
    assert_law(run.draws, mean, variance)


@pytest.mark.parametrize("estimator", [sc.Full(), sc.Minibatch(laws.BATCH, "with_replacement")], ids=["full", "batch"])
def test_baoab(seed, estimator):
    sampler = sc.BAOAB(EPS, friction=FRICTION)
    run, x, mean, precision = run_chains(seed, sampler, estimator)
    noise = 0.0 if isinstance(estimator, sc.Full) else laws.gradient_noise(x, "with_replacement")
    variance = laws.baoab_variance(EPS, FRICTION, precision, noise)
    assert_law(run.draws, mean, variance)
    if isinstance(estimator, sc.Full):
        assert variance == pytest.approx(1 / precision)  # BAOAB is exact on Gaussians at any step


def test_heat_that_is_known_is_taken_out(seed):
    """The noise of the gradients would inflate the variance; with as much less injected it is that of the posterior."""
    estimator = sc.Minibatch(laws.BATCH, "with_replacement")
    x, _, precision = laws.gaussian_problem(seed)
    noise = laws.gradient_noise(x, "with_replacement")
    setting = 0.01, 30.0
    heating = precision * laws.baoab_variance(*setting, precision, noise) - 1
    run, _, mean, precision = run_chains(seed, sc.BAOAB(*setting, heating=heating), estimator)
    assert 0.1 < heating < 0.9
    assert_law(run.draws, mean, 1 / precision)


@pytest.mark.parametrize("setting", [(0.2, 1.0), (0.8, 2.0), (1.5, 0.5)], ids=str)
def test_what_is_foreseen_is_the_law(setting):
    found = scales.predict(*map(np.array, setting))
    assert 1 + found.gain == pytest.approx(laws.baoab_variance(*setting, 1.0, 1.0))


def test_the_foreseen_time_is_that_of_the_autocorrelation():
    """Overdamped with a short step it is Langevin dynamics with step ε²/2 · 2/(εC) = ε/C: 2C/ε steps for a draw."""
    assert scales.predict(np.array(0.1), np.array(5.0)).time == pytest.approx(2 * 5 / 0.1, rel=0.05)
    assert scales.best_setting(1.0, 0.0).time < scales.best_setting(1.0, 1.0).time < scales.best_setting(1.0, 10.0).time
    assert scales.best_setting(1.0, 10.0).gain * 10.0 <= scales.MOST_HEATING


def test_psgld_with_a_frozen_preconditioner(seed):
    """decay = 1 keeps v = 1, so G = 1/(1 + δ) and the chain is SGLD with step εG."""
    damping = 0.5
    step = EPS_LANGEVIN * (1 + damping)
    sampler = sc.PSGLD(step, decay=1.0, damping=damping)
    run, x, mean, precision = run_chains(seed, sampler, sc.Minibatch(laws.BATCH, "with_replacement"))
    noise = laws.gradient_noise(x, "with_replacement")
    assert_law(run.draws, mean, laws.sgld_variance(EPS_LANGEVIN, precision, noise))


@pytest.mark.parametrize("name", ["SGLD", "SGHMC"])
def test_preconditioned_by_the_measured_curvature(seed, name):
    """With L = λ^(-1/2), measured before the run, u has curvature 1 and noise V/λ; θ has 1/λ times its variance."""
    inner = sc.SGLD(0.6) if name == "SGLD" else sc.SGHMC(0.3, friction=0.8, gradient_noise=0.0)
    sampler = sc.Preconditioned(inner)
    run, x, mean, precision = run_chains(seed, sampler, sc.Minibatch(laws.BATCH, "with_replacement"))
    noise = laws.gradient_noise(x, "with_replacement") / precision
    whitened = laws.sgld_variance(0.6, 1.0, noise) if name == "SGLD" else laws.sghmc_variance(0.3, 0.8, 1.0, noise)
    assert_law(run.draws, mean, whitened / precision)


@pytest.mark.parametrize(("kind", "thermostat"), [(sc.SGNHT, "scalar"), (sc.BADODAB, "elementwise")])
def test_thermostats_absorb_gradient_noise(seed, kind, thermostat):
    """Here ε²λ/4 and ε²V/2, the errors of the discretisation, are below 1 %; to SGHMC the noise would add 30 %."""
    x, mean, precision = laws.gaussian_problem(seed)
    noise = laws.gradient_noise(x, "with_replacement")  # by the variance of sixty rows
    eps = 0.002
    diffusion = eps * noise / (2 * 0.3)
    sampler = kind(eps, diffusion=diffusion, thermostat=thermostat)
    run, *_ = run_chains(
        seed, sampler, sc.Minibatch(laws.BATCH, "with_replacement"), num_samples=3_000, num_burnin=4_000, thin=10
    )
    assert_law(run.draws, mean, 1 / precision)


def test_momentum_first_is_right_where_position_first_is_a_quarter_off(seed):
    """The step and friction at which the common order of the two updates inflates the variance by 20-25 %."""
    _, _, precision = laws.gaussian_problem(seed)
    eps, friction = 0.2 / np.sqrt(precision), np.sqrt(precision)
    assert laws.sghmc_variance_position_first(eps, friction, precision) * precision > 1.2
    ours = laws.sghmc_variance(eps, friction, precision, 0.0)
    assert abs(ours * precision - 1) < 0.02
    sampler = sc.SGHMC(eps, friction=friction, gradient_noise=0.0)
    run, _, mean, _ = run_chains(seed, sampler, sc.Full())
    assert_law(run.draws, mean, ours)
    _, seconds = laws.moments(run.draws, mean)
    assert abs(seconds.mean() * precision - 1) < 0.02 + 5 * seconds.std() * precision / np.sqrt(CHAINS)
