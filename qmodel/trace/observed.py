"""What the source of a trace measured of its own requests: time to first token, and time to the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qmodel.trace.columns import MISSING, Part, TimeColumn, numbers
from qmodel.trace.formats import TimeUnit, plain_name
from qmodel.types import FloatArray

__all__ = ["OBSERVED", "ObservedTimes"]

OBSERVED = ("ttft", "completion")
_INSTANTS = {"ttft": "first_token_at", "completion": "done_at"}


class ObservedTimes:
    """Durations, stated or from one instant to another, part by part.

    A duration counts from the arrival, or from ``origin_at`` where another clock than that of the arrivals stamped the
    instants. What is no duration (text, negative, a first token after the last) is NaN, as is a cell without one.
    """

    def __init__(self, fields: Mapping[str, Sequence[str]], unit: TimeUnit) -> None:
        self._fields, self._unit = fields, unit
        self._clock: TimeColumn | None = None

    def seconds(self, part: Part, arrival_s: FloatArray | None, clock: TimeColumn | None) -> dict[str, FloatArray]:
        """Time to first token and completion of each row, s, as far as this part states them.

        Args:
            part: rows.
            arrival_s: their arrivals by ``clock``; None without.
            clock: how arrivals are read, which instants share; None without.
        """
        found: dict[str, FloatArray] = {}
        for name in OBSERVED:
            stated = self._stated(part, self._fields.get(name, ()))
            if stated is None:
                stated = self._between(part, self._fields.get(_INSTANTS[name], ()), arrival_s, clock)
            if stated is not None:
                found[name] = np.where(stated >= 0.0, stated, np.nan)
        after_s = self._stated(part, self._fields.get("after_first", ()))
        if "completion" not in found and "ttft" in found and after_s is not None:
            found["completion"] = found["ttft"] + np.where(after_s >= 0.0, after_s, np.nan)
        if len(found) == len(OBSERVED):
            late = found["ttft"] > found["completion"]
            found["ttft"] = np.where(late, np.nan, found["ttft"])
        return found

    def _stated(self, part: Part, names: Sequence[str]) -> FloatArray | None:
        for name in names:
            values = part.column((name,))
            if values is not None:
                millis = plain_name(name).endswith("ms") or self._unit == "ms"
                return _finite(numbers(values)) * (1e-3 if millis else 1.0)
        return None

    def _between(
        self, part: Part, names: Sequence[str], arrival_s: FloatArray | None, clock: TimeColumn | None
    ) -> FloatArray | None:
        values = part.column(names)
        if values is None:
            return None
        origins = part.column(self._fields.get("origin_at", ()))
        if origins is not None:
            if self._clock is None:
                self._clock = TimeColumn(self._fields["origin_at"][0], self._unit)
            clock, arrival_s = self._clock, self._clock.seconds(origins)
        if clock is None or arrival_s is None:
            return None
        return _finite(clock.seconds(values)) - arrival_s


def _finite(values: FloatArray) -> FloatArray:
    return np.where(np.isfinite(values) & (values != MISSING), values, np.nan)
