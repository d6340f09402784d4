"""Calibrations as catalog files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

__all__ = ["CALIBRATION_VERSION", "calibration_text"]

CALIBRATION_VERSION = 1
DIGITS = 6


def calibration_text(entry: Mapping[str, object], as_of: str, sources: Sequence[str]) -> str:
    """A catalog file with one calibration, as YAML.

    Args:
        entry: the item of ``calibrations``.
        as_of: date that holds for its numbers.
        sources: files the numbers come from.
    """
    from ruamel.yaml import YAML

    writer = YAML()
    writer.default_flow_style = None
    writer.width = 400  # a mapping of constants stays on one line
    stream = io.StringIO()
    measured = ", ".join(sources) or "values given by a program"
    head = {"qmodel_calibration": CALIBRATION_VERSION, "source": f"calibrated on {measured}", "as_of": as_of}
    writer.dump({**head, "calibrations": [_rounded(entry)]}, stream)
    return HEADER + stream.getvalue()


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value


HEADER = (
    "# Constants of the step-time model, from measurements. Use it with --catalog FILE, or name it in a scenario:\n"
    "# calibrations: [FILE]\n"
)
