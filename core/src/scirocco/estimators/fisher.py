"""The diagonal of the empirical Fisher information, as a metric for preconditioned and Riemannian samplers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from scirocco import _checks, _tree
from scirocco.data import ArraySource, Resident, Streamed, as_source, to_device
from scirocco.data.batching import AllRows
from scirocco.types import Data, Key, Params, PyTree, Rows

_ROWS = 10_000


def empirical_fisher(
    model: Any, data: Data, params: Params, *, num_rows: int | None = _ROWS, seed: int = 0
) -> PyTree:
    r"""N/n Σ_i (∂ log p(x_i | θ))² over n rows: an estimate of the diagonal of the Fisher information at θ.

    A tree like the parameters (on the real line for transformed ones). Its inverse is a reasonable constant
    preconditioner: `sc.Recipe(eps, diffusion=jax.tree.map(lambda f: 1 / (f + damping), fisher))`. For a metric that
    depends on θ write G(θ) as a function, if it is known in closed form, and use `sc.SGRLD`.

    Parameters
    ----------
    model, data, params
        As for `sc.sample`; `params` is the point where the information is computed, best near the mode.
    num_rows
        Number of rows to use, drawn at random; None: all of them, in one pass.
    seed
        Seed for the choice of the rows.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, scirocco as sc
    >>> model = sc.Model(lambda mu, x: -0.5 * ((x - mu) / 2.0) ** 2)
    >>> x = 2.0 * np.random.default_rng(0).standard_normal(20_000).astype(np.float32)
    >>> float(sc.empirical_fisher(model, x, jnp.array(0.0))) / 20_000  # 1/σ² per row
    0.2...
    """
    source = as_source(data)
    position = model.unconstrain(jax.tree.map(lambda p: jnp.asarray(p, jnp.result_type(float)), params))
    batching = AllRows(source.num_rows, source.num_rows)
    if isinstance(source, ArraySource):
        table: Any = Resident(jax.tree.map(to_device, source.arrays), batching)
    else:
        table = Streamed(source, batching, automatic=True)
    if num_rows is None or num_rows >= source.num_rows:
        return table.sum(Squares(model), position)
    num_rows = _checks.positive_int(num_rows, "num_rows")
    rows = table.random_rows(num_rows, jax.random.key(seed))
    return _tree.scale(source.num_rows / num_rows, _sum(Squares(model), position, rows))


@dataclass(frozen=True)
class Squares:
    """Summand (∇ log p(x_i | θ))², elementwise."""

    model: Any

    def total(self, position: Params, rows: Rows, weights: Any = None, key: Key | None = None) -> PyTree:
        """The sum over rows."""
        squares = self.each(position, rows)
        if weights is None:
            return jax.tree.map(lambda v: v.sum(axis=0), squares)
        return jax.tree.map(lambda v: jnp.tensordot(weights.astype(v.dtype), v, axes=1), squares)

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """The squares of each row."""
        return jax.tree.map(lambda g: g * g, self.model.summand.each(position, rows))


@partial(jax.jit, static_argnums=0)
def _sum(summand: Squares, position: Params, rows: Rows) -> PyTree:
    return summand.total(position, rows)
