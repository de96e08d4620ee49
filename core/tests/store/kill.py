"""Kill a writing process with signal 9 again and again, and check each time what it leaves.

usage: python kill.py FOLDER random|everywhere COUNT SEED

`random`: COUNT times at random moments; `everywhere`: before and after every COUNT-th call that touches the disk.
Prints one line of JSON. `run_kills` does this in a process of its own, because it forks.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time


def run_kills(folder: str, how: str, count: int, seed: int) -> dict[str, int]:
    """Kill and check; returns how many kills there were, how many inside creation, and the draws at the end."""
    path = os.pathsep.join([str(pathlib.Path(__file__).parents[1]), *sys.path])
    command = [sys.executable, "-W", "ignore", __file__, str(folder), how, str(count), str(seed)]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    if result.returncode:
        raise AssertionError(result.stdout[-2000:] + result.stderr[-4000:])
    return json.loads(result.stdout.splitlines()[-1])


def _write(path: str, acknowledge: int, commits: int, overwrite: bool) -> None:
    """What the child does: create or open, then append and commit; every finished commit is told to the parent."""
    from scirocco.store import Store
    from store import truth

    started = os.path.exists(os.path.join(path, "scirocco", "commit.json")) and not overwrite
    with Store.open(path) if started else truth.create(path, overwrite=overwrite) as store:
        for _ in range(commits):
            stop = store.draws("posterior") + 257
            truth.go_on(store, stop)
            os.write(acknowledge, stop.to_bytes(8, "little"))


def _arm(fatal: int, after: bool) -> None:
    """From now on the call number `fatal` that touches the disk is this process's last."""
    import scirocco.store.files as files

    calls = 0

    def deadly(function):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == fatal and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*arguments, **options)
            if calls == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    for name in ("replace", "fsync", "unlink", "mkdir", "ftruncate"):
        setattr(os, name, deadly(getattr(os, name)))
    files.open = deadly(open)


def _fork(
    path: str, commits: int, delay: float | None, fatal: int = 0, after: bool = False, overwrite: bool = False
) -> tuple[bool, int]:
    """One child; returns whether it was killed and the last draw that it acknowledged."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(read)
            if fatal:
                _arm(fatal, after)
            _write(path, write, commits, overwrite)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(write)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    told = b""
    while block := os.read(read, 65_536):
        told = (told + block)[-8:]
    os.close(read)
    killed = os.WIFSIGNALED(status)
    assert killed or os.WEXITSTATUS(status) == 0, "the child failed"
    return killed, int.from_bytes(told, "little")


def _random(folder: str, count: int, seed: int) -> dict[str, int]:
    from store import truth

    generator, begun, final, path = random.Random(seed), 0, 0, os.path.join(folder, "run")
    for _ in range(count):
        if final > 5_000:  # checking reads everything: begin anew before that takes long
            shutil.rmtree(path)
        _, told = _fork(path, 1_000_000, generator.uniform(0, 0.15))
        begun += not os.path.exists(os.path.join(path, "scirocco", "commit.json"))
        final = truth.check_reopened(path, told)
    return {"kills": count, "in_creation": begun, "draws": final}


def _everywhere(folder: str, stride: int, seed: int) -> dict[str, int]:
    from store import truth

    kills, begun, final = 0, 0, 0
    for begin in ("nothing", "resume", "overwrite"):
        for after in (False, True):
            fatal, killed = 1 + seed % stride, True
            while killed:
                path = os.path.join(folder, f"{begin}-{after}-{fatal}")
                if begin != "nothing":
                    with truth.create(path) as store:
                        truth.go_on(store, 300)
                killed, told = _fork(path, 2, None, fatal, after, begin == "overwrite")
                begun += not os.path.exists(os.path.join(path, "scirocco", "commit.json"))
                kills += killed
                final = truth.check_reopened(path, max(told, 300 if begin == "resume" else 0))
                shutil.rmtree(path)
                fatal += stride
    return {"kills": kills, "in_creation": begun, "draws": final}


if __name__ == "__main__":
    folder, how, count, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    print(json.dumps({"random": _random, "everywhere": _everywhere}[how](folder, count, seed)))
