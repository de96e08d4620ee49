"""Models whose posterior is Dirichlet or gamma given the counts of every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco._random import Purpose, key_for
from scirocco.errors import BadStartError, InvalidTypeError, InvalidValueError
from scirocco.model.base import Facts, Posterior, ReadableRows, SomeRows, make_room
from scirocco.model.checks import (
    asks_for_key,
    check_fits,
    check_simplex,
    describe,
    positive_tree,
    spread,
    trace,
    used_inputs,
)
from scirocco.types import Array, Datum, Key, Params, PyTree, Rows

SPACES = ("simplex", "positive")
PLACING_ROWS = 256
"""Number of rows from which the size of the counts is guessed at the start of a chain."""
NEGATIVE_COUNTS = (
    "the counts are negative, NaN or infinite at the starting point for some rows. `counts` must return numbers >= 0: "
    "is there a division by a component of omega that is 0?"
)


class CountModel(Posterior):
    r"""ω ~ Dirichlet(α), and every row adds counts: ω | z ~ Dirichlet(α + Σ_i z_i).

    The z_i may be the data themselves (categories), or latent variables that are drawn or averaged for each row, given
    ω (topics of the words of a document): then the posterior of ω is far from Dirichlet, and z changes with ω.

    Samplers on count models (`sc.SCIR`, `sc.SCIRCV`, `sc.SimplexSGRLD`) move independent gamma variables
    θ_k ~ Gamma(α_k + Σ_i z_ik, 1), with ω = θ / Σθ. The chain stores log θ, so that components far below
    the smallest floating-point number keep their precision.

    Parameters
    ----------
    concentration
        α > 0: a number for all components, an array of the shape of ω, or a tree of those like the parameters.
    counts
        `counts(omega, datum, key) -> z`, ≥ 0, of the shape of ω, for one row. Functions of (omega, datum) alone are
        also accepted. `key` is fresh for every row and step.
    space
        "simplex": the last axis of every parameter is a point on the simplex (a vector, or a matrix of K such rows).
        "positive": the parameters are themselves gamma variables on (0, ∞), x ~ Gamma(α + Σ_i z_i, rate). A tree of
        these words, like the parameters, mixes both.
    rate
        For "positive": the rate of the gamma *posterior* (the rate of the prior plus the exposure of all rows).

    Examples
    --------
    How frequent is each of ten categories? Rows are category numbers.

    >>> import jax, jax.numpy as jnp, numpy as np, scirocco as sc
    >>> z = np.repeat(np.arange(10), [800, 100, 100, 0, 0, 0, 0, 0, 0, 0])
    >>> model = sc.CountModel(0.1, lambda omega, z: jax.nn.one_hot(z, 10))
    >>> run = sc.sample(model, z, jnp.full(10, 0.1), sampler=sc.SCIRCV(0.5), estimator=sc.Minibatch(100),
    ...                 num_samples=2000, num_burnin=200, progress=False)
    >>> bool(abs(run.draws[0, :, 0].mean() - 800.1 / 1001) < 0.01)
    True
    """

    drive = "counts"

    def __init__(self, concentration: Any, counts: Callable[..., Any], *, space: PyTree = "simplex", rate: Any = 1.0):
        if not callable(counts):
            raise InvalidTypeError(f"`counts` must be a function (omega, datum, key), got {counts!r}.")
        self.concentration = positive_tree(concentration, "concentration")
        self.rate = positive_tree(rate, "rate")
        for word in jax.tree.leaves(space):
            _checks.choice(word, "space", SPACES)
        self.counts, self.space, self.form = counts, space, "datum"
        self._finish()

    @classmethod
    def from_total(cls, concentration: Any, counts: Callable[..., Any], **options: Any) -> CountModel:
        """A model whose `counts(omega, rows, key)` receives several rows and returns the SUM of their counts.

        For counts that change few entries of a large ω: one scatter-add for a batch, where the sum over rows of dense
        arrays would be slow. Estimators that weight rows (`Weighted`, `Stratified`) or use single rows (`SAGA`) still
        form dense rows.
        """
        model = cls(concentration, counts, **options)
        model.form = "total"
        model._finish()
        return model

    def _finish(self) -> None:
        self.takes_key = asks_for_key(self.counts, if_unknown=True)
        numbers = (self.concentration, self.rate)
        written = tuple((np.asarray(leaf).tobytes(), np.shape(leaf)) for leaf in jax.tree.leaves(numbers))
        spaces, tree = jax.tree.flatten(self.space)
        shape = jax.tree.structure(numbers)
        self._identity = (self.counts, self.form, tuple(spaces), tree, written, shape)
        make_room()
        self._jitted = jax.jit(self.counts)

    @property
    def facts(self) -> Facts:
        """That counts drive its samplers."""
        return Facts(drive="counts", takes_key=self.takes_key)

    def __hash__(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountModel) and self._identity == other._identity

    def __repr__(self) -> str:
        name = _tree.name_of(self.counts)
        alpha = jax.tree.map(lambda leaf: leaf if np.ndim(leaf) == 0 else np.shape(leaf), self.concentration)
        return f"CountModel(concentration={alpha}, counts={name}, space={self.space!r}, form={self.form!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in ("concentration", "rate", "counts", "space", "form")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._finish()

    # -- positions (log θ) and parameters -------------------------------------------------------------------

    def constrain(self, position: Params) -> Params:
        """ω = θ / Σθ along the last axis; x = θ / rate for positive parameters."""

        def one(leaf: Array, space: str, rate: Any) -> Array:
            return jax.nn.softmax(leaf, axis=-1) if space == "simplex" else jnp.exp(leaf) / rate

        return self._mapped(one, position)

    def unconstrain(self, params: Params) -> Params:
        """log ω, or log(x rate): θ up to the scale that `spread` gives it."""
        return self._mapped(lambda leaf, space, rate: jnp.log(leaf if space == "simplex" else leaf * rate), params)

    def spread(self, position: Params, total: PyTree) -> Params:
        """log θ with the sum that a Dirichlet's gamma variables have: Σ_k α_k + Σ_i z_ik."""

        def one(leaf: Array, space: str, rate: Any, shape: Array) -> Array:
            return leaf + jnp.log(shape.sum(axis=-1, keepdims=True)) if space == "simplex" else leaf

        return self._mapped(one, position, self.combine(position, total))

    def _mapped(self, function: Callable[..., Array], params: Params, *more: PyTree) -> Params:
        """function(leaf, space, rate, leaves of `more`) of each leaf."""
        leaves, treedef = jax.tree.flatten(params)
        others = [jax.tree.leaves(tree) for tree in more]
        pairs = zip(leaves, self._leafwise(params), *others, strict=True)
        return jax.tree.unflatten(treedef, [function(leaf, *pair, *own) for leaf, pair, *own in pairs])

    def _leafwise(self, like: Params) -> list[tuple[str, Any]]:
        spaces = _tree.broadcast_prefix(self.space, like, "space", hint=" Give one word, or one for every parameter.")
        return list(zip(jax.tree.leaves(spaces), spread(self.rate, like, "rate"), strict=True))

    def check_domain(self, params: Params) -> None:
        """Check that simplex parameters are ≥ 0 and sum to 1, positive ones are > 0, and every α fits its parameter."""
        named = zip(_tree.leaf_names(params), jax.tree.leaves(params), self._leafwise(params), strict=True)
        for name, leaf, (space, _) in named:
            host = np.asarray(leaf, np.float64)
            if space == "simplex":
                check_simplex(name, host)
            elif np.any(host <= 0):
                raise InvalidValueError(
                    f"the starting value of `{name}` must be > 0 (space='positive'); its minimum is {host.min():g}."
                )
        check_fits(self.concentration, params, "concentration")
        check_fits(self.rate, params, "rate")

    def prior_term(self, position: Params) -> PyTree:
        """α, broadcast to the parameters."""
        leaves, treedef = jax.tree.flatten(position)
        pairs = zip(spread(self.concentration, position, "concentration"), leaves, strict=True)
        return jax.tree.unflatten(
            treedef, [jnp.broadcast_to(jnp.asarray(alpha, leaf.dtype), leaf.shape) for alpha, leaf in pairs]
        )

    def combine(self, position: Params, total: PyTree) -> PyTree:
        """α + Σ_i z_i. Differences of counts (control variates) can make an estimate negative; the sum never is."""
        return jax.tree.map(lambda a, z: a + jnp.maximum(z, 0.0), self.prior_term(position), total)

    # -- counts -----------------------------------------------------------------------------------------------

    def one(self, params: Params, datum: Datum, key: Key | None) -> PyTree:
        """The counts of one row."""
        if self.form == "total":
            datum = jax.tree.map(lambda leaf: leaf[None], datum)
        return self._jitted(params, datum, key) if self.takes_key else self._jitted(params, datum)

    def several(self, params: Params, rows: Rows, key: Key | None) -> PyTree:
        """The summed counts of a batch, for models defined by `from_total`."""
        return self._jitted(params, rows, key) if self.takes_key else self._jitted(params, rows)

    def look(self, position: Params, rows: Rows, key: Key | None = None) -> Array:
        """The sum of all counts of these rows; NaN if one is negative."""
        params = self.constrain(position)
        each = self.summand.each(position, rows, key) if self.form == "datum" else self.several(params, rows, key)
        legal = jnp.stack([jnp.all(leaf >= 0) for leaf in jax.tree.leaves(each)])
        return jnp.where(jnp.all(legal), _total(each), jnp.nan)

    def values(self, position: Params, rows: Rows) -> dict[str, Array]:
        """Concentrations, and the counts of the rows: a few moments of each."""
        each = self.summand.each(position, rows, jax.random.key(0) if self.takes_key else None)
        said = (self.prior_term(position), self.constrain(position), each)
        marks = [_marks(leaf) for leaf in jax.tree.leaves(said)]
        return {"counts": jnp.concatenate(marks)}

    def stats(self, total: PyTree) -> dict[str, Array]:
        """The sum of all estimated shapes α + Σz."""
        return {"total": _total(total)}

    def latent(self, params: Params, row: PyTree) -> bool:
        """Whether the counts of a row depend on the parameters or are random; found by tracing the user's function."""
        if self.form == "total":
            row = jax.tree.map(lambda s: jax.ShapeDtypeStruct((1, *s.shape), s.dtype), row)
        key = (jax.eval_shape(jax.random.key, 0),) if self.takes_key else ()
        graph = jax.make_jaxpr(self.counts)(params, row, *key).jaxpr
        used = used_inputs(graph, [True] * len(graph.outvars))
        of_params, of_row = len(jax.tree.leaves(params)), len(jax.tree.leaves(row))
        return any(used[:of_params]) or any(used[of_params + of_row :])

    # -- before a run ---------------------------------------------------------------------------------------

    def place(self, position: Params, table: SomeRows, key: Key) -> Params:
        """log θ of about the size that the counts of some rows give it."""
        count = min(table.num_rows, PLACING_ROWS)
        return _about_as_large(self, table.num_rows / count, position, table.spread_rows(count), key)

    def check_start(self, params: Params, source: ReadableRows, batch_size: int) -> None:
        """Check the domain, and that counts have the structure and shapes of the parameters."""
        self.check_domain(params)
        self.check_counts(params, params, source, batch_size)

    def check_block(self, name: str, params: Params, source: ReadableRows, batch_size: int) -> None:
        """The check for a block of a BlockModel: the function receives all parameters."""
        self.check_counts(params, params[name], source, batch_size)

    def check_counts(self, given_params: Params, params: Params, source: ReadableRows, batch_size: int) -> None:
        """The same check, if the function receives more parameters than those that its counts match."""
        spec = source.row_spec
        if self.form == "total":
            spec = jax.tree.map(lambda s: jax.ShapeDtypeStruct((batch_size, *s.shape), s.dtype), spec)
        key = (jax.eval_shape(jax.random.key, 0),) if self.takes_key else ()
        out = trace(self._jitted, "counts", given_params, spec, *key)
        given = "one datum" if self.form == "datum" else "some rows"
        wanted = f"counts must return an array like the parameters ({describe(params)}) for {given} ({describe(spec)})"
        if not _tree.same_structure(out, params):
            raise InvalidValueError(f"{wanted}; got the structure {jax.tree.structure(out)}.")
        pairs = zip(_tree.leaf_names(params), jax.tree.leaves(out), jax.tree.leaves(params), strict=True)
        for name, leaf, like in pairs:
            if tuple(leaf.shape) != tuple(like.shape):
                batched = tuple(leaf.shape) == (batch_size, *like.shape)
                hint = " It is called with one row, not a batch." if self.form == "datum" else ""
                hint = " Sum over the rows." if batched and self.form == "total" else hint
                of = f" for `{name}`" if len(jax.tree.leaves(params)) > 1 else ""
                raise InvalidValueError(f"{wanted}; got shape {tuple(leaf.shape)}{of}.{hint}")

    def explain_bad_start(self, position: Params, table: SomeRows, unhappy: list[str]) -> None:
        """Raise an error for invalid counts."""
        raise BadStartError(NEGATIVE_COUNTS)

    @property
    def summand(self) -> CountSum:
        """The summand that an estimator estimates for this model: the counts of a row."""
        return CountSum(self)


