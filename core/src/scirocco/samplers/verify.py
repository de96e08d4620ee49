"""Verification of recipes: D ⪰ 0, Q skew-symmetric, correct Γ, stationary target; and Q from a drift."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.samplers import matrices
from scirocco.samplers.matrices import POSITION, State, Varying
from scirocco.types import Array, Key, Params, PyTree

if TYPE_CHECKING:
    from scirocco.samplers.recipe import Recipe

_TOLERANCE = 2e-3  # residual of the Fokker-Planck equation from which a target is not stationary; rounding is a tenth
_LARGEST = 64  # numbers in a state of which matrices are formed


@dataclass(frozen=True)
class Verification:
    """The result of `verify_recipe`.

    Attributes
    ----------
    problems
        Descriptions of the problems; empty for a correct recipe.
    residual
        The largest |∂_t p| of the Fokker–Planck equation at the target, relative to its terms: 0 up to rounding when
        the target is stationary.
    """

    problems: tuple[str, ...]
    residual: float

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def __str__(self) -> str:
        if self.ok:
            return f"a correct recipe: the target is stationary (residual {self.residual:.1e})"
        return "not a correct recipe:\n" + "\n".join(f"- {problem}" for problem in self.problems)


def verify_recipe(
    recipe: Recipe | Callable[[Array], Any],
    at: Sequence[Params],
    log_density: Callable[[Params], Any] | None = None,
    seed: int = 0,
    *,
    diffusion: Any = None,
) -> Verification:
    """Check a recipe at some points: D ⪰ 0, Q skew-symmetric, Γ, and the stationarity of the target.

    Or check any process dz = f(z) dt + √(2D) dW, in any dimension: pass its drift f in place of the recipe, and D.

    Parameters
    ----------
    recipe
        An `sc.Recipe`, or a sampler built from one (`sc.SGRLD`, `sc.SGRHMC`, ...); or a drift f(z), a function of an
        array (d,).
    at
        Points (parameters) at which to check; the auxiliaries are drawn at random. A state has at most 64 numbers.
    log_density
        The log posterior to use. For a recipe any smooth one gives the same result; by default
        -Σ (θ²/2 + 0.3 sin θ). For a drift it is required: that of the density whose stationarity is tested.
    seed
        Random seed of the auxiliaries.
    diffusion
        D of a drift: a number, a matrix, or a function of z.

    Examples
    --------
    >>> import jax.numpy as jnp, scirocco as sc
    >>> points = [jnp.array([0.3, -1.0]), jnp.array([2.0, 0.5])]
    >>> print(sc.verify_recipe(sc.Recipe(0.1, diffusion=1.0, curl=jnp.array([[0.0, 1.0], [1.0, 0.0]])), points))
    not a correct recipe:
    - Q is not skew-symmetric: Q[0,1] + Q[1,0] = 2.
    >>> sc.verify_recipe(sc.Recipe(0.1, diffusion=lambda z: 1.0 + z["position"] ** 2), points).ok
    True

    A drift that forgot ∇·D = 2z:

    >>> normal = lambda z: -0.5 * jnp.sum(z**2)
    >>> forgot = lambda z: -(1.0 + z**2) * z
    >>> sc.verify_recipe(forgot, points, normal, diffusion=lambda z: jnp.diag(1.0 + z**2)).ok
    False
    >>> sc.verify_recipe(lambda z: forgot(z) + 2 * z, points, normal, diffusion=lambda z: jnp.diag(1.0 + z**2)).ok
    True
    """
    if isinstance(at, (Mapping, str)) or not isinstance(at, Sequence) or not at:
        raise InvalidTypeError("`at` must be a list of points, each like the parameters.")
    from scirocco.samplers.recipe import Recipe  # which imports this module

    if not isinstance(recipe, Recipe):
        return _verify_process(recipe, at, log_density, diffusion)
    if diffusion is not None:
        raise InvalidTypeError("`diffusion` is the D of a bare drift; a recipe has its own.")
    problems: dict[str, None] = {}
    residual = 0.0
    states = [
        _random_state(recipe, params, jax.random.fold_in(jax.random.key(seed), number))
        for number, params in enumerate(at)
    ]
    if _tree.size(states[0]) > _LARGEST:
        raise InvalidValueError(
            f"the state has {_tree.size(states[0])} numbers; verify_recipe forms matrices and allows {_LARGEST} at "
            "most. Verify the recipe with smaller parameters."
        )
    measure = jax.jit(_Flat(recipe, states[0], log_density or _try_density).measure)
    for z in states:
        found, here = _look(measure(ravel_pytree(z)[0]))
        known = {text.partition(":")[0] for text in problems}  # one sentence for each kind of problem
        problems |= dict.fromkeys(text for text in found if text.partition(":")[0] not in known)
        residual = max(residual, here)
    return Verification(tuple(problems), residual)


def _verify_process(
    drift: Any, at: Sequence[Params], log_density: Callable[[Params], Any] | None, diffusion: Any
) -> Verification:
    """Check a drift without a recipe."""
    if not callable(drift):
        raise InvalidTypeError(f"verify_recipe requires a sc.Recipe or a drift f(z), got {type(drift).__name__}.")
    if log_density is None or diffusion is None:
        raise InvalidTypeError(
            "a bare drift does not say which density it should have: pass verify_recipe(drift, at, log_density, "
            "diffusion=D)."
        )
    process = Process(drift, diffusion, log_density, at)
    if process.size > _LARGEST:
        raise InvalidValueError(f"a point has {process.size} numbers; verify_recipe allows {_LARGEST} at most.")
    matrices_at = [np.asarray(process.diffusion(point), np.float64) for point in process.points]
    problems = dict.fromkeys(text for matrix in matrices_at for text in _diffusion_problems(matrix)[:1])
    residual = process.leakage()
    words = process.problem(residual)
    return Verification((*list(problems)[:1], *([words] if words else [])), residual)


def _random_state(recipe: Recipe, params: Params, key: Key) -> State:
    params = jax.tree.map(lambda p: jnp.asarray(p, jnp.result_type(float)), params)
    normals = _tree.normal_like(key, recipe.template(params))
    rest = recipe.template(params)
    return {name: params if name == POSITION else _tree.add(rest[name], normals[name]) for name in rest}


def _try_density(params: Params) -> Array:
    leaves = [jnp.sum(leaf**2 / 2 + 0.3 * jnp.sin(leaf)) for leaf in jax.tree.leaves(params)]
    return -sum(leaves[1:], leaves[0])


class _Flat:
    """A recipe at a state, over flat vectors."""

    def __init__(self, recipe: Recipe, z: State, log_density: Callable[[Params], Any]):
        self.recipe, self.log_density = recipe, log_density
        vector, self.back = ravel_pytree(z)
        self.size, self.dtype = vector.size, vector.dtype
        self.temperature = jnp.maximum(jnp.asarray(recipe.temperature), 1e-12)
        self.places, start = {}, 0
        for part in sorted(z):  # as `ravel_pytree` orders a dict
            stop = start + _tree.size(z[part])
            self.places[part], start = slice(start, stop), stop

    def matrices(self, vector: Array) -> tuple[Array, Array]:
        """D and Q as matrices."""
        z = self.back(vector)
        diffusion = jnp.zeros((self.size, self.size), self.dtype)
        curl = diffusion
        for part, block in self.recipe.diffusion_blocks(z).items():
            place = self.places[part]
            diffusion = diffusion.at[place, place].set(matrices.to_dense(block, z[part], z[part]))
        for (a, b), block in self.recipe.curl_blocks(z).items():
            curl = curl.at[self.places[a], self.places[b]].set(matrices.to_dense(block, z[a], z[b]))
        return diffusion, curl

    def energy(self, vector: Array) -> Array:
        """H."""
        z = self.back(vector)
        if self.recipe.hamiltonian is not None:
            rest = jnp.squeeze(self.recipe.hamiltonian(z))
        else:
            named = [name for name, start in self.recipe.auxiliaries if start == "normal"]
            rest = jnp.zeros(()) + 0.5 * sum(_tree.vdot(z[name], z[name]) for name in named)
        return rest - self.log_density(z[POSITION])

    def drift(self, vector: Array) -> Array:
        """The recipe's own drift for all parts."""
        z = self.back(vector)
        gradient = jax.grad(self.log_density)(z[POSITION])
        return ravel_pytree({part: self.recipe.drift(z, gradient, part) for part in z})[0]

    def measure(self, vector: Array) -> _Measured:
        """All quantities that are checked, at one state."""
        z = self.back(vector)
        used = ravel_pytree({p: self.recipe._gamma_used(z, p) for p in z})[0] / self.temperature
        slopes = jax.jacfwd(lambda v: sum(self.matrices(v)))(vector)
        derived = jnp.einsum("ijj->i", slopes)
        return _Measured(*self.matrices(vector), used, derived, self.residual(vector))

    def residual(self, vector: Array) -> Array:
        """|∂_t p| / Σ |terms| at this state, by the Fokker–Planck equation."""
        origin = self.energy(vector)

        def density(v: Array) -> Array:
            return jnp.exp((origin - self.energy(v)) / self.temperature)

        def carried(v: Array) -> Array:
            return self.drift(v) * density(v)

        def spread(v: Array) -> Array:
            slopes = jax.jacfwd(lambda u: self.temperature * self.matrices(u)[0] * density(u))(v)
            return jnp.einsum("ijj->i", slopes)

        first = jnp.diag(jax.jacfwd(carried)(vector))
        second = jnp.diag(jax.jacfwd(spread)(vector))
        terms = jnp.sum(jnp.abs(first)) + jnp.sum(jnp.abs(second))
        return jnp.abs(jnp.sum(first) - jnp.sum(second)) / jnp.maximum(terms, 1e-6)


