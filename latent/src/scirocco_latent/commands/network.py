"""Commands for models of networks: fit, show, predict."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scirocco.cli import _common
from scirocco.cli._common import typer, write_whole
from scirocco.cli._models import (
    Fitting,
    Opened,
    PredictedTable,
    Shown,
    chosen,
    fit_command,
    predict_command,
    show_command,
)
from scirocco.errors import InvalidValueError

if TYPE_CHECKING:
    from scirocco.models import MixedMembership, StochasticBlockModel

    Model = StochasticBlockModel | MixedMembership

network_app = typer.Typer(
    help="Blocks and communities of networks.\n\nExample: scirocco network fit edges.csv --blocks 10 --out run"
)
_EDGES = "CSV, TSV, text, Parquet, Arrow or .npy: source, target, and a third column if edges have weights."
_COLUMNS = typer.Option(
    "--columns", metavar="NAMES", help="Columns to use: source,target or source,target,weight. All by default."
)
_PAIRS = typer.Argument(help="A table of pairs of nodes: two columns.", metavar="PAIRS", show_default=False)
_NOTES = {
    "share": "of the nodes, of communities of the edges",
    "inside": "edges per pair of its nodes",
    "next": "the other block with most edges per pair",
    "members": "nodes with a membership of 0.1 or more",
}


@fit_command(network_app, threads=None)
def fit(
    fitting: Fitting,
    data: Annotated[Path, typer.Argument(help=f"A table of edges. {_EDGES}", metavar="DATA", show_default=False)],
    columns: Annotated[str | None, _COLUMNS] = None,
    blocks: Annotated[
        int | None,
        typer.Option("--blocks", min=1, help="Number of blocks; by default drawn. Communities: 2 by default."),
    ] = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Mixed memberships: nodes belong to several communities.")
    ] = False,
    general: Annotated[
        bool, typer.Option("--general", help="With --mixed: communities also have edges between them.")
    ] = False,
    directed: Annotated[bool, typer.Option("--directed", help="Edges have a direction.")] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Without propensities of nodes (not degree-corrected).")
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help="Model of a paper: holland1983, nowicki2001, karrer2011; with --mixed airoldi2008, li2016, "
            "baker2018, barile2024.",
        ),
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option("--likelihood", metavar="NAME", help="poisson or bernoulli; by default depends on DATA."),
    ] = None,
    starts: Annotated[
        int | None, typer.Option("--starts", min=1, help="Short chains from which the best is chosen.")
    ] = None,
) -> None:
    """Fit a block model, or mixed memberships, and store the draws in the folder RUN as it runs.

    Example: scirocco network fit mails.csv --blocks 20 --directed --out mails-run
    """
    fitting.check(data)
    from scirocco.models import MixedMembership, StochasticBlockModel
    from scirocco.models.inputs.files import read_table

    if mixed and starts is not None:
        raise InvalidValueError("--mixed has no --starts: remove it.")
    if general and not mixed:
        raise InvalidValueError("--general is for --mixed: block models always have edges between blocks.")
    given = fitting.settings | chosen(
        likelihood=likelihood,
        num_starts=starts,
        directed=directed or None,
        degree_corrected=False if plain else None,
        kind="general" if general else None,
    )
    kind = MixedMembership if mixed else StochasticBlockModel
    number = () if blocks is None else (blocks,)
    model: Model = kind(*number, **given) if preset is None else kind.preset(preset, *number, **given)
    table = read_table(data, _common.names_of(columns))
    weights = f" with weights in the column {table.columns[2]}" if table.shape[1] == 3 else ""
    names = ("community", "communities") if mixed else ("block", "blocks")
    asked = _number(model)
    told = f"an unknown number of {names[1]}" if asked is None else f"{asked} {names[asked > 1]}"
    fitting.say(f"{_common.counted(len(table), 'row')} of edges{weights}, {told}")
    fitting.run(model, table)


@show_command(network_app, "network")
def shown(
    opened: Opened,
    nodes: Annotated[
        Path | None, typer.Option("--nodes", metavar="FILE.csv", help="Write the block of every node to a file.")
    ] = None,
    overwrite: Annotated[bool, _common.REPLACE] = False,
) -> Shown:
    """Show the blocks or communities of a run: sizes and rates of edges, with credible intervals.

    You can use it while the run is being fitted.

    Example: scirocco network show run --nodes blocks.csv
    """
    model = opened.model
    if nodes is not None:
        _common.check_target(nodes, (".csv",), overwrite)
        write_whole(nodes, model.nodes().to_csv())
    mixed = type(model).__name__ == "MixedMembership"
    table = model.communities(opened.interval) if mixed else model.blocks(opened.interval)
    unit = str(table.index.name)
    listed = zip(table.index, table.to_dict("records"), strict=True)
    values = {
        "num_nodes": model.nodes_.num_nodes,
        "communities" if mixed else "blocks": [{unit: int(k), **row} for k, row in listed],
    }
    if "block_matrix" in model.draws_:
        values["block_matrix"] = model.draws_["block_matrix"].mean(axis=(0, 1)).tolist()
    return Shown(opened.values() | values, lambda: _print_blocks(opened, table))


@predict_command(network_app, "network")
def predicted(
    opened: Opened, pairs: Annotated[Path, _PAIRS], columns: Annotated[str | None, _COLUMNS] = None
) -> PredictedTable:
    """Write the probability of an edge of every pair, and that both nodes are in the same block.

    Example: scirocco network predict run pairs.csv --out links.csv
    """
    _common.check_source(pairs)
    from scirocco.models.inputs.files import read_table

    table = read_table(pairs, _common.names_of(columns))
    found = opened.model.predict_proba(table)
    told = table.assign(probability=found, same_block=opened.model.co_membership(table))
    values = {"num_pairs": len(table), "mean": float(found.mean())}
    return PredictedTable(told, values, f"{len(table):,} pairs, mean probability {found.mean():.3g}")


def _print_blocks(opened: Opened, table: Any) -> None:
    from scirocco._console import print_table, print_wrapped

    model, unit = opened.model, str(table.index.name)
    names = [name for name in table.columns if not name.endswith(("_low", "_high"))]
    rows = [[f" {k} ", *(_common.cell(row, name) for name in names)] for k, row in table.iterrows()]
    units = "communities" if unit == "community" else "blocks"
    counted = f"{len(table)} {units if len(table) > 1 else unit}"
    if unit == "block" and _number(model) is None:
        numbers = list(opened.run.stats["num_blocks"][...].ravel())
        counted += f" ({int(min(numbers))} to {int(max(numbers))} in a draw)"
    print_table(opened.title(f"{model.nodes_.num_nodes:,} nodes in {counted}"), [unit, *names], rows, right=(0,))
    print_wrapped("; ".join(f"{name}: {_NOTES[name]}" for name in names if name in _NOTES) + ".")
    run = shlex.quote(str(opened.path))
    print_wrapped(f"Every node: scirocco network show {run} --nodes FILE.csv. Pictures: scirocco report {run}.")


def _number(model: Any) -> int | None:
    """The number of blocks or communities in the arguments."""
    settings = model.get_params()
    found: int | None = settings.get("num_blocks") or settings.get("num_communities")
    return found
