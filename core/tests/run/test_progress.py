"""What the bar shows where there is a terminal."""

from __future__ import annotations

import io
import re
import sys
import types

import pytest

from scirocco.run import progress

pytestmark = pytest.mark.unit

rich_console = pytest.importorskip("rich.console", reason="rich is not installed")


@pytest.fixture
def screen(monkeypatch):
    """What is written to a terminal."""
    written = io.StringIO()
    terminal = rich_console.Console(file=written, force_terminal=True, width=160, color_system=None)
    monkeypatch.setattr(rich_console, "Console", lambda **options: terminal)
    return written


def shown(screen):
    """The last line, without control characters."""
    return re.sub(r"\x1b\[[0-9?;]*[a-zA-Z]", "\r", screen.getvalue()).strip().split("\r")[-1]


def test_steps_are_counted(screen):
    bar = progress.Bar(200, True)
    bar.update(50, "sampling", 2_500.0, {"perplexity": 12.5})
    bar.close()
    line = shown(screen)
    assert line.startswith("sampling") and "50/200 steps" in line
    assert "2.5k it/s" in line and "perplexity 12.5" in line


def test_seconds_are_counted_where_there_is_a_limit(screen, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    bar = progress.Bar(1 << 30, True, 20.0)
    now[0] += 5.0
    bar.update(77, "burn-in", 15.0, None)
    bar.close()
    assert "5/20 s" in shown(screen) and "steps" not in screen.getvalue()
    assert str(1 << 30) not in screen.getvalue()


def test_the_bar_is_full_and_no_fuller_at_the_limit(screen, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    bar = progress.Bar(10, True, 2.5)
    now[0] = 3.0
    bar.update(4, "sampling", 1.0, None)
    bar.close()
    assert "2/2.5 s" in shown(screen)


def test_nothing_is_shown_that_was_not_asked_for(screen):
    bar = progress.Bar(10, False, 2.5)
    bar.update(4, "sampling", 1.0, None)
    bar.close()
    assert screen.getvalue() == ""


@pytest.mark.parametrize("with_rich", [True, False])
def test_without_a_terminal_what_was_chosen_is_said_once(with_rich, monkeypatch, capsys):
    """In the log of a batch job: no bar, and a loop over data sets does not repeat itself."""
    progress.print_once.cache_clear()
    if not with_rich:
        monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    for enabled, line in ((False, "hidden"), (True, "BAOAB"), (True, "BAOAB"), (True, ""), (True, "NUTS")):
        bar = progress.Bar(10, enabled)
        bar.say(line)
        bar.update(4, "sampling", 1.0, None)
        bar.close()
    assert capsys.readouterr() == ("", "BAOAB\nNUTS\n")


class Notebook:
    """What IPython.display would show: the last content of each place."""

    def __init__(self):
        self.places = []

    def HTML(self, text):
        return text

    def display(self, text, display_id=False):
        self.places.append([text])
        here = self.places[-1]
        return type("Handle", (), {"update": lambda _, new: here.append(new)})()


@pytest.fixture
def notebook(monkeypatch):
    found = Notebook()
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, display=found))
    monkeypatch.setitem(sys.modules, "IPython.display", found)
    return found


def test_a_notebook_has_one_line_that_changes(notebook, screen, recwarn):
    """No widgets, no warning that there are none, nothing on stderr."""
    bar = progress.Bar(100, True)
    bar.say("what was chosen < here")
    bar.expect(200)
    for step in range(0, 201, 10):
        bar.update(step, "sampling", 2_500.0, {"perplexity": 12.5})
    bar.close()
    line, said = notebook.places
    assert '<progress value="200" max="200">' in line[-1]
    assert "sampling · 200/200 steps · 2.5k it/s" in line[-1] and "perplexity 12.5" in line[-1]
    assert len(line) < 10, "it is not drawn at every step"
    assert said == ["<small>what was chosen &lt; here</small>"]
    assert screen.getvalue() == "" and not recwarn.list


def test_a_process_that_is_no_notebook():
    assert not progress.in_notebook()
