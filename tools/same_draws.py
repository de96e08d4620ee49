"""Whether draws are bit for bit what they were: digests of a fixed list of small runs.

    python tools/same_draws.py --save before.json                # in the checkout before a change
    python tools/same_draws.py --compare before.json             # after it: names what differs, exits 1
    python tools/same_draws.py --folders DIR                     # half-finished run folders, to be resumed later
    python tools/same_draws.py --resume DIR --compare before.json

Digests depend on the machine and on the versions of JAX and NumPy: compare on one machine only.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import inspect
import json
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc

RUNS: dict[str, Callable[[], Any]] = {}
RESUMED: dict[str, tuple[Callable[[str], Any], Callable[[str], Any]]] = {}
ROWS = 400


def rows() -> dict[str, np.ndarray]:
    """A small regression."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((ROWS, 3)).astype(np.float32)
    return {"x": x, "y": (x @ np.array([1.0, -1.0, 0.5]) + rng.standard_normal(ROWS)).astype(np.float32)}


def log_likelihood(params: Any, row: Any) -> Any:
    """Of one row."""
    return -0.5 * (row["y"] - row["x"] @ params["beta"] - params["bias"]) ** 2


def log_prior(params: Any) -> Any:
    """Normal."""
    return -0.5 * (jnp.sum(params["beta"] ** 2) + params["bias"] ** 2)


MODEL = sc.Model(log_likelihood, log_prior)
START = {"beta": np.zeros(3, np.float32), "bias": np.float32(0.1)}


def draw(sampler: Any, estimator: Any = None, **changes: Any) -> Any:
    """The draws of a short run."""
    options = {"num_samples": 60, "num_burnin": 5, "thin": 2, "num_chains": 2, "seed": 7, "progress": False}
    options |= changes
    model, data, start = (options.pop(name, value) for name, value in _PROBLEM.items())
    estimator = sc.Minibatch(20) if estimator is None else estimator
    run = sc.sample(model, data, start, sampler=sampler, estimator=estimator, **options)
    return run.draws, run.gradients, run.stats


_PROBLEM = {"model": MODEL, "data": rows(), "start": START}


def _elementwise(theta: Any) -> Any:
    return jax.tree.map(lambda value: 1.0 + 0.1 * value**2, theta)


SAMPLERS = {
    "SGLD": sc.SGLD(1e-3),
    "SGLD-schedule": sc.SGLD(sc.schedules.polynomial(1e-3, 10.0, 0.4)),
    "PSGLD": sc.PSGLD(1e-2),
    "SGFS": sc.SGFS(1e-3),
    "SGHMC": sc.SGHMC(5e-3, friction=60.0),
    "SGNHT": sc.SGNHT(5e-3, diffusion=10.0),
    "BAOAB": sc.BAOAB(5e-3, friction=60.0),
    "BADODAB": sc.BADODAB(5e-3, diffusion=10.0),
    "LeafScaledSGLD": sc.LeafScaledSGLD(1e-3),
    "SGRLD": sc.SGRLD(1e-4, _elementwise),
    "SGRHMC": sc.SGRHMC(1e-3, _elementwise),
    "HMCDynamics": sc.HMCDynamics(1e-3),
    "SGLD-open": sc.SGLD(),
    "BAOAB-open": sc.BAOAB(),
    "SGLD-auto": sc.SGLD("auto"),
    "Preconditioned-SGLD": sc.Preconditioned(sc.SGLD()),
    "Preconditioned-BAOAB": sc.Preconditioned(sc.BAOAB()),
    "Preconditioned-diagonal": sc.Preconditioned(sc.SGHMC(), metric="diagonal"),
}
ESTIMATORS = {
    "Full": sc.Full(),
    "Minibatch-without": sc.Minibatch(20, sampling="without_replacement"),
    "Minibatch-with": sc.Minibatch(20, sampling="with_replacement"),
    "Weighted": sc.Weighted(20, probabilities=np.linspace(1.0, 2.0, ROWS)),
    "Stratified": sc.Stratified(20, strata=np.arange(ROWS) % 4),
    "ControlVariates": sc.ControlVariates(20),
    "SVRG": sc.SVRG(20, refresh_every=7),
    "SAGA": sc.SAGA(20),
}
for _name, _sampler in SAMPLERS.items():
    RUNS[f"sampler {_name}"] = functools.partial(draw, _sampler)
