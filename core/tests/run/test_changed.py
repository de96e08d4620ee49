"""What is resumed is the run that was started: other data and other models are refused."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.data import ArraySource
from scirocco.data.arrays import from_arrays
from scirocco.errors import InvalidValueError
from scirocco.run import encoding, records
from scirocco.run.sizes import RUNNING
from scirocco.store import open_stored

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

ROWS = 4_000


def rows():
    return np.random.default_rng(5).standard_normal(ROWS).astype(np.float32) + 1


def log_likelihood(mu, x):
    return -0.5 * (x - mu) ** 2


def log_prior(mu):
    return -0.005 * mu**2


MODEL = sc.Model(log_likelihood, log_prior)


def started(path, data, model=MODEL):
    sc.sample(
        model,
        data,
        jnp.array(1.0),
        sampler=sc.SGLD(1e-4),
        estimator=sc.Minibatch(50),
        num_samples=40,
        num_chains=2,
        store=path,
        progress=False,
    )
    return path


def test_data_of_which_most_rows_are_unchanged(tmp_path):
    """One row of all is shifted."""
    path, data = started(tmp_path / "run", rows()), rows()
    data[1_234] += 1
    with pytest.raises(InvalidValueError, match="cannot be resumed with these data: the values of `data` have changed"):
        sc.resume(path, MODEL, data, num_samples=60, progress=False)
    assert sc.resume(path, MODEL, rows(), num_samples=60, progress=False).num_draws == 60


@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_data_folder_edited_in_place(tmp_path, keeps_time):
    source = sc.data.write(tmp_path / "rows", rows())
    path, file = started(tmp_path / "run", source), tmp_path / "rows" / "data.npy"
    status = os.stat(file)
    with open(file, "r+b") as opened:
        opened.seek(-2_000, os.SEEK_END)
        opened.write(np.full(200, 7, np.float32).tobytes())
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + (0 if keeps_time else 10**9)))
    with pytest.raises(InvalidValueError, match=r"`data.npy` in .* was changed after writing"):
        sc.resume(path, MODEL, sc.data.open(tmp_path / "rows"), num_samples=60, progress=False, verify=keeps_time)


def huber(mu, x):
    r = jnp.abs(x - mu)
    return jnp.where(r < 4, -0.5 * r**2, -4 * r + 8)


CHANGED = {
    "Huber for normal": sc.Model(huber, log_prior),
    "a prior wall": sc.Model(log_likelihood, lambda mu: jnp.where(mu > 60.0, -jnp.inf, log_prior(mu))),
    "likelihood × 1.0005": sc.Model(lambda mu, x: 1.0005 * log_likelihood(mu, x), log_prior),
    "prior × 1.0005": sc.Model(log_likelihood, lambda mu: 1.0005 * log_prior(mu)),
    "a constant": sc.Model(lambda mu, x: log_likelihood(mu, x) - 1e-3, log_prior),
    "a prior moved": sc.Model(log_likelihood, lambda mu: log_prior(mu - 0.01)),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return started(tmp_path_factory.mktemp("changed") / "run", rows())


@pytest.mark.parametrize("name", CHANGED)
def test_changed_models(path, name):
    with pytest.raises(InvalidValueError, match="cannot be resumed with this model"):
        sc.resume(path, CHANGED[name], rows(), num_samples=60, progress=False)


@pytest.mark.filterwarnings("ignore:the run was started on another setup")
@pytest.mark.parametrize("name", CHANGED)
def test_changed_models_on_another_version_of_jax(path, name, monkeypatch):
    """Rounding may differ: values must agree to four digits."""
    monkeypatch.setattr(jax, "__version__", "99.0")
    with pytest.raises(InvalidValueError, match=r"the model's log_\w+ is .*, but .* in the stored run"):
        sc.resume(path, CHANGED[name], rows(), num_samples=60, progress=False)


def test_another_kind_of_device_is_stated(tmp_path, monkeypatch):
    """A run that was begun on a GPU is resumed on a CPU with a warning: it agrees, but not in every bit."""
    given = {"sampler": sc.SGLD(1e-6), "estimator": sc.Minibatch(200), "num_chains": 2, "progress": False}
    with monkeypatch.context() as gpu:
        gpu.setattr(jax, "default_backend", lambda: "gpu")
        sc.sample(MODEL, rows(), jnp.array(1.0), **given, num_samples=40, store=tmp_path / "run")
    with pytest.warns(UserWarning, match=r"another setup \(backend gpu → cpu\).*may differ in the last bits"):
        rest = sc.resume(tmp_path / "run", MODEL, rows(), num_samples=80, progress=False)
    whole = sc.sample(MODEL, rows(), jnp.array(1.0), **given, num_samples=80)
    np.testing.assert_allclose(np.asarray(rest.draws), whole.draws, rtol=1e-4, atol=1e-5)


def test_many_parameters_are_recognised_without_their_values(tmp_path, changed, seed):
    """A record has two numbers per leaf in place of a position as large as a draw."""
    changed(RUNNING, recorded_parameters=3, recorded_bytes=8)
    model = sc.Model(lambda mu, x: -0.5 * (x - mu[0] * mu[3]) ** 2, lambda mu: -0.5 * mu @ mu)
    start = jnp.asarray(np.random.default_rng(seed).normal(3.0, 0.5, 4), jnp.float32)
    given = {"sampler": sc.SGLD(1e-5), "estimator": sc.Minibatch(50), "progress": False}
    whole = sc.sample(model, rows(), start, **given, num_samples=60)
    sc.sample(model, rows(), start, **given, num_samples=20, store=tmp_path / "run")
    probe = records.read(open_stored(tmp_path / "run"))[0].probe
    found = encoding.decode(probe[0], "params")
    assert set(probe[0]) == {"spread", "dtype", "shape"} and found.std() > 0
    assert abs(found.mean() - start.mean()) < start.std()
    other = sc.Model(lambda mu, x: -0.5 * (x - mu[0] * mu[3]) ** 2, lambda mu: -0.50001 * mu @ mu)
    with pytest.raises(InvalidValueError, match="cannot be resumed with this model"):
        sc.resume(tmp_path / "run", other, rows(), num_samples=60, progress=False)
    rest = sc.resume(tmp_path / "run", model, rows(), num_samples=60, progress=False)
    np.testing.assert_array_equal(np.asarray(rest.draws), whole.draws)


def test_where_the_chain_is(path):
    """A difference that only the chain's own position shows."""
    _, reached = records.read(open_stored(path))
    here = reached.model_values
    assert set(here) == {"log_prior", "log_likelihood"} and len(here["log_likelihood"][0]) == 8
    there = {name: [[value * 1.0001 for value in values[0]]] for name, values in here.items()}
    assert encoding.compare_models(here, here, 1e-5) is None
    assert "log_prior" in encoding.compare_models(here, there, 1e-5)


