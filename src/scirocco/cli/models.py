"""`scirocco show` and `scirocco predict`: of any run, also of models without commands of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from scirocco.cli import _common
from scirocco.cli._common import typer
from scirocco.cli._models import Opened, Predicted, Shown, chosen, module_of, shown_of
from scirocco.errors import InvalidValueError
from scirocco.models._core.registry import MODELS

DATA = typer.Argument(help="The data: a table or documents.", metavar="DATA", show_default=False)
COLUMNS = typer.Option("--columns", metavar="NAMES", help="Columns of DATA: x,y. All by default.")


def show(opened: Opened) -> Shown:
    """Show what a run has found: the states, clusters or topics of a model, or the summary of its parameters.

    You can use it while the run is being fitted.

    Example: scirocco show run --json
    """
    return shown_of(type(opened.model).__name__)(opened)


def predict(
    opened: Opened,
    data: Annotated[Path, DATA],
    columns: Annotated[str | None, COLUMNS] = None,
    interval: Annotated[float, _common.INTERVAL] = 0.9,
    column: Annotated[
        str | None, typer.Option("--column", metavar="NAME", help="Of documents: the column with the texts.")
    ] = None,
    times: Annotated[
        str | None, typer.Option("--times", metavar="NAME", help="Of documents: the column with their times.")
    ] = None,
) -> Predicted:
    """Write the predictions of a model for each row of a table, pair of nodes or document, to a CSV file.

    Example: scirocco predict run table.csv --out predictions.csv
    """
    from scirocco.diagnostics.intervals import widest
    from scirocco.models.inputs.files import read_table

    _common.check_source(data)
    name, model = type(opened.model).__name__, opened.model
    own = getattr(module_of(name), "predicted", None)
    if own is not None:
        found: Predicted = own(opened, data, **chosen(columns=columns))
        return found
    if name not in MODELS:
        raise InvalidValueError(f"{opened.path} is a run, not a fitted model: it has no predictions.")
    interval = widest(opened.run.num_chains * opened.run.num_draws, interval)
    if MODELS[name].reads == "documents":
        parts = _of_documents(model, data, column, times)
    else:
        table = read_table(data, _common.names_of(columns))
        parts = (
            _of_pairs(model, table, interval)
            if MODELS[name].reads == "pairs"
            else _of_rows(model, table, interval)
        )
    import pandas

    table = pandas.DataFrame(parts)
    return Predicted(table, {"num_rows": len(table)}, _common.counted(len(table), "row"))


def _of_rows(model: Any, table: Any, interval: float) -> dict[str, Any]:
    """Columns of predictions: classes and their probabilities, expected values with intervals, or components."""
    known = [name for name in getattr(model, "feature_names_in_", ()) if name in table.columns]
    table = table[known] if known else table
    if model._estimator_type == "regressor":
        return dict(zip(("mean", "low", "high"), model.predict(table, interval=interval), strict=True))
    shares = model.predict_proba(table)
    if model._estimator_type != "classifier":
        return {"component": shares.argmax(axis=1), "probability": shares.max(axis=1)}
    classes = model.classes_.tolist()
    return {"class": model.predict(table), **{f"P({each})": shares[:, k] for k, each in enumerate(classes)}}


def _of_pairs(model: Any, table: Any, interval: float) -> dict[str, Any]:
    """The first two columns, and expected values with intervals."""
    first, second = (table.iloc[:, k] for k in (0, 1))
    found = model.predict(first, second, interval=interval)
    return {first.name: first, second.name: second, **dict(zip(("mean", "low", "high"), found, strict=True))}


def _of_documents(model: Any, data: Path, column: str | None, times: str | None) -> dict[str, Any]:
    """The share of each topic in each document."""
    shares = model.transform(data, *([] if times is None else [times]), column=column)
    return {f"topic_{k}": share for k, share in enumerate(shares.T)}
