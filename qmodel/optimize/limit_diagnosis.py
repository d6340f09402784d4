"""Which limit of the fleet cannot be met, the least that would do, and what to raise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.candidates import NO_STAGES, ColumnSet, StageColumns
from qmodel.optimize.alternatives import each_once
from qmodel.optimize.formulation import master_program
from qmodel.optimize.programs import Program
from qmodel.optimize.solvers import SolverOptions, solve_integer
from qmodel.optimize.stage_rows import Columns
from qmodel.types import Cap, FloatArray, Limits, RequestClass

__all__ = ["Diagnosis", "beyond", "round_up", "rounded", "together"]

_BEYOND = {
    "stock": ("GPUs", "than are in stock"),
    "nodes": ("nodes", "than are in stock"),
    "offer": ("GPUs", "than its price tiers offer"),
    "gpus": ("GPUs", "than {key} allows"),
    "usd": ("money", "than {key} allows"),
    "power": ("power", "than fleet.power_kw allows"),
    "pools": ("pools", "than policy.max_pools allows"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The first limit that cannot be met.

    Attributes:
        text: what cannot be met, in one sentence.
        limit: the key of the scenario that sets the limit.
        best: what came nearest, with its value.
        change: one change that would help.
    """

    text: str
    limit: str
    best: str
    change: str


def together(
    sets: Mapping[str, ColumnSet],
    classes: Mapping[str, Sequence[RequestClass]],
    limits: Limits,
    options: SolverOptions,
    stages: StageColumns = NO_STAGES,
    *,
    master: Program | None = None,
) -> Diagnosis:
    """Each class fits alone, all together do not: the one limit to raise, or all that the cheapest fleet exceeds.

    For one limit after another the least of it that any fleet takes within all others is found; the first for which
    there is such a fleet is named.

    Args:
        sets: columns by group of classes that may share pools.
        classes: the classes of each group.
        limits: of the fleet.
        options: solver and time limit.
        stages: what separate prefill and decode pools could carry.
        master: the program of fleets, its rows in that order; None: that of the columns.
    """
    everyone = each_once(item for group in classes.values() for item in group)
    master = master or _master({**sets, **stages.sets}, everyone, limits, stages)
    for number, cap in enumerate(limits.caps):
        row = len(everyone) + number  # limits follow the cover rows
        values = _solved(master.least_use(row), options)
        if values is not None:
            need = rounded(cap, float(master.matrix[row] @ values))
            return Diagnosis(
                text=f"the classes together need more {beyond(cap)}",
                limit=cap.key,
                best=f"{need:g} {cap.unit} at least, {cap.most:g} allowed",
                change=f"raise {cap.key} to {need:g}",
            )
    return _several(everyone, limits, master, options)


def beyond(cap: Cap, use: str = "") -> str:
    """What is needed more of than a limit allows; ``use`` says what for."""
    what, than = _BEYOND[cap.kind]
    return f"{what} {use}{than.format(key=cap.key)}"


def rounded(cap: Cap, need: float) -> float:
    """A limit that is just enough, as one would write it."""
    if cap.kind == "usd":
        return float(np.ceil(need * 100.0 - 1e-6) / 100.0)
    return round_up(need) if cap.kind == "power" else float(np.ceil(need - 1e-6))


def round_up(value: float) -> float:
    """Three significant digits, not below the value."""
    scale = 10.0 ** (np.floor(np.log10(value)) - 2)
    return float(np.ceil(value / scale - 1e-9) * scale)


def _several(
    everyone: Sequence[RequestClass],
    limits: Limits,
    master: Program,
    options: SolverOptions,
) -> Diagnosis:
    """No single limit is in the way: what the cheapest fleet without limits takes of each that it exceeds."""
    values = _solved(master.without_rows(range(len(everyone), len(everyone) + len(limits.caps))), options)
    rows = [] if values is None else zip(limits.caps, master.matrix[len(everyone) :], strict=False)
    short = [(cap, rounded(cap, used)) for cap, row in rows if (used := float(row @ values)) > cap.most * (1.0 + 1e-9)]
    if not short:  # the solver was stopped, or only the way there is barred
        return Diagnosis(
            text="the limits of the fleet leave no room for all classes together",
            limit=limits.caps[0].key if limits.caps else "fleet",
            best="each class fits alone",
            change=f"raise {' or '.join(cap.key for cap in limits.caps)}" if limits.caps else "raise the time limit",
        )
    return Diagnosis(
        text=f"the classes together need more {beyond(short[0][0])}",
        limit=short[0][0].key,
        best=", ".join(f"{need:g} {cap.unit} for the cheapest fleet, {cap.most:g} allowed" for cap, need in short),
        change=" and ".join(f"raise {cap.key} to {need:g}" for cap, need in short),
    )


def _master(
    sets: Mapping[str, ColumnSet], everyone: Sequence[RequestClass], limits: Limits, stages: StageColumns
) -> Program:
    used = Columns(classes={}, stages=stages).chosen(sets)
    columns = [column for found in used.values() for column in found.columns]
    blends = [blend for found in used.values() for blend in found.blends()]
    open_pools = [item for found in used.values() for item in found.open_pools]
    return master_program(columns, everyone, limits, blends, open_pools, stages.chains)


def _solved(program: Program, options: SolverOptions) -> FloatArray | None:
    found = solve_integer(program, solver=options.name, mip_gap=0.0, time_limit_s=options.time_limit_s)
    return found.values
