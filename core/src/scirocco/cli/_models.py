"""What the commands of all models have in common: fit, show and predict.

A model with its own commands has a module with the name of its group (`hmm`), see `models/_core/registry.py`. In it
`shown(opened, ...)` and `predicted(opened, data, ...)` say what `show` prints and what `predict` writes, and the
function for `fit` makes the model and reads its data. Their parameters are the options that only they have; the common
ones are added here, and what follows the work is done here.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar, get_type_hints

from scirocco._console import print_wrapped
from scirocco.cli import _common
from scirocco.cli._common import JSON, RUN, print_json, say, typer, write_whole
from scirocco.cli._exit import INTERRUPTED, ending_with_its_draws
from scirocco.models._core.registry import MODELS

F = TypeVar("F", bound=Callable[..., Any])

_MOST_ROWS = 30
"""Lines of a summary on the terminal."""


class Fitting(NamedTuple):
    """The options that all `fit` commands have."""

    out: Any
    """The folder of the run."""
    length: _common.AskedLength
    settings: dict[str, Any]
    """Arguments of the constructor that were given."""
    resume: bool
    overwrite: bool
    as_json: bool
    is_kept: bool = True
    """Whether the folder remains when the command has ended."""

    def check(self, data: Path | None) -> None:
        """Reject what cannot work, before anything slow is imported or read."""
        if data is not None:
            _common.check_source(data)
        _common.check_fit(self.out, self.length, self.resume, self.overwrite)

    def say(self, text: str) -> None:
        """Print a message for readers: to stderr if stdout is JSON."""
        if self.as_json:
            say(text, file=sys.stderr, flush=True)
        else:
            print_wrapped(text)
            sys.stdout.flush()

    def run(self, model: Any, *data: Any, **own: Any) -> None:
        """Fit the model, then show it."""
        interrupted = self.sample(model, *data, **own)
        self.end(shown_of(type(model).__name__)(open_fit(self.out)), interrupted)

    def sample(self, model: Any, *data: Any, **own: Any) -> bool:
        """Fit the model; whether it was interrupted. Without draws there is nothing to show, and the command ends."""
        session = {"store": self.out, "resume": self.resume, "overwrite": self.overwrite}
        try:
            with ending_with_its_draws():
                model.fit(*data, **own, **self.length._asdict(), **session)
        except KeyboardInterrupt:
            if not _common.interrupted_early(self.out):
                raise
            self._stop()
        return bool(model.run_.status == "interrupted")

    def end(self, shown: Shown, interrupted: bool) -> None:
        """Show the fit; say how to resume if the run was interrupted."""
        shown.print(self.as_json)
        if interrupted:
            self._stop()

    def _stop(self) -> NoReturn:
        if self.is_kept:
            self.say(_common.how_to_resume(self.out))
        raise typer.Exit(INTERRUPTED)


def fit_options(
    out: Annotated[Path, _common.NEW_RUN],
    epochs: Annotated[float | None, _common.EPOCHS] = None,
    steps: Annotated[int | None, _common.STEPS] = None,
    seconds: Annotated[float | None, _common.SECONDS] = None,
    chains: Annotated[int | None, _common.CHAINS] = None,
    draws: Annotated[int | None, _common.DRAWS] = None,
    batch_size: Annotated[int | None, _common.BATCH_SIZE] = None,
    seed: Annotated[int, _common.SEED] = 0,
    threads: Annotated[int | None, _common.THREADS] = None,
    resume: Annotated[bool, _common.RESUME] = False,
    overwrite: Annotated[bool, _common.OVERWRITE] = False,
    as_json: Annotated[bool, JSON] = False,
) -> Fitting:
    """The common options of `fit`."""
    settings = {
        "num_chains": chains,
        "num_samples": draws,
        "batch_size": batch_size,
        "seed": seed,
        "num_threads": threads,
    }
    length = _common.AskedLength(steps, epochs, seconds)
    return Fitting(out, length, chosen(**settings), resume, overwrite, as_json)


def chosen(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


class Opened(NamedTuple):
    """A stored fit, finished or not."""

    path: Path
    model: Any
    """A model of `sc.models`; or the run, if it is one of `sc.sample`."""
    run: Any
    interval: float
    """Probability of the intervals: less than asked if there are few draws."""

    def title(self, counted: str) -> str:
        """The title of a table: what was counted, the draws, and the intervals."""
        drawn = _common.drawn_so_far(self.run.num_chains, self.run.num_draws, self.run.status)
        return f"{counted}, {drawn}; {100 * self.interval:g} % intervals"

    def values(self) -> dict[str, Any]:
        """What JSON has of every fit."""
        return {
            "run": str(self.path),
            "status": self.run.status,
            "num_chains": self.run.num_chains,
            "num_draws": self.run.num_draws,
            "interval": self.interval,
        }


def open_fit(path: Path, interval: float = 0.9, group: str = "") -> Opened:
    """Open a run: of any model, or of those whose command is `group`."""
    from scirocco import models
    from scirocco.diagnostics.intervals import widest
    from scirocco.run import load

    load(path)  # reports what is no run, or a damaged one
    name, of_group = models.name_at(path), [name for name in MODELS if MODELS[name].group == group]
    if group and name not in of_group:
        name = of_group[0]  # which refuses it
    model: Any = load(path) if name is None else models.model_class(name).load(path)
    run = model if name is None else model.run_
    return Opened(path, model, run, widest(run.num_chains * run.num_draws, interval))


class Shown(NamedTuple):
    """What `show` prints."""

    values: dict[str, Any]
    """The values for JSON."""
    table: Callable[[], None]
    """Prints it for readers."""

    def print(self, as_json: bool) -> None:
        """Print it."""
        print_json(self.values) if as_json else self.table()


class PredictedTable(NamedTuple):
    """What `predict` writes."""

    table: Any
    """A data frame with a line for each row."""
    values: dict[str, Any]
    """A summary for JSON."""
    text: str
    """The same for readers."""


# -- commands from functions -------------------------------------------------------------------------------------------


def fit_command(app: Any, **fixed: Any) -> Callable[[F], F]:
    """Decorator: `fit(fitting, ...)` as a command with the common options, except those with a fixed value."""

    def register(function: F) -> F:
        def command(common: dict[str, Any], own: dict[str, Any]) -> None:
            function(fit_options(**fixed, **common), **own)

        _register(app, "fit", function, fit_options, command, fixed)
        return function

    return register


def show_command(app: Any, group: str = "") -> Callable[[F], F]:
    """Decorator: `shown(opened, ...)` as the command `show`."""

    def options(
        run: Annotated[Path, RUN],
        interval: Annotated[float, _common.INTERVAL] = 0.9,
        as_json: Annotated[bool, JSON] = False,
    ) -> None: ...

    def register(function: F) -> F:
        def command(common: dict[str, Any], own: dict[str, Any]) -> None:
            opened = open_fit(common["run"], common["interval"], group)
            function(opened, **own).print(common["as_json"])

        _register(app, "show", function, options, command)
        return function

    return register


def predict_command(app: Any, group: str = "") -> Callable[[F], F]:
    """Decorator: `predicted(opened, data, ...)` as the command `predict`."""

    def options(
        run: Annotated[Path, RUN],
        out: Annotated[Path, _common.NEW_FILE],
        overwrite: Annotated[bool, _common.REPLACE] = False,
        as_json: Annotated[bool, JSON] = False,
    ) -> None: ...

    def register(function: F) -> F:
        def command(common: dict[str, Any], own: dict[str, Any]) -> None:
            run, out = common["run"], common["out"]
            _common.check_target(out, (".csv",), common["overwrite"])
            predicted = function(open_fit(run, group=group), **own)
            write_whole(out, predicted.table.to_csv(index=False))
            if common["as_json"]:
                print_json({"run": str(run), "path": str(out), **predicted.values})
            else:
                say(f"{predicted.text}: {out}")

        _register(app, "predict", function, options, command)
        return function

    return register


def _register(
    app: Any,
    name: str,
    function: Callable[..., Any],
    options: Callable[..., Any],
    command: Callable[[dict[str, Any], dict[str, Any]], None],
    fixed: Mapping[str, Any] | None = None,
) -> None:
    """A command with the parameters of `options`, except fixed ones, and of the function, except its first."""
    own = dict(list(inspect.signature(function).parameters.items())[1:])
    signature = inspect.signature(options).parameters
    common = {key: parameter for key, parameter in signature.items() if key not in (fixed or {})}
    order = [*(key for key in common if key == "run"), *own, *(key for key in common if key != "run")]
    hints = get_type_hints(options, include_extras=True) | get_type_hints(function, include_extras=True)

    def run(**typed: Any) -> None:
        command({key: typed.pop(key) for key in common}, typed)

    parameters = [
        (own | common)[key].replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[key]) for key in order
    ]
    run.__doc__, run.__name__ = function.__doc__, function.__name__
    run.__annotations__ = {key: hints[key] for key in order}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.command(name)(run)


# -- what is special to a model, and the summary of those without their own


def shown_of(name: str | None) -> Callable[..., Shown]:
    """The function of a model for `show`."""
    return own_command(name, "shown") or summary_of


def own_command(name: str | None, what: str) -> Any:
    """A function of the module with the commands of a model; None if it has no such function, or no such module."""
    entry = MODELS.get(name or "")
    module = importlib.import_module(entry.commands) if entry is not None and entry.group else None
    return getattr(module, what, None)


def summary_of(opened: Opened) -> Shown:
    """The summary of what can be interpreted."""
    frame = opened.model.summary(opened.interval, None)

    def table() -> None:
        print_summary(opened.title(type(opened.model).__name__), frame)
        say(f"Pictures: scirocco report {opened.path}.")

    return Shown(opened.values() | {"summary": frame.to_dict("index")}, table)


def print_summary(title: str, frame: Any) -> None:
    """The main columns of a summary."""
    from scirocco._console import print_table
    from scirocco.diagnostics.frames import supported

    ends = [name for name in frame.columns if name.endswith("%")]
    rows = [
        [
            f"{name} ",
            *(f" {supported(row[column], row['mcse_mean'])}" for column in ("mean", "sd", *ends)),
            f" {row['ess_bulk']:,.0f}",
            f" {row['r_hat']:.3f}",
        ]
        for name, row in list(frame.to_dict("index").items())[:_MOST_ROWS]
    ]
    columns = ["", "  mean", "  sd", *(f"  {end[:-1]} %" for end in ends), "  ESS", "  R-hat"]
    print_table(title, columns, rows, right=range(1, len(columns)))
    if len(frame) > len(rows):
        say(f"{len(rows)} of {len(frame):,} rows; --json has all.")
