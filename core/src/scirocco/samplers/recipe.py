"""The complete recipe (Ma, Chen & Fox 2015): a sampler from two matrices; and samplers that are made by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scirocco import _checks, _tree
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.samplers import matrices, schedules
from scirocco.samplers.base import Gradient, Known, Mover, Needs
from scirocco.samplers.matrices import (
    POSITION,
    Block,
    Pair,
    State,
    Varying,
    by_part,
    inject,
    normal_auxiliaries,
    normal_matrix,
)
from scirocco.samplers.momentum import is_due
from scirocco.samplers.verify import Process, check_at_start
from scirocco.types import Array, ArrayLike, Key, Params, PyTree

_SMALL = 64
"""Up to this size, Γ of a diagonal is derived entry by entry; above, entry i must depend on number i alone."""


class RecipeState(NamedTuple):
    """Position, auxiliary variables, and the number of variances clipped in the last step."""

    position: Params
    auxiliaries: dict[str, PyTree]
    clipped: Array


@cited("a sampler of the complete recipe of D and Q", "ma2015")
@pytree_dataclass
class Recipe(Mover):
    r"""Any continuous-path sampler, from a diffusion matrix D(z) ⪰ 0 and a skew-symmetric curl matrix Q(z).

    With z = (position θ, auxiliaries) and H(z) = -log posterior(θ) + K(z):

    .. math::
        z' = z + ε\,[-(D + Q)\,∇\hat H + T\,Γ] + N(0,\; 2εTD - ε^2 \hat B), \qquad
        Γ_i = Σ_j ∂(D_{ij} + Q_{ij})/∂z_j

    Γ is derived by automatic differentiation. The parts of z move in turn, auxiliaries first, each with the current
    values of the others: for Hamiltonian choices that is the symplectic order (momentum first), an order of magnitude
    more accurate than moving all at once, and for every choice it is first order.

    Targets exp(-H/T) as ε → 0, for every D ⪰ 0 and skew Q (Ma, Chen & Fox 2015, theorem 1); every continuous Markov
    process with that stationary distribution is of this form (theorem 2). The paper's equations (6), (9), (14) and (17)
    print Γ with the wrong sign; Algorithm 1 and this implementation have the right one.

    Parameters
    ----------
    step_size
        ε: a number or a schedule.
    diffusion
        D: the diagonal block of each part, `{"momentum": C}` (other parts have none); without auxiliaries
        the block of the position alone. A block is a number (times the identity), a tree like the part (a diagonal),
        `sc.LowRank`, or a matrix over the flattened part. Constant, or a function of z = {"position": ..., ...}.
    curl
        Q: `{("position", "momentum"): block}`; the opposite block is its negative transpose, so that Q is skew by
        construction. Without auxiliaries: a skew matrix over the flattened position. Constant or a function of z.
    auxiliaries
        Their names, each like the parameters and started from N(0, T): `("momentum",)`; or a dict from names to
        "normal" or a number (a part that is a single number, with its start).
    hamiltonian
        K(z), the part of H that is not -log posterior. By default Σ ½ r² over the auxiliaries that start "normal".
    gamma
        None: derived. A function of z that returns a dict of trees: your own, compared with the derived one before the
        run. "naive": no Γ, which gives a wrong stationary distribution if D or Q depend on z.
    elementwise
        Whether entry i of a diagonal block depends on number i alone, which makes Γ cost one derivative instead of dim.
        None: not assumed up to 64 numbers; assumed (and checked at the start) beyond.
    correct_noise
        "none", "diagonal" or "full": how the covariance V of the gradient estimate is subtracted from the injected
        noise, B̂ = (D+Q) V (D+Q)ᵀ. Negative variances are clipped at 0; `run.stats["clipped"]` counts them.
    resample_every
        Redraw the auxiliaries that start "normal" every so many steps L (Algorithm 1); None: never. The kick after a
        refresh is halved, as in leapfrog: with a full kick the variance would be L/(L+1) of the right one without
        friction, at any step size.
    temperature
        T.

    Examples
    --------
    SGHMC with friction 10, and Langevin dynamics with a metric:

    >>> import jax.numpy as jnp, scirocco as sc
    >>> sghmc = sc.Recipe(1e-2, diffusion={"momentum": 10.0}, curl={("position", "momentum"): -1.0},
    ...                   auxiliaries=("momentum",))
    >>> riemannian = sc.Recipe(1e-3, diffusion=lambda z: 1.0 + z["position"] ** 2)
    """

    step_size: Any
    diffusion: Any = None
    curl: Any = None
    auxiliaries: Any = static(default=())
    hamiltonian: Callable[[State], Any] | None = static(default=None)
    gamma: Any = static(default=None)
    elementwise: bool | None = static(default=None)
    correct_noise: str = static(default="none")
    resample_every: int | None = static(default=None)
    temperature: ArrayLike = 1.0
    name: str = static(default="Recipe")

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not isinstance(self.name, str):
            raise InvalidTypeError(f"`name` must be a string, got {self.name!r}.")
        put(self, "step_size", schedules.normalise(self.step_size, self.name))
        put(self, "auxiliaries", normal_auxiliaries(self.auxiliaries, self.name))
        put(self, "diffusion", normal_matrix(self.diffusion, "diffusion", self._names, False))
        put(self, "curl", normal_matrix(self.curl, "curl", self._names, True))
        _checks.choice(self.correct_noise, "correct_noise", ("none", "diagonal", "full"))
        _checks.positive(self.temperature, "temperature", self.name, allow_zero=True)
        if self.resample_every is not None:
            _checks.positive_int(self.resample_every, "resample_every")
        if self.hamiltonian is not None and not callable(self.hamiltonian):
            raise InvalidTypeError(f"`hamiltonian` of {self.name} must be a function of z, got {self.hamiltonian!r}.")
        if not (self.gamma is None or self.gamma == "naive" or callable(self.gamma)):
            raise InvalidValueError(
                f"`gamma` of {self.name} must be None (derived), 'naive' or a function of z, got {self.gamma!r}."
            )

    @classmethod
    def from_drift(
        cls,
        drift: Callable[[Array], Any],
        diffusion: Any,
        log_density: Callable[[Array], Any],
        at: Sequence[Any],
        *,
        step_size: Any = 0.01,
        extent: float = 12.0,
    ) -> Recipe:
        """The recipe of a process dz = f(z) dt + √(2D) dW, if it has the given stationary density (theorem 2).

        Tests at some points whether the density is stationary, and solves for the curl matrix Q: in one dimension it is
        0, in two it is an integral along a ray, computed by quadrature at every step. An error says by how much the
        probability current leaks if the density is not stationary.

        Parameters
        ----------
        drift
            f(z), for arrays z of shape (1,) or (2,).
        diffusion
            D: a number, a matrix, or a function of z.
        log_density
            Of the stationary density, up to a constant; it must be that of the model of a run.
        at
            Points at which everything is checked, where the density has its mass.
        step_size
            Of the recipe.
        extent
            A distance at which the density is negligible: about ten standard deviations.

        Examples
        --------
        >>> import jax.numpy as jnp, scirocco as sc
        >>> spiral = jnp.array([[-1.0, -3.0], [3.0, -1.0]])  # a rotation on top of Langevin dynamics
        >>> points = [jnp.array([0.5, -1.0]), jnp.array([1.5, 0.3])]
        >>> recipe = sc.Recipe.from_drift(lambda z: spiral @ z, 1.0, lambda z: -0.5 * z @ z, points)
        >>> recipe.curl_blocks({"position": points[0]})["position", "position"].value.round(2)
        Array([[ 0.,  3.],
               [-3.,  0.]], dtype=float32)
        """
        process = Process(drift, diffusion, log_density, at, extent)
        process.check()
        given = diffusion
        if callable(diffusion):
            given = lambda z: process.diffusion(z[POSITION])  # noqa: E731
        curl = None if process.size == 1 else (lambda z: process.curl(z[POSITION]))
        return cls(step_size, diffusion=given, curl=curl)

    @property
    def _names(self) -> tuple[str, ...]:
        return (*(name for name, _ in self.auxiliaries), POSITION)

    @property
    def needs(self) -> Needs:
        return Needs(noise=self.correct_noise)

    @property
    def known(self) -> Known:
        """With auxiliaries the position moves by ε times a momentum."""
        return Known(step_order=1 if self.auxiliaries else 2)

    # -- the state -------------------------------------------------------------------------------------------------

    def init(self, params: Params, key: Key) -> RecipeState:
        return RecipeState(params, self._fresh(params, key), jnp.zeros((), jnp.int32))

    def _fresh(self, params: Params, key: Key) -> dict[str, PyTree]:
        drawn = [name for name, start in self.auxiliaries if start == "normal"]
        keys = dict(zip(drawn, [key] if len(drawn) == 1 else jax.random.split(key, max(1, len(drawn))), strict=False))
        root = jnp.sqrt(jnp.asarray(self.temperature))
        dtype = jnp.result_type(*jax.tree.leaves(params))
        return {
            name: _tree.scale(root, _tree.normal_like(keys[name], params))
            if start == "normal"
            else jnp.asarray(start, dtype)
            for name, start in self.auxiliaries
        }

    def template(self, params: Params) -> State:
        """A state with these parameters and constant auxiliaries, for shapes."""
        at_rest = {
            name: _tree.zeros_like(params) if start == "normal" else jnp.asarray(start, jnp.float32)
            for name, start in self.auxiliaries
        }
        return {**at_rest, POSITION: params}

    def noise(self, key: Key, params: Params) -> PyTree:
        """Normals for every part that D drives, and for resampled auxiliaries."""
        shapes = jax.eval_shape(lambda z: self._noise_like(z), self.template(params))
        if self.resample_every is None:
            return _normals(key, shapes), None
        kick, fresh = jax.random.split(key)
        again = {name: params for name, start in self.auxiliaries if start == "normal"}
        return _normals(kick, shapes), _normals(fresh, again)

    def _noise_like(self, z: State) -> PyTree:
        """The normals of a step: like the part, and `rank` more for a low-rank block."""

        def one(part: str, block: Block) -> PyTree:
            rank = block.value.factor.shape[1] if block.form == "low rank" else None
            return z[part] if rank is None else (z[part], jnp.zeros(rank))

        return {part: one(part, block) for part, block in self.diffusion_blocks(z).items()}

    # -- the matrices ----------------------------------------------------------------------------------------------

    def diffusion_blocks(self, z: State) -> dict[str, Block]:
        """D's blocks at z."""
        return {
            part: matrices.recognise(value, z[part], z[part], f"`diffusion` of `{part}`")
            for part, value in self._written(self.diffusion, z, False).items()
        }

    def curl_blocks(self, z: State) -> dict[Pair, Block]:
        """Q's blocks at z, both of each pair."""
        out = {}
        for (a, b), value in self._written(self.curl, z, True).items():
            block = matrices.recognise(value, z[a], z[b], f"`curl` between `{a}` and `{b}`")
            out[a, b] = block
            if a != b:
                turned = matrices.transpose(block)
                out[b, a] = Block(turned.form, jax.tree.map(jnp.negative, turned.value))
        return out

    def _written(self, matrix: Any, z: State, pairs: bool) -> dict[Any, Any]:
        value = matrix.function(z) if isinstance(matrix, Varying) else matrix
        return by_part(value, "curl" if pairs else "diffusion", self._names, pairs)

    def gamma_of(self, z: State, part: str) -> PyTree:
        """Γ of one part at z, derived."""
        total = _tree.zeros_like(z[part])
        for other in self._names:
            for blocks_of, matrix in ((self._diffusion_pairs, self.diffusion), (self.curl_blocks, self.curl)):
                if not isinstance(matrix, Varying) or (part, other) not in (found := blocks_of(z)):
                    continue

                def entry(at: PyTree, other: str = other, blocks_of: Any = blocks_of) -> Any:
                    return blocks_of({**z, other: at})[part, other].value

                form = found[part, other].form
                flag = self._elementwise(z[other])
                total = _tree.add(total, matrices.divergence(entry, z[other], form, z[part], flag))
        return total

    def _diffusion_pairs(self, z: State) -> dict[Pair, Block]:
        return {(part, part): block for part, block in self.diffusion_blocks(z).items()}

    def _elementwise(self, part: PyTree) -> bool:
        return self.elementwise if self.elementwise is not None else _tree.size(part) > _SMALL

    # -- the move --------------------------------------------------------------------------------------------------

    def slopes(self, z: State, gradient: PyTree) -> State:
        """∇H: minus the gradient of the log posterior, plus that of K."""
        extra = self.slopes_of_rest(z)
        return {**extra, POSITION: _tree.subtract(extra[POSITION], gradient)}

    def slopes_of_rest(self, z: State) -> State:
        """∇K."""
        if self.hamiltonian is not None:
            return jax.grad(lambda state: jnp.squeeze(self.hamiltonian(state)))(z)  # type: ignore[misc]
        at_rest = _tree.zeros_like(z)
        return {**at_rest, **{name: z[name] for name, start in self.auxiliaries if start == "normal"}}

    def drift(self, z: State, gradient: PyTree, part: str, share: ArrayLike | None = None) -> PyTree:
        """-(D + Q) ∇H + T Γ, the rows of one part; with -Q ∇H + T Γ multiplied by `share` if it is given."""
        slopes = self.slopes(z, gradient)
        total = self._gamma_used(z, part)
        for (a, b), block in self.curl_blocks(z).items():
            if a == part:
                total = _tree.subtract(total, matrices.multiply(block, slopes[b], z[part]))
        if share is not None:
            total = _tree.scale(share, total)
        for other, block in self.diffusion_blocks(z).items():
            if other == part:
                total = _tree.subtract(total, matrices.multiply(block, slopes[part], z[part]))
        return total

    def _gamma_used(self, z: State, part: str) -> PyTree:
        if self.gamma == "naive":
            return _tree.zeros_like(z[part])
        if self.gamma is None:
            return _tree.scale(self.temperature, self.gamma_of(z, part))
        given = self.gamma(z)
        value = given.get(part) if isinstance(given, Mapping) else given if part == POSITION else None
        return _tree.zeros_like(z[part]) if value is None else _tree.scale(self.temperature, value)

    def step(self, state: RecipeState, gradient: Gradient, noise: PyTree, number: Array) -> RecipeState:
        """Move the auxiliaries first, then the position, each with the current values of the others."""
        kick, fresh = noise
        z: State = {**state.auxiliaries, POSITION: state.position}
        share = None
        if fresh is not None and self.resample_every is not None:
            due, root = is_due(number, self.resample_every), jnp.sqrt(jnp.asarray(self.temperature))
            share = jnp.where(due, 0.5, 1.0)
            for name, normals in fresh.items():
                z[name] = jax.tree.map(lambda old, xi: jnp.where(due, root * xi, old), z[name], normals)
        leaf = jax.tree.leaves(state.position)[0]
        eps = schedules.step_sizes(self.step_size, leaf, number)
        moves, clipped = inject(self, z, eps, kick, gradient.noise)
        current = dict(z)
        for part in self._names:
            drift = self.drift(current, gradient.total, part, None if part == POSITION else share)
            moved = jax.tree.map(lambda p, d: (p + eps * d).astype(p.dtype), current[part], drift)
            current[part] = _tree.add(moved, moves[part]) if part in moves else moved
        position = current.pop(POSITION)
        return RecipeState(position, current, clipped)

    def stats(self, state: RecipeState) -> dict[str, Array]:
        return {} if self.correct_noise == "none" else {"clipped": state.clipped}

    def check_params(self, params: Params, num_steps: int) -> None:
        schedules.check_positive_along(self.step_size, num_steps)
        check_at_start(self, self.template(params))