class _Measured(NamedTuple):
    diffusion: Array
    curl: Array
    used: Array
    derived: Array
    residual: Array


def _look(measured: _Measured) -> tuple[list[str], float]:
    """Problems at one state, and the residual there."""
    diffusion, curl, used, derived, residual = (np.asarray(part, np.float64) for part in measured)
    problems = _diffusion_problems(diffusion) + _curl_problems(curl)
    if residual > _TOLERANCE and not problems:
        problems = [_gamma_problem(used, derived, float(residual))]
    return problems, float(residual)


def _diffusion_problems(matrix: np.ndarray) -> list[str]:
    scale = max(float(np.abs(matrix).max(initial=0.0)), 1e-30)
    apart = np.abs(matrix - matrix.T)
    if apart.max(initial=0.0) > 1e-4 * scale:
        i, j = np.unravel_index(np.argmax(apart), apart.shape)
        return [f"D is not symmetric: D[{i},{j}] - D[{j},{i}] = {matrix[i, j] - matrix[j, i]:.4g}."]
    smallest = float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0]) if matrix.size else 0.0
    if smallest < -1e-4 * scale:
        return [f"D is not positive semidefinite: its smallest eigenvalue is {smallest:.4g}."]
    return []


def _curl_problems(matrix: np.ndarray) -> list[str]:
    sums = np.abs(matrix + matrix.T)
    if sums.max(initial=0.0) <= 1e-4 * max(float(np.abs(matrix).max(initial=0.0)), 1e-30):
        return []
    i, j = np.unravel_index(np.argmax(sums), sums.shape)
    i, j = min(i, j), max(i, j)
    return [f"Q is not skew-symmetric: Q[{i},{j}] + Q[{j},{i}] = {matrix[i, j] + matrix[j, i]:.4g}."]


