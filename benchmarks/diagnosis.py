"""Whether `sc.analysis.diagnose` separates good runs from spoilt ones, and names the cause.

Ten posteriors with known means and standard deviations, sampled well (means within 0.15 sd, sds within 10 % of the
truth: runs that miss that by chance are left out), and sampled badly in ways of which the cause is known.

    python benchmarks/diagnosis.py                          # seeds 0-4; the table goes into docs/trust.md
    python benchmarks/diagnosis.py --seeds 100 101 --jobs 8  # the seeds with which the rules were calibrated: >= 100
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import pickle
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import scirocco as sc

ROWS = 1_000
PAGE = Path(__file__).parent.parent / "docs" / "trust.md"
BEGIN, END = "<!-- made by benchmarks/diagnosis.py -->", "<!-- end -->"
MEAN, SD = 0.15, 0.10
TRUE = np.array([0.5, -1.0, 1.0])


class Problem(NamedTuple):
    model: Any
    data: Callable[[np.random.Generator], Any]
    start: Any
    truth: Callable[[Any], tuple[np.ndarray, np.ndarray, np.ndarray]]
    """Means, standard deviations; and the curvature on the real line, near the mode."""


def wide(params: Any) -> Any:
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)) / 100


def mean(mu: Any, x: Any) -> Any:
    return -0.5 * (x - mu) ** 2


def linear(beta: Any, row: Any) -> Any:
    return -0.5 * (row["y"] - row["x"] @ beta) ** 2


def logistic(beta: Any, row: Any) -> Any:
    return row["y"] * (row["x"] @ beta) - jnp.logaddexp(0.0, row["x"] @ beta)


def poisson(beta: Any, row: Any) -> Any:
    return row["y"] * (row["x"] @ beta) - jnp.exp(row["x"] @ beta)


def location_scale(params: Any, x: Any) -> Any:
    return -0.5 * ((x - params["mu"]) / params["sd"]) ** 2 - jnp.log(params["sd"])


def student(mu: Any, x: Any) -> Any:
    return -2.5 * jnp.log1p((x - mu) ** 2 / 4)


def exponential(rate: Any, x: Any) -> Any:
    return jnp.log(rate) - rate * x


def groups(means: Any, row: Any) -> Any:
    return -0.5 * (row["y"] - means[row["group"]]) ** 2


def either_sign(mu: Any, x: Any) -> Any:
    return jnp.logaddexp(-0.5 * (x - mu) ** 2, -0.5 * (x + mu) ** 2)


def sum_of_two(params: Any, x: Any) -> Any:
    return -0.5 * (x - params[0] - params[1]) ** 2


def nothing(params: Any, x: Any) -> Any:
    return 0.0 * x * params["log_scale"]


def funnel(params: Any) -> Any:
    v, z = params["log_scale"], params["effects"]
    return -0.5 * v**2 / 4 - 0.5 * jnp.sum(z**2) * jnp.exp(-v) - 0.5 * z.size * v


def _regression(kind: str, scales: tuple[float, ...] = (1.0, 1.0, 1.0)) -> Callable[..., Any]:
    def data(rng: np.random.Generator) -> Any:
        x = rng.standard_normal((ROWS, 3))
        if kind == "correlated":
            x += 2.0 * rng.standard_normal((ROWS, 1))
        else:
            x[:, 0] = 1.0
        eta = x @ TRUE * (0.5 if kind == "poisson" else 1.0)
        if kind in ("linear", "correlated"):
            y = eta + rng.standard_normal(ROWS)
        elif kind == "logistic":
            y = rng.random(ROWS) < 1 / (1 + np.exp(-eta))
        else:
            y = rng.poisson(np.exp(eta))
        return {"x": (x * scales).astype(np.float32), "y": np.asarray(y, np.float32)}

    return data


def _newton(kind: str) -> Callable[..., Any]:
    """The normal approximation, corrected by importance weights, whose Monte Carlo error is small."""

    def truth(data: Any) -> Any:
        x, y = np.asarray(data["x"], float), np.asarray(data["y"], float)
        beta = np.zeros(3)
        for _ in range(30):
            eta = x @ beta
            fitted = {"linear": eta, "logistic": 1 / (1 + np.exp(-eta)), "poisson": np.exp(np.minimum(eta, 20))}[kind]
            weight = {"linear": 1 + 0 * eta, "logistic": fitted * (1 - fitted), "poisson": fitted}[kind]
            hessian = (x * weight[:, None]).T @ x + np.eye(3) / 100
            beta = beta + np.linalg.solve(hessian, x.T @ (y - fitted) - beta / 100)
        root = np.linalg.cholesky(np.linalg.inv(hessian))
        z = np.random.default_rng(0).standard_normal((1_000, 3))
        z = np.concatenate([z, -z])
        draws = beta + z @ root.T
        eta = draws @ x.T
        value = {
            "linear": lambda: -0.5 * (y - eta) ** 2,
            "logistic": lambda: y * eta - np.logaddexp(0, eta),
            "poisson": lambda: y * eta - np.exp(eta),
        }[kind]().sum(axis=1) - 0.5 * (draws**2).sum(axis=1) / 100
        weight = np.exp(value + 0.5 * (z**2).sum(axis=1) - np.max(value + 0.5 * (z**2).sum(axis=1)))
        average = weight @ draws / weight.sum()
        return average, np.sqrt(weight @ (draws - average) ** 2 / weight.sum()), hessian

    return truth


def _of_scale(x: np.ndarray) -> Any:
    sd, count = np.std(x, ddof=1), len(x)
    curvature = np.diag([count / sd**2, 2 * count])
    return np.array([x.mean(), sd]), np.array([sd / np.sqrt(count), sd / np.sqrt(2 * count)]), curvature


def _of_student(x: np.ndarray) -> Any:
    grid = np.median(x) + np.linspace(-0.4, 0.4, 4_001)
    value = -2.5 * np.log1p((x[:, None] - grid) ** 2 / 4).sum(axis=0)
    weight = np.exp(value - value.max())
    average = weight @ grid / weight.sum()
    variance = weight @ (grid - average) ** 2 / weight.sum()
    return np.array([average]), np.array([np.sqrt(variance)]), np.array([[1 / variance]])


def _of_groups(data: Any) -> Any:
    counts = np.bincount(data["group"], minlength=10) + 0.01
    means = np.bincount(data["group"], data["y"], minlength=10) / counts
    return means, 1 / np.sqrt(counts), np.diag(counts)


def _of_rate(x: np.ndarray) -> Any:
    # shape n + 1 on the real line has no prior: a posterior Gamma(n + 1, Σx)
    return (np.array([(len(x) + 1) / x.sum()]), np.array([np.sqrt(len(x) + 1) / x.sum()]), np.array([[float(len(x))]]))


def _of_mean(x: np.ndarray) -> Any:
    return np.array([x.mean()]), np.array([len(x) ** -0.5]), np.array([[float(len(x))]])


def _unknown(data: Any) -> Any:
    return np.array([np.nan]), np.array([np.nan]), np.array([[float(ROWS)]])


def _single(draw: Callable[[np.random.Generator], np.ndarray]) -> Callable[..., Any]:
    return lambda rng: draw(rng).astype(np.float32)


def _grouped(rng: np.random.Generator) -> Any:
    group = rng.integers(0, 10, ROWS)
    y = rng.standard_normal(10)[group] + rng.standard_normal(ROWS)
    return {"group": group.astype(np.int32), "y": y.astype(np.float32)}


RAW = (1.0, 10.0, 100.0)
positive = sc.transforms.positive
PROBLEMS = {
    "mean": Problem(sc.Model(mean), _single(lambda rng: 1 + rng.standard_normal(ROWS)), jnp.array(0.0), _of_mean),
    "linear": Problem(sc.Model(linear, wide), _regression("linear"), jnp.zeros(3), _newton("linear")),
    "correlated": Problem(sc.Model(linear, wide), _regression("correlated"), jnp.zeros(3), _newton("linear")),
    "logistic": Problem(sc.Model(logistic, wide), _regression("logistic"), jnp.zeros(3), _newton("logistic")),
    "poisson": Problem(sc.Model(poisson, wide), _regression("poisson"), jnp.zeros(3), _newton("poisson")),
    "scale": Problem(
        sc.Model(location_scale, transforms={"mu": None, "sd": positive}),
        _single(lambda rng: 1 + 2 * rng.standard_normal(ROWS)),
        {"mu": jnp.array(0.0), "sd": jnp.array(1.0)},
        _of_scale,
    ),
    "student": Problem(sc.Model(student), _single(lambda rng: rng.standard_t(4, ROWS)), jnp.array(0.0), _of_student),
    "rate": Problem(
        sc.Model(exponential, transforms=positive),
        _single(lambda rng: rng.exponential(0.5, ROWS)),
        jnp.array(1.0),
        _of_rate,
    ),
    "groups": Problem(sc.Model(groups, wide), _grouped, jnp.zeros(10), _of_groups),
    "raw units": Problem(sc.Model(linear, wide), _regression("linear", RAW), jnp.zeros(3), _newton("linear")),
    "two modes": Problem(
        sc.Model(either_sign),
        _single(lambda rng: rng.standard_normal(ROWS) + 3 * rng.choice([-1, 1], ROWS)),
        jnp.array(0.0),
        _unknown,
    ),
    "sum of two": Problem(sc.Model(sum_of_two), _single(lambda rng: rng.standard_normal(ROWS)), jnp.zeros(2), _unknown),
    "funnel": Problem(
        sc.Model(nothing, funnel),
        _single(lambda rng: np.zeros(4)),
        {"effects": jnp.zeros(5), "log_scale": jnp.array(0.0)},
        _unknown,
    ),
}

CV, FULL = sc.ControlVariates(100), sc.Full()


class Case(NamedTuple):
    """A way to sample; `causes` are the right answers, none for a good run."""

    problem: str
    sampler: Callable[[float], Any]
    """Of the largest curvature."""
    estimator: Any = CV
    causes: tuple[str, ...] = ()
    label: str = ""
    options: dict[str, Any] = {}  # noqa: RUF012


def _langevin(share: float) -> Callable[[float], Any]:
    return lambda curvature: sc.SGLD(share / curvature)


def _momentum(kind: Any, share: float, damping: float = 1.0, **options: Any) -> Callable[[float], Any]:
    return lambda curvature: kind(share / curvature**0.5, friction=damping * curvature**0.5, **options)


LONG = {"num_samples": 4_000, "num_burnin": 500}
ONE = {"num_samples": 8_000, "num_burnin": 500, "num_chains": 1}
LARGE, SMALL, SLOW = "step size too large", "step size too small", "not converged"
GOOD = [
    Case("mean", _langevin(0.1), options=ONE),
    Case("mean", _momentum(sc.BAOAB, 0.5), options=LONG),
    Case("linear", _langevin(0.15), options=LONG),
    Case("linear", lambda c: sc.BAOAB(), options=LONG),
    Case("logistic", _langevin(0.1), options=LONG),
    Case("logistic", lambda c: sc.SGLD(), sc.Minibatch(500), options=LONG | {"thin": 4}),
    Case("logistic", lambda c: sc.SGHMC(), options=LONG),
    Case("poisson", _langevin(0.15), options=LONG),
    Case("poisson", lambda c: sc.BAOAB(), options=ONE | {"thin": 3}),
    Case("scale", lambda c: sc.SGLD(), options=LONG),
    Case("scale", lambda c: sc.SGNHT(), options=LONG),
    Case("student", _langevin(0.1), FULL, options=ONE),
    Case("rate", lambda c: sc.SGLD(), options=LONG),
    Case("groups", lambda c: sc.SGLD(), options=LONG),
    Case("raw units", lambda c: sc.Preconditioned(sc.SGLD()), options=LONG),
    Case("raw units", lambda c: None, None, options={}),
    Case("correlated", _langevin(0.5), options=LONG),
    Case("linear", _langevin(0.02), options=LONG),
    Case("mean", _langevin(0.1), options=ONE | {"num_samples": 3_000}),
    Case("poisson", _langevin(0.3), options=LONG),
    Case("logistic", _langevin(0.03), options=ONE),
    Case("logistic", _langevin(0.2), sc.Minibatch(500), options=LONG | {"num_chains": 2}),
]
OVERFLOW = sc.analysis.Finding(LARGE, "diverged", "", "")
FAR = {"mean": jnp.array(60.0), "linear": jnp.full(3, 40.0), "logistic": jnp.array([20.0, 20.0, -20.0])}
SHORT = {"num_samples": 300, "num_burnin": 0}
SPOILT = [
    Case("mean", _langevin(1.0), CV, (LARGE,), "step too large"),
    Case("logistic", _langevin(1.2), CV, (LARGE,), "step too large"),
    Case("poisson", _momentum(sc.SGHMC, 1.2, 0.3, gradient_noise=0.0), CV, (LARGE,), "step too large"),
    Case("linear", _langevin(30.0), CV, (LARGE,), "step far too large"),
    Case("logistic", _langevin(100.0), CV, (LARGE,), "step far too large"),
    Case("linear", _langevin(1e-3), CV, (SMALL,), "step too small"),
    Case("scale", lambda c: sc.SGLD(1e-3 / c), CV, (SMALL,), "step too small"),
    Case("groups", _langevin(2e-3), CV, (SMALL,), "step too small"),
    Case("mean", _langevin(0.005), FULL, (SLOW, SMALL), "far start, no burn-in", SHORT | {"params": FAR["mean"]}),
    Case("linear", _langevin(0.005), FULL, (SLOW, SMALL), "far start, no burn-in", SHORT | {"params": FAR["linear"]}),
    Case("student", _langevin(0.1), FULL, (SLOW, SMALL), "too few draws", {"num_samples": 40, "num_burnin": 100}),
    Case("logistic", _langevin(0.1), CV, (SLOW, SMALL), "too few draws", {"num_samples": 40, "num_burnin": 100}),
    Case("two modes", _langevin(0.1), sc.Minibatch(500), ("chains disagree", "several modes"), "another mode"),
    Case("logistic", _langevin(0.2), sc.Minibatch(10), ("minibatch noise dominates",), "batch noise"),
    Case("linear", _langevin(0.2), sc.Minibatch(10), ("minibatch noise dominates",), "batch noise"),
    Case(
        "poisson",
        _momentum(sc.SGHMC, 0.1, 0.5, gradient_noise=0.0),
        sc.Minibatch(20),
        ("friction too small",),
        "batch noise, momentum",
    ),
    Case("sum of two", _langevin(0.05), FULL, (SLOW,), "not identified"),
    Case("raw units", _langevin(0.1), FULL, (SLOW,), "badly scaled", {"params": jnp.array([0.5, -0.1, 0.01])}),
    Case(
        "funnel",
        lambda c: sc.SGLD(0.02),
        FULL,
        (SLOW, LARGE, SMALL, "variances do not fit", "chains disagree"),
        "funnel",
        {"num_samples": 3_000},
    ),
]


def sampled(case: Case, seed: int) -> tuple[Any, Any]:
    """The run, and its data."""
    problem = PROBLEMS[case.problem]
    data = problem.data(np.random.default_rng([seed, 7]))
    largest = float(np.linalg.eigvalsh(problem.truth(data)[2])[-1])
    if case.problem == "two modes":  # in a mode
        largest = float(ROWS)
    options = {"num_samples": 2_000, "num_burnin": 200, "num_chains": 4, "seed": seed, "progress": False}
    options |= {"params": problem.start} | case.options
    sampler = case.sampler(largest)
    if sampler is None:
        options = {"params": problem.start, "seed": seed, "progress": False}
    for attempt in range(30):
        try:
            run = sc.sample(problem.model, data, sampler=sampler, estimator=case.estimator, **options)
        except sc.errors.DivergenceError as error:
            run = error.run
        if case.problem != "two modes" or run is None or np.ptp(np.sign(np.asarray(run.draws)[:, -1])) > 0:
            return run, data
        options["seed"] = 1_000 * (attempt + 1) + seed
    raise AssertionError("thirty times the same mode")


def errors(run: Any, problem: Problem, data: Any) -> tuple[float, float]:
    """Largest errors of means, in sds, and of sds, relative."""
    means, sds, _ = problem.truth(data)
    one = jax.vmap(jax.vmap(lambda tree: ravel_pytree(tree)[0]))(jax.tree.map(np.asarray, run.draws))
    flat = np.asarray(one, np.float64).reshape(-1, np.shape(one)[-1])
    off = np.abs(flat.mean(axis=0) - means) / sds, np.abs(flat.std(axis=0) / sds - 1)
    return float(off[0].max()), float(off[1].max())


def judged(task: tuple[str, int, tuple[int, ...]]) -> list[dict[str, Any]]:
    """What `diagnose` says of one case, for each seed."""
    kind, place, seeds = task
    case, found = (GOOD if kind == "good" else SPOILT)[place], []
    for seed in seeds:
        begun = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run, data = sampled(case, seed)
            if run is None or run.num_draws < 20:  # `sc.sample` has said that the step is too large
                diagnosis, off, method = sc.analysis.Diagnosis([OVERFLOW], {}), (np.inf, np.inf), ""
            else:
                diagnosis, method = sc.analysis.diagnose(run), run.method
                off = errors(run, PROBLEMS[case.problem], data)
        found.append(
            {
                "kind": kind,
                "case": place,
                "problem": case.problem,
                "label": case.label,
                "method": method,
                "seed": seed,
                "mean_error": off[0],
                "sd_error": off[1],
                "causes": case.causes,
                "names": diagnosis.names,
                "measures": diagnosis.measures,
                "certificate": diagnosis.certificate and diagnosis.certificate.to_json(),
                "seconds": time.process_time() - begun,
            }
        )
        state = "" if diagnosis.ok else "; ".join(diagnosis.names)
        print(
            f"{kind:7}{case.problem:11}{case.label:24}{seed:4} mean {off[0]:7.2f} sd {off[1]:7.2f} "
            f"{found[-1]['seconds']:5.1f}s  {state}",
            flush=True,
        )
    return found


def is_right(result: dict[str, Any]) -> bool:
    """Good runs are not accused; of spoilt ones the first finding is the cause."""
    if result["kind"] == "good":
        return not result["names"]
    return bool(result["names"]) and result["names"][0] in result["causes"]


def table(results: list[dict[str, Any]]) -> list[str]:
    """One line for all good runs, one for each way to spoil a run."""
    good = [each for each in results if each["kind"] == "good"]
    fair = [each for each in good if each["mean_error"] <= MEAN and each["sd_error"] <= SD]
    accused = sum(not is_right(each) for each in fair)
    lines = ["| runs | tried | named rightly | said otherwise |", "|---|---|---|---|"]
    others = collections.Counter(name for each in fair for name in each["names"][:1])
    lines.append(f"| good | {len(fair)} | {len(fair) - accused} all well | {_counted(others)} |")
    spoilt = [each for each in results if each["kind"] == "spoilt"]
    for label in dict.fromkeys(each["label"] for each in spoilt):
        those = [each for each in spoilt if each["label"] == label]
        wrong = [each for each in those if not is_right(each)]
        others = collections.Counter((each["names"] or ["all well"])[0] for each in wrong)
        lines.append(f"| {label} | {len(those)} | {len(those) - len(wrong)} | {_counted(others)} |")
    right, total = sum(map(is_right, spoilt)), max(1, len(spoilt))
    lines.append(
        f"| **all** | {len(fair)} good, {len(spoilt)} spoilt | {right / total:.0%} of the spoilt | "
        f"{accused / max(1, len(fair)):.0%} of the good accused |"
    )
    return lines


def _counted(names: collections.Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in names.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", help="cases of this kind, problem or label")
    parser.add_argument("--keep", help="a file for all numbers (pickle)")
    arguments = parser.parse_args()
    cases = [("good", k, c) for k, c in enumerate(GOOD)] + [("spoilt", k, c) for k, c in enumerate(SPOILT)]
    tasks = [
        (kind, place, tuple(arguments.seeds))
        for kind, place, case in cases
        if arguments.only in f"{kind} {case.problem} {case.label}"
    ]
    if arguments.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
            results = [each for part in pool.imap(judged, tasks) for each in part]
    else:
        results = [each for task in tasks for each in judged(task)]
    if arguments.keep:
        Path(arguments.keep).write_bytes(pickle.dumps(results))
    lines = "\n".join(table(results))
    print(lines)
    if arguments.seeds == [0, 1, 2, 3, 4] and not arguments.only:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{lines}\n\n{END}{rest.partition(END)[2]}")
    print(f"{sum(each['seconds'] for each in results):.0f} CPU seconds")


if __name__ == "__main__":
    main()
