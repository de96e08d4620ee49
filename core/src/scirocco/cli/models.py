"""`scirocco show` and `scirocco predict` of any run; `scirocco model fit` of models without commands of their own."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from scirocco._checks import did_you_mean
from scirocco.cli import _common
from scirocco.cli._common import typer
from scirocco.cli._models import Fitting, Opened, PredictedTable, Shown, chosen, fit_command, own_command, shown_of
from scirocco.errors import InvalidValueError
from scirocco.models._core.registry import MODELS, model_class

DATA = typer.Argument(help="The data: a table or documents.", metavar="DATA", show_default=False)
COLUMNS = typer.Option("--columns", metavar="NAMES", help="Columns of DATA: x,y. All by default.")
COLUMN = typer.Option("--column", metavar="NAME", help="Of documents: the column with the texts.")
TIMES = typer.Option("--times", metavar="NAME", help="Of documents: the column with their times.")
_NAME = typer.Argument(help="The model: LinearRegression, GLMM, BPMF, ...", metavar="NAME", show_default=False)
_TARGET = typer.Option("--target", metavar="COLUMN", help="Of rows: the column to predict; the others are x.")
_FORMULA = typer.Option("--formula", metavar="FORMULA", help="GLMM and regressions: y ~ x + z, in place of --target.")
_SET = typer.Option(
    "--set", metavar="KEY=VALUE", help="An argument of the model, with its value as in TOML; repeatable."
)
_OPTIONS = {"rows": ("columns", "target"), "pairs": ("columns",), "documents": ("column", "times")}
"""The options for data of each kind, see `ModelEntry.reads`."""

model_app = typer.Typer(
    help="Models without a group of commands: regressions, GLMM, BNN, BPMF, GaussianMixture, DynamicTopics, "
    "CorrelatedTopics.\n\n"
    "Example: scirocco model fit LinearRegression table.csv --target price --out run"
)


@fit_command(model_app)
def fit(
    fitting: Fitting,
    name: Annotated[str, _NAME],
    data: Annotated[Path, DATA],
    target: Annotated[str | None, _TARGET] = None,
    formula: Annotated[str | None, _FORMULA] = None,
    columns: Annotated[str | None, COLUMNS] = None,
    column: Annotated[str | None, COLUMN] = None,
    times: Annotated[str | None, TIMES] = None,
    settings: Annotated[list[str] | None, _SET] = None,
) -> None:
    """Fit a model to a table or to documents, and store its draws in the folder RUN as it runs.

    The first three columns of DATA for BPMF are user, item and rating. Models with a command of their own, such as HMM,
    are fitted by it.

    Example: scirocco model fit GLMM visits.csv --formula "count ~ age + (1 | site)" --set family='"poisson"' --out run
    """
    kind = _kind_of(name)
    options = chosen(columns=columns, target=target, column=column, times=times)
    for option in options:
        if option not in _OPTIONS[kind]:
            raise InvalidValueError(f"{name} reads {kind}, which --{option} is not for.")
    fitting.check(data)
    model = _made(name, fitting.settings | chosen(formula=formula), settings or ())
    parts = {"rows": _rows, "pairs": _ratings, "documents": _documents}[kind](model, data, options)
    _require(model.fit, parts, name)
    fitting.run(model, **parts)


def _kind_of(name: str) -> str:
    """What a model reads; an error for a name that is none, or of a model that has its own commands."""
    if name not in MODELS:
        others = [other for other in MODELS if not MODELS[other].group]
        raise InvalidValueError(
            f"there is no model {name!r}.{did_you_mean(name, MODELS)} `model fit` has {', '.join(others)}."
        )
    if MODELS[name].group:
        raise InvalidValueError(f"{name} has a command of its own: `scirocco {MODELS[name].command}`.")
    return MODELS[name].reads


def _made(name: str, settings: dict[str, Any], texts: Sequence[str]) -> Any:
    """The model, from options and from `--set`; its constructor checks them."""
    model = model_class(name)
    for text in texts:
        key, value = _setting(text)
        if key in settings:
            raise InvalidValueError(f"--set {key}: `{key}` is set already, by its own option or another --set.")
        settings[key] = value
    _require(model, settings, name)
    return model(**settings)


def _setting(text: str) -> tuple[str, Any]:
    """The name and the value of `--set KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not (equals and key.isidentifier()):
        raise InvalidValueError(f"--set {text!r} must be KEY=VALUE, such as --set num_burnin=500.")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        parsed = {}
    if list(parsed) != ["value"]:
        raise InvalidValueError(
            f"--set {text}: the value must be a number, true, false, a list, or a text in quotes that the shell "
            f"leaves: --set '{key}=\"normal\"'."
        )
    return key, parsed["value"]


def _require(call: Callable[..., Any], arguments: dict[str, Any], name: str) -> None:
    """An error if an argument that has no default is missing."""
    for key, parameter in inspect.signature(call).parameters.items():
        if parameter.default is parameter.empty and parameter.kind.name != "VAR_KEYWORD" and key not in arguments:
            raise InvalidValueError(f"{name} requires `{key}`: give --{key}.")


def _rows(model: Any, data: Path, options: dict[str, str]) -> dict[str, Any]:
    """A table: whole for a formula or where nothing is to be predicted, else without its target."""
    from scirocco.models.inputs.files import read_table

    name, target = type(model).__name__, options.get("target")
    names = _common.names_of(options.get("columns"))
    predicts = model._estimator_type in ("classifier", "regressor")
    settings = model.get_params()
    formula = settings.get("formula")
    if target is not None and (formula is not None or not predicts):
        reason = "its formula names it" if predicts else "it predicts no column"
        raise InvalidValueError(f"{name} takes no --target here: {reason}.")
    if predicts and target is None and formula is None:
        also = " or --formula" if "formula" in settings else ""
        raise InvalidValueError(f"{name} requires the column to predict: give --target{also}.")
    if target is None:
        first = next(iter(inspect.signature(model.fit).parameters))
        return {first: read_table(data, names)}
    table = read_table(data, None if names is None else [*dict.fromkeys([*names, target])])
    if target not in table.columns:
        raise InvalidValueError(f"{data.name} has no column {target!r}. It has {', '.join(table.columns[:20])}.")
    return {"X": table.drop(columns=target), "y": table[target]}


def _ratings(model: Any, data: Path, options: dict[str, str]) -> dict[str, Any]:
    """The first three columns: users, items and ratings."""
    from scirocco.models.inputs.files import read_table

    table = read_table(data, _common.names_of(options.get("columns")))
    if table.shape[1] < 3:
        raise InvalidValueError(
            f"{data.name} must have three columns, user, item and rating, got {', '.join(table.columns)}."
        )
    return {name: table.iloc[:, place] for place, name in enumerate(("users", "items", "ratings"))}


def _documents(model: Any, data: Path, options: dict[str, str]) -> dict[str, Any]:
    """The file itself: the model reads it."""
    return {"X": data, **options}


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
    column: Annotated[str | None, COLUMN] = None,
    times: Annotated[str | None, TIMES] = None,
) -> PredictedTable:
    """Write the predictions of a model for each row of a table, pair of nodes or document, to a CSV file.

    Example: scirocco predict run table.csv --out predictions.csv
    """
    from scirocco.diagnostics.intervals import widest
    from scirocco.models.inputs.files import read_table

    _common.check_source(data)
    name, model = type(opened.model).__name__, opened.model
    own = own_command(name, "predicted")
    if own is not None:
        found: PredictedTable = own(opened, data, **chosen(columns=columns))
        return found
    if name not in MODELS:
        raise InvalidValueError(f"{opened.path} is a run, not a fitted model: it has no predictions.")
    interval = widest(opened.run.num_chains * opened.run.num_draws, interval)
    if MODELS[name].reads == "documents":
        parts = _of_documents(model, data, column, times)
    else:
        table = read_table(data, _common.names_of(columns))
        parts = _of_pairs(model, table, interval) if MODELS[name].reads == "pairs" else _of_rows(model, table, interval)
    import pandas

    table = pandas.DataFrame(parts)
    return PredictedTable(table, {"num_rows": len(table)}, _common.counted(len(table), "row"))


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
