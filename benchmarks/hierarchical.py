"""Models with a variable for every group: bernoulli rows, a random intercept and a random slope.

    python benchmarks/hierarchical.py large      # 10⁶ rows in 10⁵ groups: CPU seconds after compiling, ESS, R-hat
    python benchmarks/hierarchical.py steps      # time per step from 10⁴ to 10⁶ groups
    python benchmarks/hierarchical.py rivals     # 20,000 rows in 2,000 groups: NumPyro's NUTS on the same model
    python benchmarks/hierarchical.py accuracy   # 3,000 rows in 300 groups: errors of means and sds against long NUTS
                                                 # runs, beside statsmodels and PyMC's NUTS and ADVI if installed
    python benchmarks/hierarchical.py coverage   # intervals of groups over 20 data sets
    python benchmarks/hierarchical.py sbc        # simulation-based calibration of two models
    python benchmarks/hierarchical.py sbc_glmm   # and of a Poisson model through GLMM

Use two cores (`taskset -c 0,1`). The model and its priors are those of
`sc.models.GLMM("y ~ x + (1 + x | group)", family="bernoulli")` in internal units.
"""

from __future__ import annotations

import importlib.util
import resource
import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc
from scirocco.models.glmm import density
from scirocco.models.glmm.density import Factor

FACTOR = Factor(0, 2, True)
TRUTH = {"coef": [-0.5, 0.8], "sd_0": [1.0, 0.5], "correlation": 0.3}


