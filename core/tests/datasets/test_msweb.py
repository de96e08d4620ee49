"""The visits of msweb as its files say they are; skipped where the files are not at hand."""

import numpy as np
import pytest
from typer.testing import CliRunner

from scirocco import cli, datasets, errors
from scirocco.datasets.files import state
from shared_data import data_folder

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def visits():
    return datasets.msweb(data_folder("msweb"))


def test_sizes(visits):
    assert visits.train.shape == (32_711, 294) and visits.train.nnz == 98_654
    assert visits.test.shape == (5_000, 294) and visits.test.nnz == 15_191
    for matrix, used in ((visits.train, 285), (visits.test, 236)):
        assert matrix.dtype == np.int32 and set(matrix.data) == {1}
        assert matrix.has_canonical_format, "no user lists an area twice, and the areas are sorted"
        assert np.diff(matrix.indptr).min() == 1 and len(set(matrix.indices)) == used
    assert visits.source.startswith("msweb: ") and "Licence" in visits.source


def test_areas(visits):
    assert len(visits.titles) == 294 and visits.titles[:2] == ("regwiz", "Support Desktop")
    assert all(visits.titles) and np.all(np.diff(visits.extras["area_id"]) > 0)
    first = visits.train[0].indices  # the file begins with: user 10001 visited 1000, 1001, 1002
    assert visits.extras["train_case_id"][0] == 10_001
    np.testing.assert_array_equal(visits.extras["area_id"][first], [1000, 1001, 1002])


def test_the_list_of_data_sets_says_which_are_here(tmp_path):
    entry = datasets.ENTRIES["msweb"]
    assert state(entry, tmp_path) == "no"
    (tmp_path / "msweb").mkdir()
    for file in entry.files:
        (tmp_path / "msweb" / file.name).write_text("something else")
    assert state(entry, tmp_path) == "damaged"
    shown = CliRunner().invoke(cli.app, ["data", "list", "--data", str(tmp_path)]).output
    found = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert set(datasets.ENTRIES) <= set(found)
    assert "damaged" in found["msweb"] and " no " in found["wikipedia"]
    with pytest.raises(errors.InvalidValueError, match="does not exist"):
        state(entry, tmp_path / "nowhere")


def test_files_at_hand_are_whole():
    assert state(datasets.ENTRIES["msweb"], data_folder("msweb")) == "yes"


def test_every_entry_says_what_is_needed_to_make_it():
    for entry in datasets.ENTRIES.values():
        assert entry.origin and entry.preparation.endswith(".") and entry.licence.endswith(".")
        assert all(len(file.sha256) == 64 and file.size > 0 for file in entry.files)
