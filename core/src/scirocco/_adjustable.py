"""Numbers of a room that a program may change for a while: sizes of pieces, pauses, limits."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator


class Adjustable:
    """A dataclass of numbers of which the library has one instance, and reads the fields where they are used.

    Another value is for tests and measurements: short runs then have many pieces, and small data are many.

    Examples
    --------
    >>> from scirocco.run.sizes import RUNNING
    >>> with RUNNING.changed(first_chunk=5):
    ...     print(RUNNING.first_chunk)
    5
    >>> RUNNING.first_chunk
    128
    """

    @contextlib.contextmanager
    def changed(self, **numbers: float) -> Iterator[None]:
        """With other values of the fields that are named, for the time of a `with` or of a decorated function."""
        fields = {field.name for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        if unknown := numbers.keys() - fields:
            raise TypeError(f"{type(self).__name__} has no {sorted(unknown)}, only {sorted(fields)}.")
        usual = {name: vars(self)[name] for name in numbers}
        vars(self).update(numbers)
        try:
            yield
        finally:
            vars(self).update(usual)
