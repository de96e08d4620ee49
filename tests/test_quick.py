"""For `make quick`: a stored run is resumed to the draws of an uninterrupted one, and a command lists it."""

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
