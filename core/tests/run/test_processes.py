"""Many models in one process, and processes that are forked after a run."""

import os
import subprocess
import sys
import types
from pathlib import Path

import jax.numpy as jnp
import pytest

import scirocco as sc
from scirocco import _programs
from scirocco.model import base

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("quick_compiler")]


def sampled(number):
    """A run of a model that no other has: its programs are its own."""
    model = sc.Model(lambda mu, x: -0.5 * (x - number * mu) ** 2)
    sc.sample(
        model,
        jnp.ones(50),
        jnp.array(0.0),
        sampler=sc.SGLD(1e-4),
        estimator=sc.Minibatch(5),
        num_samples=5,
        progress=False,
    )
    return model


def test_memory_of_the_compiler_is_returned(monkeypatch):
    """Once in a run, when its programs are compiled."""
    asked = []
    monkeypatch.setattr(_programs, "_trim_memory", asked.append)
    sampled(-1)
    assert asked == [0]


@pytest.mark.rotates(2, "processes")
@pytest.mark.skipif(not base.MAPS_LIMIT.exists(), reason="this system does not limit memory maps")
def test_compiled_programs_do_not_pile_up(changed):
    """As with 2,000 models, but with a limit that few of them reach."""

    def count():
        return base.MAPS.read_bytes().count(b"\n")

    sampled(0)
    start, limit = count(), int(base.MAPS_LIMIT.read_text())
    each = count() - start if sampled(1) else 0
    assert each > 10
    changed(base.ROOM, look_every=1, share=(count() + 3 * each) / limit)
    used = []
    for number in range(2, 10):
        sampled(number)
        used.append(count())
    assert max(used) < start + 7 * each and min(used[4:]) < max(used)


FORKING = """
import multiprocessing, sys, jax.numpy as jnp, scirocco as sc

def draw():
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    return sc.sample(model, jnp.ones(50), 0.0 + jnp.zeros(()), sampler=sc.SGLD(1e-4), estimator=sc.Minibatch(5),
                     num_samples=5, progress=False).num_draws

def in_child(queue):
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    try:
        sc.sample(model, [1.0, 2.0], None, sampler=sc.SGLD(1e-4))
    except sc.errors.ForkedError as error:
        queue.put(str(error))

draw()
fork = multiprocessing.get_context("fork")
queue = fork.SimpleQueue()
child = fork.Process(target=in_child, args=(queue,))
child.start()
print(queue.get())
child.join()
print(draw())  # the parent goes on
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
def test_a_forked_process_is_told_at_once():
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=120)
    first, second = done.stdout.splitlines()
    assert "get_context('spawn')" in first and second == "5"


@pytest.mark.process
@pytest.mark.parametrize(("option", "cache", "kept"), [("", "", False), ("False", "", True), ("", "off", True)])
def test_importing_the_library_changes_nothing_for_others(tmp_path, option, cache, kept):
    """Settings of JAX, its listeners and the filters of warnings (SciPy adds some), before and after an import.

    Nor does a run, if an argument or the environment say so.
    """
    option = option and f", compile_cache={option}"
    code = (
        "import warnings, jax, scipy.sparse, scipy.special, jax._src.monitoring as m\n"
        "def state():\n"
        "    kept = {k: v for k, v in jax.config.values.items() if 'cache' in k or 'x64' in k or 'platform' in k}\n"
        "    return kept, list(warnings.filters), len(m.get_event_duration_listeners())\n"
        "before = state()\n"
        "import scirocco as sc\n"
        "for name in sc.__all__: getattr(sc, name)\n"
        "for name in sc.models.__all__: getattr(sc.models, name)\n"
        "print(state() == before)\n"
        "model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)\n"
        "sc.sample(model, jax.numpy.ones(20), 0.5, sampler=sc.SGLD(1e-3), num_samples=5, progress=False"
        f"{option})\nprint(state() == before)\n"
    )
    environment = {"JAX_PLATFORMS": "cpu", "PATH": "", "HOME": str(tmp_path), "SCIROCCO_CACHE": cache}
    environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["True", str(kept)], done.stdout + done.stderr


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder for programs, and what JAX is told about it."""
    told = {}
    config = types.SimpleNamespace(jax_compilation_cache_dir=None, update=told.__setitem__)
    monkeypatch.setattr(_programs, "jax", types.SimpleNamespace(config=config))
    monkeypatch.setenv("SCIROCCO_CACHE", str(tmp_path))
    folder = Path(_programs.keep())
    assert told.pop("jax_compilation_cache_dir") == str(folder)
    return folder, told


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners of files")
@pytest.mark.parametrize("case", ["everybody", "another"])
def test_programs_of_others_are_not_run(cache, monkeypatch, case):
    folder, told = cache
    assert folder.stat().st_mode & 0o777 == 0o700
    if case == "everybody":
        folder.chmod(0o777)
    else:
        monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.warns(sc.errors.SciroccoWarning, match="belongs to another user, or everybody may write to it"):
        assert _programs.keep() is None
    assert "jax_compilation_cache_dir" not in told


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners of files")
def test_folders_of_programs_are_private_under_any_umask(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("SCIROCCO_CACHE", str(tmp_path / "new" / "inner"))
    before = os.umask(0)
    try:
        folder = Path(_programs.keep())
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent, tmp_path / "new")] == [0o700] * 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_among_the_programs_is_removed(cache):
    folder, _ = cache
    os.mkfifo(folder / "jit_step-cache")
    (folder / "jit_other-cache").write_bytes(b"program")
    assert _programs.keep() == str(folder)
    assert not (folder / "jit_step-cache").exists() and (folder / "jit_other-cache").exists()