@dataclass(frozen=True)
class CountSum:
    """f(θ, x_i) = z_i, the counts of a row: the summand that drives samplers on the simplex."""

    dense = True
    """Single rows have values as large as the parameters, so few rows are evaluated together."""

    model: CountModel

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        """Σ_i w_i z_i."""
        if self.model.form == "total" and weights is None:
            return _like(position, self.model.several(self.model.constrain(position), rows, key))
        values = self.each(position, rows, key)
        if weights is None:
            return jax.tree.map(lambda v: v.sum(axis=0), values)
        return jax.tree.map(lambda v: jnp.tensordot(weights.astype(v.dtype), v, axes=1), values)

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """z_i for each row: leaves with a leading axis."""
        return _like(position, each_row(self.model, self.model.constrain(position), rows, key))


def each_row(block: Any, params: Params, rows: Rows, key: Key | None) -> PyTree:
    """`block.one` of each row; each gets its own key if the values are random."""
    if not block.takes_key:
        return jax.vmap(lambda row: block.one(params, row, None))(rows)
    if key is None:
        raise InvalidTypeError("`counts` takes a key, but the sum has no key.")
    keys = jax.random.split(key, jax.tree.leaves(rows)[0].shape[0])
    return jax.vmap(block.one, (None, 0, 0))(params, rows, keys)


@partial(jax.jit, static_argnums=0)
def _about_as_large(model: CountModel, factor: float, position: Params, rows: Rows, key: Key) -> Params:
    own = key_for(key, Purpose.START) if model.takes_key else None
    return model.spread(position, _tree.scale(factor, model.summand.total(position, rows, None, own)))


def _like(position: Params, values: PyTree) -> PyTree:
    """Convert counts to the precision of the parameters (users may return integers)."""
    return jax.tree.map(lambda v, p: jnp.asarray(v).astype(p.dtype), values, position)


def _total(tree: PyTree) -> Array:
    return jnp.sum(jnp.stack([jnp.sum(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(tree)]))


def _marks(leaf: Array) -> Array:
    flat = jnp.ravel(leaf).astype(jnp.float32)
    ramp = jnp.linspace(0.0, 1.0, flat.size)
    return jnp.stack([flat.sum(), jnp.vdot(flat, flat), jnp.vdot(flat, ramp)])