for _name, _estimator in ESTIMATORS.items():
    RUNS[f"estimator {_name}"] = functools.partial(draw, sc.SGLD(1e-3), _estimator, keep_gradients=True)
RUNS["chains vmap"] = functools.partial(draw, sc.SGLD(1e-3), chain_method="vmap")


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    """A run of its own."""
    RUNS[function.__name__.replace("_", " ")] = function
    return function


def _counts(omega: Any, datum: Any) -> Any:
    return datum


def _latent(omega: Any, datum: Any, key: Any) -> Any:
    return jax.nn.one_hot(jax.random.categorical(key, jnp.log(omega) + datum), 4)


def _simplex(sampler: Any, latent: bool = False) -> Any:
    rng = np.random.default_rng(5)
    data = np.eye(4, dtype=np.float32)[rng.integers(0, 3, 300)]
    model = sc.CountModel(0.5, _latent if latent else _counts)
    return draw(sampler, model=model, data=data, start=np.full(4, 0.25, np.float32))


RUNS["simplex SCIR"] = functools.partial(_simplex, sc.SCIR(0.1))
RUNS["simplex SCIR open"] = functools.partial(_simplex, sc.SCIR())
RUNS["simplex SCIR latent"] = functools.partial(_simplex, sc.SCIR(0.1), True)
RUNS["simplex SCIRCV"] = functools.partial(_simplex, sc.SCIRCV(0.1))
RUNS["simplex SCIRCV latent"] = functools.partial(_simplex, sc.SCIRCV(0.1), True)
RUNS["simplex SGRLD"] = functools.partial(_simplex, sc.SimplexSGRLD(0.01))


def _statistics(params: Any, datum: Any) -> Any:
    return (datum["y"] - datum["x"] @ params["beta"] - params["bias"]) ** 2


def _update(key: Any, params: Any, total: Any) -> Any:
    return jax.random.gamma(key, 1.0 + ROWS / 2) / (1.0 + total / 2)


def _with_precision(params: Any, row: Any) -> Any:
    return params["tau"] * log_likelihood(params, row) + 0.5 * jnp.log(params["tau"])


@named
def blocks() -> Any:
    """Gibbs and SGLD."""
    model = sc.BlockModel(sc.Model(_with_precision, log_prior), tau=sc.Statistics(_statistics))
    sampler = sc.Blocks({("beta", "bias"): sc.SGLD(1e-4), "tau": sc.Gibbs(_update)})
    return draw(sampler, model=model, start=START | {"tau": np.float32(1.0)})