def _gamma_problem(used: np.ndarray, derived: np.ndarray, residual: float) -> str:
    size = np.abs(derived).max(initial=0.0)
    share = f"the residual of the Fokker–Planck equation is {100 * residual:.2g} % of its terms"
    close = 1e-3 * max(size, 1e-30)
    if np.abs(used).max(initial=0.0) <= close:
        return (
            f"Γ is missing: D or Q depend on the state (Γ is up to {size:.4g}), so the target is not stationary; "
            f"{share}. Omit `gamma`: it is then derived."
        )
    if np.abs(used + derived).max() <= close:
        return (
            "Γ has the wrong sign: it enters the drift with a plus (several equations of the paper print a minus); "
            f"{share}."
        )
    place = int(np.argmax(np.abs(used - derived)))
    if np.abs(used - derived)[place] > close:
        return f"Γ is wrong: entry {place} is {used[place]:.4g}, derived {derived[place]:.4g}; {share}."
    return f"the target is not stationary: {share}. Does `hamiltonian` match D and Q?"


# -- before a run ------------------------------------------------------------------------------------------------------


def check_at_start(recipe: Recipe, z: State) -> None:
    """Checks at the starting point, for states of any size."""
    jax.eval_shape(lambda state: (recipe._noise_like(state), _values(recipe.curl_blocks(state))), z)
    for part, block in recipe.diffusion_blocks(z).items():
        if block.form in ("scalar", "diagonal"):
            smallest = min(float(jnp.min(leaf)) for leaf in map(jnp.asarray, jax.tree.leaves(block.value)))
            if not smallest >= 0:
                raise InvalidValueError(
                    f"D of {recipe.name} is not positive semidefinite at the start: `{part}` has the entry "
                    f"{smallest:.4g}."
                )
    _check_elementwise(recipe, z)
    if _tree.size(z) <= _LARGEST:
        if callable(recipe.gamma):
            problems = _look(_measure(recipe, z))[0]
        else:
            diffusion, curl = (np.asarray(m, np.float64) for m in _matrices(recipe, z))
            problems = _diffusion_problems(diffusion) + _curl_problems(curl)
        if problems:
            raise InvalidValueError(f"{recipe.name} at the start: {' '.join(problems)}")


