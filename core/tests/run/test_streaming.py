"""Streamed data: the same chains as in memory, the same law, bounded memory, and data that change under way."""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco.data import ArraySource, as_source, sources, streams
from scirocco.data.batching import Blocks, IndependentRows
from scirocco.data.sizes import READING
from scirocco.data.superbatches import ShuffledBlocks
from scirocco.errors import DataChangedError, InvalidTypeError, InvalidValueError
from scirocco.run.sizes import RUNNING

pytestmark = pytest.mark.compile

NUM_ROWS, BATCH = 203, 16


class Rows:
    """A user's own source: five names, nothing inherited."""

    def __init__(self, arrays, shuffled=False):
        self.arrays, self.shuffled, self.reads, self.version = arrays, shuffled, 0, "1"

    @property
    def num_rows(self):
        return len(self.arrays["y"])

    @property
    def row_spec(self):
        return {k: jax.ShapeDtypeStruct(v.shape[1:], v.dtype) for k, v in self.arrays.items()}

    def take(self, indices):
        return {k: v[indices] for k, v in self.arrays.items()}

    def read(self, start, stop):
        self.reads += 1
        return {k: v[start:stop] for k, v in self.arrays.items()}

    def fingerprint(self):
        return self.version


DATA = helpers.make_data(num_rows=NUM_ROWS)
SAME = {
    "with": sc.Minibatch(BATCH, sampling="with_replacement"),
    "weighted": sc.Weighted(BATCH, np.arange(1.0, NUM_ROWS + 1)),
    "control variates": sc.ControlVariates(BATCH, sampling="without_replacement", centre=helpers.make_params()),
    "SVRG": sc.SVRG(BATCH, refresh_every=7, sampling="without_replacement"),
    "SAGA": sc.SAGA(BATCH, sampling="with_replacement"),
    "full": sc.Full(),
}
SAMPLERS = {
    "SGLD": sc.SGLD(1e-3),
    "PSGLD-correction": sc.PSGLD(1e-2, correction=True),
    "SGNHT": sc.SGNHT(5e-3, diffusion=10.0),
}


@pytest.fixture
def small(changed):
    """Superbatches of four batches, pieces of 64 rows, chunks that fit neither."""
    changed(READING, superbatch_batches=4, pass_bytes=64 * 20)
    changed(RUNNING, first_chunk=5, second_chunk=7, chunk_seconds=0.0)


def draw(data, sampler, estimator, **options):
    options = {"num_samples": 12, "num_burnin": 3, "thin": 2, "num_chains": 2, "keep_gradients": True} | options
    return sc.sample(
        helpers.MODEL, data, helpers.make_params(), sampler=sampler, estimator=estimator, progress=False, **options
    )


@pytest.mark.rotates(3)
@pytest.mark.usefixtures("small", "quick_compiler")
@pytest.mark.parametrize(
    ("sampler", "estimator"),
    [
        ("SGLD", "weighted"),
        ("SGLD", "control variates"),
        ("SGNHT", "SAGA"),
        ("PSGLD-correction", "SVRG"),
        ("PSGLD-correction", "full"),
    ],
)
def test_scattered_rows_give_the_chain_of_the_same_rows_in_memory(estimator, sampler):
    """Sums over all rows are made in other pieces, which may change their last bits; nothing else may."""
    memory, disk = (draw(data, SAMPLERS[sampler], SAME[estimator]) for data in (DATA, Rows(DATA)))
    for part in ("draws", "gradients", "stats"):
        helpers.assert_close(getattr(disk, part), getattr(memory, part), rtol=2e-5)
    assert disk.configuration["num_rows"] == NUM_ROWS


@pytest.mark.rotates(2)
@pytest.mark.usefixtures("small", "quick_compiler")
@pytest.mark.parametrize(
    ("estimator", "shuffled"),
    [
        (sc.Minibatch(BATCH, sampling="blocks"), True),
        (sc.ControlVariates(BATCH, sampling="blocks"), False),
        (sc.SVRG(BATCH, refresh_every=6, sampling="blocks"), True),
        (sc.SAGA(BATCH), False),
    ],
)
def test_how_a_streamed_run_is_cut_does_not_matter(estimator, shuffled, changed):
    pieces = draw(Rows(DATA, shuffled), SAMPLERS["SGLD"], estimator)
    changed(RUNNING, first_chunk=1_000)
    whole = draw(Rows(DATA, shuffled), SAMPLERS["SGLD"], estimator)
    helpers.assert_equal(pieces.draws, whole.draws)
    helpers.assert_equal(pieces.gradients, whole.gradients)


