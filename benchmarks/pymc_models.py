"""Models as PyMC and bambi users write them: from_pymc against PyMC itself.

python benchmarks/pymc_models.py density             # log densities in double precision, relative difference
python benchmarks/pymc_models.py posterior           # posterior means of sc.sample and pm.sample, in posterior sds
python benchmarks/pymc_models.py speed --rows 1000000
python benchmarks/pymc_models.py density --only linear rugby

Requires pymc, and bambi for two of the models (skipped without it). `speed` builds a regression, converts, samples and
summarises it. The time of pm.sample is extrapolated: CPU seconds of a gradient on all rows, times the gradients that an
iteration needs on a hundredth of the rows, times the iterations of its defaults. Warm-up iterations are taken to cost
as much as draws, which favours it.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

N = 240
MODELS: dict[str, Callable[[], Any]] = {}
GROUPED: dict[str, Callable[[], Any]] = {}
"""Models with a variable for each row or group, which from_pymc integrates out."""
COUNTIES = [f"county {i}" for i in range(25)]
Builder = Callable[[np.random.Generator], Any]


def model(kind: dict[str, Callable[[], Any]] = MODELS, coords: Any = None) -> Callable[[Builder], Builder]:
    """The function defines the variables of a PyMC model, or returns a bambi model."""

    def register(function: Builder) -> Builder:
        def build() -> Any:
            with pm.Model(coords=coords) as found:
                other = function(np.random.default_rng(7))
            return found if other is None else other

        kind[function.__name__] = build
        return function

    return register


def _ordered(name: str, scale: float, start: list[float]) -> Any:
    ordered = pm.distributions.transforms.ordered
    return pm.Normal(name, 0.0, scale, shape=len(start), transform=ordered, initval=np.array(start))


def _correlated(num_groups: int) -> Any:
    """Intercepts and slopes of groups, (group, 2), with an LKJ prior, non-centred."""
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0, shape=2))
    mean, z = pm.Normal("mean", 0.0, 2.0, shape=2), pm.Normal("z", 0.0, 1.0, shape=(2, num_groups))
    return pm.Deterministic("ab", (mean[:, None] + pt.dot(chol, z)).T)


@model(coords={"predictor": ["age", "income", "height"]})
def linear(rng):
    """Named data and dims."""
    X = rng.normal(size=(N, 3))
    y = 1.0 + X @ [1.0, -2.0, 0.5] + rng.normal(size=N)
    X = pm.Data("X", X)
    intercept = pm.Normal("intercept", 0.0, 10.0)
    beta = pm.Normal("beta", 0.0, 2.0, dims="predictor")
    sigma = pm.HalfNormal("sigma", 1.0)
    mu = pm.Deterministic("mu", intercept + X @ beta)
    pm.Deterministic("doubled", 2.0 * beta, dims="predictor")
    pm.Normal("y", mu, sigma, observed=y)


@model()
def standardised(rng):
    """The data are scaled inside the model, and stand on the second axis."""
    x = 5.0 + 3.0 * rng.normal(size=(2, N))
    y = x[0] - x[1] + rng.normal(size=N)
    x = pm.Data("x", x)
    z = (x - x.mean(axis=1)[:, None]) / x.std(axis=1)[:, None]
    beta = pm.Normal("beta", 0.0, 5.0, shape=2)
    sigma = pm.Exponential("sigma", 1.0)
    pm.Normal("y", beta @ z, sigma, observed=pm.Data("y_seen", y))


@model()
def robust(rng):
    x = rng.normal(size=N)
    y = 1.0 + 2.0 * x + 0.5 * rng.standard_t(3, size=N)
    a, b = pm.Normal("a", 0.0, 20.0), pm.Normal("b", 0.0, 20.0)
    sigma, nu = pm.HalfCauchy("sigma", 10.0), pm.Gamma("nu", 2.0, 0.1)
    pm.StudentT("y", mu=a + b * x, sigma=sigma, nu=nu, observed=y)


@model()
def logistic(rng):
    X = rng.normal(size=(N, 4))
    y = rng.random(N) < 1.0 / (1.0 + np.exp(-X @ [1.0, -1.0, 0.5, 0.0]))
    a, beta = pm.Normal("a", 0.0, 2.0), pm.Normal("beta", 0.0, 1.0, shape=4)
    pm.Bernoulli("y", logit_p=a + pm.math.dot(X, beta), observed=y.astype(int))


@model()
def poisson(rng):
    x, exposure = rng.normal(size=N), rng.uniform(0.5, 3.0, size=N)
    y = rng.poisson(exposure * np.exp(0.5 + 0.4 * x))
    a, b = pm.Normal("a", 0.0, 1.0), pm.Normal("b", 0.0, 1.0)
    pm.Poisson("y", mu=exposure * pm.math.exp(a + b * x), observed=y)


@model()
def negative_binomial(rng):
    x = rng.normal(size=N)
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(1.0 + 0.5 * x)))
    b = pm.Normal("b", 0.0, 1.0, shape=2)
    alpha = pm.Exponential("alpha", 0.5)
    pm.NegativeBinomial("y", mu=pt.exp(b[0] + b[1] * x), alpha=alpha, observed=y)


@model(coords={"county": [f"county {i}" for i in range(12)]})
def varying_intercepts(rng):
    """Radon: non-centred county effects, a slope for the floor."""
    county, floor = rng.integers(0, 12, N), rng.integers(0, 2, N)
    y = 1.3 + 0.4 * rng.normal(size=12)[county] - 0.6 * floor + 0.7 * rng.normal(size=N)
    mean, spread = pm.Normal("mean", 0.0, 5.0), pm.HalfNormal("spread", 1.0)
    z = pm.Normal("z", 0.0, 1.0, dims="county")
    effect = pm.Deterministic("effect", mean + spread * z, dims="county")
    slope, noise = pm.Normal("slope", 0.0, 5.0), pm.Exponential("noise", 1.0)
    pm.Normal("y", effect[county] + slope * floor, noise, observed=y)


@model()
def correlated_effects(rng):
    """Intercepts and slopes of groups with an LKJ prior, non-centred."""
    group, x = rng.integers(0, 8, N), rng.normal(size=N)
    effects = rng.multivariate_normal([1.0, -0.5], [[0.5, 0.2], [0.2, 0.3]], size=8)
    y = effects[group, 0] + effects[group, 1] * x + 0.5 * rng.normal(size=N)
    ab, sigma = _correlated(8), pm.HalfNormal("sigma", 1.0)
    pm.Normal("y", ab[group, 0] + ab[group, 1] * x, sigma, observed=y)


@model()
def ordered_logistic(rng):
    x = rng.normal(size=N)
    y = np.digitize(1.2 * x + rng.logistic(size=N), [-1.0, 0.5, 2.0])
    cuts, b = _ordered("cuts", 3.0, [-1.0, 0.0, 1.0]), pm.Normal("b", 0.0, 2.0)
    pm.OrderedLogistic("y", eta=b * x, cutpoints=cuts, observed=y)


@model()
def zero_inflated(rng):
    y = np.where(rng.random(N) < 0.6, rng.poisson(3.0, size=N), 0)
    psi, mu = pm.Beta("psi", 1.0, 1.0), pm.Gamma("mu", 2.0, 1.0)
    pm.ZeroInflatedPoisson("y", psi=psi, mu=mu, observed=y)


@model()
def mixture(rng):
    y = np.where(rng.random(N) < 0.3, rng.normal(-2.0, 0.7, N), rng.normal(2.0, 1.0, N))
    w, mu = pm.Dirichlet("w", np.array([2.0, 2.0])), _ordered("mu", 5.0, [-1.0, 1.0])
    sigma = pm.HalfNormal("sigma", 2.0, shape=2)
    pm.NormalMixture("y", w=w, mu=mu, sigma=sigma, observed=y)


@model()
def horseshoe(rng):
    """Regularised horseshoe, non-centred."""
    X = rng.normal(size=(N, 12))
    y = X[:, :2] @ [2.0, -1.5] + rng.normal(size=N)
    sigma = pm.HalfNormal("sigma", 2.0)
    tau = pm.HalfStudentT("tau", 3, 0.1)
    lam = pm.HalfStudentT("lam", 3, 1.0, shape=12)
    c2 = pm.InverseGamma("c2", 2.0, 4.0)
    z = pm.Normal("z", 0.0, 1.0, shape=12)
    beta = pm.Deterministic("beta", z * tau * lam * pt.sqrt(c2 / (c2 + tau**2 * lam**2)))
    pm.Normal("y", pt.dot(X, beta), sigma, observed=y)


@model()
def beta_binomial(rng):
    n = rng.integers(5, 40, size=N)
    y = rng.binomial(n, rng.beta(2.0, 5.0, size=N))
    mean, precision = pm.Beta("mean", 1.0, 1.0), pm.Gamma("precision", 2.0, 0.1)
    pm.BetaBinomial("y", alpha=mean * precision, beta=(1 - mean) * precision, n=n, observed=y)


@model(coords={"team": ["WAL", "FRA", "IRE", "SCO", "ITA", "ENG"]})
def rugby(rng):
    """Attack and defence of teams, two observed variables."""
    home, away = rng.integers(0, 6, N), rng.integers(0, 6, N)
    attack, defence = 0.3 * rng.normal(size=6), 0.3 * rng.normal(size=6)
    home_points = rng.poisson(np.exp(3.0 + 0.2 + attack[home] + defence[away]))
    away_points = rng.poisson(np.exp(3.0 + attack[away] + defence[home]))
    base, advantage = pm.Normal("base", 3.0, 1.0), pm.Normal("advantage", 0.0, 1.0)
    sd_att, sd_def = pm.HalfNormal("sd_att", 1.0), pm.HalfNormal("sd_def", 1.0)
    atts_star = pm.Normal("atts_star", 0.0, sd_att, dims="team")
    defs_star = pm.Normal("defs_star", 0.0, sd_def, dims="team")
    atts = pm.Deterministic("atts", atts_star - pt.mean(atts_star), dims="team")
    defs = pm.Deterministic("defs", defs_star - pt.mean(defs_star), dims="team")
    home_rate = pt.exp(base + advantage + atts[home] + defs[away])
    pm.Poisson("home_points", home_rate, observed=home_points)
    pm.Poisson("away_points", pt.exp(base + atts[away] + defs[home]), observed=away_points)


@model()
def softmax(rng):
    X = rng.normal(size=(N, 2))
    scores = X @ rng.normal(size=(2, 3))
    y = (scores + rng.gumbel(size=(N, 3))).argmax(axis=1)
    a, b = pm.ZeroSumNormal("a", 2.0, shape=3), pm.Normal("b", 0.0, 1.0, shape=(2, 3))
    pm.Categorical("y", logit_p=a + X @ b, observed=y)


@model()
def censored(rng):
    """Survival times, cut off at 3."""
    x = rng.integers(0, 2, N)
    y = np.minimum(np.exp(0.5 * x) * rng.weibull(1.5, size=N), 3.0)
    a, b, shape = pm.Normal("a", 0.0, 1.0), pm.Normal("b", 0.0, 1.0), pm.Exponential("shape", 1.0)
    pm.Censored("y", pm.Weibull.dist(alpha=shape, beta=pt.exp(a + b * x)), None, 3.0, observed=y)


@model()
def two_outcomes(rng):
    """A correlated pair in each row."""
    Y = rng.multivariate_normal([1.0, -1.0], [[1.0, 0.6], [0.6, 2.0]], size=N)
    mean = pm.Normal("mean", 0.0, 3.0, shape=2)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=1.0, sd_dist=pm.HalfNormal.dist(2.0, shape=2))
    pm.MvNormal("y", mu=mean, chol=chol, observed=Y)


@model()
def potential(rng):
    """A likelihood that PyMC does not have, a bound that depends on another variable, a penalty."""
    y = rng.exponential(2.0, size=N)
    top = pm.HalfNormal("top", 4.0)
    rate = pm.Uniform("rate", 0.0, top)
    pm.Potential("likelihood", pt.log(rate) - rate * y)
    pm.Potential("penalty", -((rate - 1.0) ** 2))


def _bambi(formula: str, frame: dict[str, np.ndarray], **options: Any) -> Any:
    import bambi
    import pandas

    return bambi.Model(formula, pandas.DataFrame(frame), **options)


if importlib.util.find_spec("bambi"):

    @model()
    def bambi_normal(rng):
        group, x = rng.integers(0, 10, N), rng.normal(size=N)
        y = 1.0 + x + 0.5 * rng.normal(size=10)[group] + rng.normal(size=N)
        names = np.array([f"g{i}" for i in range(10)])
        return _bambi("y ~ x + (1 | group)", {"y": y, "x": x, "group": names[group]})

    @model()
    def bambi_logistic(rng):
        x, kind = rng.normal(size=N), rng.integers(0, 3, N)
        y = (rng.random(N) < 1.0 / (1.0 + np.exp(-x - 0.5 * (kind == 1)))).astype(int)
        frame = {"y": y, "x": x, "kind": np.array(["a", "b", "c"])[kind]}
        return _bambi("y ~ x * kind", frame, family="bernoulli")


# -- models with a variable for each row or group, which from_pymc integrates out -------------------------------------


@model(GROUPED, coords={"school": list("ABCDEFGH")})
def eight_schools(rng):
    """Non-centred; every row is a group."""
    effect = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    mu, tau = pm.Normal("mu", 0.0, 5.0), pm.HalfCauchy("tau", 5.0)
    eta = pm.Normal("eta", 0.0, 1.0, dims="school")
    theta = pm.Deterministic("theta", mu + tau * eta, dims="school")
    pm.Normal("y", theta, error, observed=effect)


def _radon(rng):
    county, floor = np.r_[np.arange(25), rng.integers(0, 25, N - 25)], rng.integers(0, 2, N)
    uranium = rng.normal(size=25)
    y = 1.3 + 0.4 * (uranium + rng.normal(size=25))[county] - 0.6 * floor + 0.7 * rng.normal(size=N)
    return county, floor, uranium, y


@model(GROUPED, coords={"county": COUNTIES})
def radon(rng):
    """Non-centred, the index in pm.Data."""
    county, floor, _, y = _radon(rng)
    index = pm.Data("county_idx", county)
    mean, spread = pm.Normal("mean", 0.0, 5.0), pm.HalfNormal("spread", 1.0)
    offset = pm.Normal("offset", 0.0, 1.0, dims="county")
    effect = pm.Deterministic("effect", mean + spread * offset, dims="county")
    pm.Deterministic("centred", effect - effect.mean(), dims="county")
    slope, noise = pm.Normal("slope", 0.0, 5.0), pm.Exponential("noise", 1.0)
    pm.Normal("y", effect[index] + slope * floor, noise, observed=y)


@model(GROUPED, coords={"county": COUNTIES})
def radon_uranium(rng):
    """Centred, with a predictor of the counties."""
    county, floor, uranium, y = _radon(rng)
    mean, gamma = pm.Normal("mean", 0.0, 5.0), pm.Normal("gamma", 0.0, 2.0)
    spread = pm.HalfNormal("spread", 1.0)
    effect = pm.Normal("effect", mean + gamma * uranium, spread, dims="county")
    slope, noise = pm.Normal("slope", 0.0, 5.0), pm.Exponential("noise", 1.0)
    pm.Normal("y", effect[county] + slope * floor, noise, observed=y)


@model(GROUPED)
def slopes(rng):
    """Correlated intercepts and slopes, non-centred."""
    county, floor, _, y = _radon(rng)
    ab, sigma = _correlated(25), pm.HalfNormal("sigma", 1.0)
    pm.Normal("y", ab[county, 0] + ab[county, 1] * floor, sigma, observed=y)


@model(GROUPED)
def overdispersed(rng):
    """Counts with a gamma effect for each row, which a negative binomial is."""
    x = rng.normal(size=N)
    y = rng.poisson(np.exp(0.5 + 0.4 * x) * rng.gamma(2.0, 0.5, size=N))
    b, alpha = pm.Normal("b", 0.0, 1.0, shape=2), pm.Exponential("alpha", 0.5)
    effect = pm.Gamma("effect", alpha, alpha, shape=N)
    pm.Poisson("y", pt.exp(b[0] + b[1] * x) * effect, observed=y)


if importlib.util.find_spec("bambi"):

    @model(GROUPED)
    def bambi_slopes(rng):
        county, floor, _, y = _radon(rng)
        frame = {"y": y, "floor": floor, "county": np.array(COUNTIES)[county]}
        return _bambi("y ~ floor + (floor | county)", frame)


def built(name: str) -> tuple[Any, Any]:
    """The model as the user has it, and the PyMC model."""
    made = (MODELS | GROUPED)[name]()
    if isinstance(made, pm.Model):
        return made, made
    made.build()
    return made, made.backend.model


# -- densities ---------------------------------------------------------------------------------------------------


def density_difference(name: str, points: int = 3) -> float:
    """The largest difference from PyMC's compiled log density on the real line, relative to it."""
    import jax.numpy as jnp

    import scirocco as sc

    made, theirs = built(name)
    ours, rows, _ = sc.from_pymc(made)
    reference, start, rng = theirs.compile_logp(), theirs.initial_point(), np.random.default_rng(0)
    worst = 0.0
    for _ in range(points):
        point = {key: value + 0.3 * rng.normal(size=value.shape) for key, value in start.items()}
        position = {rv.name: jnp.asarray(point[theirs.rvs_to_values[rv].name]) for rv in theirs.free_RVs}
        found = float(ours.log_prior_density(position) + ours.log_likelihood_sum(position, rows))
        worst = max(worst, abs(found - float(reference(point))) / abs(float(reference(point))))
    return worst


