"""Commands for data folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from scirocco.cli._common import JSON, print_json, say, typer
from scirocco.errors import InvalidValueError

data_app = typer.Typer(help="Data folders: shuffled rows on disk, ready to be sampled in batches.")


@data_app.command("convert")
def data_convert(
    source: Annotated[Path, typer.Argument(help="Parquet, Arrow, Zarr, CSV, .npz or .npy.", metavar="SOURCE")],
    folder: Annotated[Path, typer.Argument(help="The data folder to create.", metavar="FOLDER")],
    array: Annotated[
        list[str] | None,
        typer.Option(
            "--array",
            metavar="NAME=COLUMNS",
            help="An array from columns: x=age,income or 'x=feature_*'; may be repeated. Every column by default.",
        ),
    ] = None,
    shuffle: Annotated[bool, typer.Option(help="Shuffle the rows.")] = True,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed of the shuffle.")] = 0,
    dtype: Annotated[str | None, typer.Option("--dtype", help="float64 keeps double precision.")] = None,
    memory: Annotated[float, typer.Option("--memory", min=0.01, help="Memory to use, in GiB.")] = 1.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a data folder.")] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Convert a file to a data folder, and shuffle the rows in the same pass.

    Example: scirocco data convert flights.parquet flights --array 'x=delay_*' --array y=late
    """
    from scirocco import data

    columns = dict(_columns(text) for text in array) if array else None
    made = data.convert(
        source,
        folder,
        columns=columns,
        shuffle=shuffle,
        seed=seed,
        dtype=dtype,
        memory=int(memory * 2**30),
        overwrite=overwrite,
    )
    if as_json:
        print_json(_as_json(made))
    else:
        say(data.describe(made))


def _columns(text: str) -> tuple[str, list[str] | str]:
    name, equals, rest = text.partition("=")
    columns = [part.strip() for part in rest.split(",") if part.strip()]
    if not (name and equals and columns):
        raise InvalidValueError(f"--array {text} must have the form NAME=COLUMN or NAME=COLUMN,COLUMN,... .")
    single = len(columns) == 1 and not any(sign in columns[0] for sign in "*?[")
    return name.strip(), columns[0] if single else columns


@data_app.command("info")
def data_info(
    folder: Annotated[Path, typer.Argument(help="A data folder.", metavar="FOLDER")],
    verify: Annotated[bool, typer.Option("--verify", help="Also compare all checksums.")] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Show the contents of a data folder.

    Example: scirocco data info flights --verify
    """
    from scirocco import data

    source = data.open(folder)
    if verify:
        source.verify()
    if as_json:
        print_json(_as_json(source) | ({"checksums_hold": True} if verify else {}))
        return
    say(data.describe(source))
    if verify:
        say("all checksums match")


def _as_json(source: Any) -> dict[str, Any]:
    header = source.header
    arrays = {
        name: {
            "dtype": np.dtype(entry.dtype).name,
            "shape": [entry.rows, *entry.row_shape],
            "columns": list(entry.columns or ()),
        }
        for name, entry in header.arrays.items()
    }
    return {
        "path": str(source.path),
        "kind": header.kind,
        "num_rows": header.num_rows,
        "bytes": source.nbytes,
        "shuffled": header.shuffled,
        "seed": header.seed,
        "source": header.source,
        **header.extra,
        "arrays": arrays,
    }


@data_app.command("list")
def data_list(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Where to look, instead of SCIROCCO_DATA and the cache."),
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """List the data sets of the papers, and show which are on this machine.

    Example: scirocco data list --data ~/data
    """
    from scirocco import datasets
    from scirocco._console import print_table

    found: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "bytes": sum(file.size for file in entry.files),
            "here": datasets.state(entry, data),
            "origin": entry.origin,
        }
        for entry in datasets.ENTRIES.values()
    ]
    if as_json:
        print_json(found)
        return
    rows = [[x["name"], f"{x['bytes'] / 1e6:,.1f} MB", x["here"], x["origin"]] for x in found]
    print_table("Data sets", ["name", "size", "here", "made from"], rows)
