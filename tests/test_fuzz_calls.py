"""Random arguments for every public entry point: finite draws, or an error of the library in a sentence."""

from __future__ import annotations

import inspect

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import fuzzing
import scirocco as sc
from fuzzing import ODD, arrays, broken_csr, examples, finite, given, refused_or_done, st

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

N = 20
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(N, 3)).astype(np.float32)
Y = _RNG.normal(size=N).astype(np.float32)
PARAMS = {"beta": np.zeros(3, np.float32), "bias": np.float32(0.0)}


def log_likelihood(params, datum):
    return -0.5 * (datum["y"] - datum["x"] @ params["beta"] - params["bias"]) ** 2


def log_prior(params):
    return -0.5 * jnp.sum(params["beta"] ** 2) - 0.5 * params["bias"] ** 2


MODEL = sc.Model(log_likelihood, log_prior)


def run(**changes):
    """A run that works, but for the changes; one program serves all that do."""
    arguments = {
        "model": MODEL,
        "data": {"x": X, "y": Y},
        "params": PARAMS,
        "sampler": sc.SGLD(1e-4),
        "estimator": sc.Minibatch(5),
        "num_samples": 5,
        "num_chains": 1,
        "progress": False,
    }
    return sc.sample(**(arguments | changes))


def checked(call):
    """Run it; draws are finite."""
    with refused_or_done():
        result = call()
        finite(result.draws)


def few(values):
    """No number that would make a run long (it would be right, but not quick)."""
    return values.filter(lambda value: not isinstance(value, (int, np.integer)) or not 100 < value < 2**31)


ARGUMENTS = [name for name in inspect.signature(sc.sample).parameters if name not in ("data", "progress", "client")]
PLACES = ["/proc/run", "/dev/null", "/dev/null/run", "/sys/run", "/proc/1/fd/run"]
PLACES += ["", ".", "\udcff", "~nobody/run", "x" * 300]


@examples(60)
@given(st.dictionaries(st.sampled_from(ARGUMENTS), few(ODD), min_size=1, max_size=3))
def test_arguments_of_sample(tmp_path_factory, changes):
    if isinstance(changes.get("store"), (str, fuzzing.Path)):
        changes["store"] = tmp_path_factory.mktemp("runs") / "run"
    checked(lambda: run(**changes))


@examples(12)
@given(st.sampled_from(PLACES), st.booleans(), st.booleans())
def test_places_of_a_store(tmp_path_factory, monkeypatch_module, place, resume, overwrite):
    monkeypatch_module.chdir(tmp_path_factory.mktemp("here"))
    with refused_or_done() as error:
        run(store=place, resume=resume, overwrite=overwrite)
    assert error or not place.startswith("/")


@examples(40)
@given(st.dictionaries(st.sampled_from(["x", "y", "z"]), arrays(), min_size=1, max_size=3), st.booleans())
def test_data(changes, alone):
    checked(lambda: run(data=next(iter(changes.values())) if alone else {"x": X, "y": Y} | changes))


LEAVES = st.one_of(arrays(rows=(3,), row_shapes=((), (1,))), arrays(rows=(1,), row_shapes=((),)), ODD)
NAMES = st.one_of(st.sampled_from(["beta", "bias"]), ODD.filter(lambda value: type(value).__hash__ is not None))
TREES = st.one_of(
    st.fixed_dictionaries({"beta": LEAVES, "bias": LEAVES}),
    st.fixed_dictionaries({"beta": st.just(PARAMS["beta"]), "bias": LEAVES}),
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=2), st.tuples(inner), st.dictionaries(NAMES, inner, max_size=2)
        ),
        max_leaves=4,
    ),
)


@examples(40)
@given(TREES)
def test_starts(params):
    checked(lambda: run(params=params))


SAMPLERS = ["SGLD", "PSGLD", "SGHMC", "SGNHT", "BAOAB", "BADODAB", "NUTS", "SGFS", "SGRLD", "SGRHMC"]
SAMPLERS += ["LeafScaledSGLD", "Recipe", "Preconditioned", "LowRank", "Blocks", "Gibbs", "HMCDynamics"]
SAMPLERS += ["SCIR", "SCIRCV", "SimplexSGRLD"]
ESTIMATORS = ["ControlVariates", "Minibatch", "SVRG", "SAGA", "Weighted", "Stratified"]
MODELS = ["Model", "CountModel", "BlockModel"]


