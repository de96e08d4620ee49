"""One progress bar for several runs, whoever makes their steps."""

from __future__ import annotations

import time

from scirocco.run.progress import Bar


class SharedBar:
    """The steps of all runs together."""

    def __init__(self, num_runs: int, num_steps: int, progress: bool, name: str):
        self._bar = Bar(num_runs * num_steps, progress)
        self._steps = dict.fromkeys(range(num_runs), 0)
        self._began: tuple[float, int] | None = None
        self._num_steps, self._name = num_steps, name

    def tell(self, number: int, step: int) -> None:
        """A run has made so many steps."""
        self._steps[number] = step
        now, total = time.monotonic(), sum(self._steps.values())
        self._began = self._began or (now, total)
        seconds, made = now - self._began[0], total - self._began[1]
        done = sum(steps >= self._num_steps for steps in self._steps.values())
        rate = made / seconds if seconds > 0 else 0.0
        self._bar.update(total, f"{done} of {len(self._steps)} {self._name}", rate, None)

    def close(self) -> None:
        """Leave the last line on the screen."""
        self._bar.close()
