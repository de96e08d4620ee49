"""Models with a variable for every group, which is integrated out of the log likelihood of its rows.

The integral over the local variable b of a group is computed by adaptive Gauss–Hermite quadrature: Newton's method
finds the mode of log p(rows, b | θ), and the nodes are placed around it, scaled by the curvature there. The nodes are
constants for derivatives. The gradient of the logarithm of the sum is then Fisher's identity,
∇ log p(rows | θ) = E[∇ log p(rows, b | θ) | rows, θ], with the expectation computed at the nodes, and the second
derivatives are Louis's identity: nothing is differentiated through the search for the mode.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model import units
from scirocco.model.base import Facts
from scirocco.model.density import Model
from scirocco.transforms import Transform
from scirocco.types import Array, LogPrior, Params, PyTree, Rows

_ITERATIONS, _CLOSE = 40, 1e-3
"""Newton steps at most; squared distance to the mode, in standard deviations of b, at which they end."""
_SHORTER, _SHORTEST, _ROUNDING = (0.25, 1e-6, 1e-5)  # of Newton steps: factor, least length, loss that is rounding
_WEAKEST = 1e-4
"""Smallest pivot of a curvature matrix, relative to its diagonal: where the density is not concave."""
_NODES = {1: 9, 2: 7, 3: 5, 4: 4}
"""Nodes for each dimension of the local variable."""
_NEGLIGIBLE = 1e-7
"""Nodes with a smaller share of the largest weight are left out."""
MOST_LOCAL = 4  # numbers of a local variable: four nodes for each are 256 places
_SEARCH = 15
"""Evaluations that the search for a mode costs."""


class HierarchicalModel(Model):
    """Global parameters θ, and a local variable b_g for each group g of rows, integrated out.

    log posterior(θ) = log_prior(θ) + Σ_g log ∫ exp(local_log_prior(b, θ) + Σ_{i in g} log_likelihood(θ, b, x_i)) db

    A run moves θ alone, and a group is what a row is for other models: batches, control variates and exact samplers
    apply unchanged. `run.locals(groups)` draws the local variables of chosen groups afterwards, given the draws of θ.

    Parameters
    ----------
    log_likelihood
        `log_likelihood(global_, local, row) -> scalar` for one row of a group.
    local_log_prior
        `local_log_prior(local, global_) -> scalar`: the log density of a local variable. All terms that depend on the
        global parameters are required, as -log(scale) of a normal density.
    log_prior
        `log_prior(global_) -> scalar`; by default flat.
    groups
        Name of the column of the data that has the group of each row: numbers or strings.
    local
        A local variable: a number, array or pytree of those, where the search for the mode of each group starts. It
        may have up to 4 numbers (on the real line, where `local_transforms` put it).
    num_nodes
        Nodes of the quadrature for each number in the local variable; by default 9, 7, 5 or 4. A normal density with
        normal local variables needs 3. The certificate of a run compares with more nodes.
    transforms, local_transforms
        For constrained global parameters and local variables, as for `sc.Model`. Both are in the user's units in your
        functions and in draws; the log-Jacobians are added.
    derived, dims, coords
        Quantities that are computed from draws of the global parameters, and labels, as for `sc.Model`.
    local_derived
        `local_derived(global_, local, row) -> dict`: quantities of a group, which `run.locals` adds to its local
        variable (a dict, then); `row` is any row of the group.
    simulate, observed
        New outcomes of rows, and those that were observed, as for `sc.Model`; `simulate(global_, row, key)` draws the
        local variable, too.

    Notes
    -----
    Write a local variable in units in which it is about 1, if its scale is a parameter: b = scale · u with a standard
    normal u. The integral is the same, and the mode is found in fewer steps.

    The cost of a group is that of its rows times the number of nodes (all combinations, for several numbers).

    Examples
    --------
    >>> import jax.numpy as jnp, scirocco as sc
    >>> def log_likelihood(theta, u, row):
    ...     return -jnp.logaddexp(0.0, (1 - 2 * row["y"]) * (theta["mean"] + theta["scale"] * u))
    >>> model = sc.HierarchicalModel(
    ...     log_likelihood,
    ...     local_log_prior=lambda u, theta: -0.5 * u**2,
    ...     log_prior=lambda theta: -0.5 * theta["mean"] ** 2 - 0.5 * theta["scale"] ** 2,
    ...     groups="shop",
    ...     transforms={"scale": sc.transforms.positive},
    ... )
    >>> model
    HierarchicalModel(log_likelihood=log_likelihood, groups='shop', num_nodes=9)

    With `y` and `shop` as columns of the data, `sc.sample(model, data, {"mean": 0.0, "scale": 1.0})` draws from the
    posterior, and `run.locals([3, 7])` the local variables of two shops.
    """

    def __init__(
        self,
        log_likelihood: Callable[[Params, PyTree, Rows], Any],
        local_log_prior: Callable[[PyTree, Params], Any],
        log_prior: LogPrior | None = None,
        *,
        groups: str,
        local: PyTree = 0.0,
        num_nodes: int | None = None,
        transforms: PyTree | None = None,
        local_transforms: PyTree | None = None,
        derived: Callable[[Params], dict[str, Any]] | None = None,
        local_derived: Callable[[Params, PyTree, Rows], dict[str, Any]] | None = None,
        dims: Mapping[str, Sequence[str | None]] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
        simulate: Callable[..., Any] | None = None,
        observed: Callable[[Rows], Any] | None = None,
    ):
        for name, function, arguments in (
            ("log_likelihood", log_likelihood, "(global_, local, row)"),
            ("local_log_prior", local_log_prior, "(local, global_)"),
        ):
            if not callable(function):
                raise InvalidTypeError(f"`{name}` must be a function {arguments}, got {function!r}.")
        if not isinstance(groups, str):
            raise InvalidTypeError(
                f"`groups` must be the name of the column of the data with the group of each row, got {groups!r}. "
                "Add the groups to the data: {'y': y, 'shop': shop}."
            )
        if local_derived is not None and not (callable(local_derived) and isinstance(local, dict)):
            raise InvalidTypeError(
                "`local_derived` must be a function (global_, local, row), for a `local` that is a dict: its results "
                f"are added to that. Got {local_derived!r} with local={local!r}."
            )
        start = _start_of(local, local_transforms)
        if num_nodes is None:
            num_nodes = _NODES[len(start.numbers)]
        nodes = _checks.positive_int(num_nodes, "num_nodes", minimum=2)
        self.groups, self.local_derived = groups, local_derived
        super().__init__(
            Integrated(log_likelihood, local_log_prior, start, nodes),
            log_prior,
            vectorized=True,
            transforms=transforms,
            derived=derived,
            dims=dims,
            coords=coords,
            simulate=simulate,
            observed=observed,
        )

    @property
    def integrated(self) -> Integrated:
        """The log likelihood of a bin of groups, as a function of the global parameters."""
        function: Any = self.log_likelihood
        return function

    @property
    def finer(self) -> HierarchicalModel:
        """The same model with more nodes, which shows how precise the integrals are."""
        more = replace(self.integrated, num_nodes=self.integrated.num_nodes + 4)
        other = object.__new__(HierarchicalModel)
        other.__setstate__(self.__getstate__() | {"log_likelihood": more})
        return other

    @cached_property
    def facts(self) -> Facts:
        """With what integrals over groups cost, and more precise ones."""
        return replace(super().facts, row_cost=self._row_cost, finer=lambda: self.finer)

    def _row_cost(self, row_spec: PyTree) -> float:
        """Twice the evaluations of the log likelihood of a row: at the nodes, and in the search for the mode."""
        return 2.0 * row_spec["group"].shape[0] * (len(self.integrated.rule[1]) + _SEARCH)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, HierarchicalModel)
            and self._identity == other._identity
            and self.groups == other.groups
            and self.local_derived == other.local_derived
        )

    def __hash__(self) -> int:
        return hash((self._identity, self.groups))

    def __repr__(self) -> str:
        name = _tree.name_of(self.integrated.log_likelihood)
        nodes = self.integrated.num_nodes
        return f"HierarchicalModel(log_likelihood={name}, groups={self.groups!r}, num_nodes={nodes})"

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"groups": self.groups, "local_derived": self.local_derived}


class LocalStart(NamedTuple):
    """A local variable as numbers on the real line: what can be compared and hashed."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    numbers: tuple[float, ...]
    transforms: tuple[Transform | None, ...]
    """One for each leaf."""

    def tree(self, flat: Array) -> PyTree:
        """The local variable of a vector, in the user's units."""
        pairs = zip(self.transforms, self._leaves(flat), strict=True)
        leaves = [leaf if transform is None else transform.forward(leaf) for transform, leaf in pairs]
        return jax.tree.unflatten(self.treedef, leaves)

    def log_det(self, flat: Array) -> Any:
        """Log |d tree / d flat|."""
        pairs = zip(self.transforms, self._leaves(flat), strict=True)
        return sum(transform.log_det(leaf) for transform, leaf in pairs if transform is not None)

    def _leaves(self, flat: Array) -> list[Array]:
        leaves, begin = [], 0
        for shape in self.shapes:
            size = int(np.prod(shape))
            leaves.append(flat[begin : begin + size].reshape(shape))
            begin += size
        return leaves