@examples(40)
@given(st.sampled_from(SAMPLERS + ESTIMATORS + MODELS), st.data())
def test_constructors(name, data):
    """Of samplers, estimators and models; what can be made may be refused when it meets the parameters."""
    make = getattr(sc, name)
    known = [p for p in inspect.signature(make).parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = [p.name for p in known if p.kind is not p.POSITIONAL_ONLY]
    needed = [p.name for p in known if p.default is p.empty and p.name in names]
    others = data.draw(st.sets(st.sampled_from(names or ["none"]), max_size=2), label="given")
    values = {each: data.draw(few(ODD), label=each) for each in sorted({*needed, *others})}
    good = {"step_size": 1e-4, "batch_size": 5, "probabilities": np.ones(N), "strata": np.arange(N) % 2}
    for each in sorted(needed):
        if each in good and data.draw(st.booleans(), label=f"a good {each}"):
            values[each] = good[each]
    with refused_or_done(*([TypeError] if name == "BlockModel" else [])):  # its first argument is positional
        made = make(**values)
        if name in SAMPLERS[:6] + ESTIMATORS[1:]:
            part = "sampler" if name in SAMPLERS else "estimator"
            finite(run(**{part: made}).draws)


# -- models -----------------------------------------------------------------------------------------------------------

COUNTS = sp.csr_array(np.random.default_rng(1).poisson(1.0, (N, 6)))
LABELS = (Y > 0).astype(int)
FITS = {
    "LinearRegression": ({"num_samples": 5, "num_chains": 1}, {"X": X, "y": Y}),
    "LogisticRegression": ({"num_samples": 5, "num_chains": 1}, {"X": X, "y": LABELS}),
    "GaussianMixture": ({"num_samples": 5, "num_burnin": 5, "num_chains": 1}, {"X": X}),
    "LDA": ({"num_topics": 2, "num_samples": 2, "num_threads": 1}, {"X": COUNTS, "num_steps": 4}),
    "HMM": ({"num_samples": 2, "num_chains": 1, "num_starts": 1, "num_threads": 1}, {"series": Y, "num_steps": 4}),
    "StochasticBlockModel": (
        {"num_samples": 2, "num_chains": 1, "num_starts": 1},
        {"graph": np.stack([np.arange(N), (np.arange(N) + 1) % 6], axis=1), "num_steps": 4},
    ),
    "DPMixture": ({"num_samples": 2, "num_threads": 1}, {"X": COUNTS, "num_steps": 4}),
    "BPMF": (
        {"num_factors": 2, "num_samples": 2},
        {"users": np.arange(N) % 4, "items": np.arange(N) % 5, "ratings": Y, "num_steps": 4},
    ),
    "BNN": ({"hidden": 3, "num_samples": 2, "thin": 1, "batch_size": 5}, {"X": X, "y": LABELS, "num_steps": 4}),
}
TABLES = ("X", "y", "series", "graph", "users", "items", "ratings", "validation", "X_test", "y_test")
LONG = ("num_epochs", "max_seconds", "num_steps", "num_samples", "num_burnin", "thin")
LONG += ("sweeps", "burn_in", "num_starts", "split_merge")


@pytest.mark.rotates(2)
@pytest.mark.parametrize("name", FITS)
@examples(10)
@given(st.data())
def test_models(name, data):
    cls = getattr(sc.models, name)
    made, fitted = FITS[name]
    options = [p for p in inspect.signature(cls).parameters if p not in ("sampler", "estimator")]
    inputs = [p for p in inspect.signature(cls.fit).parameters if p not in ("self", "progress", "client", "store")]
    changes = {}
    for each in data.draw(st.sets(st.sampled_from(options + inputs), min_size=1, max_size=2), label="changed"):
        values = few(ODD)
        if each in TABLES:
            values = st.one_of(arrays(rows=(N, 3, 0), row_shapes=((3,), ())), broken_csr((N, 6)), ODD)
        elif each in LONG:  # a time of two seconds is right, but not quick
            values = values.filter(lambda value: not _is_long(value))
        changes[each] = data.draw(values, label=each)
    given_options = {k: v for k, v in changes.items() if k in options and k not in inputs}
    given_inputs = {k: v for k, v in changes.items() if k in inputs}
    with refused_or_done():
        model = cls(**(made | given_options)).fit(**(fitted | given_inputs), progress=False)
        finite(model.run_.draws if getattr(model, "run_", None) is not None else None)


def _is_long(value):
    try:
        return not 0 <= float(value) < 1 if isinstance(value, (float, int, np.generic)) else False
    except TypeError:
        return False


# -- files by name ----------------------------------------------------------------------------------------------------

BY_PATH = {
    "load": sc.load,
    "resume": lambda path: sc.resume(path, MODEL, {"x": X, "y": Y}, progress=False),
    "models.load": sc.models.load,
    "data.open": sc.data.open,
    "data.write": lambda path: sc.data.write(path, X),
    "data.convert": lambda path: sc.data.convert(path, path),
    "data.write_corpus": lambda path: sc.data.write_corpus(path, COUNTS),
    "store.open_stored": sc.store.open_stored,
    "combine.load": sc.combine.load,
    "data of sample": lambda path: run(data=path),
}


@examples(50)
@given(st.sampled_from(sorted(BY_PATH)), st.one_of(st.sampled_from(PLACES), ODD, st.text(max_size=5)))
def test_paths(tmp_path_factory, monkeypatch_module, name, path):
    monkeypatch_module.chdir(tmp_path_factory.mktemp("here"))
    with refused_or_done():
        BY_PATH[name](path)


@pytest.fixture(scope="module")
def monkeypatch_module():
    """As `monkeypatch`, for tests that hypothesis calls many times."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@examples(40)
@given(st.one_of(broken_csr((N, 6)), arrays(rows=(N, 0), row_shapes=((6,), ()))))
def test_sparse_matrices(tmp_path_factory, matrix):
    """SciPy does not check them, and compiled loops would read outside of them."""
    path = tmp_path_factory.mktemp("corpus") / "made"
    with refused_or_done():
        sc.data.write_corpus(path, matrix)
    with refused_or_done():
        sc.models.lda.as_corpus(matrix)