@named
def streamed() -> Any:
    """Rows from a folder."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/rows.npz", **rows())
        sc.data.convert(f"{folder}/rows.npz", f"{folder}/data")
        first = draw(sc.SGLD(1e-3), data=f"{folder}/data")
        return first, draw(sc.SGLD(1e-3), sc.ControlVariates(20), data=f"{folder}/data")


@named
def transformed() -> Any:
    """A positive parameter."""
    transforms = {"beta": None, "bias": sc.transforms.positive}
    model = sc.Model(log_likelihood, log_prior, transforms=transforms)
    return draw(sc.SGLD(1e-4), sc.ControlVariates(20), model=model)


@named
def kernel_steps() -> Any:
    """Step by step."""
    kernel = sc.Kernel(MODEL, rows(), sc.SGHMC(5e-3, friction=60.0), sc.Minibatch(20))
    state = kernel.init(jax.random.key(0), START)
    for number in range(5):
        state, info = kernel.step(jax.random.key(number), state)
    return state.sampler.position, info.stats


@named
def subposteriors() -> Any:
    """Divide and conquer."""
    parts = sc.combine.subposteriors(
        MODEL, rows(), 2, START, sampler=sc.SGLD(1e-3), estimator=sc.Minibatch(20), num_samples=200, progress=False
    )
    return sc.combine.consensus(parts).draws


def lengths(model: Any, number: int) -> dict[str, int]:
    """The argument that says how many draws are kept, whatever it is called."""
    parameters = inspect.signature(model.__init__).parameters
    return {"num_samples" if "num_samples" in parameters else "num_draws": number}


def corpus() -> np.ndarray:
    """Counts of words."""
    rng = np.random.default_rng(11)
    topics = rng.dirichlet(np.full(30, 0.1), 3)
    shares = rng.dirichlet(np.full(3, 0.3), 80)
    return np.stack([rng.multinomial(25, p / p.sum()) for p in shares @ topics])


def _topics(**options: Any) -> Any:
    model = sc.models.LDA(3, seed=1, batch_size=20, num_threads=1, num_chains=1, **lengths(sc.models.LDA, 5), **options)
    model.fit(corpus(), num_epochs=4, progress=False)
    return model.components_, model.transform(corpus()[:5])


for _sampler_name in ("scir", "scir_cv", "sgrld", "sgld", "sghmc"):
    RUNS[f"lda {_sampler_name}"] = functools.partial(_topics, sampler=_sampler_name)
RUNS["lda default"] = _topics


def _clusters(base: str, sampler: str) -> Any:
    rng = np.random.default_rng(13)
    data = (
        corpus() if base == "multinomial" else np.concatenate([rng.normal(-3, 1, (60, 2)), rng.normal(3, 1, (60, 2))])
    )
    model = sc.models.DPMixture(
        base, sampler=sampler, batch_size=40, seed=2, num_threads=1, num_chains=1, **lengths(sc.models.DPMixture, 5)
    )
    model.fit(data, num_steps=40, progress=False)
    return model.log_predictive(data[:10]), model.predict(data)


for _base in ("multinomial", "gaussian"):
    for _sampler_name in ("collapsed", "scir", "gibbs"):
        RUNS[f"dp {_base} {_sampler_name}"] = functools.partial(_clusters, _base, _sampler_name)
for _sampler_name in ("scir_cv", "sgrld"):
    RUNS[f"dp multinomial {_sampler_name}"] = functools.partial(_clusters, "multinomial", _sampler_name)


def _series() -> np.ndarray:
    """Three states."""
    rng = np.random.default_rng(23)
    return np.concatenate([rng.normal(mean, 1.0, 60) for mean in (0, 5, 10, 0, 5)])


def _states(sampler: str, emissions: str = "gaussian") -> Any:
    series = _series() if emissions == "gaussian" else np.round(np.abs(_series())).astype(int)
    model = sc.models.HMM(3, emissions=emissions, sampler=sampler, num_starts=2, num_samples=10, seed=7)
    model.fit(series, num_epochs=20, progress=False)
    return model.draws_, model.predict(series)


for _sampler_name in ("gibbs", "scir", "scir_cv", "sgrld"):
    RUNS[f"hmm {_sampler_name}"] = functools.partial(_states, _sampler_name, "categorical")
RUNS["hmm gaussian"] = functools.partial(_states, "gibbs")


def _edges() -> list[tuple[int, int]]:
    rng = np.random.default_rng(29)
    pairs = [(i, j) for i in range(30) for j in range(i) if rng.random() < (0.4 if i % 2 == j % 2 else 0.05)]
    return [*pairs, (0, 29)]


def _network(kind: str, *args: Any, **options: Any) -> Any:
    model = getattr(sc.models, kind)(*args, num_samples=10, num_chains=2, seed=3, **options)
    model.fit(_edges(), num_epochs=20, progress=False)
    return model.draws_, model.predict_proba([(0, 1), (2, 4)])


RUNS["network blocks"] = functools.partial(_network, "StochasticBlockModel", 2)
RUNS["network process"] = functools.partial(_network, "StochasticBlockModel")
for _sampler_name in ("gibbs", "scir", "scir_cv", "scir_cv_counts", "sgrld"):
    for _corrected in (True, False):
        RUNS[f"network mixed {_sampler_name} {_corrected}"] = functools.partial(
            _network, "MixedMembership", 2, sampler=_sampler_name, degree_corrected=_corrected
        )


def _grouped(formula: str) -> Any:
    import pandas as pd

    rng = np.random.default_rng(31)
    frame = pd.DataFrame({"x": rng.normal(size=300), "g": rng.integers(0, 9, 300), "h": rng.integers(0, 7, 300)})
    frame["y"] = frame["x"] + rng.normal(size=9)[frame["g"]] + rng.normal(size=300)
    model = sc.models.GLMM(formula, num_samples=20, seed=5).fit(frame, num_epochs=100, progress=False)
    return model.draws_, model.predict(frame[:5])


RUNS["glmm"] = functools.partial(_grouped, "y ~ x + (1 | g)")
RUNS["glmm crossed"] = functools.partial(_grouped, "y ~ x + (1 | g) + (1 | h)")


@named
def topics_over_time() -> Any:
    """Three years."""
    years = np.arange(80) % 3
    model = sc.models.DynamicTopics(2, num_samples=5, num_chains=1, seed=1, num_threads=1)
    return model.fit(corpus(), years, num_steps=20, progress=False).run_.draws


@named
def topics_together() -> Any:
    """Correlated."""
    model = sc.models.CorrelatedTopics(2, num_samples=5, num_chains=1, seed=1, num_threads=1)
    return model.fit(corpus(), num_steps=20, progress=False).run_.draws


@named
def counts_regression() -> Any:
    """Poisson."""
    data = rows()
    model = sc.models.PoissonRegression(num_samples=100, seed=3).fit(data["x"], np.round(np.abs(data["y"])))
    return model.coef_, model.predict(data["x"][:5])


@named
def logistic_regression() -> Any:
    """A Laplace prior."""
    data = rows()
    model = sc.models.LogisticRegression(num_samples=200, num_chains=2, seed=3)
    model.fit(data["x"], data["y"] > 0)
    return model.coef_, model.predict_proba(data["x"][:5])


@named
def linear_regression() -> Any:
    """With unknown noise."""
    data = rows()
    model = sc.models.LinearRegression(num_samples=200, num_chains=2, seed=3).fit(data["x"], data["y"])
    return model.coef_, model.predict(data["x"][:5])


@named
def gaussian_mixture() -> Any:
    """Two components."""
    rng = np.random.default_rng(17)
    data = np.concatenate([rng.normal(-3, 1, (150, 2)), rng.normal(3, 1, (150, 2))])
    model = sc.models.GaussianMixture(2, num_samples=100, num_burnin=100, num_chains=1, seed=4).fit(data)
    return model.means_, model.predict_proba(data[:5])


@named
def matrix_factorisation() -> Any:
    """Ratings."""
    rng = np.random.default_rng(19)
    users, items = rng.integers(0, 20, 500), rng.integers(0, 15, 500)
    ratings = rng.normal(3.0, 1.0, 500)
    model = sc.models.BPMF(3, batch_size=100, num_chains=1, seed=5, **lengths(sc.models.BPMF, 10))
    model.fit(users, items, ratings, num_epochs=10, progress=False)
    return model.predict(users[:20], items[:20])


@named
def network() -> Any:
    """A small one."""
    data = rows()
    model = sc.models.BNN(5, batch_size=50, thin=2, num_chains=1, seed=6, **lengths(sc.models.BNN, 10))
    model.fit(data["x"], (data["y"] > 0).astype(int), num_epochs=10, progress=False)
    return model.predict_proba(data["x"][:5])


@named
def r_functions() -> Any:
    """R's sgld."""
    return sc.sgmcmc.sgld(
        lambda params, data: jnp.sum(-0.5 * (data["y"] - data["x"] @ params["beta"]) ** 2),
        rows(),
        {"beta": np.zeros(3, np.float32)},
        1e-4,
        minibatch_size=20,
        n_iters=100,
        verbose=False,
        seed=1,
    )


