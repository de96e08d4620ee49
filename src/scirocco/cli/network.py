"""Commands for models of networks: fit, show, predict."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scirocco.cli import _common
from scirocco.cli._common import JSON, drawn_so_far, print_json, say, typer, write_whole
from scirocco.cli._exit import INTERRUPTED, ending_with_its_draws
from scirocco.errors import InvalidValueError

if TYPE_CHECKING:
    from scirocco.models import MixedMembership, StochasticBlockModel

    Model = StochasticBlockModel | MixedMembership

network_app = typer.Typer(
    help="Blocks and communities of networks.\n\nExample: scirocco network fit edges.csv --blocks 10 --out run",
)
_EDGES = "CSV, TSV, text, Parquet, Arrow or .npy: source, target, and a third column if edges have weights."
_COLUMNS = typer.Option(
    "--columns",
    metavar="NAMES",
    help="Columns to use: source,target or source,target,weight. All by default.",
)
_NOTES = {
    "share": "of the nodes, of communities of the edges",
    "inside": "edges per pair of its nodes",
    "next": "the other block with most edges per pair",
    "members": "nodes with a membership of 0.1 or more",
}


@network_app.command("fit")
def network_fit(
    data: Annotated[
        Path, typer.Argument(help=f"A table of edges. {_EDGES}", metavar="DATA", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="Folder for the run.", show_default=False)
    ],
    columns: Annotated[str | None, _COLUMNS] = None,
    blocks: Annotated[
        int | None,
        typer.Option(
            "--blocks", min=1, help="Number of blocks; by default drawn. Communities: 2 by default."
        ),
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
        typer.Option(
            "--likelihood", metavar="NAME", help="poisson or bernoulli; by default depends on DATA."
        ),
    ] = None,
    epochs: Annotated[
        float | None, typer.Option("--epochs", help="Length of the run in passes over the nodes.")
    ] = None,
    steps: Annotated[int | None, _common.STEPS] = None,
    seconds: Annotated[float | None, _common.SECONDS] = None,
    chains: Annotated[int, typer.Option("--chains", min=1, help="Independent chains.")] = 4,
    draws: Annotated[int | None, _common.DRAWS] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", min=1, help="Nodes per step.")] = None,
    starts: Annotated[
        int | None, typer.Option("--starts", min=1, help="Short chains from which the best is chosen.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed of the chains.")] = 0,
    resume: Annotated[bool, _common.RESUME] = False,
    overwrite: Annotated[bool, _common.OVERWRITE] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Fit a block model, or mixed memberships, and store the draws in the folder RUN as it runs.

    Example: scirocco network fit mails.csv --blocks 20 --directed --out mails-run
    """
    _common.check_source(data)
    from scirocco.models import MixedMembership, StochasticBlockModel
    from scirocco.models.inputs.files import read_table

    length = _common.Length(steps, epochs, seconds)
    _common.check_fit(out, length, resume, overwrite)
    options: dict[str, Any] = {"num_samples": draws, "batch_size": batch_size}
    of_blocks: dict[str, Any] = {
        "likelihood": likelihood,
        "num_starts": starts,
        "directed": directed or None,
        "degree_corrected": False if plain else None,
    }
    given = {name: value for name, value in {**options, **of_blocks}.items() if value is not None}
    if mixed and starts is not None:
        raise InvalidValueError("--mixed has no --starts: remove it.")
    if general and not mixed:
        raise InvalidValueError("--general is for --mixed: block models always have edges between blocks.")
    if general:
        given["kind"] = "general"
    kind = MixedMembership if mixed else StochasticBlockModel
    given |= {"num_chains": chains, "seed": seed}
    number = () if blocks is None else (blocks,)
    model: Model = kind(*number, **given) if preset is None else kind.preset(preset, *number, **given)
    table = read_table(data, _common.names_of(columns))
    if not as_json:
        weights = f" with weights in the column {table.columns[2]}" if table.shape[1] == 3 else ""
        names = ("community", "communities") if mixed else ("block", "blocks")
        asked = _number(model)
        told = f"an unknown number of {names[1]}" if asked is None else f"{asked} {names[asked > 1]}"
        say(f"{_common.counted(len(table), 'row')} of edges{weights}, {told}", flush=True)
    try:
        with ending_with_its_draws():
            model.fit(table, **length._asdict(), store=out, resume=resume, overwrite=overwrite)
        interrupted = model.run_.status == "interrupted"
    except KeyboardInterrupt:
        if not _common.interrupted_early(out):
            raise
        interrupted = True
    if interrupted:
        say(_common.how_to_resume(out), file=sys.stderr if as_json else sys.stdout)
        raise typer.Exit(INTERRUPTED)
    _show(out, 0.9, as_json)


