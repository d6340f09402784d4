"""Cells of a comparison as text."""

from __future__ import annotations

import json

from qmodel.comparison.comparisons import Comparison, MetricRow
from qmodel.report import decimal_text, metric_text, money_text, percent_text, plain

__all__ = ["TABLES", "delta_text", "input_text", "is_numeric", "metric_name", "rows_of", "value_text"]

_EQUAL = 1e-9  # of the first column: a smaller difference is one of rounding

TABLES = {
    "Result": ("status", "served", "cost", "gpus"),
    "Predictions": ("predicted",),
    "Slack to the targets": ("slack",),
    "Pools and what binds": ("binding",),
}

NAMES = {
    "status": "status",
    "reason": "reason",
    "cost_usd_per_hour": "cost, USD/h",
    "bound_usd_per_hour": "lower bound, USD/h",
    "mean_usd_per_hour": "mean over scenarios, USD/h",
    "worst_usd_per_hour": "dearest scenario, USD/h",
}


def rows_of(comparison: Comparison, title: str) -> list[MetricRow]:
    """The rows of one of the ``TABLES``, section by section."""
    return [row for section in TABLES[title] for row in comparison.metrics if row.section == section]


def is_numeric(row: MetricRow) -> bool:
    """Whether the cells of a row are numbers."""
    return row.section not in ("status", "binding")


def metric_name(row: MetricRow) -> str:
    """The name of a row for people, with its unit where the cells do not carry one."""
    if row.section == "slack":
        return f"{row.name.removesuffix('_percent')}, %"
    if row.section == "gpus":
        return f"{row.name}, GPUs"
    if row.section == "predicted":
        return row.name.removesuffix("_s")
    if row.section == "served":
        return f"{row.name.removesuffix('_rps')}, requests/s"
    return NAMES.get(row.name, row.name)


def value_text(row: MetricRow, index: int) -> str:
    """One value; ``-`` where there is none."""
    value = row.values[index]
    if value is None or isinstance(value, str):
        return value or "-"
    match row.section:
        case "cost":
            return money_text(value)
        case "predicted":
            return metric_text(_metric(row), value)
        case "slack":
            return f"{value:.1f}"
        case "gpus":
            return f"{value:,.0f}"
    return decimal_text(value)


def delta_text(row: MetricRow, index: int) -> str:
    """The change against the first column, with its sign; empty where there is none or it is zero."""
    delta, change = row.deltas[index], row.changes[index]
    if delta is None or index == 0:
        return ""
    first = row.values[0]
    if not delta or (isinstance(first, int | float) and abs(delta) <= _EQUAL * abs(first)):
        return "="
    sign = "+" if delta > 0 else "-"
    match row.section:
        case "predicted":
            size = metric_text(_metric(row), abs(delta))
        case "gpus":
            size = f"{abs(delta):,.0f}"
        case "slack":
            return f"{sign}{abs(delta):.1f}"
        case "served":
            size = decimal_text(abs(delta))
        case _:
            size = money_text(abs(delta))
    if change is None or _metric(row) == "abandoned":  # a share of next to nothing has no relative change to speak of
        return f"{sign}{size}"
    return f"{sign}{size}, {sign}{percent_text(abs(change))} %"


def _metric(row: MetricRow) -> str:
    """The metric of a row of predictions, whose name ends with its key."""
    return "abandoned" if row.name.endswith("abandoned_share") else "seconds"


def input_text(value: object) -> str:
    """An input as a scenario file would write it; ``-`` where it is absent."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
