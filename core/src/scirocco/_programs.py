"""Compiled programs are kept on disk, so that the next process does not compile them again; some are compiled ahead.

What the compiler has freed is given back to the operating system.

JAX does so when it is told where; if you have told it (JAX_COMPILATION_CACHE_DIR), nothing is changed here. Otherwise
the programs are in SCIROCCO_CACHE, or in the user's cache folder. Programs are specific to the processor, so each kind
has its own folder. Nothing of this happens when the library is imported: the first run or fit of a process calls
`begin`. SCIROCCO_CACHE=off, or `sc.sample(..., compile_cache=False)`, turns all of it off.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import jax
import jaxlib

from scirocco.errors import SciroccoWarning

_LARGEST = 1 << 28
"""Bytes in the folder, above which the programs that have not been used for the longest time are deleted."""
_DAY = 86_400  # seconds
_WORTH_KEEPING = 0.0
"""Seconds of compiling."""


_has_begun = False


def begin(allowed: bool = True) -> None:
    """Before the first run: tell JAX where to keep programs; from now on, memory is given back.

    Once in a process, and nothing of it if it is not `allowed` or SCIROCCO_CACHE is "off": settings of JAX and the
    filters of warnings belong to the whole process.
    """
    global _has_begun
    if not _has_begun and allowed and not _is_off():
        _has_begun = True
        keep()


def _is_off() -> bool:
    return os.environ.get("SCIROCCO_CACHE", "").lower() == "off"


def keep() -> str | None:
    """Tell JAX where to keep programs, unless the user has; the folder, or None."""
    wanted = os.environ.get("SCIROCCO_CACHE", "")
    if _is_off() or getattr(jax.config, "jax_compilation_cache_dir", None):
        return None
    top = Path(wanted or os.environ.get("XDG_CACHE_HOME", "") or "~/.cache").expanduser()
    folder = top / ("" if wanted else "scirocco") / f"programs-{jaxlib.__version__}-{_processor()}"
    try:
        for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
            missing.mkdir(0o700, exist_ok=True)  # with `parents` theirs would follow the umask
        writable, safe = os.access(folder, os.W_OK), _is_own(folder)
    except OSError:
        return None
    if not writable:
        return None
    if not safe:
        warnings.warn(
            f"the folder of compiled programs {folder} belongs to another user, or everybody may write to it: it is "
            "not used, because its programs would be run. Remove it, or set SCIROCCO_CACHE to a folder of your own.",
            SciroccoWarning,
            stacklevel=2,
        )
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # a program that cannot be read or written is compiled, which is nothing to warn of
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    with contextlib.suppress(OSError):
        _sweep(folder)
        trim(folder)
    return str(folder)


def available_cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows do not say
        return os.cpu_count() or 1


def compile_ahead(programs: Iterable[tuple[Program, tuple[Any, ...]]]) -> None:
    """Compile programs for these arguments in other threads; a call of one that is not ready waits for it.

    Several programs are then compiled at once: a set-up needs a dozen, one after the other.
    """
    cores = available_cores()
    if cores == 1:
        return
    pool = ThreadPoolExecutor(cores, thread_name_prefix="compile")
    try:
        for function, arguments in programs:
            lowered = function.lower(*arguments)  # in this thread, whose settings of JAX apply
            function.expect(arguments, pool.submit(lowered.compile))  # an error is raised again by the call
    finally:
        pool.shutdown(wait=False)


def in_precision(precision: str | None) -> contextlib.AbstractContextManager[Any]:
    """JAX computes with 64-bit numbers inside, in this thread, if `precision` is "float64"; else as it is set."""
    return jax.enable_x64(True) if precision == "float64" else contextlib.nullcontext()


def threads(count: int, name: str) -> ThreadPoolExecutor:
    """Threads that compute in the precision of the one that asks for them."""
    wide = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    return ThreadPoolExecutor(count, thread_name_prefix=name, initializer=_set_precision, initargs=(wide,))


def _set_precision(wide: bool) -> None:
    """Set what this thread computes with, for the rest of its life."""
    if bool(jax.config.jax_enable_x64) != wide:  # type: ignore[attr-defined]
        jax.enable_x64(wide).__enter__()


class Program:
    """`jax.jit` with options for the compiler of GPUs, for each value of static arguments; it cannot be nested."""

    def __init__(self, function: Callable[..., Any], num_static: int, options: dict[str, Any]):
        self._function, self._num_static, self._options = function, num_static, options
        self._made = functools.cache(self._make)
        self._ahead: list[tuple[tuple[Any, ...], Future[Any]]] = []

    def of(self, *static: Any) -> Any:
        """The program for these static arguments, a function of the others: looked up once where it is called often."""
        if self._ahead:  # JAX would compile what is being compiled a second time
            wait([future for known, future in self._ahead if known == static])
            self._ahead = [each for each in self._ahead if not each[1].done()]
        return self._made(*static)

    def _make(self, *static: Any) -> Any:
        options = None
        if jax.default_backend() == "gpu":
            options = accepted(tuple(self._options.items()), os.environ.get("XLA_FLAGS", ""))
        return jax.jit(functools.partial(self._function, *static), compiler_options=options)

    def __call__(self, *arguments: Any) -> Any:
        """Run the program."""
        return self.of(*arguments[: self._num_static])(*arguments[self._num_static :])

    def expect(self, arguments: tuple[Any, ...], future: Future[Any]) -> None:
        """What compiles the program for these arguments in another thread."""
        self._ahead.append((arguments[: self._num_static], future))

    def lower(self, *arguments: Any) -> Any:
        """The lowered program for these arguments."""
        return self._made(*arguments[: self._num_static]).lower(*arguments[self._num_static :])

    def eval_shape(self, *arguments: Any) -> Any:
        """Shapes and types of the results for these arguments."""
        return self._made(*arguments[: self._num_static]).eval_shape(*arguments[self._num_static :])

    def clear_cache(self) -> None:
        """Drop what was compiled."""
        self._made.cache_clear()


def program(num_static: int = 0) -> Callable[[Callable[..., Any]], Program]:
    """A decorator for functions that are compiled as JAX does it by itself."""
    return lambda function: Program(function, num_static, {})


def setup_program(num_static: int = 0) -> Callable[[Callable[..., Any]], Program]:
    """A decorator for functions that run a few times before a run.

    A GPU would try out kernels for every product of matrices, which takes ten times as long as to compile the rest.
    """
    return lambda function: Program(function, num_static, _UNTRIED)


def setup_loop_program(num_static: int = 0) -> Callable[[Callable[..., Any]], Program]:
    """A decorator for functions that run a few times before a run and consist of loops: both options."""
    return lambda function: Program(function, num_static, _UNTRIED | AS_GRAPH)


def loop_program(num_static: int = 0) -> Callable[[Callable[..., Any]], Program]:
    """A decorator for functions that consist of loops.

    By default the host drives a loop on a GPU: it starts each kernel, and the call returns when the last one has
    started. Recorded as one graph, the loop runs by itself, and kernels that do not depend on each other at the same
    time.
    """
    return lambda function: Program(function, num_static, AS_GRAPH)


def library_program(num_static: int = 0) -> Callable[[Callable[..., Any]], Program]:
    """A decorator for functions that run once per draw: of products of matrices only cuBLAS's kernels are tried."""
    return lambda function: Program(function, num_static, _BY_LIBRARY)