def density(names: list[str]) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    print(f"{'model':20} relative difference")
    for name in names:
        print(f"{name:20} {density_difference(name):.1e}", flush=True)


# -- posteriors --------------------------------------------------------------------------------------------------


def posterior(names: list[str], draws: int, ours: int) -> None:
    print(f"{'model':20} {'worst mean':>10} {'worst sd':>9} {'least ESS':>9} {'ours':>7} {'PyMC':>7}   (CPU s) sampler")
    for name in names:
        print(f"{name:20} {_posterior(name, draws, ours)}", flush=True)


def _posterior(name: str, draws: int, ours: int) -> str:
    import scirocco as sc

    made, theirs = built(name)
    begin = time.process_time()
    options = {} if name in MODELS else {"max_groups": 1}
    run = sc.sample(*sc.from_pymc(made, **options), num_samples=ours, progress=False, seed=1)
    mine = time.process_time() - begin
    own = {**run.draws, **run.derived()}
    if name in GROUPED:
        labels = theirs.coords.get(run.origin.model.groups)  # in the order of the model, not sorted
        local = run.locals(labels and list(labels), keep_draws=True, num_draws=4 * ours)
        own |= {key: value[None] for key, value in local.draws.items()}
    begin = time.process_time()
    with theirs:
        reference = pm.sample(
            draws=draws,
            tune=1_000,
            chains=4,
            cores=1,
            target_accept=0.95,
            nuts_sampler="numpyro",
            progressbar=False,
            random_seed=2,
            nuts_sampler_kwargs={"chain_method": "sequential"},
        )
    other = time.process_time() - begin
    worst_mean, worst_sd = 0.0, 1.0
    for key, values in own.items():
        found = np.asarray(reference.posterior[key])
        if key not in run.draws and found.shape[2:] != values.shape[2:]:
            found = np.moveaxis(found, -1, 2)  # the groups are on the first axis
        axes = (0, 1)
        sd = found.std(axes)
        moving = sd > 1e-5 * np.abs(found).mean(axes)  # the diagonal of a correlation matrix is 1, with rounding
        shift = np.abs(np.mean(values, axes, dtype=float) - found.mean(axes))[moving] / sd[moving]
        ratio = np.std(values, axes, dtype=float)[moving] / sd[moving]
        worst_mean = max(worst_mean, float(np.max(shift, initial=0.0)))
        worst_sd = max([worst_sd, *np.atleast_1d(ratio).ravel()], key=lambda each: abs(np.log(each)))
    least = run.summary()["ess_bulk"].min()
    return f"{worst_mean:10.3f} {worst_sd:9.3f} {least:9.0f} {mine:7.1f} {other:7.1f}   {run.method}"