@network_app.command("show")
def network_show(
    run: Annotated[Path, _common.RUN],
    interval: Annotated[float, _common.INTERVAL] = 0.9,
    nodes: Annotated[
        Path | None,
        typer.Option("--nodes", metavar="FILE.csv", help="Write the block of every node to a file."),
    ] = None,
    overwrite: Annotated[bool, _common.REPLACE] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Show the blocks or communities of a run: sizes and rates of edges, with credible intervals.

    You can use it while the run is being fitted.

    Example: scirocco network show run --nodes blocks.csv
    """
    if nodes is not None:
        _common.check_target(nodes, (".csv",), overwrite)
    model = _show(run, interval, as_json)
    if nodes is not None:
        write_whole(nodes, model.nodes().to_csv())


@network_app.command("predict")
def network_predict(
    run: Annotated[Path, _common.RUN],
    pairs: Annotated[
        Path,
        typer.Argument(help="A table of pairs of nodes: two columns.", metavar="PAIRS", show_default=False),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE.csv", help="File to write; one line per pair.", show_default=False
        ),
    ],
    columns: Annotated[str | None, _COLUMNS] = None,
    overwrite: Annotated[bool, _common.REPLACE] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Write the probability of an edge of every pair, and that both nodes are in the same block.

    Example: scirocco network predict run pairs.csv --out links.csv
    """
    _common.check_source(pairs)
    from scirocco.models.inputs.files import read_table

    _common.check_target(out, (".csv",), overwrite)
    model, _ = _open(run)
    table = read_table(pairs, _common.names_of(columns))
    found = model.predict_proba(table)
    told = table.assign(probability=found, same_block=model.co_membership(table))
    write_whole(out, told.to_csv(index=False))
    if as_json:
        print_json({"run": str(run), "path": str(out), "num_pairs": len(table), "mean": float(found.mean())})
    else:
        say(f"{len(table):,} pairs, mean probability {found.mean():.3g}: {out}")


def _open(path: Path) -> tuple[Model, str]:
    """The model, and the status of its run."""
    from scirocco.models import MixedMembership, StochasticBlockModel, name_at

    kind = MixedMembership if name_at(path) == "MixedMembership" else StochasticBlockModel
    model: Model = kind.load(path)
    return model, model.run_.status


def _show(path: Path, interval: float, as_json: bool) -> Model:
    from scirocco._console import print_table, print_wrapped
    from scirocco.diagnostics.intervals import widest
    from scirocco.models import MixedMembership

    model, status = _open(path)
    chains, draws = model.draws_["shares"].shape[:2]
    interval = widest(chains * draws, interval)  # of a short run, or of one that is still going
    table = model.communities(interval) if isinstance(model, MixedMembership) else model.blocks(interval)
    unit = str(table.index.name)
    if as_json:
        listed = zip(table.index, table.to_dict("records"), strict=True)
        told: dict[str, Any] = {
            "run": str(path),
            "status": status,
            "num_nodes": model.nodes_.num_nodes,
            "num_chains": chains,
            "num_draws": draws,
            "interval": interval,
            "communities" if unit == "community" else "blocks": [{unit: int(k), **row} for k, row in listed],
        }
        if "block_matrix" in model.draws_:
            told["block_matrix"] = model.draws_["block_matrix"].mean(axis=(0, 1)).tolist()
        print_json(told)
        return model
    names = [name for name in table.columns if not name.endswith(("_low", "_high"))]
    rows = [[f" {k} ", *(_cell(row, name) for name in names)] for k, row in table.iterrows()]
    units = "communities" if unit == "community" else "blocks"
    counted = f"{len(table)} {units if len(table) > 1 else unit}"
    if unit == "block" and _number(model) is None:
        numbers = list(model.run_.stats["num_blocks"][...].ravel())
        counted += f" ({int(min(numbers))} to {int(max(numbers))} in a draw)"
    title = (
        f"{model.nodes_.num_nodes:,} nodes in {counted}, {drawn_so_far(chains, draws, status)}; "
        f"{100 * interval:g} % intervals"
    )
    print_table(title, [unit, *names], rows, right=(0,))
    print_wrapped("; ".join(f"{name}: {_NOTES[name]}" for name in names if name in _NOTES) + ".")
    print_wrapped(
        f"Every node: scirocco network show {path} --nodes FILE.csv. Pictures: scirocco report {path}."
    )
    return model


def _cell(row: Any, name: str) -> str:
    if f"{name}_low" in row:
        return f"{row[name]:.3g} ({row[f'{name}_low']:.3g} to {row[f'{name}_high']:.3g})"
    return f"{int(row[name]):,}" if float(row[name]).is_integer() else f"{row[name]:.3g}"


def _number(model: Any) -> int | None:
    """The number of blocks or communities in the arguments."""
    found: int | None = getattr(model, "num_blocks", None) or getattr(model, "num_communities", None)
    return found
