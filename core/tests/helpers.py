"""What the tests share: one small regression, every sampler, every estimator, and ways to count and compare.

The model's functions are at module level so that they can be pickled, and so that all tests of a process share what
has been compiled for them.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc

NUM_ROWS, BATCH = 64, 16


def log_likelihood(params, datum):
    predicted = jnp.sum(datum["x"] * params["weights"]) + params["bias"]
    return -0.5 * (datum["y"] - predicted) ** 2


def log_prior(params):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))


def curvature_bound(direction, datum):
    return jnp.sum(datum["x"] * direction["weights"]) + direction["bias"]


MODEL = sc.Model(log_likelihood, log_prior, curvature_bound=curvature_bound, third_bound=0.0)


def counted_model():
    """A model that nothing has been compiled for yet, and how often Python runs its functions: once for each trace."""
    calls = collections.Counter()

    def likelihood(params, datum):
        calls["log_likelihood"] += 1
        return log_likelihood(params, datum)

    def prior(params):
        calls["log_prior"] += 1
        return log_prior(params)

    return sc.Model(likelihood, prior, curvature_bound=curvature_bound, third_bound=0.0), calls


def make_data(seed=0, num_rows=NUM_ROWS, dtype=np.float32):
    """A regression whose features are matrices of shape (2, 2)."""
    rng = np.random.default_rng([seed, 3])
    x = rng.normal(size=(num_rows, 2, 2))
    y = np.sum(x * np.array([[1.0, -1.0], [0.5, 0.2]]), axis=(1, 2)) + 0.3 + rng.normal(size=num_rows)
    return {"x": x.astype(dtype), "y": y.astype(dtype)}


def make_params(dtype=np.float32):
    """A number and a matrix."""
    return {"bias": np.asarray(0.1, dtype), "weights": np.array([[0.5, -0.5], [0.2, 0.0]], dtype)}


SAMPLERS = {
    "SGLD": sc.SGLD(1e-3),
    "PSGLD": sc.PSGLD(1e-2),
    "PSGLD-correction": sc.PSGLD(1e-2, correction=True),
    "SGHMC-friction": sc.SGHMC(5e-3, friction=60.0, gradient_noise=0.0),
    "SGHMC-auto": sc.SGHMC(5e-3),
    "SGHMC-resample": sc.SGHMC(5e-3, friction=60.0, gradient_noise=0.0, resample_every=3),
    "SGNHT-scalar": sc.SGNHT(5e-3, diffusion=10.0),
    "SGNHT-leaf": sc.SGNHT(5e-3, diffusion=10.0, thermostat="leaf"),
    "SGNHT-elementwise": sc.SGNHT(5e-3, diffusion=10.0, thermostat="elementwise"),
    "BAOAB": sc.BAOAB(5e-3, friction=60.0),
    "BADODAB": sc.BADODAB(5e-3, diffusion=10.0),
}

ESTIMATORS = {
    "Full": sc.Full(),
    "Minibatch-blocks": sc.Minibatch(BATCH),
    "Minibatch-without": sc.Minibatch(BATCH, sampling="without_replacement"),
    "Minibatch-with": sc.Minibatch(BATCH, sampling="with_replacement"),
    "Weighted": sc.Weighted(BATCH, probabilities=np.linspace(1.0, 2.0, NUM_ROWS)),
    "ControlVariates": sc.ControlVariates(BATCH, num_optimizer_steps=50),
    "SVRG": sc.SVRG(BATCH, refresh_every=4),
    "SAGA": sc.SAGA(BATCH),
    "Taylor": sc.Taylor(BATCH, probabilities=np.linspace(1.0, 2.0, NUM_ROWS), order=2),
}


def exact_gradient(params, data=None):
    """∇ log posterior of the small regression over all rows, in double precision, by hand."""
    x, y = (np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(make_data() if data is None else data))
    bias, weights = (np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(params))
    residual = y - np.sum(x * weights, axis=(1, 2)) - bias
    return {"bias": residual.sum() - bias, "weights": np.tensordot(residual, x, axes=1) - weights}


def draw(sampler="SGLD", estimator="Minibatch-blocks", **changes):
    """`sc.sample` on the small regression; samplers and estimators by name or as objects."""
    arguments = {
        "model": MODEL,
        "data": make_data(),
        "params": make_params(),
        "sampler": SAMPLERS.get(sampler) if isinstance(sampler, str) else sampler,
        "estimator": ESTIMATORS.get(estimator) if isinstance(estimator, str) else estimator,
        "num_samples": 10,
        "progress": False,
    }
    return sc.sample(**(arguments | changes))


def with_step(sampler, factor):
    """The same sampler with another step size."""
    return dataclasses.replace(sampler, step_size=sampler.step_size * factor)


def assert_equal(a, b):
    """The same tree, bit for bit."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def assert_close(a, b, rtol=1e-4, atol=1e-5):
    """The same tree, to rounding."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=atol), a, b)


def differ(a, b):
    """Whether two trees of draws differ in every leaf."""
    return all(not np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


_EVENTS: dict[str, list[str]] = {"backend_compile_duration": [], "jaxpr_trace_duration": []}


def _notice(name, seconds, **details):
    if (kind := name.rsplit("/", 1)[-1]) in _EVENTS:
        _EVENTS[kind].append(details.get("fun_name", ""))


jax.monitoring.register_event_duration_secs_listener(_notice)


@contextlib.contextmanager
def _collect(kind):
    seen: list[str] = []
    begin = len(_EVENTS[kind])
    yield seen
    seen.extend(_EVENTS[kind][begin:])


def compiled():
    """Collects the programs that are compiled inside the block; one that is read from JAX's cache on disk counts."""
    return _collect("backend_compile_duration")


def traced():
    """Collects the programs that are traced inside the block: what is not traced anew is not compiled anew."""
    return _collect("jaxpr_trace_duration")


def chosen_cases(request, test, name):
    """The values of a parameter with which a test of the same file is run in this session."""
    own = (item for item in request.session.items if item.path == request.path)
    return [item.callspec.params[name] for item in own if item.originalname == test.__name__]


def chi_square_z(statistic, degrees):
    """A chi-square statistic as a standard normal one (Wilson & Hilferty 1931)."""
    third = 2.0 / (9.0 * degrees)
    return ((statistic / degrees) ** (1 / 3) - (1.0 - third)) / third**0.5


def bias_of(params):
    """A test function, at module level so that two processes mean the same."""
    return params["bias"]


tree_map = jax.tree.map


def assert_drawn(path):
    """A picture of some size with something on it."""
    from matplotlib.image import imread

    pixels = imread(path)
    assert min(pixels.shape[:2]) > 300, pixels.shape
    ink = (pixels[..., :3] < 0.95).any(axis=-1).mean()
    assert 0.01 < ink < 0.9, f"{ink:.1%} of the picture is not white"
