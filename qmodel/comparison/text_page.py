"""A comparison as a page for people."""

from __future__ import annotations

from collections.abc import Sequence

from qmodel.comparison.cell_text import TABLES, delta_text, input_text, is_numeric, metric_name, rows_of, value_text
from qmodel.comparison.comparisons import Comparison, MetricRow
from qmodel.report import Block, Column, Lines, TextTable

__all__ = ["comparison_page"]


def comparison_page(comparison: Comparison) -> tuple[Block, ...]:
    """The inputs that differ first, then the results; deltas in parentheses against the first column."""
    blocks = [_inputs(comparison)]
    for title in TABLES:
        rows = rows_of(comparison, title)
        blocks.append(_results(title, [row for row in rows if row.name != "reason"], comparison.columns))
        blocks.append(
            Lines(lines=tuple(line for row in rows if row.name == "reason" for line in _reasons(row, comparison)))
        )
    return tuple(blocks)


def _inputs(comparison: Comparison) -> Block:
    if not comparison.inputs:
        return Lines(lines=("The inputs do not differ.",))
    rows = tuple((row.key, *map(input_text, row.values)) for row in comparison.inputs)
    return _table("Inputs that differ", comparison.columns, rows, numeric=False)


def _results(title: str, rows: Sequence[MetricRow], columns: Sequence[str]) -> Block:
    cells = tuple((metric_name(row), *(_cell(row, index) for index in range(len(columns)))) for row in rows)
    return _table(title, columns, cells, numeric=any(map(is_numeric, rows)))


def _reasons(row: MetricRow, comparison: Comparison) -> list[str]:
    return [f"{column}: {reason}" for column, reason in zip(comparison.columns, row.values, strict=True) if reason]


def _table(title: str, columns: Sequence[str], rows: tuple[tuple[str, ...], ...], *, numeric: bool) -> TextTable:
    headers = tuple(Column(header=name, numeric=numeric) for name in columns)
    return TextTable(title=title, columns=(Column(header=""), *headers), rows=rows)


def _cell(row: MetricRow, index: int) -> str:
    value, delta = value_text(row, index), delta_text(row, index)
    return f"{value} ({delta})" if delta else value
