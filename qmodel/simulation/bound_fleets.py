"""A bound scenario and a fleet as the simulator takes them: pools, engine rules, recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from qmodel.errors import Problem, ScenarioError
from qmodel.evaluation import ApiCase, MeasuredCase, PoolCase, kv_token_bytes, pool_cases
from qmodel.problem import Instance, arrival_processes, engine_of
from qmodel.simulation.fleet_simulation import FleetRuns, simulate_pools
from qmodel.simulation.policies import EnginePolicy
from qmodel.simulation.pool_runs import Demand
from qmodel.simulation.recorded import RecordedClass, recorded_by_scenario, recorded_by_trace
from qmodel.trace import Trace, read_trace
from qmodel.types import Fleet
from qmodel.workload.arrival_processes import ArrivalProcess

if TYPE_CHECKING:
    from collections.abc import Collection

    from qmodel.scenario import Scenario

__all__ = ["Arrivals", "FleetSimulator"]

Arrivals = Literal["recorded", "poisson"]
_LEAST_REQUESTS = 100  # fewer measure nothing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetSimulator:
    """How fleets for one scenario are simulated; every fleet meets the same demand.

    Attributes:
        instance: the bound problem.
        recorded: recordings by class name.
        processes: arrival processes by class name, of the classes that state one.
        arrivals: ``recorded``: recorded requests come when they came, others as the scenario states; ``poisson``: all
            come at random at the same mean rates.
        seed: same seed, same digits.
        requests: measured in the whole fleet; None: enough for every target.
        replications: independent runs.
        notes: sentences a reader must know.
    """

    instance: Instance
    recorded: Mapping[str, RecordedClass]
    processes: Mapping[str, ArrivalProcess]
    arrivals: Arrivals
    seed: int
    requests: int | None
    replications: int
    notes: Sequence[str]

    @classmethod
    def for_scenario(
        cls,
        scenario: Scenario,
        instance: Instance,
        *,
        seed: int = 1,
        requests: int | None = None,
        replications: int = 1,
        trace: Trace | str | Path | None = None,
        split: Sequence[int] | None = None,
        arrivals: Arrivals = "recorded",
    ) -> FleetSimulator:
        """Read the recordings and check the arguments.

        Args:
            scenario: names the traces that feed its classes.
            instance: the same scenario, bound.
            seed, requests, replications, arrivals: as the attributes.
            trace: replayed instead of what the scenario says, at the mean rates of its classes.
            split: classes of the trace by output length, see :func:`recorded_by_trace`.

        Raises:
            ValueError: naming the argument that is out of range.
            ScenarioError: a trace that cannot be used, or replications of what happened once.
        """
        if seed < 0:
            raise ValueError(f"seed must be at least 0 (got {seed})")
        if requests is not None and requests < _LEAST_REQUESTS:
            raise ValueError(f"requests must be at least {_LEAST_REQUESTS}, or None (got {requests})")
        if replications < 1:
            raise ValueError(f"replications must be at least 1 (got {replications})")
        if arrivals not in ("recorded", "poisson"):
            raise ValueError(f"arrivals must be recorded or poisson (got {arrivals!r})")
        notes: list[str] = []
        if trace is not None:
            read = trace if isinstance(trace, Trace) else read_trace(trace)
            recorded, notes = recorded_by_trace(read, instance.classes, split=split)
        elif split is not None:
            raise ValueError(f"split needs a trace (got {list(split)})")
        else:
            recorded = recorded_by_scenario(scenario)
        if replications > 1 and recorded and arrivals == "recorded":
            what = f"must be 1 where a trace is replayed (got {replications}): it happened once"
            hint = "ask for poisson arrivals to draw from it again and again"
            raise ScenarioError([Problem(what=what, file="<arguments>", key="replications", hint=hint)])
        return cls(
            instance=instance,
            recorded=recorded,
            processes=arrival_processes(scenario) if arrivals == "recorded" else {},
            arrivals=arrivals,
            seed=seed,
            requests=requests,
            replications=replications,
            notes=notes,
        )

    def runs(
        self,
        fleet: Fleet,
        *,
        known: FleetRuns | None = None,
        again: Collection[str] = (),
        longer: Mapping[str, float] | None = None,
    ) -> FleetRuns:
        """Simulate a fleet.

        Args:
            fleet: pools and routing.
            known: the runs of another fleet, taken over for all pools but those in ``again``.
            again: pools to simulate.
            longer: by pool, how many times as many requests are measured; what is replayed stays as it is.

        Raises:
            ScenarioError: for a fleet that cannot be used, as when it is evaluated.
        """
        instance = self.instance
        cases = _simulable(pool_cases(instance, fleet))
        demand = Demand(
            classes=instance.classes,
            fleet=fleet,
            recorded=self.recorded,
            processes=self.processes,
            replay=self.arrivals == "recorded",
        )
        return simulate_pools(
            demand,
            cases,
            confidence=instance.policy.confidence,
            scope=instance.policy.slo_scope,
            seed=self.seed,
            requests=self.requests,
            replications=self.replications,
            policies={name: self._policy(case) for name, case in cases.items()},
            token_bytes={name: kv_token_bytes(instance, case.pool) for name, case in cases.items()},
            known=known,
            again=again,
            longer=longer,
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a reader must know of every fleet: of the problem, but for arrivals that are not what it assumes."""
        replayed = [f"class {name}: arrivals are " for name in self.recorded]
        kept = [text for text in self.instance.assumptions if not text.startswith(tuple(replayed))]
        return (*kept, *self.notes)

    def _policy(self, case: PoolCase) -> EnginePolicy:
        """The rules of the closed forms, with KV handed out in the blocks of the engine."""
        engine = engine_of(self.instance, case.pool)
        limited = case.replica.kv_tokens is not None
        policy = EnginePolicy.for_replica(case.replica, block_tokens=engine.block_tokens if limited else 1)
        try:
            policy.check(case.replica)
        except ValueError as error:
            raise ScenarioError([Problem(what=str(error), file="<fleet>", key=f"pools.{case.pool.name}")]) from error
        return policy


def _simulable(cases: Mapping[str, PoolCase | MeasuredCase]) -> dict[str, PoolCase]:
    """The pools, where all have step times to simulate."""
    apis = [name for name, case in cases.items() if isinstance(case, ApiCase)]
    if apis:
        what = "is an API: its latency is stated, and there is nothing to simulate"
        hint = "evaluate the fleet instead, or route all requests to pools of your own"
        raise ScenarioError(Problem(what=what, hint=hint, file="<fleet>", key=f"pools.{name}") for name in apis)
    measured = [name for name, case in cases.items() if isinstance(case, MeasuredCase)]
    if measured:
        what = "runs at a measured capacity: without step times there is nothing to simulate"
        hint = "evaluate the fleet instead, or profile the step times"
        raise ScenarioError(Problem(what=what, hint=hint, file="<fleet>", key=f"pools.{name}") for name in measured)
    return {name: case for name, case in cases.items() if isinstance(case, PoolCase)}