# ------------------------------------------------------------------------------------------------ run folders


def _stopped(sampler: Any, estimator: Any, path: str) -> None:
    options = {"num_chains": 2, "seed": 7, "progress": False, "num_burnin": 5}
    sc.sample(MODEL, rows(), START, sampler=sampler, estimator=estimator, store=path, num_samples=40, **options)


def _resumed(path: str) -> Any:
    run = sc.resume(path, MODEL, rows(), num_samples=80, progress=False)
    return jax.tree.map(np.asarray, run.draws)


def _topics_stopped(path: str) -> None:
    model = sc.models.LDA(3, seed=1, batch_size=20, num_threads=1, num_chains=1, **lengths(sc.models.LDA, 4))
    model.fit(corpus(), num_steps=8, store=path, progress=False)


def _topics_resumed(path: str) -> Any:
    model = sc.models.LDA.load(path)
    return model.components_, model.transform(corpus()[:5])


RESUMED["folder SGLD"] = (functools.partial(_stopped, sc.SGLD(1e-3), sc.Minibatch(20)), _resumed)
RESUMED["folder BAOAB"] = (functools.partial(_stopped, sc.BAOAB(5e-3, friction=60.0), sc.ControlVariates(20)), _resumed)
RESUMED["folder whitened"] = (
    functools.partial(_stopped, sc.Preconditioned(sc.BAOAB()), sc.ControlVariates(20)),
    _resumed,
)
RESUMED["folder SVRG"] = (
    functools.partial(_stopped, sc.SGHMC(5e-3, friction=60.0), sc.SVRG(20, refresh_every=7)),
    _resumed,
)
RESUMED["folder lda"] = (_topics_stopped, _topics_resumed)