@jax.jit
def _matrices(recipe: Recipe, z: State) -> tuple[Array, Array]:
    return _Flat(recipe, z, _try_density).matrices(ravel_pytree(z)[0])


@jax.jit
def _measure(recipe: Recipe, z: State) -> _Measured:
    return _Flat(recipe, z, _try_density).measure(ravel_pytree(z)[0])


def _values(found: Mapping[Any, Any]) -> list[Any]:
    return [block.value for block in found.values()]


def _check_elementwise(recipe: Recipe, z: State) -> None:
    """Check the assumption that entry i of a diagonal depends on number i alone, with two random-sign probes."""
    if recipe.gamma is not None or not isinstance(recipe.diffusion, Varying):
        return
    for part, block in recipe.diffusion_blocks(z).items():
        if block.form != "diagonal" or not recipe._elementwise(z[part]):
            continue

        def diagonal(at: PyTree, part: str = part) -> PyTree:
            return recipe.diffusion_blocks({**z, part: at})[part].value

        probes = []
        for seed in range(2):
            normals = _tree.normal_like(jax.random.key(seed), z[part])
            signs = jax.tree.map(lambda xi: jnp.where(xi < 0, -1.0, 1.0).astype(xi.dtype), normals)
            change = jax.jvp(diagonal, (z[part],), (signs,))[1]
            probes.append(ravel_pytree(jax.tree.map(jnp.multiply, signs, change))[0])
        scale = jnp.maximum(jnp.max(jnp.abs(probes[0])), 1e-12)
        if float(jnp.max(jnp.abs(probes[0] - probes[1])) / scale) > 1e-3:
            raise InvalidValueError(
                f"D of `{part}` is a diagonal whose entries depend on other numbers than their own, so Γ requires a "
                f"derivative for each of {_tree.size(z[part])} numbers. Pass elementwise=False to accept that cost, or "
                "give `gamma`."
            )


# -- theorem 2 of the recipe: from the drift of a process and its stationary density to the curl matrix Q
#
# A process dz = f dt + √(2D) dW has the stationary density p = e^(-H) if and only if the current J p, with
# J = f + D∇H - ∇·D, has no divergence. In one dimension it must then vanish, and Q = 0. In two dimensions it is the
# curl of a scalar, J p = (∂₂ψ, -∂₁ψ), and Q = q [[0, 1], [-1, 0]] with q = ψ/p gives f = -(D + Q)∇H + Γ. Along a ray
# c + r n#
#     q(c + r₀ n) = ∫_{r₀}^∞ (n₁ J₂ - n₂ J₁)(c + r n) e^(H(c + r₀ n) - H(c + r n)) dr,
#
# because ψ vanishes far away (Ma, Chen & Fox 2015, theorem 2 and its proof, which uses Fourier transforms).

_LEAK = 5e-3  # share of a current that may leak, or be missed by Q: errors of the quadrature
_PANELS, _NODES = 8, 12  # of Gauss's rule along a ray


