"""A plan held against a simulation, and grown where the simulation misses a target."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from qmodel.evaluation import MOVED_BY, evaluate_fleet
from qmodel.planning.plans import Plan, Status
from qmodel.planning.record import plan_inputs
from qmodel.planning.verification import verify
from qmodel.types import Fleet, Limits, SloScope, decisive, replicas_by_kind

if TYPE_CHECKING:
    from qmodel.simulation import Decision, FleetSimulator, SimulatedSloRow, Simulation

__all__ = ["Growth", "PlanCheck", "checked_plan"]

_LONGER = 4.0  # times as many requests where a target is not decided
_ROUNDING = 1e-6  # of a gap, as where plans are made


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One pool that needed more replicas than planned.

    Attributes:
        reason: the first target that the simulation missed, with its numbers.
    """

    pool: str
    planned_replicas: int
    replicas: int
    reason: str

    @property
    def sentence(self) -> str:
        """For people."""
        return (
            f"pool {self.pool} was grown from {self.planned_replicas} to {self.replicas} replicas after simulation:"
            f" {self.reason}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCheck:
    """A plan and what a simulation says of it.

    Attributes:
        plan: the plan, grown where it had to be.
        planned_usd_per_hour: its cost before that.
        simulation: of the plan as it is now.
        growth: pools that were grown.
        stopped: why a target is still missed; empty where none is.
    """

    plan: Plan
    planned_usd_per_hour: float
    simulation: Simulation
    growth: tuple[Growth, ...] = ()
    stopped: str = ""

    @property
    def verdict(self) -> Decision:
        """``missed`` where a target is, ``met`` where all are, each with confidence; else ``not decided``."""
        if self.simulation.missed:
            return "missed"
        return "met" if self.simulation.decided else "not decided"

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the check says, for people."""
        return (*(item.sentence for item in self.growth), _summary(self.simulation), *_sentence(self.stopped))

    def to_dict(self) -> dict[str, object]:
        """Plain data of the check without the plan, in the names of the output."""
        return {
            "verdict": self.verdict,
            "planned_usd_per_hour": self.planned_usd_per_hour,
            "growth": [asdict(item) for item in self.growth],
            "stopped": self.stopped,
            "simulation": self.simulation.to_dict(),
        }


def checked_plan(plan: Plan, simulator: FleetSimulator, *, most_added: int = 8) -> PlanCheck:
    """Simulate a plan; add a replica to each pool that misses a target, and look again.

    A pool with a target that is neither met nor missed is simulated once more with four times as many requests.

    Args:
        plan: with a fleet.
        simulator: of the scenario that was planned.
        most_added: replicas that may be added to the fleet.

    Raises:
        ValueError: for a plan without a fleet, or a negative number of replicas.
    """
    from qmodel.simulation import tabulate

    if plan.fleet is None or plan.cost_usd_per_hour is None:
        raise ValueError(f"plan must have a fleet to be checked (its status is {plan.status})")
    if most_added < 0:
        raise ValueError(f"most_added must be at least 0 (got {most_added})")
    fleet, reasons, left, stopped = plan.fleet, dict[str, str](), most_added, ""
    longer: dict[str, float] = {}
    runs = simulator.runs(fleet)
    simulation = tabulate(runs, assumptions=simulator.assumptions)
    while True:
        missed = _missed(simulation, fleet, simulator.instance.policy.slo_scope)
        grown, stopped = _grown(fleet, missed, simulator.instance.limits, left)
        changed = [name for name, pool in grown.pools.items() if pool.replicas != fleet.pools[name].replicas]
        undecided = _undecided(simulation, fleet)
        open_pools = [name for name in undecided if name not in longer and not runs.demand.replayed(name)]
        if not changed and not open_pools:
            break
        longer |= dict.fromkeys(open_pools, _LONGER)
        reasons = {name: missed[name] for name in changed} | reasons
        left -= len(changed)
        fleet, runs = grown, simulator.runs(grown, known=runs, again={*changed, *open_pools}, longer=longer)
        simulation = tabulate(runs, assumptions=simulator.assumptions)
    growth = tuple(
        Growth(
            pool=name,
            planned_replicas=plan.fleet.pools[name].replicas,
            replicas=fleet.pools[name].replicas,
            reason=reason,
        )
        for name, reason in reasons.items()
    )
    return PlanCheck(
        plan=_said(plan, growth, simulation) if not growth else _replanned(plan, simulator, fleet, growth, simulation),
        planned_usd_per_hour=plan.cost_usd_per_hour,
        simulation=simulation,
        growth=growth,
        stopped=stopped if simulation.missed else "",
    )


def _missed(simulation: Simulation, fleet: Fleet, scope: SloScope) -> dict[str, str]:
    """Pools that a missed target is due to, each with the first such target in words.

    Of a target over all pools of a class that is the pool whose requests exceed it most.
    """
    loads = {row.pool: row.utilisation or 0.0 for row in simulation.pools}
    found: dict[str, str] = {}
    for row in decisive(simulation.slo, scope):
        if row.decision == "missed":
            worst = _worst_path(row, simulation) if row.path == "fleet" else row
            due = [name for name in _pools_of(worst, fleet) if row.metric in MOVED_BY[fleet.pools[name].role]]
            found.setdefault(max(due, key=lambda name: loads.get(name, 0.0)), _miss(row))
    return found


def _worst_path(missed: SimulatedSloRow, simulation: Simulation) -> SimulatedSloRow:
    """Of a target that all requests of a class miss together, the row of the path where it is exceeded most."""
    same = [
        row
        for row in simulation.slo
        if (row.cls, row.metric, row.stat) == (missed.cls, missed.metric, missed.stat) and row.path != "fleet"
    ]
    return max(same, key=lambda row: math.inf if row.simulated_s is None else row.simulated_s)


def _undecided(simulation: Simulation, fleet: Fleet) -> list[str]:
    """Pools in which it takes more requests to decide a target."""
    rows = [row for row in simulation.slo if row.decision == "not decided" and row.path != "fleet"]
    return list(dict.fromkeys(name for row in rows for name in _pools_of(row, fleet)))


def _pools_of(row: SimulatedSloRow, fleet: Fleet) -> tuple[str, ...]:
    """Pools of the path of a row."""
    return next(path.pools for path in fleet.routing[row.cls] if path.label == row.path)


def _miss(row: SimulatedSloRow) -> str:
    name = f"{row.metric} {row.stat} of {row.cls}"
    unit = "" if row.stat == "share" else " s"
    if row.simulated_s is None:
        return f"its queue grew without end (target {name} {row.target_s:g}{unit})"
    predicted = "not stable" if row.predicted_s is None else f"{row.predicted_s:.3g}{unit}"
    return f"{name} was {row.simulated_s:.3g}{unit}, predicted {predicted}, target {row.target_s:g}{unit}"


def _grown(fleet: Fleet, missed: Collection[str], limits: Limits, left: int) -> tuple[Fleet, str]:
    """The fleet with one more replica in each missed pool that limits allow, and why not in all of them."""
    grown, stopped = fleet, ""
    for name in missed:
        pool = grown.pools[name]
        larger = replace(grown, pools={**grown.pools, name: replace(pool, replicas=pool.replicas + 1)})
        broken = limits.broken(larger.holdings)
        if left <= 0:
            stopped = "no more replicas may be added: raise the limit, or plan at a higher confidence"
        elif broken is not None and broken.kind == "stock":
            stopped = f"stock of {pool.gpu} ends at {broken.most:g}: pool {name} cannot grow"
        elif broken is not None:
            stopped = f"{broken.key} is {broken.most:g}: pool {name} cannot grow"
        else:
            grown = larger
            left -= 1
    return grown, stopped


def _replanned(
    plan: Plan, simulator: FleetSimulator, fleet: Fleet, growth: Sequence[Growth], simulation: Simulation
) -> Plan:
    """The plan of a grown fleet; its bound stays, its gap and status are those of the new cost."""
    instance = simulator.instance
    mip_gap = float(str(plan.inputs["mip_gap"]))
    result = evaluate_fleet(instance, fleet)
    change, replicas = instance.limits.change, replicas_by_kind(fleet)
    moved_usd_per_hour = 0.0 if change is None else change.usd_per_hour(replicas)
    cost, bound = result.cost_usd_per_hour + moved_usd_per_hour, plan.bound_usd_per_hour
    gap = None if bound is None else max(cost - bound, 0.0) / cost
    proven = gap is not None and gap <= mip_gap + _ROUNDING
    status: Status = "optimal" if proven else "feasible"
    columns_bound = None if plan.gap_columns is None else _cost(plan) * (1.0 - plan.gap_columns)
    grown = replace(
        plan,
        status=status,
        termination=plan.termination if proven or plan.termination != "proven" else "gap",
        cost_usd_per_hour=cost,
        gap=gap,
        gap_columns=None if columns_bound is None else (cost - columns_bound) / cost,
        fleet=fleet,
        pools=result.pools,
        changes=() if change is None else change.rows(replicas),
        change_usd_per_hour=moved_usd_per_hour,
        routing=result.routing,
        slo=result.slo,
        latency=result.latency,
        purchases=result.purchases,
        why=replace(plan.why, text=f"grown after simulation from {_cost(plan):.2f} USD/h; as planned: {plan.why.text}"),
        cost_at_p90_usd_per_hour=None,
        inputs=plan_inputs(instance, fleet, mip_gap=mip_gap),
    )
    check = verify(grown)
    if not check.ok:  # a replica more can break a prediction that is not monotone; the simulation still stands
        grown = replace(grown, assumptions=(*grown.assumptions, f"after growth, {check.first_failure}"))
    return _said(grown, growth, simulation)


def _said(plan: Plan, growth: Sequence[Growth], simulation: Simulation) -> Plan:
    sentences = (*(item.sentence for item in growth), _summary(simulation))
    return replace(plan, assumptions=(*plan.assumptions, *sentences))


def _cost(plan: Plan) -> float:
    assert plan.cost_usd_per_hour is not None
    return plan.cost_usd_per_hour


def _summary(simulation: Simulation) -> str:
    counts = [
        f"{number} {decision}"
        for decision in ("met", "missed", "not decided")
        if (number := sum(row.decision == decision for row in simulation.slo))
    ]
    return (
        f"simulated with {simulation.requests:,} requests (seed {simulation.seed}):"
        f" of {len(simulation.slo)} targets {', '.join(counts)}"
    )


def _sentence(text: str) -> tuple[str, ...]:
    return (text,) if text else ()