def test_the_same_model_in_other_words(path, tmp_path):
    """Names, places and addresses of functions do not count, nor how a program is written; values do."""

    def another_name(mean, datum):
        return -0.5 * datum**2 + datum * mean - 0.5 * mean**2

    again = sc.Model(jax.jit(another_name), lambda m: -0.005 * m**2)
    run = sc.resume(started(tmp_path / "run", rows()), again, rows(), num_samples=50, progress=False)
    assert run.num_draws == 50


def test_what_is_not_compared(tmp_path):
    """A wall beyond all points that are looked at is not noticed; where it stands, the chain would have to go first."""
    far = sc.Model(log_likelihood, lambda mu: jnp.where(mu > 1e6, -jnp.inf, log_prior(mu)))
    run = sc.resume(started(tmp_path / "run", rows()), far, rows(), num_samples=50, progress=False)
    whole = sc.sample(
        MODEL, rows(), jnp.array(1.0), sampler=sc.SGLD(1e-4), estimator=sc.Minibatch(50), num_samples=50,
        num_chains=2, progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(np.asarray(run.draws), whole.draws)


def test_constants_of_a_model_count(tmp_path):
    """Arrays that a model closes over, bodies of loops."""

    def model(table, step):
        def log_likelihood(mu, x):
            return jax.lax.fori_loop(0, 3, lambda i, s: s - step * (x - mu - table[i]) ** 2, 0.0)

        return sc.Model(log_likelihood)

    table = jnp.arange(3.0)
    point, some = jnp.array(0.0), rows()[:8]
    values = encoding.model_values(model(table, 0.5), point, some)
    same, *others = (
        encoding.compare_models(values, encoding.model_values(other, point, some), 1e-5)
        for other in (model(jnp.arange(3.0), 0.5), model(table + 0.01, 0.5), model(table, 0.501))
    )
    assert same is None
    assert all("log_likelihood" in difference for difference in others)


def test_data_are_read_for_a_fingerprint_only_by_a_stored_run(tmp_path):
    """A run in memory is never resumed: its data are not read for a fingerprint."""
    made = []

    class Asked(ArraySource):
        def fingerprint(self):
            made.append(super().fingerprint())
            return made[-1]

    data = Asked(from_arrays(rows()).arrays)
    given = {"sampler": sc.SGLD(1e-4), "estimator": sc.Minibatch(50), "num_samples": 10, "progress": False}
    run = sc.sample(MODEL, data, jnp.array(1.0), **given)
    assert not made and "data" not in run.configuration
    stored = sc.sample(MODEL, data, jnp.array(1.0), **given, store=tmp_path / "run")
    assert made == [stored.configuration["data"]] and len(made[0]) == 32
