"""`scirocco watch`: what it reads from a run folder, and how it is shown."""

import contextlib
import io
import math
import signal
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.cli.watching import Watch, curves, effective, follow, frame, read_state, sparkline
from scirocco.run.loading import NOT_BEGUN, smallest_ess
from scirocco.run.run_group import CHAINS, SHARDS

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

DATA = np.linspace(-1.0, 1.0, 50, dtype=np.float32)


def draw(store, callbacks=(), num_samples=200):
    """A normal mean; one compiled program for all."""
    return sc.sample(
        MODEL,
        DATA,
        jnp.array(0.1),
        sampler=sc.SGLD(1e-3),
        estimator=sc.Minibatch(10),
        num_samples=num_samples,
        num_burnin=20,
        store=store,
        callbacks=callbacks,
        progress=False,
    )


MODEL = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)


def family(folder, kind, numbers, count):
    """Runs in a folder of chains or shards, some of which have not begun."""
    page = {"count": count, "num_rows": [50] * count, "transformed": False}
    kind.begin(str(folder), page, resume=False, overwrite=False)
    for number in numbers:
        draw(kind.path(str(folder), number))
    return folder


def test_a_finished_run(tmp_path):
    run = draw(tmp_path / "run", [lambda report: {"loss": -float(report.step)}])
    state = read_state(tmp_path / "run")
    assert (state.kind, state.status, state.share) == ("run", "complete", 1.0)
    (part,) = state.parts
    assert (part.draws, part.step, part.num_steps) == (200, 220, 220)
    assert curves(state) == {"loss": [values["loss"] for _, values in run.scores]}
    assert effective(state) == smallest_ess(run)
    shown = "\n".join(frame(Watch(tmp_path / "run")))
    for piece in ("SGLD with Minibatch", "complete", "100 %, 200 of 200 draws", "loss", "ESS", "chains"):
        assert piece in shown
    assert f"{effective(state):,.0f} of 200 draws" in shown


def test_without_scores_the_gradient_norm_is_drawn(tmp_path):
    run = draw(tmp_path / "run")
    (name,) = found = curves(read_state(tmp_path / "run"))
    assert name == "gradient norm"
    np.testing.assert_allclose(found[name], run.stats["gradient_norm"][0], rtol=1e-6)


def test_a_folder_of_chains(tmp_path):
    family(tmp_path / "chains", CHAINS, [0], 2)
    state = read_state(tmp_path / "chains")
    assert [part.status for part in state.parts] == ["complete", NOT_BEGUN]
    assert (state.status, state.share, effective(state)) == (NOT_BEGUN, 0.5, None)
    draw(CHAINS.path(str(tmp_path / "chains"), 1))
    state = read_state(tmp_path / "chains")
    assert (state.status, state.share) == ("complete", 1.0)
    assert effective(state) == smallest_ess(sc.load(tmp_path / "chains"))
    assert "chain-001" in "\n".join(frame(Watch(tmp_path / "chains")))


def test_a_folder_of_subposteriors(tmp_path):
    """Each shard has a posterior of its own: the worst of them is told."""
    state = read_state(family(tmp_path / "shards", SHARDS, [0, 1], 2))
    runs = [sc.load(SHARDS.path(str(tmp_path / "shards"), number)) for number in range(2)]
    assert state.kind == "subposteriors"
    assert effective(state) == min(smallest_ess(run) for run in runs)
    assert "shard-000" in "\n".join(frame(Watch(tmp_path / "shards")))


def test_lines_follow_a_run_to_its_end(tmp_path, capsys, monkeypatch):
    """Without a terminal: a line for what is new, and the end when the run ends."""
    draw(tmp_path / "run")
    last = read_state(tmp_path / "run")

    def at(step, draws):
        part = last.parts[0]._replace(status="running", step=step, draws=draws, burning=step < 20, rate=50.0)
        return last._replace(parts=(part,))

    seen = iter([at(10, 0), at(10, 0), at(120, 100), last])
    monkeypatch.setattr("scirocco.cli.watching.read_state", lambda path: next(seen))
    assert follow(tmp_path / "run", once=False, every=0.01) == "complete"
    first, second, third = capsys.readouterr().out.splitlines()
    assert "burn-in 5 %, 0 of 200 draws, 50 steps/s, 0:04 left" in first
    assert "sampling 55 %, 100 of 200 draws, 50 steps/s, 0:02 left" in second
    assert "complete 100 %, 200 of 200 draws, ESS" in third


def press(report):
    signal.raise_signal(signal.SIGINT)


def fail(report):
    raise RuntimeError("a bug of the user's")


@pytest.mark.filterwarnings("ignore:interrupted")
@pytest.mark.parametrize(
    ("status", "callback", "expected"),
    [("stopped", lambda report: report.stop(), 0), ("interrupted", press, 1), ("killed", fail, 1)],
)
def test_exit_status_tells_how_it_ended(status, callback, expected, say, tmp_path):
    with contextlib.suppress(RuntimeError):
        draw(tmp_path / "run", [callback], num_samples=20_000)
    assert read_state(tmp_path / "run").status == status
    assert say("watch", tmp_path / "run")[0] == expected
    assert say("watch", tmp_path / "run", "--once")[0] == 0


def test_a_picture_for_terminals(tmp_path, monkeypatch):
    draw(tmp_path / "run")

    class Screen(io.StringIO):
        def isatty(self):
            return True

    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    assert follow(tmp_path / "run", once=False, every=0.1) == "complete"
    assert "━━━━" in screen.getvalue() and "200 of 200 draws" in screen.getvalue()


def test_sparkline():
    assert sparkline([]) == ""
    assert sparkline([5.0]) == "▁" and sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([0.0, 1.0]) == "▁█" and sparkline([1.0, 0.0]) == "█▁"
    assert sparkline([0.0, math.nan, 1.0]) == "▁ █"
    assert sparkline(list(range(1000)), 8) == "▁▂▃▄▅▆▇█"