def digest(tree: Any) -> str:
    """Of all numbers of a tree."""
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(np.asarray(leaf))
        total.update(f"{array.shape}{array.dtype}".encode() + array.tobytes())
    return total.hexdigest()[:16]


def made(name: str, work: Callable[[], Any]) -> str:
    """The digest of a run, or how it failed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = digest(work())
    except Exception as error:
        result = f"{type(error).__name__}: {str(error)[:160]}"
    print(f"{name:36} {result}", flush=True)
    return result


def main() -> None:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="runs whose name holds one of these words")
    parser.add_argument("--save", type=pathlib.Path)
    parser.add_argument("--compare", type=pathlib.Path)
    parser.add_argument("--folders", type=pathlib.Path, help="make run folders here")
    parser.add_argument("--resume", type=pathlib.Path, help="go on with the run folders that are here")
    asked = parser.parse_args()

    def wanted(name: str) -> bool:
        return not asked.only or any(word in name for word in asked.only)

    if asked.folders:
        for name, (start, _) in RESUMED.items():
            start(str(asked.folders / name.replace(" ", "-")))
        return
    if asked.resume:
        found = {
            name: made(name, functools.partial(go_on, str(asked.resume / name.replace(" ", "-"))))
            for name, (_, go_on) in RESUMED.items()
            if wanted(name)
        }
    else:
        found = {name: made(name, work) for name, work in RUNS.items() if wanted(name)}
    if asked.save:
        earlier = json.loads(asked.save.read_text()) if asked.save.exists() else {}
        asked.save.write_text(json.dumps(earlier | found, indent=1) + "\n")
    if asked.compare:
        before = json.loads(asked.compare.read_text())
        other = [name for name, value in found.items() if before.get(name) != value]
        print(f"{len(found) - len(other)} of {len(found)} as before" + "".join(f"\n  {x}" for x in other))
        sys.exit(bool(other))


if __name__ == "__main__":
    main()
