"""A comparison as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from qmodel.comparison.cell_text import TABLES, delta_text, input_text, is_numeric, metric_name, rows_of, value_text
from qmodel.comparison.comparisons import Comparison, MetricRow

__all__ = ["comparison_html"]

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1d2733; }
table { border-collapse: collapse; margin-bottom: 2rem; }
th, td { padding: .3rem .9rem; text-align: left; vertical-align: top; border-bottom: 1px solid #d9dfe5; }
thead th { border-bottom: 2px solid #1d2733; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
small { color: #5b6b7b; display: block; }
"""


def comparison_html(comparison: Comparison) -> str:
    """The page as text; everything from the plans is escaped.

    Args:
        comparison: what to show; inputs that differ first, then one table per section.
    """
    parts = []
    if comparison.inputs:
        rows = [_row(row.key, [_cell(input_text(value)) for value in row.values]) for row in comparison.inputs]
        parts.append(_table("Inputs that differ", comparison.columns, rows))
    else:
        parts.append("<p>The inputs do not differ.</p>")
    parts += [
        _table(title, comparison.columns, [_metric_row(row) for row in rows_of(comparison, title)]) for title in TABLES
    ]
    title = escape(" / ".join(comparison.columns))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n<p>Changes are against {escape(comparison.columns[0])}.</p>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _table(title: str, columns: Sequence[str], rows: Iterable[str]) -> str:
    headers = "".join(f"<th>{escape(name)}</th>" for name in columns)
    head = f"<thead><tr><th></th>{headers}</tr></thead>"
    body = "\n".join(rows)
    return f"<h2>{escape(title)}</h2>\n<table>\n{head}\n<tbody>\n{body}\n</tbody>\n</table>"


def _metric_row(row: MetricRow) -> str:
    cells = [
        _cell(value_text(row, index), delta_text(row, index), number=is_numeric(row))
        for index in range(len(row.values))
    ]
    return _row(metric_name(row), cells)


def _row(name: str, cells: Iterable[str]) -> str:
    return f"<tr><th>{escape(name)}</th>{''.join(cells)}</tr>"


def _cell(value: str, delta: str = "", *, number: bool = False) -> str:
    note = f"<small>{escape(delta)}</small>" if delta else ""
    kind = ' class="number"' if number else ""
    return f"<td{kind}>{escape(value)}{note}</td>"
