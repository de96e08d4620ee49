"""For `make quick`: a stored run is resumed to the draws of an uninterrupted one, and a command lists it; rotation."""

from types import SimpleNamespace

import pytest

import helpers
import scirocco as sc
from scirocco import cli

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("quick_compiler")]


def test_a_stored_run_is_resumed_and_listed(tmp_path, capsys):
    whole = helpers.draw(num_samples=10, seed=3)
    helpers.draw(num_samples=4, seed=3, store=tmp_path / "run")
    resumed = sc.resume(tmp_path / "run", helpers.MODEL, helpers.make_data(), num_samples=10, progress=False)
    helpers.assert_equal(helpers.tree_map(lambda leaf: leaf[:], dict(resumed.draws)), whole.draws)
    with pytest.raises(SystemExit) as end:
        cli.main(["runs", str(tmp_path)])
    assert end.value.code == 0
    assert "SGLD" in capsys.readouterr().out


def test_every_case_that_rotates_is_run_at_some_commit(request, monkeypatch):
    """Of each test some cases are run and some wait, but one that is selected alone never waits."""
    waiting = next(p._waiting for p in request.config.pluginmanager.get_plugins() if hasattr(p, "_waiting"))

    def case(name, *arguments):
        mark = pytest.mark.rotates(*arguments).mark if arguments else None
        path = request.config.rootpath / "tests" / "nowhere" / name.split("::")[0]
        return SimpleNamespace(nodeid=name, path=path, get_closest_marker=lambda _: mark)

    cases = [case(f"a.py::test[{n}]", 3) for n in range(7)] + [case("a.py::alone", 3), case("a.py::always")]
    named = [case(f"{letter}.py::test", 2, "name") for letter in "abcd"]
    run = set()
    for commit in range(100):
        monkeypatch.setenv("SCIROCCO_TEST_PAIRS", str(commit))
        left = waiting(cases + named)
        assert len(left) in (4 + 2, 5 + 2)
        run |= {item.nodeid for item in cases + named} - left
        assert {"a.py::alone", "a.py::always"} <= run
    assert len(run) == len(cases + named)