def _normals(key: Key, like: PyTree) -> PyTree:
    return _tree.normal_like(key, like) if jax.tree.leaves(like) else like


_MOMENTUM = "momentum"


@cited("stochastic gradient Riemannian Langevin dynamics", "patterson2013 ma2015")
def SGRLD(step_size: PyTree, inverse_metric: Callable[[Params], Any], **options: Any) -> Recipe:
    r"""Riemannian Langevin dynamics (Patterson & Teh 2013) with any metric: D = G(θ)⁻¹, Q = 0.

    .. math:: θ' = θ + ε\,[G^{-1} \hat g + Γ] + \sqrt{2εG^{-1}}\,ξ, \qquad Γ_i = Σ_j ∂G^{-1}_{ij}/∂θ_j

    Targets the posterior as ε → 0. Patterson & Teh's Γ is for their metrics; here it is derived for yours.

    Parameters
    ----------
    step_size
        ε: number or schedule.
    inverse_metric
        `inverse_metric(params)`: G⁻¹ as a number, a tree like the parameters (a diagonal), `sc.LowRank` or a matrix.
    options
        Options of `sc.Recipe`: `temperature`, `correct_noise`, `elementwise`, `gamma`.

    Examples
    --------
    >>> import scirocco as sc
    >>> sampler = sc.SGRLD(1e-3, lambda theta: 1.0 + theta**2)
    """
    _need_function(inverse_metric, "SGRLD", "inverse_metric")
    return Recipe(step_size, diffusion=lambda z: inverse_metric(z[POSITION]), name="SGRLD", **options)