@pytest.mark.usefixtures("small")
def test_a_kernel_on_streamed_data_makes_the_steps_of_sample():
    from scirocco.run.loop import step_key

    for estimator in (SAME["SVRG"], SAME["full"]):
        run = draw(Rows(DATA), SAMPLERS["SGLD"], estimator, num_burnin=0, thin=1, num_chains=1)
        kernel = sc.Kernel(helpers.MODEL, Rows(DATA), SAMPLERS["SGLD"], estimator)
        state = kernel.init(jax.random.key(0), helpers.make_params())
        for number in range(12):
            state, info = kernel.step(step_key(state.noise_key, jnp.asarray(number)), state)
            assert int(info.code) == 0
            position = jax.tree.map(np.asarray, kernel.position(state))
            helpers.assert_close(position, jax.tree.map(lambda leaf, n=number: leaf[0, n], run.draws), rtol=1e-5)


# -- which rows ------------------------------------------------------------------------------------------------------


class Counter:
    """A reader that only remembers which rows were asked for."""

    wants_index, scatters = True, False

    def read(self, start, stop, out, offset):
        out[offset : offset + stop - start] = np.arange(start, stop)[:, None]


def fill(scheme, key, number, out, spare):
    (plan,) = scheme.plans(key, number, 1)
    words = np.asarray(jax.random.key_data(key)).tolist()
    return scheme.fill(Counter(), plan, [*words, number], out, spare)


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize(
    ("num_rows", "size", "group", "num_blocks"), [(203, 16, 4, 2), (64, 16, 4, 4), (100, 10, 1, 1)]
)
def test_shuffled_blocks_hold_the_rows_they_say(num_rows, size, group, num_blocks, shuffled, seed):
    scheme = ShuffledBlocks(num_rows, size, group, num_blocks, 100, shuffled)
    assert size % scheme.run == 0
    out, spare = np.zeros((group * size, 1), np.int32), np.zeros((scheme.spare_rows, 1), np.int32)
    seen = []
    for number in range(num_rows // (group * size) or 1):
        index = fill(scheme, jax.random.key(seed), number, out, spare)
        np.testing.assert_array_equal(out[:, 0], index)
        assert index.min() >= 0
        assert index.max() < num_rows
        seen.append(index.copy())
    rows = np.concatenate(seen)
    assert len(np.unique(rows)) == len(rows), "within an epoch no row comes twice"
    again = fill(scheme, jax.random.key(seed), 0, out, spare)
    np.testing.assert_array_equal(again, seen[0])


@pytest.mark.parametrize("shuffled", [True, False])
def test_every_row_is_equally_likely_in_every_place_of_a_superbatch(shuffled, seed):
    """Unbiasedness: P(row i in the first batch) = n/N for all i; counts over many keys, |z| < 5."""
    num_rows, size, keys = 30, 4, 1_500
    scheme = ShuffledBlocks(num_rows, size, 4, 2, 4, shuffled)
    out, spare = np.zeros((16, 1), np.int32), np.zeros((scheme.spare_rows, 1), np.int32)
    counts = np.zeros(num_rows)
    for key in jax.random.split(jax.random.key(seed), keys):
        fill(scheme, key, 0, out, spare)
        counts[out[:size, 0]] += 1
    share = size / num_rows
    z = (counts - keys * share) / np.sqrt(keys * share * (1 - share))
    assert np.abs(z).max() < 5


def test_superbatches_mix_rows_of_different_blocks(seed):
    """A sorted file: the rows of one batch come from several blocks, not from one."""
    scheme = ShuffledBlocks(1_000, 20, 8, 8, 100, shuffled=False)
    out, spare = np.zeros((160, 1), np.int32), np.zeros((scheme.spare_rows, 1), np.int32)
    fill(scheme, jax.random.key(seed), 0, out, spare)
    batches = np.sort(out[:, 0].reshape(8, 20), axis=1)
    runs = 1 + (np.diff(batches, axis=1) > 20).sum(axis=1)
    assert runs.min() >= 4


# -- the choice ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shuffled", "share", "sampling", "expected", "because"),
    [
        (True, 1e3, "auto", "blocks", "shuffled when they were written"),
        (True, 1e-15, "auto", "blocks", "shuffled when they were written"),
        (False, 1e3, "auto", "one by one", "unknown order and fit into the page cache"),
        (False, 1e-15, "auto", "blocks", "do not fit into the page cache"),
        (False, 1e3, "blocks", "blocks", "requested"),
        (True, 1e3, "without_replacement", "one by one", "requires independent rows"),
        (True, 1e-15, "with_replacement", "one by one", "expect disk latency"),
    ],
)
def test_the_choice_and_its_reason(shuffled, share, sampling, expected, because, changed, caplog):
    changed(READING, share_of_cache=share)
    with caplog.at_level(logging.INFO, "scirocco"):
        run = draw(
            Rows(DATA, shuffled), SAMPLERS["SGLD"], sc.Minibatch(BATCH, sampling=sampling), num_samples=2, num_chains=1
        )
    for text in (run.preparation["batches"], caplog.text):
        assert expected in text
        assert because in text


