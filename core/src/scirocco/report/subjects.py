"""What a report is about: a run, a fitted model, or the folder of either."""

from __future__ import annotations

import os
import re
from typing import Any

from scirocco import models
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models._core.view import Reportable, View, need_draws, own_run
from scirocco.run import Run, load
from scirocco.run.records import sampler_name


def view_of(what: object, **options: Any) -> View:
    """The `View` of a run or model, opened from disk if needed; `options` are for the model."""
    if isinstance(what, (str, os.PathLike)):
        what = load(what)
    if isinstance(what, Run):
        need_draws(what)
        if what.path is None or models.name_at(what.path) is None:
            return View(what, f"Posterior draws by {method_of(what)}")
        try:
            model = models.load(what.path)
        except InvalidValueError as error:  # a fit that has not finished
            return View(what, f"Posterior draws by {method_of(what)}", about=str(error))
        return model.report_view(what, **options)
    if isinstance(what, Reportable):
        return what.report_view(**options)
    if hasattr(what, "run_") or hasattr(what, "get_params"):  # a user's own class
        return View(own_run(what), type(what).__name__)
    raise InvalidTypeError(
        f"a report requires a run, a fitted model or the folder of a stored run; got {type(what).__name__}."
    )


def method_of(run: Run) -> str:
    """The sampler's name for readers."""
    sampler = run.configuration.get("sampler")
    if not isinstance(sampler, dict):
        return re.sub(r"^(scir|sg\w+)", lambda found: found[0].upper(), str(sampler)).replace("_", " ")
    return sampler_name(sampler)
