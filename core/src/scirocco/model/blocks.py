"""A joint posterior whose blocks of parameters are moved in turn, each by its own sampler (`sc.Blocks`)."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from scirocco import _tree
from scirocco.errors import BadStartError, InvalidTypeError, InvalidValueError
from scirocco.model.base import Facts, Posterior, ReadableRows, SomeRows, Wrapper, blank, one_row
from scirocco.model.checks import asks_for_key, trace
from scirocco.model.counts import NEGATIVE_COUNTS, PLACING_ROWS, CountModel, each_row
from scirocco.model.density import Model
from scirocco.types import Array, Datum, Key, Params, PyTree, Rows


class Statistics:
    """Σ_i s(θ, x_i): the statistics of the data that a Gibbs update needs.

    Parameters
    ----------
    function
        `function(params, datum) -> arrays` for one row, or `function(params, datum, key)` if latent variables are
        drawn. `params` contains all parameters of the model.

    Examples
    --------
    >>> import scirocco as sc
    >>> squares = sc.Statistics(lambda params, x: (x - params["mean"]) ** 2)
    """

    form = "datum"

    def __init__(self, function: Callable[..., Any]):
        if not callable(function):
            raise InvalidTypeError(f"`function` of Statistics must be a function (params, datum), got {function!r}.")
        self.function = function
        self.takes_key = asks_for_key(function, if_unknown=True)
        self._jitted = jax.jit(function)

    def __hash__(self) -> int:
        return hash((Statistics, self.function))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statistics) and self.function == other.function

    def one(self, params: Params, datum: Datum, key: Key | None) -> PyTree:
        """The statistics of one row."""
        return self._jitted(params, datum, key) if self.takes_key else self._jitted(params, datum)

    def check_block(self, name: str, params: Params, source: ReadableRows, batch_size: int) -> None:
        """Check that the function can be traced."""
        key = (jax.eval_shape(jax.random.key, 0),) if self.takes_key else ()
        trace(self._jitted, f"statistics of {name}", params, source.row_spec, *key)


class BlockModel(Posterior):
    """A joint posterior over named parameters, and what drives each of them.

    Parameters
    ----------
    model
        The joint `sc.Model` over a dict of parameters. Its gradient moves every block that is not named below.
    blocks
        By the name of a parameter: a `sc.CountModel`, whose counts move a block on the simplex (or a gamma variable) by
        `sc.SCIR`; or `sc.Statistics` for a block that `sc.Gibbs` draws. Both receive ALL parameters:
        `counts(params, datum, key)`. The concentration of the count model is the prior of its block, so omit it from
        `log_prior` of the joint model.

    Examples
    --------
    A mixture of two Gaussians with unknown weights: means by gradients, weights by counts of drawn labels.

    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> def logits(params, x):
    ...     return jnp.log(params["weights"]) - 0.5 * (x - params["means"]) ** 2
    >>> def labels(params, x, key):
    ...     return jax.nn.one_hot(jax.random.categorical(key, logits(params, x)), 2)
    >>> joint = sc.Model(lambda params, x: jax.nn.logsumexp(logits(params, x)))
    >>> model = sc.BlockModel(joint, weights=sc.CountModel(1.0, labels))
    """

    def __init__(self, model: Model, /, **blocks: CountModel | Statistics):
        if not isinstance(model, Model):
            raise InvalidTypeError(f"BlockModel requires the joint sc.Model(log_likelihood, log_prior), got {model!r}.")
        if model.has_dependent_transforms:
            raise InvalidValueError(
                "BlockModel moves some parameters with the others fixed, so no transform of its model may depend on "
                "other parameters: use numbers in `transforms`, or sample all parameters together."
            )
        for name, block in blocks.items():
            if not isinstance(block, (CountModel, Statistics)):
                raise InvalidTypeError(
                    f"the block `{name}` must be a sc.CountModel or sc.Statistics, got {block!r}. Do not name blocks "
                    "that use the gradient of the joint model."
                )
        self.model, self.blocks = model, blocks

    @property
    def facts(self) -> Facts:
        """That its samplers are those of blocks."""
        return Facts(drive="blocks", takes_key=any(block.takes_key for block in self.blocks.values()))

    def __hash__(self) -> int:
        return hash((self.model, tuple(self.blocks.items())))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockModel) and (self.model, self.blocks) == (other.model, other.blocks)

    def __repr__(self) -> str:
        return "".join([f"BlockModel({self.model!r}", *(f", {n}={b!r}" for n, b in self.blocks.items()), ")"])

    @property
    def counted(self) -> dict[str, CountModel]:
        """The blocks that counts drive."""
        return {name: block for name, block in self.blocks.items() if isinstance(block, CountModel)}

    # -- positions and parameters ---------------------------------------------------------------------------

    def mixed(self, position: Params) -> Params:
        """A position of the joint model: blocks driven by counts are in the user's units, as its functions require."""
        return {**position, **{name: block.constrain(position[name]) for name, block in self.counted.items()}}

    def constrain(self, position: Params) -> Params:
        """To the user's units."""
        params: Params = self.model.constrain(self.mixed(position))
        return params

    def unconstrain(self, params: Params) -> Params:
        """From the user's units; gamma variables up to their scale (see `spread`)."""
        position = self.model.unconstrain(params)
        return {**position, **{name: block.unconstrain(params[name]) for name, block in self.counted.items()}}

    def check_domain(self, params: Params) -> None:
        """Check the names, then the domain of each block."""
        if not isinstance(params, dict):
            raise InvalidTypeError(f"a BlockModel requires a dict of parameters by name, got {type(params).__name__}.")
        unknown = sorted(set(self.blocks) - set(params))
        if unknown:
            raise InvalidValueError(
                f"BlockModel names {unknown}, which are not parameters. The parameters are {sorted(params)}."
            )
        self.model.check_domain(params)
        for name, block in self.counted.items():
            block.check_domain(params[name])

    def place(self, position: Params, table: SomeRows, key: Key) -> Params:
        """Gamma variables of the right size for blocks driven by counts."""
        count = min(table.num_rows, PLACING_ROWS)
        some = table.spread_rows(count)
        for name in self.counted:
            view = CountView(self, (name,))
            total = view.total(position, some, None, key)
            position = view.spread(position, _tree.scale(table.num_rows / count, total))
        return position

    def check_start(self, params: Params, source: ReadableRows, batch_size: int) -> None:
        """Check the domain, the joint density, the counts of blocks, and that statistics can be traced."""
        self.check_domain(params)
        self.model.check_start(params, source, batch_size)
        for name, block in self.blocks.items():
            block.check_block(name, params, source, batch_size)

    def explain_bad_start(self, position: Params, table: SomeRows, unhappy: list[str]) -> None:
        """The reasons from the joint density, or invalid counts."""
        self.model.explain_bad_start(self.mixed(position), table, [])
        raise BadStartError(NEGATIVE_COUNTS)

    # -- what a run asks for --------------------------------------------------------------------------------

    def view(self, names: tuple[str, ...]) -> BlockView:
        """The posterior as seen by the sampler of these parameters."""
        block = self.blocks.get(names[0]) if len(names) == 1 else None
        if isinstance(block, CountModel):
            return CountView(self, names)
        return StatisticView(self, names) if isinstance(block, Statistics) else GradientView(self, names)

    def look(self, position: Params, rows: Rows, key: Key | None = None) -> Array:
        """The joint log density; NaN when counts are negative."""
        value = self.model.look(self.mixed(position), rows)
        params = self.constrain(position)
        for number, block in enumerate(self.counted.values()):
            counts = sum_rows(block, params, rows, _own(key, number))
            legal = jnp.stack([jnp.all(leaf >= 0) for leaf in jax.tree.leaves(counts)])
            value = jnp.where(jnp.all(legal), value, jnp.nan)
        return value

    def values(self, position: Params, rows: Rows) -> dict[str, Array]:
        """The values of the joint model, and the sum over the rows of every other block."""
        params, key = self.constrain(position), jax.random.key(0)
        sums = {
            name: jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(sum_rows(block, params, rows, key))])
            for name, block in self.blocks.items()
        }
        priors = {f"{name} prior": block.prior_term(position[name]) for name, block in self.counted.items()}
        flat = {name: jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(p)]) for name, p in priors.items()}
        return {**self.model.values(self.mixed(position), rows), **sums, **flat}

    def stats(self, total: PyTree) -> dict[str, Array]:
        """The norm of the first block's drive (0 if it reads no data): blocks have no common measure."""
        return {"drive_norm": _tree.norm(total) if jax.tree.leaves(total) else jnp.zeros(())}

    def combine(self, position: Params, total: PyTree) -> PyTree:
        """Each view combines its own."""
        raise NotImplementedError("a block model is driven through its views")

    @property
    def summand(self) -> Any:
        """Each view has its own."""
        raise NotImplementedError("a block model is driven through its views")