def simulated(
    num_groups: int, rows_each: int, seed: int = 0, family: str = "bernoulli"
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows, and the effects of the groups."""
    rng = np.random.default_rng(seed)
    sd, correlation = np.array(TRUTH["sd_0"]), TRUTH["correlation"]
    covariance = np.outer(sd, sd) * np.array([[1, correlation], [correlation, 1]])
    effects = rng.multivariate_normal([0, 0], covariance, num_groups)
    group = np.repeat(np.arange(num_groups, dtype=np.int32), rows_each)
    x = rng.normal(size=len(group))
    eta = TRUTH["coef"][0] + TRUTH["coef"][1] * x + effects[group, 0] + effects[group, 1] * x
    table = np.stack([np.ones_like(x), x], axis=1).astype(np.float32)
    y = eta + rng.normal(size=len(eta)) if family == "normal" else rng.random(len(eta)) < 1 / (1 + np.exp(-eta))
    return {"x": table, "z_0": table, "y": y.astype(np.float32), "group": group}, effects


def model_and_start(family: str = "bernoulli") -> tuple[sc.HierarchicalModel, dict[str, np.ndarray]]:
    start = {
        "coef": np.zeros(2, np.float32),
        "sd_0": np.full(2, 0.5, np.float32),
        "root_0": np.eye(2, dtype=np.float32),
    }
    if family == "normal":
        start["noise"] = np.float32(0.8)
    row = density.RowLikelihood(family, FACTOR, ())
    prior = density.GlobalPrior(family, (FACTOR,))
    model = sc.HierarchicalModel(
        row, density.standard_normal, prior, groups="group", local=np.zeros(2), transforms=density.constraints(start)
    )
    return model, start


def named(draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draws (chain, draw) of the five global parameters."""
    coef, sd, root = (np.asarray(draws[name], np.float64) for name in ("coef", "sd_0", "root_0"))
    found = {"intercept": coef[..., 0], "slope": coef[..., 1], "sd intercept": sd[..., 0], "sd slope": sd[..., 1]}
    return found | {"correlation": root[..., 1, 0]}


def measured(draws: dict[str, np.ndarray]) -> tuple[float, float]:
    """The least effective sample size, and the largest R-hat."""
    values = np.stack(list(named(draws).values()), axis=-1)
    return float(np.min(sc.diagnostics.ess(values))), float(np.max(sc.diagnostics.rhat(values)))


def timed(function, *args, **kwargs):
    cpu, wall = time.process_time(), time.perf_counter()
    result = function(*args, **kwargs)
    return result, time.process_time() - cpu, time.perf_counter() - wall


def memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def show(text: str) -> None:
    print(text, flush=True)


def large(num_groups: int = 100_000) -> None:
    data, _ = simulated(num_groups, 10)
    model, start = model_and_start()
    before = memory()
    for number, word in enumerate(("first (compiles)", "second")):
        run, cpu, wall = timed(sc.sample, model, data, start, num_samples=250, seed=number, progress=False)
        ess, rhat = measured(run.draws)
        parts = {name: round(part["cpu"], 1) for name, part in run.timing.items()}
        show(
            f"{num_groups:,} groups, {word}: {cpu:.1f} CPU s, {wall:.1f} s, least ESS {ess:.0f}, R-hat {rhat:.3f}, CPU "
            f"s by part {parts}, memory {memory() - before:.2f} GiB over the data"
        )
    show(f"  {run.preparation['chosen']}; {run.certificate}")
    for name, values in named(run.draws).items():
        show(f"  {name:>14}: {values.mean():+.4f} ± {values.std():.4f}")


def steps() -> None:
    """One chain: several share caches and the memory bandwidth, which is another question."""
    model, start = model_and_start()
    for num_groups in (10_000, 100_000, 1_000_000):
        data, _ = simulated(num_groups, 10)
        each, draws = [], 1_000
        for seed in range(3):
            run = sc.sample(
                *(model, data, start),
                sampler=sc.SGLD(1e-9),
                estimator=sc.Minibatch(32),
                num_samples=draws,
                thin=5,
                num_chains=1,
                seed=seed,
                progress=False,
            )
            part = run.timing["sampling"]
            each.append(1e6 * part["cpu"] / part["steps"])
        show(f"{num_groups:>9,} groups: {', '.join(f'{us:.0f}' for us in each)} CPU µs per step of 32 groups")


def numpyro_nuts(data: dict[str, np.ndarray], num_warmup: int, num_samples: int, family: str = "bernoulli"):
    """The same model with all effects as parameters, in the non-centred form."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    num_groups = int(data["group"].max()) + 1

    def model():
        coef = numpyro.sample("coef", dist.Normal(0, 2.5).expand([2]))
        sd = numpyro.sample("sd_0", dist.HalfNormal(2.5).expand([2]))
        root = numpyro.sample("root_0", dist.LKJCholesky(2, 1.0))
        u = numpyro.sample("u", dist.Normal(0, 1).expand([num_groups, 2]))
        effects = sd * (u @ root.T)
        eta = data["x"] @ coef + jnp.sum(data["z_0"] * effects[data["group"]], axis=1)
        if family == "normal":
            noise = numpyro.sample("noise", dist.Exponential(1.0))
            numpyro.sample("y", dist.Normal(eta, noise), obs=data["y"])
        else:
            numpyro.sample("y", dist.Bernoulli(logits=eta), obs=data["y"])

    mcmc = MCMC(NUTS(model), num_warmup=num_warmup, num_samples=num_samples, num_chains=2, progress_bar=False)
    mcmc.run(jax.random.key(0))
    return mcmc.get_samples(group_by_chain=True)


def rivals(num_warmup: int = 300, num_samples: int = 500) -> None:
    data, _ = simulated(2_000, 10)
    model, start = model_and_start()
    results = {}
    for number in range(2):
        run, cpu, _ = timed(sc.sample, model, data, start, seed=number, progress=False)
        ess, rhat = measured(run.draws)
        show(f"ours, run {number}: {cpu:.1f} CPU s, least ESS {ess:.0f}, R-hat {rhat:.3f}, {ess / cpu:.1f} per CPU s")
    show(f"  {run.preparation['chosen']}; {run.certificate}")
    results["ours"] = named(run.draws)
    draws, cpu, _ = timed(numpyro_nuts, data, num_warmup, num_samples)
    theirs, rhat = measured(draws)
    show(
        f"NumPyro NUTS (compiles): {cpu:.1f} CPU s, least ESS {theirs:.0f}, R-hat {rhat:.3f}, {theirs / cpu:.2f} per "
        "CPU s"
    )
    results["NUTS"] = named(draws)
    for name in results["ours"]:
        a, b = results["ours"][name], results["NUTS"][name]
        show(
            f"  {name:>14}: mean {a.mean():+.3f} and {b.mean():+.3f} ({(a.mean() - b.mean()) / b.std():+.2f} sd), sd "
            f"ratio {a.std() / b.std():.2f}"
        )


Found = dict[str, tuple[float, float]]
"""Mean and standard deviation of each global parameter."""


def moments(draws: dict[str, np.ndarray]) -> Found:
    return {name: (float(values.mean()), float(values.std())) for name, values in named(draws).items()}


def of_ours(data: dict[str, np.ndarray], family: str) -> Found:
    model, start = model_and_start(family)
    return moments(sc.sample(model, data, start, num_samples=2_000, progress=False).draws)


def of_mixedlm(data: dict[str, np.ndarray], family: str) -> Found:
    """Restricted maximum likelihood, with standard errors of the coefficients."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    x = data["x"].astype(np.float64)
    fit = MixedLM(data["y"].astype(np.float64), x, groups=data["group"], exog_re=x).fit()
    sd = np.sqrt(np.diagonal(fit.cov_re))
    correlation = fit.cov_re[0, 1] / np.prod(sd)
    means, errors = [*fit.fe_params, *sd, correlation], [*fit.bse_fe, np.nan, np.nan, np.nan]
    return dict(zip(NAMES, zip(map(float, means), map(float, errors), strict=True), strict=True))


def of_bayes_glm(data: dict[str, np.ndarray], family: str) -> Found:
    """Mean-field variational Bayes for the binomial model; its effects are uncorrelated."""
    from scipy import sparse
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    x, group = data["x"].astype(np.float64), data["group"]
    places = (np.arange(len(group)), group)
    parts = [sparse.coo_matrix((x[:, j], places)) for j in range(2)]
    ident = np.repeat([0, 1], group.max() + 1)
    design = sparse.hstack(parts).tocsr()
    fit = BinomialBayesMixedGLM(data["y"].astype(np.float64), x, design, ident, vcp_p=1.0, fe_p=2.5).fit_vb()
    sd = np.exp(fit.vcp_mean)
    means, errors = [*fit.fe_mean, *sd, np.nan], [*fit.fe_sd, *(sd * fit.vcp_sd), np.nan]
    return dict(zip(NAMES, zip(map(float, means), map(float, errors), strict=True), strict=True))


def pymc_model(data: dict[str, np.ndarray], family: str):
    """The same model."""
    import pymc as pm

    x, group = data["x"].astype(np.float64), data["group"]
    with pm.Model() as model:
        coef = pm.Normal("coef", 0.0, 2.5, shape=2)
        root, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=1.0, sd_dist=pm.HalfNormal.dist(2.5, shape=2))
        u = pm.Normal("u", 0.0, 1.0, shape=(2, int(group.max()) + 1))
        eta = x @ coef + (x * (root @ u).T[group]).sum(axis=1)
        if family == "normal":
            pm.Normal("y", eta, pm.Exponential("noise", 1.0), observed=data["y"])
        else:
            pm.Bernoulli("y", logit_p=eta, observed=data["y"])
    return model


