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
    length: _common.Length
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

    def end(self, found: Shown, interrupted: bool) -> None:
        """Show what was found; say how to resume if the run was interrupted."""
        finish_show(Showing(self.out, 0.9, self.as_json), found)
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
    length = _common.Length(steps, epochs, seconds)
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


class Showing(NamedTuple):
    """The options that all `show` commands have."""

    run: Path
    interval: float
    as_json: bool


def finish_show(options: Showing, found: Shown) -> None:
    """Print what `show` found."""
    print_json(found.values) if options.as_json else found.table()


class Predicted(NamedTuple):
    """What `predict` writes."""

    table: Any
    """A data frame with a line for each row."""
    values: dict[str, Any]
    """A summary for JSON."""
    text: str
    """The same for readers."""


class Predicting(NamedTuple):
    """The options that all `predict` commands have."""

    run: Path
    out: Path
    overwrite: bool
    as_json: bool


def finish_predict(options: Predicting, found: Predicted) -> None:
    """Write the file, and print a summary."""
    write_whole(options.out, found.table.to_csv(index=False))
    if options.as_json:
        print_json({"run": str(options.run), "path": str(options.out), **found.values})
    else:
        say(f"{found.text}: {options.out}")


# -- commands from functions -------------------------------------------------------------------------------------------


def fit_command(app: Any, **fixed: Any) -> Callable[[F], F]:
    """Decorator: `fit(fitting, ...)` as a command with the common options, except those with a fixed value."""
    return _command(app, "fit", fit_options, lambda fitting: fitting, lambda fitting, found: None, fixed)


def show_command(app: Any, group: str = "") -> Callable[[F], F]:
    """Decorator: `shown(opened, ...)` as the command `show`."""

    def options(
        run: Annotated[Path, RUN],
        interval: Annotated[float, _common.INTERVAL] = 0.9,
        as_json: Annotated[bool, JSON] = False,
    ) -> Showing:
        return Showing(run, interval, as_json)

    return _command(
        app, "show", options, lambda asked: open_fit(asked.run, asked.interval, group), finish_show
    )


def predict_command(app: Any, group: str = "") -> Callable[[F], F]:
    """Decorator: `predicted(opened, data, ...)` as the command `predict`."""

    def options(
        run: Annotated[Path, RUN],
        out: Annotated[Path, _common.NEW_FILE],
        overwrite: Annotated[bool, _common.REPLACE] = False,
        as_json: Annotated[bool, JSON] = False,
    ) -> Predicting:
        _common.check_target(out, (".csv",), overwrite)
        return Predicting(run, out, overwrite, as_json)

    return _command(app, "predict", options, lambda asked: open_fit(asked.run, group=group), finish_predict)


def _command(
    app: Any,
    name: str,
    options: Callable[..., Any],
    begin: Callable[[Any], Any],
    finish: Callable[[Any, Any], None],
    fixed: Mapping[str, Any] | None = None,
) -> Callable[[F], F]:
    """Decorator: a command with the parameters of `options` and of the function, except its first, from `begin`."""

    def register(function: F) -> F:
        own = dict(list(inspect.signature(function).parameters.items())[1:])
        common = dict(inspect.signature(options).parameters)
        for each in fixed or {}:
            del common[each]
        order = [*(key for key in common if key == "run"), *own, *(key for key in common if key != "run")]
        hints = get_type_hints(options, include_extras=True) | get_type_hints(function, include_extras=True)

        def run(**given: Any) -> None:
            asked = options(**(fixed or {}), **{key: given.pop(key) for key in common})
            finish(asked, function(begin(asked), **given))

        run.__doc__, run.__name__ = function.__doc__, function.__name__
        run.__annotations__ = {key: hints[key] for key in order}
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                (own | common)[key].replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[key])
                for key in order
            ]
        )
        app.command(name)(run)
        return function

    return register


# -- what is special to a model, and the summary of those without their own


def shown_of(name: str | None) -> Callable[..., Shown]:
    """The function of a model for `show`."""
    found: Callable[..., Shown] = getattr(module_of(name), "shown", summary_of)
    return found


def module_of(name: str | None) -> Any:
    """The module with the commands of a model; None if it has none of its own."""
    entry = MODELS.get(name or "")
    return importlib.import_module(entry.commands) if entry is not None and entry.group else None


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