class BlockView(Wrapper):
    """A block model as seen by one of its blocks: it takes the whole position and returns what drives that block.

    It is also the summand: f(θ, x_i) is the contribution of a row to that block.
    """

    dense: ClassVar[bool] = False
    model: BlockModel
    follows: str
    """The kind of sampler that it drives."""

    def __init__(self, model: BlockModel, names: tuple[str, ...]):
        self.model, self.names = model, names

    @property
    def facts(self) -> Facts:
        """The class attribute `follows` says what drives the block."""
        return Facts(drive="block")

    def __hash__(self) -> int:
        return hash((type(self), self.model, self.names))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and (self.model, self.names) == (other.model, other.names)

    @property
    def summand(self) -> Any:
        """Itself."""
        return self

    @abc.abstractmethod
    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        """Σ_i w_i f(θ, x_i)."""

    @abc.abstractmethod
    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """f(θ, x_i) for each row."""

    def blank_total(self, position: Params, row_spec: PyTree) -> PyTree:
        """The structure of the sum over one row."""
        row = one_row(row_spec)
        return blank(jax.eval_shape(lambda: self.total(position, row, None, jax.random.key(0))))

    def own(self, position: Params) -> Params:
        """The block's part of a position."""
        return _tree.pick(position, self.names)

    def put(self, position: Params, part: Params) -> Params:
        """The position with the block's part replaced."""
        return _tree.put(position, self.names, part)