def _of_pymc(posterior) -> Found:
    found = {name: np.asarray(posterior[name]) for name in ("coef", "chol_stds", "chol_corr")}
    root = np.zeros((*found["coef"].shape[:2], 2, 2))
    root[..., 1, 0] = found["chol_corr"][..., 0, 1]
    return moments({"coef": found["coef"], "sd_0": found["chol_stds"], "root_0": root})


def of_pymc_nuts(data: dict[str, np.ndarray], family: str) -> Found:
    import pymc as pm

    with pymc_model(data, family):
        idata = pm.sample(500, tune=500, chains=2, cores=1, progressbar=False, random_seed=1)
    return _of_pymc(idata.posterior)


def of_pymc_advi(data: dict[str, np.ndarray], family: str) -> Found:
    import pymc as pm

    with pymc_model(data, family):
        approximation = pm.fit(30_000, method="advi", progressbar=False, random_seed=1)
    return _of_pymc(approximation.sample(4_000, random_seed=1).posterior)


NAMES = ("intercept", "slope", "sd intercept", "sd slope", "correlation")
METHODS = {  # what to install, and the families
    "scirocco": (of_ours, None, ("normal", "bernoulli")),
    "statsmodels MixedLM": (of_mixedlm, "statsmodels", ("normal",)),
    "statsmodels BinomialBayesMixedGLM": (of_bayes_glm, "statsmodels", ("bernoulli",)),
    "PyMC NUTS": (of_pymc_nuts, "pymc", ("normal", "bernoulli")),
    "PyMC ADVI": (of_pymc_advi, "pymc", ("normal", "bernoulli")),
}


