"""Evaluate a given fleet for a bound problem, and find how much demand it carries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from qmodel.errors import Problem, ScenarioError
from qmodel.evaluation.assessment import PoolCase, assess, slo_ratios
from qmodel.evaluation.results import CapacityResult, CurveRow, Evaluation
from qmodel.perf import layouts
from qmodel.problem import Instance, at_confidence, price_of, replica_of, with_engine
from qmodel.queueing import utilisation
from qmodel.types import Engine, Fleet, Pool, Refusal, Replica, RequestClass, Stream

__all__ = ["evaluate_fleet", "fleet_capacity", "pool_cases"]

_CURVE_POINTS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05)
_BISECTIONS = 24


def evaluate_fleet(instance: Instance, fleet: Fleet) -> Evaluation:
    """Predictions for a given fleet, without optimisation.

    Args:
        instance: the bound problem.
        fleet: pools and routing; every class must be routed.

    Raises:
        ScenarioError: for a pool that cannot exist (unknown model or GPU, a layout that is not legal or
            does not fit), a class without a path, a path to a pool that serves another model.
    """
    cases = pool_cases(instance, fleet)
    return assess(
        instance.classes, cases, fleet, confidence=instance.policy.confidence, assumptions=instance.assumptions
    )


def fleet_capacity(instance: Instance, fleet: Fleet) -> CapacityResult:
    """The largest multiple of the demand that a fleet carries within every target, and the curve up to it.

    All classes grow together. Pools are independent, so the limit is that of the first pool to miss.

    Args:
        instance: the bound problem.
        fleet: pools and routing.

    Raises:
        ScenarioError: as :func:`evaluate_fleet`.
    """
    pools = [_Loaded(instance, fleet, case) for case in pool_cases(instance, fleet).values()]
    pools = [item for item in pools if item.classes]
    limits = [item.limit() for item in pools]
    factor = min(limits)
    first = pools[int(np.argmin(limits))]
    total_rps = sum(item.rate_rps for item in instance.classes.values())
    points = [factor * point for point in _CURVE_POINTS] if factor > 0 else [0.01, 0.1, 0.5, 1.0]
    return CapacityResult(
        factor=factor,
        rate_rps=factor * total_rps,
        binding=first.binding(max(factor, 1e-6) * 1.02),
        curve=tuple(_curve_row(pools, point, total_rps) for point in points),
        assumptions=instance.assumptions,
    )


def pool_cases(instance: Instance, fleet: Fleet) -> dict[str, PoolCase]:
    """The replicas, routers and prices of a fleet's pools, all problems reported at once.

    Raises:
        ScenarioError: as :func:`evaluate_fleet`.
    """
    problems = _routing_problems(instance, fleet)
    cases = {}
    for name, pool in fleet.pools.items():
        key = f"pools.{name}"
        if pool.gpu not in instance.gpus:
            known = ", ".join(instance.gpus)
            problems.append(
                Problem(key=f"{key}.gpu", what=f"'{pool.gpu}' is not in fleet.gpus", hint=f"one of {known}")
            )
            continue
        if pool.model not in instance.models:
            known = ", ".join(instance.models)
            problems.append(
                Problem(key=f"{key}.model", what=f"no class asks for '{pool.model}'", hint=f"one of {known}")
            )
            continue
        option = instance.gpus[pool.gpu]
        engine = with_engine(option.engine, dict(pool.engine))
        found = _illegal(instance, pool, engine) or replica_of(
            instance,
            model=pool.model,
            gpu=pool.gpu,
            layout=pool.layout,
            engine=engine,
            precision=pool.precision,
        )
        if _is_refusal(found):
            problems.append(Problem(key=f"{key}.layout", what=found.reason, hint=found.change))
            continue
        assert isinstance(found, Replica)
        cases[name] = PoolCase(pool=pool, replica=found, router=engine.router, price=price_of(instance, pool))
    if problems:
        raise ScenarioError(replace(problem, file="<fleet>") for problem in problems)
    return cases


def _illegal(instance: Instance, pool: Pool, engine: Engine) -> Refusal | None:
    """Why a model cannot be spread like this, None where it can or where a profile speaks for the layout."""
    model, option, layout = instance.models[pool.model], instance.gpus[pool.gpu], pool.layout
    if model is None or option.gpu is None or (pool.model, pool.gpu) in instance.profiles:
        return None
    found = layouts(
        model,
        option.gpu,
        option.node,
        option.fabric,
        tp=(layout.tp,),
        pp=(layout.pp,),
        ep=(layout.ep,),
        dp=(layout.dp,),
        cp=(layout.cp,),
        engine=engine,
        precision=pool.precision,
    )
    return next((replace(item, change=item.change and f"try {item.change}") for item in found.refused), None)


def _is_refusal(found: Replica | Refusal) -> TypeGuard[Refusal]:
    return isinstance(found, Refusal)


def _routing_problems(instance: Instance, fleet: Fleet) -> list[Problem]:
    problems = []
    for name, item in instance.classes.items():
        paths = fleet.routing.get(name, ())
        if not paths:
            problems.append(Problem(key="routing", what=f"class '{name}' has no path", hint=f"add routing.{name}"))
        elif not math.isclose(total := sum(path.share for path in paths), 1.0, rel_tol=1e-6):
            problems.append(Problem(key=f"routing.{name}", what=f"shares must sum to 1 (got {total:g})"))
        for path in paths:
            if len(path.pools) != 1:
                what = f"a path of {len(path.pools)} pools is not supported yet"
                problems.append(Problem(key=f"routing.{name}", what=what, hint="write one pool"))
            elif (pool := fleet.pools.get(path.pools[0])) is None:
                known = ", ".join(fleet.pools)
                what = f"no pool '{path.pools[0]}'"
                problems.append(Problem(key=f"routing.{name}", what=what, hint=f"one of {known}"))
            elif pool.model != item.model:
                what = f"class '{name}' asks for {item.model} but pool '{pool.name}' serves {pool.model}"
                problems.append(Problem(key=f"routing.{name}", what=what))
    for name in fleet.routing:
        if name not in instance.classes:
            known = ", ".join(instance.classes)
            problems.append(Problem(key=f"routing.{name}", what=f"no class '{name}'", hint=f"one of {known}"))
    return problems


class _Loaded:
    """One pool under a multiple of its share of the demand."""

    def __init__(self, instance: Instance, fleet: Fleet, case: PoolCase) -> None:
        self.name = case.pool.name
        self.count = case.pool.replicas
        self.router = case.router
        self.replica = at_confidence(case.replica, instance.policy.confidence)
        parts = [
            (item, sum(path.share for path in fleet.routing[item.name] if path.pools == (self.name,)))
            for item in instance.classes.values()
        ]
        self.classes: list[RequestClass] = [item for item, share in parts if share > 0]
        self.shares: list[float] = [share for _, share in parts if share > 0]

    def ratios(self, factors: Sequence[float]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """Prediction over target at several multiples, made monotone over them, shape (F, W)."""
        many = len(factors)
        raw = slo_ratios(
            [self.replica] * many, self.classes, self.shares, [self.count] * many, list(factors), self.router
        )
        return np.asarray(np.maximum.accumulate(raw, axis=0))

    def utilisations(self, factors: Sequence[float]) -> list[float]:
        streams: list[Stream] = [item.stream(share) for item, share in zip(self.classes, self.shares, strict=True)]
        many = len(factors)
        found = utilisation([self.replica] * many, streams, np.array([self.count] * many), np.asarray(factors))
        return [float(value) for value in found]

    def limit(self) -> float:
        """The largest multiple at which every target holds, 0 where none does."""
        at_one = self.utilisations([1.0])[0]
        high = 1.0 / at_one if at_one > 0 else np.inf
        low = 0.0
        if not np.isfinite(high) or self.ratios([1e-6 * high]).max() > 1.0:
            return 0.0
        for _ in range(_BISECTIONS // 3):
            grid = np.linspace(low, high, 9)[1:-1]
            met = (self.ratios(grid.tolist()) <= 1.0).all(axis=1)
            good = int(np.argmin(met)) if not met.all() else met.size
            low, high = (grid[good - 1] if good else low), (grid[good] if good < met.size else high)
        return float(low)

    def binding(self, factor: float) -> str:
        ratios = self.ratios([factor])[0]
        if not np.isfinite(ratios).all():
            return f"{self.name} is not stable beyond this load"
        keys = [(item.name, slo) for item in self.classes for slo in item.slos]
        name, slo = keys[int(np.argmax(ratios))]
        return f"{name} {slo.key} in {self.name}"


def _curve_row(pools: Sequence[_Loaded], factor: float, total_rps: float) -> CurveRow:
    busiest = max(item.utilisations([factor])[0] for item in pools)
    worst, name = -1.0, ""
    for item in pools:
        ratios = item.ratios([factor])[0]
        keys = [f"{cls.name} {slo.key}" for cls in item.classes for slo in cls.slos]
        index = int(np.argmax(ratios))
        if ratios[index] > worst:
            worst, name = float(ratios[index]), keys[index]
    finite = bool(np.isfinite(worst))
    return CurveRow(
        factor=factor,
        rate_rps=factor * total_rps,
        utilisation=busiest if busiest < 1.0 else None,
        worst_slo=name,
        worst_ratio=worst if finite else None,
        met=finite and worst <= 1.0 + 1e-9,
    )
