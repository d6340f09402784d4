"""A calibration as a page for people, and as rows for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmodel.report.blocks import Block, Bullets, Column, Facts, Heading, Lines, TextTable
from qmodel.report.number_text import decimal_text, seconds_text

if TYPE_CHECKING:
    from qmodel.calibration import Calibration, ErrorRow, ParameterRow
    from qmodel.calibration.validation import ErrorSummary
    from qmodel.types import Band

__all__ = ["CALIBRATION_TABLES", "calibration_page", "calibration_rows"]

CALIBRATION_TABLES: dict[str, tuple[str, ...]] = {
    "parameters": ("parameter", "standing", "factor", "low", "high", "constant", "before", "after", "reason"),
    "errors": ("quantity", "which", "points", "median", "mean", "p90", "signed"),
    "points": (
        "place",
        "layout",
        "quantity",
        "batch",
        "measured_s",
        "before_s",
        "left_out_s",
        "fitted_s",
        "weight",
    ),
    "left_out": ("place", "reason"),
}
QUANTITY_NAMES = {
    "step": "step time",
    "tpot": "TPOT",
    "throughput": "time per output token of the replica",
    "ttft": "TTFT",
}
KNOWN_FROM = {
    "identified": "measurements",
    "weak": "measurements and defaults",
    "together": "all parts together",
}
REASONS_SHOWN = 10
OUTLIER = 0.5  # weight below which a point is called an outlier


def calibration_page(found: Calibration) -> tuple[Block, ...]:
    """What was measured, what moved, errors before and after, and the new band."""
    moved = [item for item in found.parameters if item.standing != "left alone"]
    alone = [item for item in found.parameters if item.standing == "left alone"]
    return (
        Heading(text=f"Calibration of {found.model} on {found.gpu} under {found.engine}"),
        Facts(rows=_facts(found)),
        _parameter_table(moved) if moved else Lines(lines=("No constant moved: the measurements do not tell any.",)),
        Bullets(title="Left alone", items=tuple(f"{item.parameter} ({item.about}): {item.reason}" for item in alone)),
        _error_table(found.errors),
        *_doubts(found),
    )


def calibration_rows(found: Calibration, table: str) -> list[dict[str, object]]:
    """Rows of one of ``CALIBRATION_TABLES``."""
    if table == "parameters":
        return [
            {
                "parameter": item.parameter,
                "standing": item.standing,
                "factor": item.factor,
                "low": item.low,
                "high": item.high,
                "constant": name,
                "before": item.before[name],
                "after": item.after[name],
                "reason": item.reason,
            }
            for item in found.parameters
            for name in item.before
        ]
    if table == "errors":
        return [
            {"quantity": item.quantity, "which": which, **_numbers(getattr(item, which))}
            for item in found.errors
            for which in ("before", "left_out", "fitted")
        ]
    items = found.rows if table == "points" else found.left_out
    return [{name: getattr(item, name) for name in CALIBRATION_TABLES[table]} for item in items]


def _facts(found: Calibration) -> tuple[tuple[str, str], ...]:
    rows = [
        ("measurements", f"{found.points} used, in {', '.join(found.layouts)}; {len(found.left_out)} left out"),
        ("range", f"up to {found.largest_batch:g} sequences, {found.largest_context_tokens:.0f} tokens of context"),
        ("weights", found.precision),
        ("defaults", found.provenance),
        ("scatter", f"{_percent(found.noise)} of a measured time around the fitted model"),
        ("band before", _band_text(found.band_before)),
        ("band after", f"{_band_text(found.band)}, from points left out of the fit"),
    ]
    return tuple(rows)


def _band_text(band: Band) -> str:
    return f"half of the errors within {_percent(band.p50)}, nine in ten within {_percent(band.p90)}"


def _parameter_table(moved: list[ParameterRow]) -> TextTable:
    columns = (
        Column(header="time of"),
        Column(header="factor", numeric=True),
        Column(header="90 % interval"),
        Column(header="known from"),
        Column(header="constants, before and after"),
    )
    rows = tuple(
        (
            f"{item.parameter} ({item.about})",
            decimal_text(item.factor),
            f"{decimal_text(item.low)} to {decimal_text(item.high)}",
            KNOWN_FROM[item.standing] + (f"; {item.reason}" if item.reason else ""),
            ", ".join(
                f"{name} {decimal_text(item.before[name])} -> {decimal_text(item.after[name])}" for name in item.before
            ),
        )
        for item in moved
    )
    return TextTable(title="What moved", columns=columns, rows=rows)


def _error_table(errors: tuple[ErrorRow, ...]) -> TextTable:
    names = {"before": "defaults", "left_out": "fitted without the point", "fitted": "fitted to all points"}
    columns = (
        Column(header="error of"),
        Column(header="with constants"),
        Column(header="points", numeric=True),
        *(Column(header=name, numeric=True) for name in ("median", "mean", "p90", "signed median")),
    )
    rows = tuple(
        (
            QUANTITY_NAMES[item.quantity],
            label,
            str(summary.points),
            _percent(summary.median),
            _percent(summary.mean),
            _percent(summary.p90),
            f"{100 * summary.signed:+.1f} %",
        )
        for item in errors
        for which, label in names.items()
        for summary in [getattr(item, which)]
    )
    return TextTable(title="Errors", columns=columns, rows=rows)


def _doubts(found: Calibration) -> list[Block]:
    blocks: list[Block] = []
    outliers = [row for row in found.rows if row.weight < OUTLIER]
    if outliers:
        items = [
            f"{row.place or 'a point'}: {QUANTITY_NAMES[row.quantity]} {seconds_text(row.measured_s)} at {row.batch:g},"
            f" fitted {seconds_text(row.fitted_s)}; counts {100 * row.weight:.0f} %"
            for row in outliers
        ]
        blocks.append(Bullets(title="Outliers", items=_first(items)))
    if found.left_out:
        places: dict[str, list[str]] = {}
        for item in found.left_out:
            places.setdefault(item.reason, []).append(item.place)
        items = [_places_text(at) + reason for reason, at in places.items()]
        blocks.append(Bullets(title="Not used", items=_first(items)))
    return blocks


def _places_text(places: list[str]) -> str:
    first = next((place for place in places if place), "")
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{first}{more}: " if first else ""


def _first(items: list[str]) -> tuple[str, ...]:
    more = len(items) - REASONS_SHOWN
    return (*items[:REASONS_SHOWN], f"and {more} more (--format json has all)") if more > 0 else tuple(items)


def _numbers(summary: ErrorSummary) -> dict[str, object]:
    return {name: getattr(summary, name) for name in ("points", "median", "mean", "p90", "signed")}


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