def accuracy(num_groups: int = 300, rows_each: int = 10, num_samples: int = 4_000) -> None:
    """Errors of posterior means, in posterior sds, and ratios of sds, against a long run of NumPyro's NUTS."""
    for family in ("normal", "bernoulli"):
        data, _ = simulated(num_groups, rows_each, seed=3, family=family)
        draws, cpu, _ = timed(numpyro_nuts, data, 1_000, num_samples, family)
        ess, rhat = measured(draws)
        show(f"{family}: reference, NumPyro NUTS: {cpu:.0f} CPU s, least ESS {ess:.0f}, R-hat {rhat:.3f}")
        reference = moments(draws)
        show("    " + ", ".join(f"{name} {mean:+.4f} ± {sd:.4f}" for name, (mean, sd) in reference.items()))
        for word, (method, package, families) in METHODS.items():
            if family not in families:
                continue
            if package is not None and importlib.util.find_spec(package) is None:
                show(f"  {word}: not compared, {package} is not installed (pip install {package})")
                continue
            try:
                found, cpu, _ = timed(method, data, family)
            except Exception as error:
                show(f"  {word} failed: {type(error).__name__}: {error}")
                continue
            off = {name: (found[name][0] - mean) / sd for name, (mean, sd) in reference.items()}
            ratio = {name: found[name][1] / sd for name, (_, sd) in reference.items()}
            show(f"  {word}: {cpu:.0f} CPU s with compiling")
            for what, each in (("means off by (sd)", off), ("sd ratios", ratio)):
                known = ", ".join(f"{name} {x:+.2f}" for name, x in each.items() if np.isfinite(x))
                show(f"    {what}: {known}")


def coverage(num_sets: int = 20) -> None:
    model, start = model_and_start()
    found, inside = [], []
    for seed in range(num_sets):
        data, effects = simulated(500, 10, seed=1_000 + seed)
        run = sc.sample(model, data, start, num_samples=250, num_chains=2, seed=seed, progress=False)
        local = run.locals(interval=0.9, function=FACTOR.effects, num_draws=300)
        found.append(np.mean((local.low < effects) & (effects < local.high)))
        for name, truth in (("intercept", TRUTH["coef"][0]), ("slope", TRUTH["coef"][1]), ("sd intercept", 1.0)):
            low, high = np.quantile(named(run.draws)[name], [0.05, 0.95])
            inside.append(low < truth < high)
    show(
        f"90 % intervals of {num_sets} × 500 groups' effects cover {np.mean(found):.1%} (data sets from "
        f"{min(found):.1%} to {max(found):.1%}); those of three global parameters {np.mean(inside):.0%}"
    )


def sbc(num_sets: int = 100, num_groups: int = 100, rows_each: int = 5) -> None:
    """Simulation-based calibration: ranks of parameters drawn from the prior among the draws of their posterior."""

    def normal(theta, u, row):
        z = (row["y"] - theta["mean"] - theta["scale"] * u) / 0.5
        return -0.5 * z**2

    def bernoulli(theta, u, row):
        return -jax.nn.softplus((1 - 2 * row["y"]) * (theta["mean"] + theta["scale"] * u))

    def log_prior(theta):  # Normal(0, 1), and LogNormal(0, 0.5) for the scale
        return -0.5 * theta["mean"] ** 2 - 2.0 * jnp.log(theta["scale"]) ** 2 - jnp.log(theta["scale"])

    def predictor(theta, u):
        return theta["mean"] + theta["scale"] * u

    group = np.repeat(np.arange(num_groups, dtype=np.int32), rows_each)
    for word, likelihood in (("normal", normal), ("bernoulli", bernoulli)):
        model = sc.HierarchicalModel(
            likelihood,
            lambda u, theta: -0.5 * u**2,
            log_prior,
            groups="group",
            transforms={"scale": sc.transforms.positive},
        )
        rng, ranks = np.random.default_rng(5), []
        for seed in range(num_sets):
            mean, scale = rng.normal(), np.exp(0.5 * rng.normal())
            eta = mean + scale * rng.normal(size=num_groups)[group]
            y = eta + 0.5 * rng.normal(size=len(group))
            if word == "bernoulli":
                y = rng.random(len(group)) < 1 / (1 + np.exp(-eta))
            data = {"y": np.asarray(y, np.float32), "group": group}
            start = {"mean": 0.0, "scale": 1.0}
            run = sc.sample(model, data, start, num_samples=200, num_chains=2, seed=seed, progress=False)
            local = run.locals([0], num_draws=400, seed=seed, function=predictor)
            draws = [run.draws["mean"], run.draws["scale"]]
            ranks.append([np.mean(np.asarray(d) < t) for d, t in zip(draws, (mean, scale), strict=True)])
            ranks[-1].append(float((eta[0] - local.mean[0]) / local.sd[0]))
        ranks = np.array(ranks)
        for place, name in enumerate(("mean", "scale")):
            counts = np.bincount(np.minimum((ranks[:, place] * 10).astype(int), 9), minlength=10)
            square = np.sum((counts - num_sets / 10) ** 2) / (num_sets / 10)
            show(f"{word}, {name}: ranks {counts.tolist()}, chi² {square:.1f} of 9 degrees (27.9 has p = 0.001)")
        z = ranks[:, 2]
        show(f"{word}, effect of a group: z of mean {z.mean():+.2f}, sd {z.std():.2f}; {run.preparation['chosen']}")


