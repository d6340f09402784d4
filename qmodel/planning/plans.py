"""The plan: a fleet for a scenario, with what it predicts, costs, proves and assumes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from qmodel.errors import InfeasibleError, SolverFailedError
from qmodel.evaluation.results import LatencyRow, LeavingRow, QualityRow
from qmodel.files import write_text
from qmodel.planning.conflict_records import Conflict
from qmodel.planning.period_plans import PeriodPlan, RiskRow
from qmodel.types import ChangeRow, Fleet, LinkRow, PoolRow, PurchaseRow, RouteRow, SloRow

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Alternative", "ObjectiveRow", "Plan", "PriceRow", "ServedRow", "Status", "Termination", "Why"]

Status = Literal["optimal", "feasible", "infeasible", "limit"]
Termination = Literal["proven", "gap", "time", "iterations", "solver_error", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """What one unit of a limit is worth at the optimum of the linear relaxation."""

    limit: str
    usd_per_hour_per_unit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveRow:
    """What was made small or large instead of the cost alone.

    Attributes:
        name: such as ``ttft_p95_s of chat`` or ``served_rps``.
        unit: of value and bound, for people.
        value: what the fleet reaches.
        bound: no fleet within the limits does better; None where that is not known.
        proven: the two agree within the gap asked for.
    """

    name: str
    unit: str
    value: float
    bound: float | None
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRow:
    """How much of a class is served where the limits do not allow all of it."""

    cls: str
    priority: int
    rate_rps: float
    served_rps: float
    dropped_share: float

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        data = asdict(self)
        return {"class": data.pop("cls"), **data}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A pool that was not chosen for a class.

    Attributes:
        candidate: GPU type, layout and precision.
        cost_usd_per_hour: least cost at which it alone would carry the class; None where it cannot.
        limit: what refused it, or ``dearer``.
    """

    cls: str
    candidate: str
    cost_usd_per_hour: float | None
    limit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why this answer.

    Attributes:
        text: one sentence.
        limit: the first limit that cannot be met; empty for a plan.
        best: the best reachable value of it, in words with its unit.
        change: one change that would help.
        conflicts: sets of limits that no fleet keeps together, each with what would be enough; empty for a plan, and
            where that there is none does not follow from limits alone.
        tight: limits of the fleet that bind, each with what is used of it.
        alternatives: nearest pools not chosen.
    """

    text: str
    limit: str = ""
    best: str = ""
    change: str = ""
    conflicts: tuple[Conflict, ...] = ()
    tight: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()

    @property
    def conflict_lines(self) -> tuple[str, ...]:
        """The conflicts in words, and what is to be done where there are several."""
        lines = tuple(line for conflict in self.conflicts for line in conflict.lines)
        if len(self.conflicts) < 2:
            return lines
        last = "each of these conflicts needs a change; what is enough of one is told without the limits of the others"
        return (*lines, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A fleet for a scenario, or the reason why there is none.

    Attributes:
        status: ``optimal`` (cost within mip_gap of a valid bound), ``feasible``, ``infeasible``, ``limit``.
        termination: why the search stopped.
        cost_usd_per_hour: of the fleet; None without one.
        bound_usd_per_hour: no fleet within the scenario's limits costs less; None where none was found.
        gap: (cost - bound) / cost.
        gap_columns: the same against the columns that the integer program chose from.
        fleet: None without a plan.
        links: one row per link between pools; empty where every path is one pool.
        purchases: GPUs bought, by type and price.
        changes: what starts and stops on the way from the fleet that runs; empty without one.
        change_usd_per_hour: what that costs, spread; part of the cost and of the bound.
        quality: one row per class with several models stated and model; else empty.
        leaving: one row per class and pool whose requests leave when they have waited too long; else empty.
        cost_at_p90_usd_per_hour: of the same pools grown until every target holds at the upper bands of step times and
            queueing; None where limits forbid that or no count does it.
        objective: what was made small or large; None where that is the cost.
        served: by class, where as much of the demand as the limits allow is served; else empty. Everything else in the
            plan is about the demand that is served.
        periods: the fleet of each part of the day where demand differs by the hour, or of each scenario of the demand;
            else empty. ``fleet`` and the tables are then those of ``busiest``, and costs are means over the periods, or
            of the dearest part of them where ``risk`` says so.
        base: GPUs that are paid in every period, where the fleet changes between them.
        busiest: period of the tables; empty without periods.
        risk: mean, dearest part and worst of the costs of scenarios, where the fleet follows them; else None.
        assumptions: sentences a reader must know.
        scenario: resolved scenario, plain data.
        inputs: everything else the plan used: replicas, length laws, prices; enough to verify it alone.
        versions: of qmodel, catalog and libraries.
        run: times and counts; left out of reproducible output.
    """

    title: str
    status: Status
    termination: Termination
    cost_usd_per_hour: float | None
    bound_usd_per_hour: float | None
    gap: float | None
    gap_columns: float | None
    fleet: Fleet | None
    pools: tuple[PoolRow, ...]
    routing: tuple[RouteRow, ...]
    slo: tuple[SloRow, ...]
    latency: tuple[LatencyRow, ...]
    prices: tuple[PriceRow, ...]
    why: Why
    purchases: tuple[PurchaseRow, ...] = ()
    changes: tuple[ChangeRow, ...] = ()
    change_usd_per_hour: float = 0.0
    links: tuple[LinkRow, ...] = ()
    cost_at_p90_usd_per_hour: float | None = None
    objective: ObjectiveRow | None = None
    served: tuple[ServedRow, ...] = ()
    periods: tuple[PeriodPlan, ...] = ()
    base: tuple[PurchaseRow, ...] = ()
    busiest: str = ""
    risk: RiskRow | None = None
    quality: tuple[QualityRow, ...] = ()
    leaving: tuple[LeavingRow, ...] = ()
    assumptions: tuple[str, ...] = ()
    scenario: Mapping[str, object] = field(default_factory=dict)
    inputs: Mapping[str, object] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self, *, reproducible: bool = False) -> dict[str, object]:
        """Plain data in the names and order of ``plan --format json``.

        Args:
            reproducible: leave out ``run``, the only part that differs between equal inputs.
        """
        data: dict[str, object] = {
            "title": self.title,
            "status": self.status,
            "termination": self.termination,
            "cost_usd_per_hour": self.cost_usd_per_hour,
            "bound_usd_per_hour": self.bound_usd_per_hour,
            "gap": self.gap,
            "gap_columns": self.gap_columns,
            "cost_at_p90_usd_per_hour": self.cost_at_p90_usd_per_hour,
            "objective": None if self.objective is None else asdict(self.objective),
            "served": [row.to_dict() for row in self.served],
            "changes": [asdict(row) for row in self.changes],
            "change_usd_per_hour": self.change_usd_per_hour,
            "quality": [row.to_dict() for row in self.quality],
            "leaving": [row.to_dict() for row in self.leaving],
            "pools": [row.to_dict() for row in self.pools],
            "routing": [row.to_dict() for row in self.routing],
            "slo": [row.to_dict() for row in self.slo],
            "latency": [row.to_dict() for row in self.latency],
            "purchases": [row.to_dict() for row in self.purchases],
            "links": [row.to_dict() for row in self.links],
            "periods": [item.to_dict() for item in self.periods],
            "base": [row.to_dict() for row in self.base],
            "busiest": self.busiest,
            "risk": None if self.risk is None else asdict(self.risk),
            "prices": [asdict(row) for row in self.prices],
            "why": asdict(self.why),
            "assumptions": list(self.assumptions),
            "fleet": None if self.fleet is None else self.fleet.to_dict(),
            "scenario": dict(self.scenario),
            "inputs": dict(self.inputs),
            "versions": dict(self.versions),
        }
        if not reproducible:
            data["run"] = dict(self.run)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Plan:
        """The inverse of :meth:`to_dict`.

        Raises:
            KeyError: if a part is missing; ``load_plan`` turns that into a positioned error.
        """
        return _plan_from(data)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, whole or not at all.

        Raises:
            ScenarioError: if the file cannot be written.
        """
        write_text(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    def to_frame(self, table: str = "pools") -> pd.DataFrame:
        """One of the plan's tables as a DataFrame.

        Args:
            table: ``pools``, ``routing``, ``slo``, ``latency``, ``links``, ``purchases``, ``served``, ``quality``,
                ``leaving``, ``changes``, ``periods`` or ``base``.

        Raises:
            ValueError: if there is no such table.
        """
        tables = (
            "pools",
            "routing",
            "slo",
            "latency",
            "links",
            "purchases",
            "served",
            "quality",
            "leaving",
            "changes",
            "periods",
            "base",
        )
        if table not in tables:
            raise ValueError(f"table must be one of {', '.join(tables)} (got {table!r})")
        import pandas as pd

        if table == "periods":
            return pd.DataFrame([row for item in self.periods for row in item.table()])
        rows = getattr(self, table)
        return pd.DataFrame([asdict(row) if table == "changes" else row.to_dict() for row in rows])

    def explain(self) -> str:
        """Why this plan, what binds in each pool, what was nearly chosen, what was assumed."""
        from qmodel.planning.sentences import explanation

        return explanation(self)

    def raise_for_status(self) -> None:
        """Do nothing for a plan with a fleet.

        Raises:
            InfeasibleError: if nothing meets the targets.
            SolverFailedError: if the search stopped without a plan.
        """
        if self.status == "infeasible":
            raise InfeasibleError(self.why.text)
        if self.fleet is None:
            raise SolverFailedError(self.why.text)


def _plan_from(data: Mapping[str, object]) -> Plan:
    def rows(key: str) -> list[dict[str, object]]:
        part = data[key]
        if not isinstance(part, Sequence):
            raise KeyError(key)
        return [_renamed(dict(item)) for item in part]

    why = data["why"]
    fleet, scenario, inputs = data["fleet"], data["scenario"], data["inputs"]
    versions, run = data["versions"], data.get("run", {})
    conflicts = why.get("conflicts", ()) if isinstance(why, Mapping) else ()
    assumptions, objective, risk = data["assumptions"], data.get("objective"), data.get("risk")
    if not (isinstance(why, Mapping) and isinstance(scenario, Mapping) and isinstance(inputs, Mapping)):
        raise KeyError("why, scenario or inputs")
    if not (isinstance(versions, Mapping) and isinstance(run, Mapping) and isinstance(assumptions, Sequence)):
        raise KeyError("versions, run or assumptions")
    return Plan(
        title=str(data["title"]),
        status=data["status"],  # type: ignore[arg-type]  # checked by load_plan
        termination=data["termination"],  # type: ignore[arg-type]
        cost_usd_per_hour=_number(data["cost_usd_per_hour"]),
        bound_usd_per_hour=_number(data["bound_usd_per_hour"]),
        gap=_number(data["gap"]),
        gap_columns=_number(data["gap_columns"]),
        cost_at_p90_usd_per_hour=_number(data["cost_at_p90_usd_per_hour"]),
        objective=ObjectiveRow(**objective) if isinstance(objective, Mapping) else None,
        changes=tuple(ChangeRow(**row) for row in rows("changes")) if "changes" in data else (),  # type: ignore[arg-type]
        change_usd_per_hour=float(str(data.get("change_usd_per_hour", 0.0))),
        served=tuple(ServedRow(**row) for row in rows("served")) if "served" in data else (),  # type: ignore[arg-type]
        quality=tuple(QualityRow(**row) for row in rows("quality")) if "quality" in data else (),  # type: ignore[arg-type]
        leaving=tuple(LeavingRow(**row) for row in rows("leaving")) if "leaving" in data else (),  # type: ignore[arg-type]
        fleet=Fleet.from_dict(fleet) if isinstance(fleet, Mapping) else None,
        pools=tuple(PoolRow(**row) for row in rows("pools")),  # type: ignore[arg-type]
        routing=tuple(RouteRow(**row) for row in rows("routing")),  # type: ignore[arg-type]
        slo=tuple(SloRow(**row) for row in rows("slo")),  # type: ignore[arg-type]
        latency=tuple(LatencyRow(**row) for row in rows("latency")),  # type: ignore[arg-type]
        purchases=tuple(PurchaseRow(**row) for row in rows("purchases")),  # type: ignore[arg-type]
        links=tuple(LinkRow(**row) for row in (rows("links") if "links" in data else [])),  # type: ignore[arg-type]
        periods=tuple(PeriodPlan.from_dict(row) for row in rows("periods")) if "periods" in data else (),
        base=tuple(PurchaseRow(**row) for row in rows("base")) if "base" in data else (),  # type: ignore[arg-type]
        busiest=str(data.get("busiest", "")),
        risk=RiskRow(**risk) if isinstance(risk, Mapping) else None,
        prices=tuple(PriceRow(**row) for row in rows("prices")),  # type: ignore[arg-type]
        why=Why(
            text=str(why["text"]),
            limit=str(why["limit"]),
            best=str(why["best"]),
            change=str(why["change"]),
            conflicts=tuple(Conflict.from_dict(item) for item in conflicts),
            tight=tuple(str(item) for item in why["tight"]),
            alternatives=tuple(Alternative(**_renamed(dict(item))) for item in why["alternatives"]),  # type: ignore[arg-type]
        ),
        assumptions=tuple(str(item) for item in assumptions),
        scenario=scenario,
        inputs=inputs,
        versions={str(k): str(v) for k, v in versions.items()},
        run={str(k): float(v) for k, v in run.items()},
    )


def _renamed(row: dict[str, object]) -> dict[str, object]:
    if "class" in row:
        row["cls"] = row.pop("class")
    return row


def _number(value: object) -> float | None:
    return None if value is None else float(str(value))