def test_the_memory_of_a_container_is_respected(tmp_path):
    found = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   5 kB\n", "sys/fs/cgroup/memory.max": "4000\n"}
    for path, text in found.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    assert sources.available_memory(tmp_path) == 4_000


# -- passes in bounded memory ----------------------------------------------------------------------------------------


def test_a_pass_sums_all_rows_whatever_its_pieces(changed):
    changed(READING, pass_bytes=256 * 20)
    data = helpers.make_data(num_rows=1_000)
    table = streams.Streamed(as_source(Rows(data)), Blocks(1_000, 10), automatic=True)
    position = jax.tree.map(jnp.asarray, helpers.make_params())
    exact = helpers.MODEL.summand.total(position, jax.tree.map(jnp.asarray, data))
    helpers.assert_close(table.sum(helpers.MODEL.summand, position), exact, rtol=1e-4)
    each = table.each(helpers.MODEL.summand, position)
    helpers.assert_close(each, helpers.MODEL.summand.each(position, jax.tree.map(jnp.asarray, data)), rtol=1e-6)


def test_a_streamed_feed_allocates_its_buffers_once():
    table = streams.Streamed(as_source(Rows(DATA, True)), Blocks(NUM_ROWS, BATCH), automatic=True)
    feed = table.feed(jax.random.key(0))
    group = table.scheme.group
    feed.at(0)
    before = [id(leaf) for leaf in jax.tree.leaves(feed.buffers)]
    for number in range(1, 8):
        feed.at(number * group)
    feed.close()
    assert [id(leaf) for leaf in jax.tree.leaves(feed.buffers)] == before
    assert len(feed.buffers) == streams.BUFFERS
    assert isinstance(table.scheme, ShuffledBlocks)
    assert isinstance(
        streams.Streamed(as_source(Rows(DATA)), Blocks(NUM_ROWS, BATCH), automatic=True).batching, IndependentRows
    )


def test_float64_rows_are_cast_where_jax_runs_in_32_bits():
    rows = {k: v.astype(np.float64) for k, v in DATA.items()}
    wide = draw(Rows(rows), SAMPLERS["SGLD"], SAME["with"])
    narrow = draw(Rows(DATA), SAMPLERS["SGLD"], SAME["with"])
    helpers.assert_equal(wide.draws, narrow.draws)


# -- memory maps -----------------------------------------------------------------------------------------------------


@pytest.mark.rotates(2, "the same chain")
def test_memory_maps_are_streamed_where_they_are_too_large_to_copy(tmp_path, changed):
    for name, array in DATA.items():
        np.save(tmp_path / f"{name}.npy", array)
    maps = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in DATA}
    assert isinstance(as_source(maps), ArraySource), "small ones are used from memory"
    whole = draw(maps, SAMPLERS["SGLD"], SAME["with"])
    changed(READING, share_of_memory=1e-12)
    source = as_source(maps)
    assert isinstance(source, sources.MappedSource)
    before = source.stamp()
    run = draw(maps, SAMPLERS["SGLD"], SAME["with"])
    helpers.assert_equal(run.draws, whole.draws)
    assert "one by one" in run.preparation["batches"]
    np.save(tmp_path / "y.npy", DATA["y"] + 1)
    assert source.stamp() != before
    with pytest.raises(InvalidValueError, match="different numbers of rows"):
        as_source({"x": maps["x"][:5], "y": maps["y"]})


# -- what can be wrong with a source -----------------------------------------------------------------------------------


def broken(**changes):
    return type("Broken", (Rows,), changes)(DATA)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (broken(num_rows=0), InvalidValueError, "has 0 rows"),
        (broken(num_rows="many"), InvalidTypeError, "must be a whole number"),
        (broken(read=lambda self, a, b: {"x": DATA["x"][a:b]}), InvalidTypeError, r"returned \['x'\]"),
        (broken(take=lambda self, i: {k: v[i].astype(int) for k, v in DATA.items()}), InvalidTypeError, "dtype int64"),
        (broken(read=lambda self, a, b: {k: v[a : b + 1] for k, v in DATA.items()}), InvalidTypeError, "shape"),
        (type("Half", (), {"take": None, "read": None})(), InvalidTypeError, "lacks `num_rows`"),
    ],
)
def test_a_source_that_breaks_the_protocol_is_refused(source, error, message):
    with pytest.raises(error, match=message):
        draw(source, SAMPLERS["SGLD"], SAME["with"])


