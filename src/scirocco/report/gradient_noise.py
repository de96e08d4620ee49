"""How much of what moves the chains is noise of the gradients, along the run."""

from __future__ import annotations

import numpy as np

from scirocco.analysis.diagnosis.noise import noise_along
from scirocco.errors import SciroccoError
from scirocco.report import svg
from scirocco.report.markup import Html, number
from scirocco.run import Run


def chart(run: Run) -> tuple[Html | None, str]:
    """A curve and what it shows; without a curve, one sentence that says why."""
    if not isinstance(run.configuration.get("sampler"), dict):
        return None, "There are no gradients: the model has a loop of its own."
    try:
        found = noise_along(run)
    except SciroccoError as error:
        return None, f"Not drawn: {error}"
    if not np.isfinite(found.largest).all():
        return None, "Not drawn: the gradients at some draws are not finite."
    end = (float(found.steps[0]), float(max(found.steps[-1], found.steps[0] + 1)))
    top = max(float(found.largest.max()), 1e-12)
    frame = svg.Frame(end, (0.0, top * 1.1))
    level = [svg.level(frame, 0.2)] if 0.2 <= frame.y[1] else []
    parts = [svg.axes(frame, "step, burn-in included"), *level]
    for values, colour in ((found.largest, "c1"), (found.median, "c0")):
        parts += [
            svg.line(frame, found.steps, values, f"thick {colour}"),
            svg.dots(frame, found.steps, values),
        ]
    words = (
        "What gradient noise adds to the variance in a step, as a share of what the sampler injects: the worst "
        f"parameter (upper line, {number(found.largest[-1], 2)} at the end) and the median one (lower line, "
        f"{number(found.median[-1], 2)}). Unless the sampler takes it into account (a thermostat, SGHMC with measured "
        f"noise), variances are too large by about that share; above 0.2{', the dashed line,' if level else ''} it "
        f"is worth a change. {found.how}"
    )
    return svg.figure(frame, parts, "Gradient noise over injected noise"), words
