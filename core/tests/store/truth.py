"""A small run whose every value follows from the draw's number, so that any part of it can be checked at any time."""

from __future__ import annotations

import functools
import json
import os

import numpy as np

from scirocco.errors import InvalidValueError, StoreError
from scirocco.store import Store, Stored, Variable

NUM_CHAINS = 2
GROUPS = {
    "posterior": {
        "beta": Variable((3,), np.dtype("float32")),
        "layers[0].weight": Variable((4, 5), np.dtype("float64")),
        "count": Variable((), np.dtype("int32")),
    },
    "sample_stats": {"accepted": Variable((), np.dtype("bool"))},
    "snapshots": {"large": Variable((200_000,), np.dtype("float32"))},  # a draw is larger than a chunk is meant to be
}
RECORD = {"configuration": {"num_samples": 100_000, "seed": 7}, "names": ["beta", "layers[0].weight"]}
DRAWS_PER_SNAPSHOT = 500


def draws_at(num_draws: int) -> dict[str, int]:
    """How many draws each group has when the posterior has `num_draws`."""
    return {"posterior": num_draws, "sample_stats": 2 * num_draws, "snapshots": num_draws // DRAWS_PER_SNAPSHOT}


@functools.lru_cache(maxsize=64)
def values(group: str, start: int, stop: int) -> dict[str, np.ndarray]:
    """The draws from `start` to `stop` of a group: read-only, because the same arrays are handed out again."""
    out = {}
    for place, (name, (shape, dtype)) in enumerate(GROUPS[group].items()):
        number = np.arange(start, stop, dtype=np.int64).reshape((1, -1) + (1,) * len(shape))
        chain = np.arange(NUM_CHAINS).reshape((-1, 1) + (1,) * len(shape))
        inner = np.arange(int(np.prod(shape, dtype=int))).reshape((1, 1, *shape))
        mixed = (number * 7 + chain * 3 + inner * 11 + place) % 10_007
        out[name] = (mixed % 3 == 0) if dtype.kind == "b" else (mixed / 8 if dtype.kind == "f" else mixed).astype(dtype)
        out[name].flags.writeable = False
    return out


def state_at(num_draws: int) -> dict[str, np.ndarray]:
    """The state to go on from."""
    return {"position": np.full((NUM_CHAINS, 3), num_draws, np.float32), "step": np.int32(num_draws)}


def create(path: str, **options) -> Store:
    return Store.create(path, GROUPS, NUM_CHAINS, RECORD, **options)


def go_on(store: Store, stop: int) -> None:
    """Append and commit until the posterior has `stop` draws."""
    now, then = draws_at(store.draws("posterior")), draws_at(stop)
    for group in GROUPS:
        if then[group] > now[group]:
            store.append(group, values(group, now[group], then[group]))
    store.commit(state_at(stop), {"step": stop, "status": "running", "timing": {"wall": 1.5}, "scores": [1, 2]})


def check(path: str, at_least: int = 0, documents: bool = True) -> int:
    """Everything that is committed is as it should be; returns the number of draws.

    `documents`: also those for readers of Zarr, which may be ahead of what was opened while another process writes.
    """
    stored = Stored.open(path)
    num_draws = stored.progress["step"]
    assert num_draws >= at_least, f"{at_least} draws were committed, {num_draws} are left"
    assert stored.record == RECORD
    for group, count in draws_at(num_draws).items():
        assert stored.draws(group) == count
        for name, wanted in values(group, 0, count).items():
            np.testing.assert_array_equal(np.asarray(stored.arrays[group][name]), wanted, err_msg=name)
        if documents:
            _check_documents(path, group, count)
    return num_draws


def _check_documents(path: str, group: str, count: int) -> None:
    """Readers of Zarr see draws that count, and as many of each variable."""
    with open(os.path.join(path, group, "zarr.json")) as file:
        members = json.load(file)["consolidated_metadata"]["metadata"]
    lengths = {document["shape"][1] for document in members.values() if len(document["shape"]) > 1}
    lengths |= set(members["draw"]["shape"])
    assert len(lengths) == 1 and lengths.pop() <= count


def check_reopened(path: str, at_least: int = 0, steps: int = 1) -> int:
    """After some sudden end: what is committed is intact, and the run goes on; returns the number of draws."""
    try:
        store = Store.open(path)
    except (InvalidValueError, StoreError) as error:
        assert not at_least, f"{at_least} draws were committed, and now: {error}"
        assert "never started" in str(error) or "no folder" in str(error), error
        store = create(path)
    with store:
        num_draws = store.draws("posterior")
        if num_draws:
            assert check(path, at_least) == num_draws
            for key, wanted in state_at(num_draws).items():
                np.testing.assert_array_equal(store.read_state()[key], wanted)
        strays = [name for _, _, names in os.walk(path) for name in names if name.endswith(".tmp")]
        states = [name for name in os.listdir(os.path.join(path, "scirocco")) if name.startswith("state-")]
        assert not strays and len(states) <= 1, (strays, states)
        for _ in range(steps):
            num_draws += 333
            go_on(store, num_draws)
    return check(path, num_draws)


ONE = {"posterior": {"x": Variable((), np.dtype("float32"))}}


def one(path, **options) -> Store:
    """The smallest run: one chain, one number a draw."""
    return Store.create(path, ONE, 1, {"num_samples": 10_000}, **options)


def add(store: Store, count: int) -> None:
    """Append `count` draws: 0, 1, 2, ..."""
    start = store.writers["posterior"].num_draws
    store.append("posterior", {"x": np.arange(start, start + count, dtype=np.float32)[None]})