def test_nan_in_a_source_is_found_by_the_first_pass():
    rows = {k: v.copy() for k, v in DATA.items()}
    rows["x"][150, 0, 1] = np.nan
    with pytest.raises(InvalidValueError, match=r"data `x` holds 1 missing \(NaN\) .* row 150"):
        draw(Rows(rows), SAMPLERS["SGLD"], sc.ControlVariates(BATCH, centre=helpers.make_params()))


def test_vmapped_chains_are_refused_on_streamed_data():
    with pytest.raises(InvalidValueError, match="requires the data on the device"):
        draw(Rows(DATA), SAMPLERS["SGLD"], SAME["with"], chain_method="vmap")


@pytest.mark.usefixtures("small")
def test_data_that_change_under_way_end_the_run_and_lose_nothing_before(changed, tmp_path):
    changed(RUNNING, look_seconds=0.0)
    source = Rows(DATA)
    whole = draw(source, SAMPLERS["SGLD"], SAME["with"])

    def change(report):
        if report.step >= 15:
            source.version = "2"

    with pytest.raises(DataChangedError, match="changed during the run") as caught:
        draw(source, SAMPLERS["SGLD"], SAME["with"], callbacks=[change])
    kept = caught.value.run
    assert 0 < kept.num_draws < whole.num_draws
    helpers.assert_equal(kept.draws, jax.tree.map(lambda leaf: leaf[:, : kept.num_draws], whole.draws))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: {k: v[:-1] for k, v in rows.items()}, r"shape \(\d+, 2, 2\) where .* shrunk or changed"),
        (lambda rows: {"x": rows["x"]}, r"returned \['x'\] instead of \['x', 'y'\]"),
        (lambda rows: {k: v[..., None] for k, v in rows.items()}, "shape"),
    ],
)
def test_rows_of_another_form_under_way_are_refused(change, message):
    class Fickle(Rows):
        def take(self, indices):
            rows = super().take(indices)
            return rows if len(indices) <= 2 else change(rows)

    with pytest.raises(DataChangedError, match=message):
        draw(Fickle(DATA), SAMPLERS["SGLD"], SAME["with"])


def test_a_source_that_fails_under_way_passes_its_error_on():
    class Shrinking(Rows):
        def take(self, indices):
            if len(indices) > 2:
                raise DataChangedError("`x.npy` has shrunk")
            return super().take(indices)

    with pytest.raises(DataChangedError, match="has shrunk"):
        draw(Shrinking(DATA), SAMPLERS["SGLD"], SAME["with"])


@pytest.mark.rotates(2, "plain calls")
@pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning")
def test_the_plain_call_chooses_the_batch_size_of_a_stream(tmp_path):
    """As in memory; a stored run is resumed with the chosen size, and is that of an uninterrupted one."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((70_000, 3)).astype(np.float32)  # fewer numbers are read whole
    y = (x @ np.ones(3) + rng.standard_normal(70_000)).astype(np.float32)
    source = sc.data.write(tmp_path / "rows", {"x": x, "y": y})
    model = sc.Model(lambda beta, row: -0.5 * (row["y"] - row["x"] @ beta) ** 2)
    how = {"num_chains": 2, "seed": 3, "progress": False}
    whole = sc.sample(model, source, np.zeros(3, np.float32), num_samples=60, **how)
    size = whole.configuration["estimator"]["batch_size"]
    assert size not in (500, 4_000) and f"of {size} rows" in whole.preparation["chosen"]
    sc.sample(model, source, np.zeros(3, np.float32), num_samples=30, store=tmp_path / "run", **how)
    longer = sc.resume(tmp_path / "run", model, source, num_samples=60, progress=False)
    np.testing.assert_array_equal(longer.draws, whole.draws)


@pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning")
def test_the_plain_call_reads_a_small_folder_whole(tmp_path):
    """The run is that of the arrays; a stored one is resumed from the folder, and from the arrays."""
    rows = {"x": np.random.default_rng(5).standard_normal(30).astype(np.float32)}
    sc.data.write(tmp_path / "rows", rows, shuffle=False)
    model, start = sc.Model(lambda mu, row: -0.5 * (row["x"] - mu) ** 2), np.zeros((), np.float32)
    how = {"num_chains": 1, "seed": 3, "progress": False}
    whole = sc.sample(model, rows, start, num_samples=12, **how)
    sc.sample(model, tmp_path / "rows", start, num_samples=5, store=tmp_path / "run", **how)
    longer = sc.resume(tmp_path / "run", model, tmp_path / "rows", num_samples=12, progress=False)
    assert "NUTS" in longer.preparation["chosen"]
    np.testing.assert_array_equal(longer.draws, whole.draws)
