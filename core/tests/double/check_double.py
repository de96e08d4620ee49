"""Double precision from end to end. A script of its own, because JAX's precision is a switch of the whole process.

usage: JAX_ENABLE_X64=1 python check_double.py draws programs defaults counts kernels

Prints "NAME ok" or "NAME" and what went wrong.
"""

import collections
import functools
import itertools
import os
import pathlib
import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import helpers
import scirocco as sc
from law import kernel_laws
from scirocco.run import loop, setup
from scirocco.run.choose import set_up
from simplex import counting

SEED = int(os.environ.get("SCIROCCO_TEST_SEED", "0"))
DATA, PARAMS = helpers.make_data(dtype=np.float64), helpers.make_params(np.float64)


def check_draws():
    """Draws, gradients and statistics as a run hands them out are double; a gradient is right to twelve digits.

    For one pair, because `check_programs` reads the same off the programs of every sampler and every estimator.
    """
    run = helpers.draw("SGLD", "Full", data=DATA, params=PARAMS, keep_gradients=True)
    dtypes = {leaf.dtype for leaf in jax.tree.leaves((run.draws, run.gradients, run.stats))}
    assert dtypes == {np.dtype(np.float64)}, dtypes
    for bias, weights, *kept in zip(*(leaf[0] for leaf in jax.tree.leaves((run.draws, run.gradients))), strict=True):
        exact = helpers.exact_gradient({"bias": bias, "weights": weights}, DATA)
        helpers.assert_close(kept, jax.tree.leaves(exact), rtol=1e-12, atol=1e-12)


def check_programs():
    """Every sampler and every estimator, in pairs that change with the seed: nothing is computed in single precision.

    Read off the traced programs; nothing is compiled for a chain.
    """
    found = collections.defaultdict(set)
    samplers = [name for name in helpers.SAMPLERS if name != "SGHMC-auto"]  # SGHMC-friction, its numbers chosen
    estimators = list(helpers.ESTIMATORS)
    for number, sampler in enumerate(samplers):
        estimator = estimators[(number + SEED) % len(estimators)]
        for source in single_precision(helpers.SAMPLERS[sampler], helpers.ESTIMATORS[estimator]):
            found[source].add(f"{sampler}+{estimator}")
    assert not found, "\n".join(f"{source}: {', '.join(sorted(pairs))}" for source, pairs in found.items())


def single_precision(sampler, estimator):
    """The operations of a chain's program that make float32 numbers, and what it hands out other than in double."""
    problem = setup.compose(helpers.MODEL, DATA, sampler, estimator, 0)
    problem, ready = set_up.prepare(problem, PARAMS, num_steps=5, num_chains=1, key=jax.random.key(0))

    def program(parts, begin, key, chain, num_steps, thin):
        state, _ = loop.start_chain(helpers.MODEL, parts, begin, key, chain)
        return loop.advance(helpers.MODEL, True, 5, parts, state, num_steps, thin, 0)

    numbers = np.int32(0), np.int32(5), np.int32(1)
    traced = jax.make_jaxpr(program)(problem.parts, ready.start, jax.random.key(0), *numbers)
    for out in traced.out_avals:
        if jnp.issubdtype(out.dtype, jnp.floating) and out.dtype != np.float64:
            yield f"result -> {out}"
    for equation in equations(traced.jaxpr):
        if any(getattr(out.aval, "dtype", None) == np.float32 for out in equation.outvars):
            yield f"{equation.primitive} -> {equation.outvars[0].aval}"


def equations(jaxpr):
    """All operations, those inside loops and branches too."""
    for equation in jaxpr.eqns:
        yield equation
        inner = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda part: hasattr(part, "eqns"))
        for part in inner:
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                yield from equations(part)


def check_defaults():
    """A sampler that measures curvature and noise for itself."""
    run = helpers.draw(sc.SGLD(), "Minibatch-blocks", data=DATA, params=PARAMS)
    assert run.draws["weights"].dtype == np.float64


def check_counts():
    """Draws of count samplers are double, and on the simplex to fifteen digits."""
    start = np.full(counting.NUM_CATEGORIES, 0.25)
    for name in ("SCIR", "SCIRCV-refresh", "SimplexSGRLD"):
        run = counting.draw("drawn", name, params=start)
        assert run.draws.dtype == np.float64, name
        assert np.max(np.abs(run.draws.sum(axis=-1) - 1)) < 1e-14, name


def check_kernels():
    """The exact kernels in double, against their laws."""
    jax.config.update("jax_disable_most_optimizations", False)
    cells = list(itertools.product((1e-4, 0.1, 0.5, 3.0, 1e6), (0.0, 1.0, 1e3, 1e6)))
    num_draws = 250_000
    bound = kernel_laws.ks_bound(num_draws, len(cells))
    draw = jax.jit(
        lambda key, theta, shape: sc.diffusions.cir(
            key, jnp.full(num_draws, jnp.log(theta)), shape, np.log(2.0), log=True
        )
    )
    for number, (shape, nc) in enumerate(cells):
        draws = draw(jax.random.key(100 * SEED + number), nc / 2, shape) + np.log(2.0)
        assert draws.dtype == np.float64
        law = functools.partial(kernel_laws.log_transition_cdf, shape=shape, nc=nc)
        assert kernel_laws.ks_distance(draws, law) < bound, (shape, nc)


if __name__ == "__main__":
    assert jax.config.jax_enable_x64, "set JAX_ENABLE_X64=1"
    jax.config.update("jax_disable_most_optimizations", True)
    for name in sys.argv[1:]:
        try:
            globals()[f"check_{name}"]()
            print(name, "ok", flush=True)
        except Exception:
            print(name, traceback.format_exc(), flush=True)
