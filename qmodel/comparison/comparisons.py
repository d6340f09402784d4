"""The record of a comparison: one column per plan, the first of which the others are held against."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qmodel.comparison.input_differences import differing_inputs
from qmodel.comparison.plan_results import plan_metrics
from qmodel.files import write_text
from qmodel.planning.plans import Plan
from qmodel.report import plain

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "InputRow", "MetricRow", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """One input that is not the same in every column.

    Attributes:
        key: dotted key of the scenario, or ``versions.<name>``.
        values: one per column; None where a column does not state it.
    """

    key: str
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One result in every column.

    Attributes:
        section: ``status``, ``cost``, ``gpus``, ``predicted``, ``slack`` or ``binding``.
        name: what it is, with its unit in the name where it is a number.
        values: one per column; None where a column has none (no plan, or a pool that is not stable).
    """

    section: str
    name: str
    values: tuple[float | str | None, ...]

    @property
    def deltas(self) -> tuple[float | None, ...]:
        """Each value minus that of the first column; None for text and where one is missing."""
        first = self.values[0]
        return tuple(
            value - first if isinstance(value, (int, float)) and isinstance(first, (int, float)) else None
            for value in self.values
        )

    @property
    def changes(self) -> tuple[float | None, ...]:
        """Each delta as a fraction of the first column's value; None also where that is 0, and for a slack,
        which is a fraction already."""
        first = 0.0 if self.section == "slack" else self.values[0]
        return tuple(
            delta / abs(first) if delta is not None and isinstance(first, (int, float)) and first else None
            for delta in self.deltas
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Plans side by side.

    Attributes:
        columns: names of the plans, in order; deltas are against the first.
        inputs: the inputs that differ.
        metrics: status, cost, GPUs by type, predictions and slack of each target, what binds.
    """

    columns: tuple[str, ...]
    inputs: tuple[InputRow, ...]
    metrics: tuple[MetricRow, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain data; values by column name."""

        def named(values: Sequence[object]) -> dict[str, object]:
            return dict(zip(self.columns, (plain(value) for value in values), strict=True))

        return {
            "columns": list(self.columns),
            "inputs": [{"key": row.key, "values": named(row.values)} for row in self.inputs],
            "metrics": [
                {
                    "section": row.section,
                    "name": row.name,
                    "values": named(row.values),
                    "deltas": named(row.deltas),
                    "changes": named(row.changes),
                }
                for row in self.metrics
            ],
        }

    def to_rows(self) -> list[dict[str, object]]:
        """One flat row per input and metric: ``section``, ``name``, then per column its value, and from the
        second column on ``<column> delta`` and ``<column> change`` (a fraction)."""
        nothing = (None,) * len(self.columns)
        rows = [self._row("inputs", row.key, row.values, nothing, nothing) for row in self.inputs]
        rows += [self._row(row.section, row.name, row.values, row.deltas, row.changes) for row in self.metrics]
        return rows

    def to_frame(self) -> pd.DataFrame:
        """The rows of :meth:`to_rows` as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.to_rows(), columns=list(self.row_columns))

    @property
    def row_columns(self) -> tuple[str, ...]:
        """Column names of :meth:`to_rows`, in order."""
        names = ["section", "name", *self.columns]
        for column in self.columns[1:]:
            names += [f"{column} delta", f"{column} change"]
        return tuple(names)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page, whole or not at all.

        Raises:
            ScenarioError: if the file cannot be written.
        """
        from qmodel.comparison.html_page import comparison_html

        write_text(path, comparison_html(self))

    def _row(
        self,
        section: str,
        name: str,
        values: Sequence[object],
        deltas: Sequence[float | None],
        changes: Sequence[float | None],
    ) -> dict[str, object]:
        row: dict[str, object] = {"section": section, "name": name}
        row.update(zip(self.columns, values, strict=True))
        for column, delta, change in zip(self.columns[1:], deltas[1:], changes[1:], strict=True):
            row[f"{column} delta"], row[f"{column} change"] = delta, change
        return row


def compare(plans: Mapping[str, Plan]) -> Comparison:
    """Put plans side by side.

    Args:
        plans: at least one plan by column name, in order; deltas are against the first.

    Returns:
        The inputs that differ and the results, one column per plan.

    Raises:
        ValueError: if there is no plan to compare, or a name is also that of another column of the tables.
    """
    if not plans:
        raise ValueError("plans must hold at least one plan (got none)")
    results = [plan_metrics(plan) for plan in plans.values()]
    _fill_absent_gpus(results, [plan.fleet is not None for plan in plans.values()])
    keys = _merged_keys([list(result) for result in results])
    comparison = Comparison(
        columns=tuple(plans),
        inputs=tuple(
            InputRow(key=key, values=values) for key, values in differing_inputs(list(plans.values())).items()
        ),
        metrics=tuple(
            MetricRow(section=section, name=name, values=tuple(result.get((section, name)) for result in results))
            for section, name in keys
        ),
    )
    if len(set(comparison.row_columns)) < len(comparison.row_columns):
        raise ValueError(
            f"plans must have names that differ from 'section', 'name' and '<plan> delta' (got {list(plans)})"
        )
    return comparison


def _fill_absent_gpus(results: Sequence[dict[tuple[str, str], float | str | None]], with_fleet: Sequence[bool]) -> None:
    """A GPU type that only other plans use counts 0, unless there is no plan at all."""
    types = dict.fromkeys(key for result in results for key in result if key[0] == "gpus")
    for result, has_fleet in zip(results, with_fleet, strict=True):
        if has_fleet:
            for key in types:
                result.setdefault(key, 0)


def _merged_keys(orders: Sequence[Sequence[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Every key once; sections in the order of the first appearance, names in theirs."""
    sections: dict[str, dict[str, None]] = {}
    for order in orders:
        for section, name in order:
            sections.setdefault(section, {})[name] = None
    return [(section, name) for section, names in sections.items() for name in names]