_UNTRIED: dict[str, Any] = {"xla_gpu_autotune_level": 0}  # no kernels are tried out
AS_GRAPH: dict[str, Any] = {
    "xla_gpu_enable_command_buffer": (
        "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL"
    ),
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}
_BY_LIBRARY: dict[str, Any] = {"xla_gpu_enable_triton_gemm": False}
"""XLA compiles dozens of kernels for each product to find the fastest, a minute for a transformer; those of cuBLAS
exist already."""


@functools.cache
def accepted(options: tuple[tuple[str, Any], ...], flags: str) -> dict[str, Any]:
    """The options, without those that are among the user's flags; none if this version of JAX has others."""
    wanted = {name: value for name, value in options if name not in flags}
    try:
        jax.jit(lambda: 0, compiler_options=wanted).lower().compile()
    except RuntimeError:
        return {}
    return wanted


def _is_own(folder: Path) -> bool:
    """Whether nobody else can have put a program into a folder."""
    if sys.platform == "win32":
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & stat.S_IWOTH


def _sweep(folder: Path) -> None:
    """Remove what is no file: a program that was read from a named pipe would never come."""
    with os.scandir(folder) as entries:
        odd = [entry.path for entry in entries if not (entry.is_file() or entry.is_dir())]
    for path in odd:
        with contextlib.suppress(OSError):
            os.remove(path)


def trim(folder: Path, largest: int = _LARGEST) -> None:
    """Once a day, delete the programs that have not been used for the longest time.

    JAX can limit the folder itself, but then reads it at every program, and a process that is killed while it writes
    leaves an entry at which all later ones fail.
    """
    stamp = folder / ".trimmed"
    if stamp.exists() and time.time() - stamp.stat().st_mtime < _DAY:
        return
    stamp.touch()
    with os.scandir(folder) as entries:
        files = [(entry.stat(), entry.path) for entry in entries if entry.is_file() and entry.name != stamp.name]
    total = 0
    for status, path in sorted(files, key=lambda file: max(file[0].st_atime, file[0].st_mtime), reverse=True):
        total += status.st_size
        if total > largest:
            with contextlib.suppress(OSError):
                os.remove(path)


def _processor() -> str:
    """A name for the processor and what it can do."""
    known = platform.machine() + platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        lines = file.read(20_000).splitlines()
        known += "".join(line for line in lines[:60] if line.startswith(("flags", "model name", "Features")))
    return hashlib.sha256(known.encode()).hexdigest()[:12]


def _memory_trimmer() -> Callable[[int], int] | None:
    """What returns free memory to the operating system, where the C library keeps it."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # other systems
        return ctypes.CDLL(None).malloc_trim
    return None


_trim_memory = _memory_trimmer()


def give_back() -> None:
    """Return free memory once the programs of a run are compiled.

    The compiler takes about 100 MB for a program, in several threads, for each of which glibc keeps what was freed: a
    set-up of a dozen programs would leave the process with half a GB that it does not use.
    """
    if _has_begun and _trim_memory is not None:
        _trim_memory(0)
