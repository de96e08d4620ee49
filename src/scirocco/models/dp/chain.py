"""One chain of a mixture: order of the rows, the engine that draws their labels, and progress."""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from scirocco.data.arrays import ArraySource
from scirocco.errors import SciroccoWarning
from scirocco.models import fits
from scirocco.models.dp.arrays import ArraySlices
from scirocco.models.dp.collapsed import SETTLED, Collapsed
from scirocco.models.dp.compiled import order_kernels
from scirocco.models.dp.families import Family, Gaussian, GaussianFamily, Multinomial, MultinomialFamily
from scirocco.models.dp.rows import Array, CountRows, RealRows, Rows
from scirocco.models.dp.settings import Gamma, Settings
from scirocco.models.dp.slices import Slices
from scirocco.models.fits.chains import MixturePurpose
from scirocco.run.encoding import decode, encode

if TYPE_CHECKING:
    from scirocco.models.dp.sharded import Shards

_STREAMS = 16  # purposes of random numbers in a step, see `MixturePurpose`
_CHUNK = 16  # neighbours that stay together in batches: their labels fill one cache line
_MANY_ROWS = 4096


class MixtureChain:
    """State of one chain: rows, an engine, the number of steps made; random numbers from `seed` and `chain`.

    The rows are in a random order: a batch consists of chunks of neighbours. For `labelling` see `Slices`.
    """

    def __init__(
        self,
        rows: Rows,
        family: Family[Any],
        settings: Settings,
        seed: int,
        chain: int,
        labelling: Shards | None = None,
    ):
        self.family, self.settings = family, settings
        self.seed = int(np.random.SeedSequence([seed, chain]).generate_state(1, np.uint64)[0] >> 1)
        self.step = 0
        self.num_rows: int = rows.num_rows
        rng = np.random.default_rng([self.seed, MixturePurpose.ROWS])
        self.engine: Collapsed | Slices | ArraySlices
        if settings.by_arrays:
            self.engine = ArraySlices(rows, family, settings, rng, self.seed)
        elif settings.sampler == "collapsed":
            self.engine = Collapsed(rows, family, settings, rng)
        else:
            self.engine = Slices(rows, family, settings, rng, labelling)
        self._warned = False

    def advance(self, num_steps: int) -> None:
        """Run `num_steps` steps."""
        if isinstance(self.engine, ArraySlices):
            self.engine.advance(num_steps, self.step)
            self.step += num_steps
            return
        for _ in range(num_steps):
            self._advance()
            self.step += 1

    def _advance(self) -> None:
        num = self.num_rows
        steps_a_pass = -(-num // self.settings.batch_size)
        number, place = divmod(self.step, steps_a_pass)
        begin, end = place * num // steps_a_pass, (place + 1) * num // steps_a_pass
        batch = self._rows(begin, end - begin, number, MixturePurpose.ROWS)
        if isinstance(self.engine, Collapsed):
            self.engine.step(batch, self._words(0), passes=number, pass_ended=place == steps_a_pass - 1)
            return
        refresh = None
        if self.settings.sampler == "scir_cv" and self.step % self.settings.refresh_every == 0:
            refresh = self._rows(0, self.settings.refresh_size, self.step, MixturePurpose.REFRESH)
        assert isinstance(self.engine, Slices)
        self.engine.step(batch, self._words, refresh, self.step)

    def _rows(self, first: int, count: int, order: int, purpose: int) -> Array:
        """`count` rows of a random order of all rows, starting at position `first`."""
        out = np.empty(count, np.int64)
        seed = np.array([self.seed, order * _STREAMS + purpose], np.uint64)
        chunk = _CHUNK if self.num_rows >= _MANY_ROWS else 1
        order_kernels().rows_at(first, self.num_rows, chunk, *seed, out)
        return out

    def _words(self, purpose: int) -> tuple[int, int]:
        """Seed words of this step, for one purpose."""
        return self.seed, self.step * _STREAMS + purpose

    @property
    def passes(self) -> float:
        """Number of labels drawn, divided by the number of rows."""
        return self.step / -(-self.num_rows // self.settings.batch_size)

    def kept(self) -> tuple[dict[str, Array], dict[str, float]]:
        """A posterior draw: clusters by decreasing weight, padded with empty ones; and its statistics."""
        rng = np.random.default_rng(list(self._words(MixturePurpose.DRAW)))
        weights, rest, parameters = self.engine.draw(rng)
        capacity = self.settings.keep_clusters
        order = np.argsort(-weights, kind="stable")[:capacity]
        if len(weights) > capacity:
            rest = max(rest, 1.0 - float(weights[order].sum()))
            self._warn(len(weights))
        draws = {"weights": weights[order], **{name: part[order] for name, part in parameters.items()}}
        draws = {name: _padded(part, capacity, self.family.dtype) for name, part in draws.items()}
        draws["rest"] = np.asarray(rest, self.family.dtype)
        stats = {
            "num_clusters": float(self.engine.num_clusters),
            "concentration": float(self.engine.alpha),
            "passes": self.passes,
        }
        return draws, stats

    def _warn(self, found: int) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"a draw has {found} clusters, but only the {self.settings.keep_clusters} largest are kept; the others "
                f"are treated as empty. Set keep_clusters={2 * found} to keep them.",
                SciroccoWarning,
                stacklevel=2,
            )

    def take_in(self, rows: Rows) -> None:
        """Add rows without labels: one pass over them, and over as many of the earlier rows."""
        assert isinstance(self.engine, Collapsed)
        before, self.num_rows = self.num_rows, self.num_rows + rows.num_rows
        self.engine.take_in(rows)
        rng = np.random.default_rng(list(self._words(MixturePurpose.REFRESH)))
        fresh = before + rng.permutation(rows.num_rows)
        size = self.settings.batch_size
        for first in range(0, len(fresh), size):
            new = fresh[first : first + size]
            for batch in (new, rng.integers(0, before, len(new))):
                ends = first + size >= len(fresh) and batch is not new
                self.engine.step(batch, self._words(0), passes=SETTLED, pass_ended=ends)
                self.step += 1

    def state(self) -> dict[str, Array]:
        """Arrays from which `restore` resumes the chain exactly; they are not copied and valid until the next step."""
        return {**self.engine.state(), "steps": np.array([self.step], np.int64)}

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the chain from `state`."""
        self.engine.restore(state)
        self.step = int(state["steps"][0])


def _padded(values: Array, capacity: int, dtype: type[np.floating]) -> Array:
    out = np.zeros((capacity, *values.shape[1:]), dtype)
    out[: len(values)] = values
    return out


# -- A mixture on disk: contents of a store in addition to draws


KIND = fits.Kind("DPMixture", "a Dirichlet-process mixture", "dp")
_BASES = {"Multinomial": Multinomial, "Gaussian": Gaussian}


def spec(family: Family[Any], settings: Settings) -> fits.Spec:
    """Arrays of one draw, with their shapes and dtypes."""
    num = settings.keep_clusters
    parameters = {name: (num, *shape) for name, shape in family.shapes().items()}
    stats = dict.fromkeys(("num_clusters", "concentration", "passes"), ())
    shapes = {"weights": (num,), "rest": (), **parameters}
    return fits.Spec(
        {name: jax.ShapeDtypeStruct(shape, family.dtype) for name, shape in shapes.items()},
        {name: jax.ShapeDtypeStruct(shape, np.float64) for name, shape in stats.items()},
    )


def fingerprint(family: Family[Any], rows: Rows) -> str:
    """Fingerprint of the data."""
    if isinstance(rows, RealRows):
        return ArraySource({"values": rows.values}).fingerprint()
    parts = [ArraySource({"part": part}).fingerprint() for part in rows.data]
    return "-".join([str(family.width), *parts])


def extra(params: dict[str, Any], family: Family[Any], judges: Rows) -> dict[str, Any]:
    """Contents of the record: arguments, the base measure, and the rows used to compare clusters."""
    arrays = {name: encode(value) for name, value in judges._asdict().items()}
    return {
        "params": {name: _written(value) for name, value in params.items()},
        "family": family.as_json(),
        "judges": arrays,
    }


def opened(written: dict[str, Any]) -> tuple[dict[str, Any], Family[Any], Rows]:
    """Read arguments, family and rows from what `extra` wrote."""
    params = {name: _read(value, name) for name, value in written["params"].items()}
    kind = {**written["family"]}
    name = kind.pop("kind")
    arrays = {key: decode(value, key) for key, value in written["judges"].items()}
    if name == "multinomial":
        parts: Any = [np.asarray(arrays[key]) for key in ("indptr", "indices", "counts")]
        rows: Any = CountRows(parts[0], parts[1], parts[2], int(arrays["width"]))
        return params, MultinomialFamily(**kind), rows
    known: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in kind.items()}
    return params, GaussianFamily(**known), RealRows(np.asarray(arrays["values"]))


def _written(value: object) -> Any:
    """`encode`, extended to base measures and priors."""
    if type(value).__name__ in _BASES and dataclasses.is_dataclass(value):
        fields = dataclasses.asdict(value)  # type: ignore[arg-type]
        return {"base": type(value).__name__, "fields": {name: encode(part) for name, part in fields.items()}}
    if isinstance(value, np.generic):
        value = value.item()
    return encode(tuple(value) if isinstance(value, Gamma) else value)


def _read(written: object, name: str) -> Any:
    if isinstance(written, dict) and "base" in written:
        fields = {key: decode(value, key) for key, value in written["fields"].items()}
        return _BASES[written["base"]](**fields)
    return decode(written, name)
