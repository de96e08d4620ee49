"""Sharing the blocks of a kernel among threads."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from scirocco import _checks
from scirocco._programs import available_cores

_PIECES = 4  # pieces of work per thread: enough to even out entries that take longer than others

_pool: ThreadPoolExecutor | None = None
_lock = Lock()


def _forget_pool() -> None:
    """Reset the pool in a forked child: its threads do not exist there, and one of them may hold the lock."""
    global _pool, _lock
    _pool, _lock = None, Lock()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_pool)


def _shared_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(available_cores(), thread_name_prefix="scirocco-host")
        return _pool


def run_blocks(work: Callable[[int, int], None], num_blocks: int, num_threads: int | None) -> None:
    """Call `work(first, last)` on ranges that cover all blocks; with one thread or one block, in the caller alone.

    The caller works too, and does everything itself if the pool is busy with other callers, instead of waiting.
    """
    threads = available_cores() if num_threads is None else _checks.positive_int(num_threads, "num_threads")
    threads = min(threads, num_blocks)
    if threads <= 1:
        work(0, num_blocks)
        return
    length = -(-num_blocks // (threads * _PIECES))
    starts = itertools.count(0, length)  # `next` on it is atomic

    def take() -> None:
        for first in starts:
            if first >= num_blocks:
                return
            work(first, min(first + length, num_blocks))

    helpers = [_shared_pool().submit(take) for _ in range(threads - 1)]
    try:
        take()
    finally:
        for helper in helpers:
            if not helper.cancel():
                helper.result()