@cited("stochastic gradient Riemannian Hamiltonian Monte Carlo", "ma2015")
def SGRHMC(
    step_size: PyTree, inverse_root: Callable[[Params], Any], resample_every: int | None = None, **options: Any
) -> Recipe:
    r"""Generalised Riemannian Hamiltonian dynamics (gSGRHMC; Ma, Chen & Fox 2015, Algorithm 1).

    .. math::
        r' = r + ε\,[G^{-1/2} \hat g - G^{-1} r + Γ_r] + \sqrt{2εG^{-1}}\,ξ, \qquad
        θ' = θ + ε\,[G^{-1/2} r' + Γ_θ], \qquad Γ_r = ∇_θ·G^{-1/2}

    Targets posterior(θ) N(r; 0, I) as ε → 0 for any positive G(θ); without Γ (`gamma="naive"`) it does not.

    Parameters
    ----------
    step_size
        ε: number or schedule.
    inverse_root
        `inverse_root(params)`: G^(-1/2), symmetric; a number, a tree like the parameters (a diagonal) or a matrix.
    resample_every
        Redraw the momentum every so many steps; None: never.
    """
    _need_function(inverse_root, "SGRHMC", "inverse_root")

    def diffusion(z: PyTree) -> PyTree:
        return {_MOMENTUM: _square(inverse_root(z[POSITION]), z[POSITION])}

    def curl(z: PyTree) -> PyTree:
        return {(POSITION, _MOMENTUM): jax.tree.map(jnp.negative, inverse_root(z[POSITION]))}

    return Recipe(
        step_size,
        diffusion=diffusion,
        curl=curl,
        auxiliaries=(_MOMENTUM,),
        resample_every=resample_every,
        name="SGRHMC",
        **options,
    )