class Process:
    """A drift, a diffusion matrix and a log density of an array of some numbers."""

    def __init__(
        self,
        drift: Callable[[Array], Any],
        diffusion: Any,
        log_density: Callable[[Array], Any],
        at: Sequence[Any],
        extent: float = 12.0,
    ):
        self.points = [jnp.asarray(point, jnp.result_type(float)) for point in at]
        shape = self.points[0].shape
        if len(shape) != 1 or any(point.shape != shape for point in self.points):
            raise InvalidTypeError(f"points of a process must be arrays of one shape (d,), got {shape}.")
        self.size, self.extent = shape[0], extent
        self.log_density = lambda x: jnp.squeeze(jnp.asarray(log_density(x)))
        self.drift = lambda x: jnp.asarray(drift(x)).reshape(shape)
        self.given = diffusion
        self.centre = jnp.mean(jnp.stack(self.points), axis=0)

    def diffusion(self, x: Array) -> Array:
        """D as a matrix."""
        value = jnp.asarray(self.given(x) if callable(self.given) else self.given, x.dtype)
        return value if value.ndim == 2 else value * jnp.eye(self.size, dtype=x.dtype)

    def flow(self, x: Array) -> Array:
        """J = f + D∇H - ∇·D."""
        spread = jnp.einsum("ijj->i", jax.jacfwd(self.diffusion)(x))
        return self.drift(x) - self.diffusion(x) @ jax.grad(self.log_density)(x) - spread

    def curl(self, x: Array) -> Array:
        """Q."""
        offset = x - self.centre
        begin = jnp.sqrt(jnp.sum(offset**2) + 1e-12)
        towards = (offset + jnp.array([1e-6, 0.0], x.dtype)) / begin
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        starts = np.arange(_PANELS)[:, None] / _PANELS
        lengths = jnp.asarray((starts + (nodes + 1) / (2 * _PANELS)).ravel() * self.extent, x.dtype)
        shares = jnp.asarray(np.tile(weights, _PANELS) * self.extent / (2 * _PANELS), x.dtype)
        here = self.log_density(x)

        def integrand(length: Array) -> Array:
            there = x + length * towards
            flow = self.flow(there)
            return (towards[0] * flow[1] - towards[1] * flow[0]) * jnp.exp(self.log_density(there) - here)

        return jnp.vdot(shares, jax.vmap(integrand)(lengths)) * jnp.array([[0.0, 1.0], [-1.0, 0.0]], x.dtype)

    def leak(self, x: Array) -> tuple[Array, Array]:
        """∇·(J p) / p, and the size of its terms."""
        slopes = jnp.diagonal(jax.jacfwd(self.flow)(x))
        along = self.flow(x) * jax.grad(self.log_density)(x)
        return jnp.abs(jnp.sum(slopes + along)), jnp.sum(jnp.abs(slopes)) + jnp.sum(jnp.abs(along))

    def missed(self, x: Array) -> tuple[Array, Array]:
        """How far f is from -(D + Q)∇H + Γ, and how long f is."""
        left = self.flow(x)
        if self.size == 2:
            turned = self.curl(x) @ jax.grad(self.log_density)(x)
            left = left - turned - jnp.einsum("ijj->i", jax.jacfwd(self.curl)(x))
        return jnp.max(jnp.abs(left)), jnp.max(jnp.abs(self.drift(x)))

    def leakage(self) -> float:
        """How much of the probability current leaks, at worst: 0 up to rounding if the density is stationary."""

        def measured(x: Array) -> tuple[Array, ...]:
            return self.flow(x), *self.leak(x), jnp.max(jnp.abs(self.drift(x)))

        flows, leaks, terms, lengths = map(np.asarray, jax.jit(jax.vmap(measured))(jnp.stack(self.points)))
        scale = max(1e-6, float(lengths.max()))
        if self.size == 1:  # a current that does not leak is constant, and 0 far away
            return float(np.max(np.abs(flows)) / scale)
        return float(np.max(leaks / np.maximum(terms, 1e-3 * scale)))

    def problem(self, worst: float) -> str:
        """Why the density is not stationary if so much of its current leaks; "" if it is."""
        if worst <= _LEAK:
            return ""
        return (
            f"the process does not have this stationary density: its probability current leaks by {100 * worst:.2g} % "
            "of its terms, so no D and Q describe it. Check the drift (does it contain ∇·D?), the diffusion, and the "
            "log density."
        )

    def check(self) -> None:
        """Raise an error unless the density is stationary and Q was found."""
        if self.size > 2:
            raise InvalidTypeError(
                f"from_drift solves for Q in one and two dimensions, and points have {self.size} numbers. "
                "sc.verify_recipe(drift, points, log_density, diffusion=D) tests stationarity in any dimension."
            )
        if words := self.problem(self.leakage()):
            raise InvalidValueError(words)
        missed, lengths = map(np.asarray, jax.jit(jax.vmap(self.missed))(jnp.stack(self.points)))
        error = float(missed.max()) / max(1e-6, float(lengths.max()))
        if not error <= _LEAK:
            raise InvalidValueError(
                f"Q could not be computed: -(D + Q)∇H + Γ differs from the drift by {100 * error:.2g} %. Pass "
                f"`extent`, about ten standard deviations of the density (now {self.extent:g})."
            )
