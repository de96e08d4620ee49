"""The table documents × topics as a file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scirocco.cli._files import drafted
from scirocco.errors import InvalidValueError

_NAMES = ("mean", "low", "high")


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse a file that cannot be written, before any work is done."""
    if path.suffix not in (".npz", ".csv"):
        raise InvalidValueError(f"--out {path} must end in .npz or .csv.")
    if path.exists() and not overwrite:
        raise InvalidValueError(
            f"{path} exists already. Add --overwrite to replace it, or choose another name."
        )
    if not path.parent.is_dir():
        raise InvalidValueError(f"there is no folder {path.parent} for {path.name}: make it first.")


def write_shares(path: Path, tables: Sequence[np.ndarray], names: Sequence[str] | None) -> None:
    """One table (means), or three (means and bounds), each documents × topics."""
    with drafted(path) as draft:
        if path.suffix == ".npz":
            arrays: dict[str, Any] = dict(zip(_NAMES, tables, strict=False))
            if names is not None:
                arrays["documents"] = np.array(names)
            np.savez_compressed(draft, **arrays)
            return
        with open(draft, "w", newline="", encoding="utf-8") as file:
            _write_csv(csv.writer(file), tables, names)


def _write_csv(writer: Any, tables: Sequence[np.ndarray], names: Sequence[str] | None) -> None:
    num_documents, num_topics = tables[0].shape
    labels = range(num_documents) if names is None else names
    row = writer.writerow
    if len(tables) == 1:
        row(["document", *(f"topic_{k}" for k in range(num_topics))])
        for label, shares in zip(labels, tables[0], strict=True):
            row([label, *(f"{share:.6g}" for share in shares)])
        return
    row(["document", "topic", *_NAMES])
    for d, label in enumerate(labels):
        for k in range(num_topics):
            row([label, k, *(f"{table[d, k]:.6g}" for table in tables)])
