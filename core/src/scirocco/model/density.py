"""A model: a log prior and the log likelihood of ONE datum, over any pytree of parameters.

The user's functions are wrapped in `jax.jit` once. JAX then keeps the traced form for each signature and reuses
it under `vmap`, `grad` and every loop, so user code runs once or twice, however many programs are built from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _checks, _tree
from scirocco.errors import InvalidTypeError
from scirocco.model import units
from scirocco.model.base import Facts, Posterior, ReadableRows, SomeRows, WithValue, Wrapper, blank, make_room, one_row
from scirocco.model.checks import asks_for_key, check_density, explain_density, value_and_auxiliary
from scirocco.model.families import LinearLikelihood
from scirocco.transforms import Transform
from scirocco.types import Array, Datum, Key, LogLikelihood, LogPrior, Params, PyTree, Rows

_STATE = (
    "log_likelihood",
    "log_prior",
    "form",
    "transforms",
    "derived",
    "dims",
    "coords",
    "simulate",
    "observed",
    "curvature_bound",
    "third_bound",
)
NO_ROW = np.zeros(1, np.float32)
"""The data of a joint density: one row, which it does not read."""
_AT_ONCE = 256  # draws whose derived quantities are computed together


@dataclass(frozen=True)
class _OfNoRow:
    """A joint density as the log likelihood of one row, which it does not read."""

    log_density: Callable[[Params], Any]

    def __call__(self, params: Params, row: Datum) -> Any:
        """The log density at the parameters."""
        return self.log_density(params)


class Model(Posterior):
    """log posterior(θ) = log_prior(θ) + Σ_i log_likelihood(θ, x_i), up to a constant.

    Parameters
    ----------
    log_likelihood
        `log_likelihood(params, datum) -> scalar` for one row of the data. With `vectorized=True` it receives
        several rows at once and returns one value for each. `log_likelihood(params, datum, key)` may be random, with a
        key that is fresh for every row and step: its gradient must then be an unbiased estimate of that of the log
        likelihood. For a latent variable z drawn from p(z | x, θ), with `jax.lax.stop_gradient`, return log p(x, z | θ)
        (Fisher's identity). Such a function of one row may return `(value, auxiliary)`, with z or arrays computed from
        it as the auxiliary draw: `model.auxiliary(params, rows, key)` draws it for chosen rows, e.g. at the draws of a
        run, and a sampler that declares `needs_auxiliary` receives those of its batch in `Gradient.auxiliary`. Runs do
        not store them, and without such a sampler they are not computed.
    log_prior
        `log_prior(params) -> scalar`; by default flat.
    log_density
        In place of both, for a posterior that is no sum over rows: `log_density(params) -> scalar`. The data of such a
        model are None, `sc.sample(model, None, params)`, and there are no minibatches.
    vectorized
        Whether `log_likelihood` takes a batch of rows. This is checked against one-row calls before a run.
    transforms
        For constrained parameters: a dict that names them (any prefix of the parameter tree), e.g.
        `{"scale": sc.transforms.positive}`, or one `sc.transforms` object for all parameters. Starting values and
        draws are in the user's units; samplers, step sizes and kept gradients are on the real line, with the
        log-Jacobian added.
    derived
        `derived(params) -> dict`: quantities of interest that are computed from the draws after a run, see
        `run.derived()`. They are in `run.summary()` and `run.to_arviz()` next to the parameters.
    dims, coords
        For `run.to_arviz()`: the names of the axes of a parameter or derived quantity, `{"beta": ("column",)}`, and
        labels along named axes, `{"column": ["age", "income"]}`.
    simulate
        `simulate(params, row, key)`: a new outcome of a row, drawn from the likelihood, or a dict of outcomes by name.
        `sc.analysis.predictive_check(run)`, `run.predict()` and `run.to_arviz(posterior_predictive=True)` then need no
        function.
    observed
        `observed(rows)`: the outcomes of several rows that were observed, as `simulate` returns them; by default the
        columns with their names, or the column `y`.
    curvature_bound
        For `sc.ZigZag` and other samplers that are exact with few rows: `curvature_bound(direction, datum) -> B`, a
        number or an array that is linear in `direction` (a tree like the parameters, on the real line), such that
        |v' ∇² log_likelihood w| ≤ |B(v)| |B(w)| at all parameters. For a linear predictor η = xᵀθ whose log likelihood
        has a second derivative of at most c in η: `lambda v, row: c**0.5 * (row["x"] @ v)`. `sc.Model.linear` knows
        the bounds of common families.
    third_bound
        A number κ with |∇³ log_likelihood[v, w, s]| ≤ κ |B(v)| |B(w)| |B(s)|: with it, those samplers use an expansion
        of second order and are much faster. For a linear predictor: the bound on the third derivative, over c^1.5.

    Examples
    --------
    >>> import jax.numpy as jnp, scirocco as sc
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2, lambda mu: -0.05 * mu**2)
    >>> model.log_density(jnp.array(0.0), jnp.array([1.0, 2.0]))
    Array(-2.5, dtype=float32)
    """

    takes_key: bool
    groups: str | None = None
    curvature_bound: Callable[[Params, Datum], Any] | None = None
    third_bound: float | None = None

    @_checks.known_arguments
    def __init__(
        self,
        log_likelihood: LogLikelihood | None = None,
        log_prior: LogPrior | None = None,
        *,
        log_density: Callable[[Params], Any] | None = None,
        vectorized: bool = False,
        transforms: PyTree | None = None,
        derived: Callable[[Params], dict[str, Any]] | None = None,
        dims: Mapping[str, Sequence[str | None]] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
        simulate: Callable[..., Any] | None = None,
        observed: Callable[[Rows], Any] | None = None,
        curvature_bound: Callable[[Params, Datum], Any] | None = None,
        third_bound: float | None = None,
    ):
        if log_density is not None:
            if not callable(log_density):
                raise InvalidTypeError(f"`log_density` must be a function of the parameters, got {log_density!r}.")
            if log_likelihood is not None or log_prior is not None or vectorized or curvature_bound is not None:
                raise InvalidTypeError(
                    "`log_density` is the whole log posterior, without rows: pass it alone, or `log_likelihood` and "
                    "`log_prior`."
                )
            log_likelihood = _OfNoRow(log_density)
        if not callable(log_likelihood):
            raise InvalidTypeError(f"`log_likelihood` must be a function (params, datum), got {log_likelihood!r}.")
        for name, function, of in (
            ("log_prior", log_prior, "of the parameters "),
            ("derived", derived, "of the parameters "),
            ("simulate", simulate, ""),
            ("observed", observed, ""),
        ):
            if function is not None and not callable(function):
                raise InvalidTypeError(f"`{name}` must be a function {of}or None, got {function!r}.")
        self.log_likelihood, self.log_prior = log_likelihood, log_prior
        self.form, self.transforms = "rows" if vectorized else "datum", transforms
        self.derived, self.dims, self.coords = derived, dict(dims or {}), dict(coords or {})
        self.simulate, self.observed = simulate, observed
        if curvature_bound is not None and not callable(curvature_bound):
            raise InvalidTypeError(
                f"`curvature_bound` must be a function (direction, datum), got {curvature_bound!r}. For a linear "
                'predictor and a second derivative of at most c: lambda v, row: c**0.5 * (row["x"] @ v).'
            )
        if third_bound is not None and curvature_bound is None:
            raise InvalidTypeError("`third_bound` is relative to `curvature_bound`: pass both.")
        if third_bound is not None:
            _checks.positive(third_bound, "third_bound", allow_zero=True)
        self.curvature_bound, self.third_bound = curvature_bound, third_bound
        self._finish()

    @classmethod
    def from_total(cls, log_likelihood: Callable[[Params, Rows], Any], log_prior: LogPrior | None = None) -> Model:
        """A model whose log likelihood is the SUM over the rows that it receives (as in R's sgmcmc)."""
        model = cls(log_likelihood, log_prior)
        model.form = "total"
        model._finish()
        return model

    @classmethod
    def linear(
        cls,
        family: str,
        log_prior: LogPrior | None = None,
        *,
        predictor: Callable[[Params, Datum], Any] | None = None,
        **parameters: float,
    ) -> Model:
        """A regression on rows {"x", "y"}, whose bounds for exact samplers with few rows are known.

        Parameters
        ----------
        family
            Of y given η: "bernoulli" (y is 0 or 1), "normal", "student" (robust), "softmax" (y is the number of a
            class); or "poisson", "negative_binomial" or "binomial" (rows also have `trials`), which have no bound.
        log_prior
            As for `sc.Model`; exact samplers with few rows require it to be normal or flat.
        predictor
            `predictor(params, datum) -> η`, linear in the parameters; by default `params @ x`, or
            `params["coef"] @ x + params["intercept"]`. With "softmax" it has an entry for each class.
        **parameters
            The values of the family's own parameters: `noise`, the standard deviation or scale of "normal" and
            "student"; `freedom`, the degrees of freedom of "student"; `dispersion` of "negative_binomial".

        Examples
        --------
        >>> import jax.numpy as jnp, scirocco as sc
        >>> model = sc.Model.linear("bernoulli", lambda beta: -0.5 * jnp.sum(beta**2))
        """
        more = {} if predictor is None else {"predictor": predictor}
        likelihood = LinearLikelihood(family, parameters=tuple(sorted(parameters.items())), **more)
        known = likelihood.derivatives()
        if known is None:
            return cls(likelihood, log_prior)
        curvature, third = known
        return cls(likelihood, log_prior, curvature_bound=likelihood.bound, third_bound=third / curvature**1.5)

    def _finish(self) -> None:
        leaves, treedef = list[Any](), None
        if self.transforms is not None:
            leaves, treedef = jax.tree.flatten(self.transforms, is_leaf=units.is_leaf)
        for leaf in leaves:
            if leaf is not None and not isinstance(leaf, Transform):
                raise InvalidTypeError(
                    f"`transforms` must contain sc.transforms objects or None, got {leaf!r}. "
                    "For example transforms={'scale': sc.transforms.positive}."
                )
        self._transformed = any(leaf is not None for leaf in leaves)
        bounds = (self.curvature_bound, self.third_bound)
        self._identity = (self.log_likelihood, self.log_prior, self.form, tuple(leaves), treedef, bounds)
        self.takes_key = asks_for_key(self.log_likelihood)
        make_room()
        self._jitted = jax.jit(self.log_likelihood)
        self._jitted_prior = None if self.log_prior is None else jax.jit(self.log_prior)

    @cached_property
    def facts(self) -> Facts:
        """What is known about it, and what it offers."""
        return Facts(
            drive="gradient",
            takes_key=self.takes_key,
            has_density=True,
            has_rows=not isinstance(self.log_likelihood, _OfNoRow),
            groups=self.groups,
            transforms=self.transforms,
            dims=self.dims,
            coords=self.coords,
            derive=self.derive,
            auxiliary=self.auxiliary,
            valued=lambda reference=None: Valued(self, reference),
        )

    @property
    def has_dependent_transforms(self) -> bool:
        """Whether a transform is a function of other parameters."""
        return any(leaf is not None and bool(leaf.functions) for leaf in self._identity[3])

    def __hash__(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self._identity == other._identity

    def __repr__(self) -> str:
        if isinstance(self.log_likelihood, _OfNoRow):
            return f"Model(log_density={_tree.name_of(self.log_likelihood.log_density)})"
        name = _tree.name_of(self.log_likelihood)
        prior = "flat" if self.log_prior is None else _tree.name_of(self.log_prior)
        return f"Model(log_likelihood={name}, log_prior={prior}, form={self.form!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in _STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._finish()

    # -- constrained and unconstrained coordinates ---------------------------------------------------------

    def constrain(self, position: Params) -> Params:
        """From the real line, where samplers move, to the user's units."""
        return units.constrain(self.transforms, position) if self._transformed else position

    def unconstrain(self, params: Params) -> Params:
        """From the user's units to the real line."""
        return units.unconstrain(self.transforms, params) if self._transformed else params

    def check_domain(self, params: Params) -> None:
        """Raise an error if a starting value is outside its transform's domain."""
        if self._transformed:
            units.check_domain(self.transforms, params)

    def derive(self, draws: Params) -> dict[str, np.ndarray]:
        """The derived quantities of draws, leaves (chain, draw, ...) like the draws."""
        if self.derived is None:
            return {}
        leaves = jax.tree.leaves(draws)
        chains, count = leaves[0].shape[:2]
        flat = jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(chains * count, *leaf.shape[2:]), draws)
        found = jax.jit(lambda flat: jax.lax.map(self.derived, flat, batch_size=_AT_ONCE))(flat)
        return {name: np.asarray(each).reshape(chains, count, *each.shape[1:]) for name, each in found.items()}

    # -- densities on the real line ------------------------------------------------------------------------

    def log_prior_density(self, position: Params) -> Array:
        """log prior(constrain(u)) + log |d constrain / du|."""
        total = jnp.zeros((), jnp.result_type(*jax.tree.leaves(position)))
        if self._jitted_prior is not None:
            total = total + self._jitted_prior(self.constrain(position))
        if self._transformed:
            total = total + units.log_det(self.transforms, position)
        return total

    def log_likelihoods(self, position: Params, rows: Rows, key: Key | None = None) -> Array:
        """One log likelihood per row; if it is random and no key is given, every call has the same draw."""
        params = units.constrain(self.transforms, position) if self._transformed else position
        if self.form == "rows":
            return self._call(params, rows, key)
        if self.takes_key:
            return jax.vmap(partial(self._one_row, params))(rows, self.row_keys(rows, key))
        if self.form == "datum":
            return jax.vmap(self._jitted, (None, 0))(params, rows)
        return jax.vmap(lambda row: self._one_row(params, row))(rows)

    def log_likelihood_sum(
        self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> Array:
        """Σ_i w_i log_likelihood(u, x_i), with w_i = 1 when no weights are given."""
        if self.form == "total" and weights is None:
            return jnp.squeeze(self._call(self.constrain(position), rows, key))
        values = self.log_likelihoods(position, rows, key)
        return jnp.sum(values if weights is None else weights * values)

    def log_likelihood_of_one(self, position: Params, datum: Datum, key: Key | None = None) -> Array:
        """The log likelihood of a single row, for every form of the user's function."""
        return self._one_row(self.constrain(position), datum, key)

    def _one_row(self, params: Params, datum: Datum, key: Key | None = None) -> Array:
        if self.form == "datum":
            return self._call(params, datum, key)
        return jnp.squeeze(self._call(params, jax.tree.map(lambda leaf: leaf[None], datum), key))

    def _call(self, params: Params, data: PyTree, key: Key | None) -> Array:
        if not self.takes_key:
            return self._jitted(params, data)
        return value_and_auxiliary(self._jitted(params, data, jax.random.key(0) if key is None else key))[0]

    def auxiliary(self, params: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """The auxiliary draws of these rows at `params` (user's units), leaves (row, ...).

        Draws from p(z | x, θ) at the posterior draws of θ are draws of z from its posterior.
        """

        def of_one(datum: Datum, key: Key) -> PyTree:
            return value_and_auxiliary(self._jitted(params, datum, key))[1]

        if self.takes_key and self.form == "datum":
            found = jax.vmap(of_one)(rows, self.row_keys(rows, key))
            if found is not None:
                return found
        raise InvalidTypeError(
            "auxiliary draws require a log_likelihood(params, datum, key) of one row that returns (value, auxiliary)."
        )

    def row_keys(self, rows: Rows, key: Key | None) -> Key:
        """A key for each row."""
        return jax.random.split(jax.random.key(0) if key is None else key, jax.tree.leaves(rows)[0].shape[0])

    def log_density(self, params: Params, data: Rows = None) -> Array:
        """Log posterior over all of `data` at `params` (user's units, no Jacobian), up to a constant."""
        prior = 0.0 if self._jitted_prior is None else self._jitted_prior(params)
        rows = data if self.facts.has_rows else NO_ROW
        return prior + self.log_likelihood_sum(self.unconstrain(params), rows)

    # -- what a run asks for -------------------------------------------------------------------------------

    def combine(self, position: Params, total: PyTree) -> PyTree:
        """∇ log prior + the estimated sum of ∇ log likelihood."""
        return _tree.add(jax.grad(self.log_prior_density)(position), total)

    def look(self, position: Params, rows: Rows, key: Key | None = None) -> Array:
        """The log density of the prior and these rows."""
        return self.log_prior_density(position) + self.log_likelihood_sum(position, rows, None, key)

    def values(self, position: Params, rows: Rows) -> dict[str, Array]:
        """Log prior and log likelihoods."""
        return {"log_prior": self.log_prior_density(position), "log_likelihood": self.log_likelihoods(position, rows)}

    def stats(self, total: PyTree) -> dict[str, Array]:
        """The length of the gradient."""
        return {"gradient_norm": _tree.norm(total)}

    @property
    def summand(self) -> GradientSum:
        """The summand that an estimator estimates for this model: the gradient of the log likelihood of a row."""
        return GradientSum(self)

    @property
    def valued(self) -> Valued:
        """The model with the log density next to its gradient."""
        return Valued(self)

    # -- checks --------------------------------------------------------------------------------------------

    def check_start(self, params: Params, source: ReadableRows, batch_size: int) -> None:
        """Check the domain, and that the result is a scalar for one datum, or one value per row."""
        self.check_domain(params)
        check_density(self, params, source, batch_size)

    def explain_bad_start(self, position: Params, table: SomeRows, unhappy: list[str]) -> None:
        """Name the prior, the likelihood or the gradient as the cause; returns if all are finite as far as is known."""
        explain_density(self, position, table, unhappy)


@dataclass(frozen=True)
class GradientSum:
    """f(θ, x_i) = ∇ log p(x_i | θ): the summand that drives Langevin and Hamiltonian samplers.

    The total over rows is one backward pass through the summed log likelihood; the gradients of single rows are
    formed only when an estimator needs them (SAGA, noise covariances).
    """

    model: Model

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        """Σ_i w_i f(θ, x_i)."""
        return jax.grad(self.model.log_likelihood_sum)(position, rows, weights, key)

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """f(θ, x_i) for each row: leaves with a leading axis."""
        return _each(self.model, jax.grad(self.model.log_likelihood_of_one), position, rows, key)


def _each(model: Model, function: Callable[..., PyTree], position: Params, rows: Rows, key: Key | None) -> PyTree:
    if model.takes_key:
        return jax.vmap(function, (None, 0, 0))(position, rows, model.row_keys(rows, key))
    return jax.vmap(function, (None, 0))(position, rows)


class ValuedSum(GradientSum):
    """f(θ, x_i) = (∇ log p(x_i | θ), log p(x_i | θ)): for samplers that use the value of the log density."""

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> WithValue:
        """Both sums, by one forward and one backward pass."""
        value, gradient = jax.value_and_grad(self.model.log_likelihood_sum)(position, rows, weights, key)
        return WithValue(gradient, value)

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> WithValue:
        """Both for each row."""
        function = jax.value_and_grad(self.model.log_likelihood_of_one)
        value, gradient = _each(self.model, function, position, rows, key)
        return WithValue(gradient, value)


@dataclass(frozen=True, eq=False)
class ChangeSum(ValuedSum):
    """f(θ, x_i) = (∇ log p(x_i | θ), log p(x_i | θ) - log p(x_i | θ₀)): differences of rows, whose sum is small.

    The rounding error of Σ log p(x_i | θ) grows with the sum, that of the differences with √Σ (log p(x_i | θ))².
    """

    reference: Array

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> WithValue:
        """Both sums, of one pass at the position and one at the reference."""
        before = self.model.log_likelihoods(ravel_pytree(position)[1](self.reference), rows, key)

        def change(at: Params) -> Array:
            values = self.model.log_likelihoods(at, rows, key) - before
            return jnp.sum(values if weights is None else weights * values)

        value, gradient = jax.value_and_grad(change)(position)
        return WithValue(gradient, value)


class Valued(Wrapper):
    """A model whose sums and drives are `WithValue`: for samplers that use the value of the log density."""

    def __init__(self, model: Model, reference: Array | None = None):
        self.model, self.reference = model, reference

    def __hash__(self) -> int:
        return hash((Valued, self.model))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Valued) and self.model == other.model and self.reference is other.reference

    @property
    def summand(self) -> ValuedSum:
        """Gradients and values."""
        return ValuedSum(self.model) if self.reference is None else ChangeSum(self.model, self.reference)

    @cached_property
    def facts(self) -> Facts:
        """The facts of the model, with a value."""
        of = self.model.facts
        return Facts(
            drive="gradient",
            takes_key=of.takes_key,
            has_value=True,
            row_cost=of.row_cost,
            valued=lambda: self,
            bare=self.model,
        )

    def combine(self, position: Params, total: WithValue) -> WithValue:
        """Gradient and value of the log posterior, on the real line."""
        value = self.model.log_prior_density(position) + total.value
        if self.reference is not None:
            value = value - self.model.log_prior_density(ravel_pytree(position)[1](self.reference))
        return WithValue(self.model.combine(position, total.gradient), value)

    def blank_total(self, position: Params, row_spec: PyTree) -> WithValue:
        """A gradient and a number."""
        return blank(jax.eval_shape(lambda: self.summand.total(position, one_row(row_spec), None, None)))
