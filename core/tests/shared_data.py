"""Where the papers' data are: the folder that SCIROCCO_DATA names, or shared/data beside the checkout."""

import os
from pathlib import Path

import pytest


def data_folder(name: str) -> Path:
    """The folder with the data set `name`; the test is skipped where there is none."""
    named = os.environ.get("SCIROCCO_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    if not (folder / name).is_dir():
        pytest.skip(f"the data set `{name}` is not in {folder} (SCIROCCO_DATA names another folder)")
    return folder