class GradientView(BlockView):
    """The gradient of the joint log density with respect to some of the parameters."""

    follows = "gradient"

    def _along(self, position: Params, function: Callable[[Params], Array]) -> PyTree:
        return jax.grad(lambda part: function(self.model.mixed(self.put(position, part))))(self.own(position))

    def combine(self, position: Params, total: PyTree) -> PyTree:
        """∇ log prior + the estimated sum."""
        return _tree.add(self._along(position, self.model.model.log_prior_density), total)

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        """Σ_i w_i ∇ log p(x_i | θ)."""
        return self._along(position, lambda at: self.model.model.log_likelihood_sum(at, rows, weights))

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """∇ log p(x_i | θ) for each row."""

        def one(row: Datum) -> PyTree:
            return self._along(position, lambda at: self.model.model.log_likelihood_of_one(at, row))

        return jax.vmap(one)(rows)


class SummedView(BlockView):
    """The sum of a function of the parameters and each row."""

    dense = True

    def __init__(self, model: BlockModel, names: tuple[str, ...]):
        super().__init__(model, names)
        self.block = model.blocks[names[0]]

    @property
    def facts(self) -> Facts:
        """Its sum may be random."""
        return Facts(drive="block", takes_key=self.block.takes_key)

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        """Σ_i w_i f(θ, x_i)."""
        params = self.model.constrain(position)
        if weights is None:
            return self._typed(position, sum_rows(self.block, params, rows, key))
        values = each_row(self.block, params, rows, key)
        return self._typed(position, jax.tree.map(lambda v: jnp.tensordot(weights.astype(v.dtype), v, 1), values))

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """f(θ, x_i) for each row."""
        return self._typed(position, each_row(self.block, self.model.constrain(position), rows, key))

    def _typed(self, position: Params, values: PyTree) -> PyTree:
        """Convert to the precision of the parameters: users may return integers."""
        dtype = jnp.result_type(*jax.tree.leaves(position))
        return jax.tree.map(lambda v: jnp.asarray(v).astype(dtype), values)


class CountView(SummedView):
    """α + Σ_i z_i of a block on the simplex."""

    follows = "counts"

    def combine(self, position: Params, total: PyTree) -> PyTree:
        """The shapes of the block's gamma variables."""
        return self.block.combine(self.own(position), total)  # type: ignore[union-attr]

    def spread(self, position: Params, total: PyTree) -> Params:
        """Gamma variables of the right size at the start of the chain."""
        return self.put(position, self.block.spread(self.own(position), total))  # type: ignore[union-attr]


class StatisticView(SummedView):
    """Σ_i s(θ, x_i), unchanged."""

    follows = "statistics"

    def combine(self, position: Params, total: PyTree) -> PyTree:
        """The sum alone: the update includes the prior."""
        return total


def sum_rows(block: Any, params: Params, rows: Rows, key: Key | None) -> PyTree:
    """The sum of the values; in one call if the model is defined by totals."""
    if block.form == "total":
        return block.several(params, rows, key)
    return jax.tree.map(lambda v: v.sum(axis=0), each_row(block, params, rows, key))


def _own(key: Key | None, number: int) -> Key | None:
    return None if key is None else jax.random.fold_in(key, number)