def sbc_glmm(
    num_sets: int = 100, num_groups: int = 60, rows_each: int = 8, seconds: float = 1e9, seed: int = 11
) -> None:
    """The same through `sc.models.GLMM`: Poisson, correlated intercepts and slopes, all parameters from its priors."""
    rng, begin = np.random.default_rng(seed), time.perf_counter()
    group = np.repeat(np.arange(num_groups), rows_each)
    x = rng.normal(size=len(group))
    x = (x - x.mean()) / x.std()
    ranks, inside, tables = [], [], 0
    while len(ranks) < num_sets and time.perf_counter() < begin + seconds:
        coef, sd = 2.5 * rng.normal(size=2), np.abs(2.5 * rng.normal(size=2))
        correlation = rng.uniform(-1, 1)
        u = rng.normal(size=(2, num_groups))
        effects = sd[:, None] * np.stack([u[0], correlation * u[0] + np.sqrt(1 - correlation**2) * u[1]])
        eta = coef[0] + coef[1] * x + effects[0, group] + effects[1, group] * x
        y = rng.poisson(np.exp(np.minimum(eta, 20.0))).astype(float)
        tables += 1
        if y.max() > 300 or np.count_nonzero(y) < 50:  # a rule about the data alone: ranks stay uniform
            continue
        # the prior of an intercept is centred at the table's average; that of a column is not
        table = {"y": y, "x": x, "one": np.ones(len(x)), "g": group}
        model = sc.models.GLMM("y ~ 0 + one + x + (1 + x | g)", "poisson", num_samples=100, num_chains=2)
        model.fit(table, progress=False)
        found = named(model.run_.draws)
        truth = (*coef, *sd, correlation)
        ranks.append([np.mean(draws < value) for draws, value in zip(found.values(), truth, strict=True)])
        intervals = model.random_effects(interval=0.9)
        own = effects.T.ravel()
        inside.append(np.mean((intervals["low"] < own) & (own < intervals["high"])))
    ranks = np.array(ranks)
    for place, name in enumerate(found):
        counts = np.bincount(np.minimum((ranks[:, place] * 10).astype(int), 9), minlength=10)
        square = np.sum((counts - len(ranks) / 10) ** 2) / (len(ranks) / 10)
        show(f"{name}: ranks {counts.tolist()}, chi² {square:.1f} of 9 degrees (27.9 has p = 0.001)")
    show(
        f"{len(ranks)} tables of {tables}; 90 % intervals of effects cover {np.mean(inside):.1%}; "
        f"{time.perf_counter() - begin:.0f} s; the last: {model.run_.preparation['chosen']}"
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parts = {
        "large": large,
        "steps": steps,
        "rivals": rivals,
        "accuracy": accuracy,
        "coverage": coverage,
        "sbc": sbc,
        "sbc_glmm": sbc_glmm,
    }
    for name in sys.argv[1:] or parts:
        show(f"-- {name}")
        try:
            parts[name]()
        except Exception as error:
            show(f"{name} failed: {type(error).__name__}: {error}")