def _square(root: Any, params: Params) -> Any:
    """G⁻¹ from G^(-1/2)."""
    leaves = jax.tree.leaves(root)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    dense = len(leaves) == 1 and jnp.shape(leaves[0]) == (size, size) and size > 1
    return root @ root if dense and not matrices.alike(root, params) else jax.tree.map(lambda v: v * v, root)


@cited("stochastic gradient Fisher scoring", "ahn2012")
def SGFS(step_size: PyTree, preconditioner: Any = 1.0, correct_noise: str = "full", **options: Any) -> Recipe:
    r"""Stochastic gradient Fisher scoring (Ahn, Korattikara & Welling 2012) as a recipe: constant D, noise corrected.

    .. math:: θ' = θ + ε D \hat g + N(0,\; 2εD - ε^2 D \hat V D)

    with V̂ the covariance of ĝ, estimated from the rows of each batch. With D the inverse of the information, minibatch
    noise replaces injected noise as the step size grows. The correction is for the variance of a single batch, so
    batches must be independent: `sc.Minibatch(n, sampling="with_replacement")`. The errors of a shuffled pass cancel,
    and with large steps the variance of the draws would be too small (a fifth in benchmarks/choosing.py).

    Parameters
    ----------
    step_size
        ε: number or schedule.
    preconditioner
        D: a number, a tree like the parameters, `sc.LowRank` or a matrix over the flattened parameters.
    correct_noise
        "full" or "diagonal".
    """
    return Recipe(step_size, diffusion=preconditioner, correct_noise=correct_noise, name="SGFS", **options)


@cited("Hamiltonian dynamics with noisy gradients, written as a recipe", "ma2015")
def HMCDynamics(step_size: PyTree, resample_every: int = 20, temperature: ArrayLike = 1.0) -> Recipe:
    r"""Hamiltonian dynamics without friction: D = 0, Q = [[0, -I], [I, 0]], momenta redrawn every L steps.

    .. math:: r' = r + ε\,\hat g(θ), \qquad θ' = θ + ε r'

    For exact gradients (`sc.Full`, or control variates near the mode): gradient noise raises its energy without limit.

    Parameters
    ----------
    step_size
        ε: number or schedule.
    resample_every
        L.
    """
    return Recipe(
        step_size,
        curl={(POSITION, _MOMENTUM): -1.0},
        auxiliaries=(_MOMENTUM,),
        resample_every=resample_every,
        temperature=temperature,
        name="HMCDynamics",
    )


def _need_function(value: Any, owner: str, name: str) -> None:
    if not callable(value):
        raise InvalidTypeError(
            f"`{name}` of {owner} must be a function of the parameters, got {value!r}. For a constant one use "
            "sc.Recipe(step_size, diffusion=...)."
        )