def _start_of(local: PyTree, transforms: PyTree | None) -> LocalStart:
    leaves, treedef = jax.tree.flatten(local)
    try:
        arrays = [np.asarray(leaf, np.float64) for leaf in leaves]
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"`local` must contain numbers and arrays of numbers, got {local!r}.") from error
    own = units.leafwise(transforms, local)
    if any(transform is not None and transform.functions for transform in own):
        raise InvalidTypeError("`local_transforms` cannot depend on other variables: use fixed bounds.")
    if any(own):
        units.check_domain(transforms, jax.tree.unflatten(treedef, arrays))
        arrays = [
            array if transform is None else np.asarray(transform.inverse(jnp.asarray(array)), np.float64)
            for transform, array in zip(own, arrays, strict=True)
        ]
    numbers = tuple(float(x) for array in arrays for x in array.ravel())
    if not numbers or not np.all(np.isfinite(numbers)):
        raise InvalidValueError(f"`local` must contain at least one number, and only finite ones, got {local!r}.")
    if len(numbers) > MOST_LOCAL:
        raise InvalidValueError(
            f"`local` has {len(numbers)} numbers; integrals are computed over up to {MOST_LOCAL}. Make some of them "
            "the same for all groups (global parameters)."
        )
    return LocalStart(treedef, tuple(array.shape for array in arrays), numbers, tuple(own))