# -- speed -------------------------------------------------------------------------------------------------------


def big(num_rows: int) -> pm.Model:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(num_rows, 10))
    y = rng.random(num_rows) < 1.0 / (1.0 + np.exp(-X @ np.linspace(-1.0, 1.0, 10)))
    with pm.Model() as found:
        a, beta = pm.Normal("a", 0.0, 2.0), pm.Normal("beta", 0.0, 1.0, shape=10)
        pm.Bernoulli("y", logit_p=a + pm.math.dot(X, beta), observed=y.astype(int))
    return found


def speed(num_rows: int) -> None:
    import jax

    import scirocco as sc

    wall, cpu = time.perf_counter(), time.process_time()
    made = big(num_rows)
    building = time.process_time() - cpu
    run = sc.sample(*sc.from_pymc(made), progress=False)
    summary = run.summary()
    ours, ours_cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(summary)
    print(f"{run.method}: {run.num_chains} chains of {run.num_draws} draws")
    print(f"ours: {ours:.1f} s, {ours_cpu:.1f} CPU s from pm.Model to summary ({building:.1f} to build it)", flush=True)

    with big(num_rows // 100):
        small = pm.sample(300, tune=700, chains=1, progressbar=False, compute_convergence_checks=False)
    steps = float(np.mean(small.sample_stats["n_steps"]))
    print(f"pm.sample: {steps:.1f} gradients an iteration, with {num_rows // 100:,} rows", flush=True)
    gradient = made.logp_dlogp_function(ravel_inputs=True)
    gradient.set_extra_values({})
    point = pm.blocking.DictToArrayBijection.map(made.initial_point())
    costs = {"its default backend": _cpu(lambda: gradient(point))}
    from pymc.sampling.jax import get_jaxified_logp

    density = jax.jit(jax.value_and_grad(get_jaxified_logp(made)))
    start = [np.asarray(value) for value in made.initial_point().values()]
    costs["its JAX backend"] = _cpu(lambda: jax.block_until_ready(density(start)))
    for backend, cost in costs.items():
        # the defaults: four chains of 1,000 warm-up iterations and 1,000 draws
        needed = 4 * 2_000 * steps * cost
        print(f"{backend}: {cost:.3f} CPU s a gradient, so {needed:.0f} CPU s: {needed / ours_cpu:.0f} times ours")


def _cpu(function: Callable[[], Any], times: int = 5) -> float:
    """CPU seconds of a call, without the first one."""
    function()
    begin = time.process_time()
    for _ in range(times):
        function()
    return (time.process_time() - begin) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["density", "posterior", "speed"])
    parser.add_argument("--only", nargs="*", default=None, choices=[*MODELS, *GROUPED], metavar="MODEL")
    parser.add_argument("--draws", type=int, default=2_000, help="of each of pm.sample's four chains")
    parser.add_argument("--our-draws", type=int, default=1_000, help="of each of our four chains")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    if options.what == "density":
        density(options.only or list(MODELS))
    elif options.what == "posterior":
        posterior(options.only or [*MODELS, *GROUPED], options.draws, options.our_draws)
    else:
        speed(options.rows)


if __name__ == "__main__":
    main()