@dataclass(frozen=True)
class Integrated:
    """log ∫ p(rows, b | θ) db of groups, summed over the groups of each bin.

    Bins are a dict, whose leaves have a leading axis of B bins: `rows`, leaves (B, W, ...); `group` (B, W), the place
    of each row's group in the bin, and one beyond the last for padding; `present` (B, G), whether a place has a group.
    """

    log_likelihood: Callable[..., Any]
    local_log_prior: Callable[..., Any]
    start: LocalStart
    num_nodes: int

    @property
    def rule(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes z (K, q), and the logarithms of weights times e^{z²/2}, for the integral of a function of z."""
        return gauss_hermite(len(self.start.numbers), self.num_nodes)

    def __call__(self, params: Params, bins: dict[str, Any]) -> Array:
        """One sum for each bin."""
        of = Groups.of(bins)
        nodes, logs = self.placed(params, of)
        values = jax.vmap(partial(self.joint, params, of))(nodes) + logs
        each = jnp.where(of.present, jax.nn.logsumexp(values, axis=0), 0.0)
        return jnp.sum(each.reshape(bins["present"].shape), axis=1)

    def placed(self, params: Params, of: Groups) -> tuple[Array, Array]:
        """The nodes (K, q, G), and the logarithms of their weights (K, G); constants for derivatives."""
        mode, root = self.mode(params, of)
        z, logs = self.rule
        places = mode + jax.vmap(lambda one: solve_transposed(root, one))(jnp.asarray(z, mode.dtype))
        volume = sum(jnp.log(root[j][j]) for j in range(len(root)))
        return jax.lax.stop_gradient((places, jnp.asarray(logs, mode.dtype)[:, None] - volume))

    def mode(self, params: Params, of: Groups, start: Array | None = None) -> tuple[Array, Root]:
        """The mode of log p(rows, b | θ) of each group (q, G), and the Cholesky factor of minus its Hessian there.

        Newton steps, shortened until they gain; all groups of a batch make as many as the slowest needs.
        """
        params = jax.lax.stop_gradient(params)
        if start is None:
            numbers = jnp.asarray(self.start.numbers, jnp.result_type(*jax.tree.leaves(params)))
            start = jnp.broadcast_to(numbers[:, None], (len(numbers), len(of.present)))

        def look(b: Array) -> tuple[Array, Array, Array, Root]:
            """Value, Newton step, decrement and root at b."""
            value, gradient, curvature = self._expand(params, of, b)
            root = cholesky(-curvature)
            half = solve_lower(root, gradient)
            return value, solve_transposed(root, half), jnp.sum(half**2, axis=0), root

        def proceed(carry: tuple[Any, ...]) -> Array:
            number, done = carry[0], carry[-1]
            return (number < _ITERATIONS) & ~jnp.all(done)

        def one(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            number, b, seen, length, done = carry
            there = b + length * seen[1]
            found = look(there)
            gains = found[0] >= seen[0] - _ROUNDING * (1.0 + jnp.abs(seen[0]))  # False for NaN
            keep = gains & ~done
            b, seen = jax.tree.map(lambda new, old: jnp.where(keep, new, old), (there, found), (b, seen))
            length = jnp.where(gains, 1.0, _SHORTER * length).astype(b.dtype)
            return number + 1, b, seen, length, done | (seen[2] < _CLOSE) | (length < _SHORTEST)

        # nothing was seen before the first step, which has no length: `look` is then in the program once
        size, one_each = len(start), jnp.ones(start.shape[1:], start.dtype)
        root = [[one_each for _ in range(i + 1)] for i in range(size)]
        seen = (-jnp.inf * one_each, jnp.zeros_like(start), jnp.inf * one_each, root)
        begin = (jnp.zeros((), jnp.int32), start, seen, one_each, ~of.present)
        _, b, found, _, _ = jax.lax.while_loop(proceed, one, begin)
        return b, found[3]

    def joint(self, params: Params, of: Groups, b: Array) -> Array:
        """log p(rows, b | θ) of each group at its own b (q, G)."""

        def of_row(row: PyTree, own: Array) -> Array:
            return self.log_likelihood(params, self.start.tree(own), row)

        return of.sums(of_row, b) + jax.vmap(partial(self._prior, params), 1)(b)

    def _expand(self, params: Params, of: Groups, b: Array) -> tuple[Array, Array, Array]:
        """Value (G,), gradient (q, G) and Hessian (q, q, G) of `joint` in b."""

        def of_row(row: PyTree, own: Array) -> tuple[Array, Array, Array]:
            return _expansion(lambda x: self.log_likelihood(params, self.start.tree(x), row), own)

        def of_group(own: Array) -> tuple[Array, Array, Array]:
            return _expansion(partial(self._prior, params), own)

        prior = jax.vmap(of_group, 1, -1)(b)
        return jax.tree.map(jnp.add, of.sums(of_row, b), prior)

    def _prior(self, params: Params, b: Array) -> Array:
        return self.local_log_prior(self.start.tree(b), params) + self.start.log_det(b)


class Groups(NamedTuple):
    """The groups of some bins, and their rows."""

    rows: PyTree
    """Leaves (W, G, ...) if every bin has one group: arithmetic runs along the groups. Otherwise (rows, ...)."""
    group: Array
    """The group of each row, of the same form; one beyond the last for padding."""
    present: Array
    """Whether there is a group in this place."""

    @classmethod
    def of(cls, bins: dict[str, Any]) -> Groups:
        """All rows of all bins."""
        count, width = bins["group"].shape
        places = bins["present"].shape[1]
        group = bins["group"] + places * jnp.arange(count, dtype=jnp.int32)[:, None]
        group = jnp.where(bins["group"] < places, group, count * places)

        def arranged(leaf: Array) -> Array:
            return jnp.swapaxes(leaf, 0, 1) if places == 1 else leaf.reshape(count * width, *leaf.shape[2:])

        rows = jax.tree.map(arranged, bins["rows"])
        return cls(rows, arranged(group), bins["present"].reshape(-1))

    def first_rows(self) -> PyTree:
        """A row of each group: leaves (G, ...)."""
        if self.group.ndim == 2:
            return jax.tree.map(lambda leaf: leaf[0], self.rows)
        count = len(self.present)
        places = jax.ops.segment_min(jnp.arange(len(self.group)), self.group, count)
        return jax.tree.map(lambda leaf: leaf[jnp.minimum(places, len(leaf) - 1)], self.rows)

    def sums(self, function: Callable[[PyTree, Array], PyTree], b: Array) -> PyTree:
        """Σ function(row, b of its group) over the rows of each group, for b (q, G): leaves (..., G)."""
        count = len(self.present)
        own = self.group < count
        if self.group.ndim == 2:
            each = jax.vmap(jax.vmap(function, (0, 1), -1), (0, None))(self.rows, b)

            def total(values: Array) -> Array:
                used = own.reshape(own.shape[0], *(1,) * (values.ndim - 2), own.shape[1])
                return jnp.sum(jnp.where(used, values, 0.0), axis=0)

            return jax.tree.map(total, each)
        each = jax.vmap(function, (0, 1))(self.rows, b[:, jnp.minimum(self.group, count - 1)])

        def gathered(values: Array) -> Array:
            used = jnp.where(own.reshape(-1, *(1,) * (values.ndim - 1)), values, 0.0)
            return jnp.moveaxis(jax.ops.segment_sum(used, self.group, count), 0, -1)

        return jax.tree.map(gathered, each)


def _expansion(function: Callable[[Array], Array], at: Array) -> tuple[Array, Array, Array]:
    """Value, gradient and Hessian."""

    def slope(x: Array) -> tuple[Array, tuple[Array, Array]]:
        value, gradient = jax.value_and_grad(function)(x)
        return gradient, (value, gradient)

    curvature, (value, gradient) = jax.jacfwd(slope, has_aux=True)(at)
    return value, gradient, curvature


def gauss_hermite(dimension: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (K, q) and log(w e^{z²/2}): ∫ f(z) dz is about Σ w_k e^{z_k²/2} f(z_k), exact for polynomials × normal."""
    points, weights = np.polynomial.hermite_e.hermegauss(count)
    places = np.array(list(itertools.product(range(count), repeat=dimension)))
    logs = np.log(weights)[places].sum(axis=1)
    kept = logs > logs.max() + np.log(_NEGLIGIBLE)
    nodes = points[places][kept]
    return nodes, logs[kept] + 0.5 * np.sum(nodes**2, axis=1)


# -- small matrices by whole arrays: a LAPACK call for each group would take longer than its rows ----------------------

Root = list[list[Array]]
"""A lower triangle: for each entry, an array with one number per group."""


def cholesky(matrix: Array) -> Root:
    """Lower factors of matrices (q, q, G); where one is not positive definite, its pivots are raised."""
    root: Root = []
    for i in range(matrix.shape[0]):
        row: list[Array] = []
        for j in range(i):
            row.append((matrix[i, j] - _dot(row[:j], root[j][:j])) / root[j][j])
        least = _WEAKEST * jnp.maximum(jnp.abs(matrix[i, i]), _WEAKEST)
        row.append(jnp.sqrt(jnp.maximum(matrix[i, i] - _dot(row, row), least)))
        root.append(row)
    return root


def solve_lower(root: Root, right: Array) -> Array:
    """C⁻¹ x for x (q, G)."""
    found: list[Array] = []
    for i, row in enumerate(root):
        found.append((right[i] - _dot(row[:i], found)) / row[i])
    return jnp.stack(found)


def solve_transposed(root: Root, right: Array) -> Array:
    """C⁻ᵀ x for x (q, G) or (q,)."""
    found: list[Array] = []
    for i in reversed(range(len(root))):
        below = [root[k][i] for k in range(len(root) - 1, i, -1)]
        found.append((right[i] - _dot(below, found)) / root[i][i])
    return jnp.stack(found[::-1])


def _dot(left: list[Array], right: list[Array]) -> Array:
    return sum((a * b for a, b in zip(left, right, strict=True)), start=jnp.zeros(()))
