"""Evaluate a given fleet for a bound problem, and find how much demand it carries."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from qmodel.errors import Problem, ScenarioError
from qmodel.evaluation.api_pools import ApiCase
from qmodel.evaluation.assessment import assess
from qmodel.evaluation.kv_links import links_into
from qmodel.evaluation.loaded_pools import LoadedPart, LoadedPool, loaded_parts
from qmodel.evaluation.measured_pools import MeasuredCase
from qmodel.evaluation.path_predictions import PoolCase, PoolSettings
from qmodel.evaluation.purchases import price_in_fleet
from qmodel.evaluation.results import CapacityResult, CurveRow, Evaluation
from qmodel.perf import layouts
from qmodel.problem import Instance, Price, aic_missing, engine_of, fully_stated, price_of, replica_of
from qmodel.types import ROLES_IN_A_ROW, Engine, Fleet, MeasuredCapacity, Path, Pool, Refusal, Replica, RequestClass

__all__ = ["evaluate_fleet", "fleet_capacity", "pool_cases"]

_NO_END = "consist of APIs without a limit on their rate, so that nothing ends what they carry"
_BEYOND_POINTS = (1.2, 1.5, 2.0)  # where requests leave, more load is no end
_CURVE_POINTS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05)


def evaluate_fleet(instance: Instance, fleet: Fleet) -> Evaluation:
    """Predictions for a given fleet, without optimisation.

    Args:
        instance: the bound problem.
        fleet: pools and routing; every class must be routed.

    Raises:
        ScenarioError: for a pool that cannot exist (unknown model or GPU, a layout that is not legal or
            does not fit), a class without a path, a path to a pool that serves another model or in another order
            than prefill, decode, answer.
    """
    cases = pool_cases(instance, fleet)
    return assess(
        instance.classes,
        cases,
        fleet,
        limits=instance.limits,
        confidence=instance.policy.confidence,
        scope=instance.policy.slo_scope,
        assumptions=instance.assumptions,
    )


def fleet_capacity(instance: Instance, fleet: Fleet) -> CapacityResult:
    """The largest multiple of the demand that a fleet carries within every target, and the curve up to it.

    All classes grow together. Pools that no path joins are independent, so the limit is that of the first to miss.
    Where targets hold over the whole fleet, pools of one class are looked at together.

    Args:
        instance: the bound problem.
        fleet: pools and routing.

    Raises:
        ScenarioError: as :func:`evaluate_fleet`; or nothing limits the fleet, all of it being APIs.
    """
    pools = loaded_parts(instance, fleet, pool_cases(instance, fleet))
    limits = [item.limit() for item in pools]
    factor = min(limits)
    if not math.isfinite(factor):
        raise ScenarioError([Problem(what=_NO_END, hint="state max_rate_rps of the API", file="<fleet>", key="pools")])
    first = pools[int(np.argmin(limits))]
    total_rps = sum(item.rate_rps for item in instance.classes.values())
    leave = any(item.patience is not None for part in pools for item in part.classes)
    shape = (*_CURVE_POINTS, *_BEYOND_POINTS) if leave else _CURVE_POINTS
    points = [factor * point for point in shape] if factor > 0 else [0.01, 0.1, 0.5, 1.0]
    return CapacityResult(
        factor=factor,
        rate_rps=factor * total_rps,
        binding=first.binding(max(factor, 1e-6) * 1.02),
        curve=tuple(_curve_row(pools, point, total_rps) for point in points),
        assumptions=instance.assumptions,
    )


def pool_cases(
    instance: Instance, fleet: Fleet, *, routed: Collection[str] | None = None
) -> dict[str, PoolCase | MeasuredCase]:
    """The replicas or capacities, routers and prices of a fleet's pools, all problems reported at once.

    Args:
        instance: the bound problem.
        fleet: pools and routing.
        routed: names of the classes that must have a path; all if left out.

    Raises:
        ScenarioError: as :func:`evaluate_fleet`.
    """
    problems = _routing_problems(instance, fleet, instance.classes if routed is None else routed)
    whole, unclear = fully_stated(instance, fleet)
    problems += unclear
    cases: dict[str, PoolCase | MeasuredCase] = {}
    for name, pool in whole.pools.items():
        key = f"pools.{name}"
        if pool.role == "api":
            api = next((item for item in instance.apis if (item.name, item.model) == (pool.gpu, pool.model)), None)
            if api is None:
                known = ", ".join(f"{item.model} of {item.name}" for item in instance.apis) or "none"
                what = f"'{pool.gpu}' serves no {pool.model} in fleet.apis"
                problems.append(Problem(key=key, what=what, hint=f"there are: {known}"))
            else:
                price = Price(usd_per_gpu_hour=0.0, tier="api", basis="by the token")
                capacity = MeasuredCapacity(max_rate_rps={})
                cases[name] = ApiCase(pool=pool, capacity=capacity, price=price, api=api)
            continue
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
        engine = engine_of(instance, pool)
        if engine.step_times == "aic" and (missing := aic_missing()) is not None:
            problems.append(Problem(key=f"{key}.engine.step_times", what=missing[0], hint=missing[1]))
            continue
        if pool.precision is not None and (pool.model, pool.gpu) in instance.profiles:
            what = f"{pool.model} on {pool.gpu} is profiled, and runs the weight type that was measured"
            problems.append(Problem(key=f"{key}.precision", what=what, hint="leave precision out"))
            continue
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
        spare = instance.limits.lost(pool.gpu, pool.layout.gpus, pool.replicas)
        if spare >= pool.replicas:
            what, least = _none_left(instance, pool, spare)
            problems.append(Problem(key=f"{key}.replicas", what=what, hint=f"have at least {least}"))
            continue
        price = price_in_fleet(price_of(instance, pool), pool, fleet, instance.limits)
        if isinstance(found, MeasuredCapacity):
            problems += _measured_problems(fleet.pools[name], found, fleet)
            cases[name] = MeasuredCase(pool=fleet.pools[name], capacity=found, price=price, spare=spare)
            continue
        assert isinstance(found, Replica)
        settings = PoolSettings(
            max_num_seqs=found.max_num_seqs // pool.layout.dp,
            max_batched_tokens=engine.max_batched_tokens,
            kv_dtype=engine.kv_dtype,
        )
        cases[name] = PoolCase(
            pool=pool, replica=found, router=engine.router, price=price, spare=spare, settings=settings
        )
    if not problems:
        links, problems = links_into(instance, whole)
        for name, case in cases.items():
            if name in links and isinstance(case, PoolCase):
                cases[name] = replace(case, link=links[name])
    if problems:
        raise ScenarioError(replace(problem, file="<fleet>") for problem in problems)
    return cases


def _none_left(instance: Instance, pool: Pool, lost: int) -> tuple[str, int]:
    """What is wrong with a pool of which nothing is left, and the least replicas of which one is."""
    terms, kept = instance.limits.of(pool.gpu).spot, 1 + instance.limits.spare(pool.gpu, pool.layout.gpus)
    asked = "which policy asks for" if terms is None else "as many spot GPUs are away at times"
    what = f"none of its {pool.replicas} replicas is left when {lost} are lost, {asked}"
    return what, kept if terms is None else terms.replicas_for(kept, pool.layout.gpus)


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


def _measured_problems(pool: Pool, capacity: MeasuredCapacity, fleet: Fleet) -> list[Problem]:
    """What a pool of measured capacity is asked for beyond what was measured."""
    key, problems = f"pools.{pool.name}", []
    for name, paths in fleet.routing.items():
        if name not in capacity.max_rate_rps and any(pool.name in path.pools for path in paths):
            what = f"pool '{pool.name}' has no measured capacity for class '{name}'"
            hint = f"add {name} to max_rate_rps of the profile, or route it elsewhere"
            problems.append(Problem(key=f"routing.{name}", what=what, hint=hint))
    if pool.role != "unified":
        what = "runs at a measured capacity, which is of whole requests"
        problems.append(Problem(key=f"{key}.role", what=what, hint="use role: unified, or a profile of step times"))
    if pool.engine:
        what = "runs at a measured capacity, which engine settings do not change"
        problems.append(Problem(key=f"{key}.engine", what=what, hint="leave engine out, or profile step times"))
    return problems


def _is_refusal(found: Replica | MeasuredCapacity | Refusal) -> TypeGuard[Refusal]:
    return isinstance(found, Refusal)


def _routing_problems(instance: Instance, fleet: Fleet, routed: Collection[str]) -> list[Problem]:
    problems = []
    for name, item in instance.classes.items():
        paths = fleet.routing.get(name, ())
        if not paths and name not in routed:
            continue
        if not paths:
            problems.append(Problem(key="routing", what=f"class '{name}' has no path", hint=f"add routing.{name}"))
        elif not math.isclose(total := sum(path.share for path in paths), 1.0, rel_tol=1e-6):
            problems.append(Problem(key=f"routing.{name}", what=f"shares must sum to 1 (got {total:g})"))
        for path in paths:
            problems += _path_problems(item, path, f"routing.{name}", fleet)
        if item.batch is not None:
            problems += _batch_problems(item, paths, fleet)
        if item.patience is not None:
            problems += _patience_problems(item, paths, instance.classes, fleet)
    for name in fleet.routing:
        if name not in instance.classes:
            known = ", ".join(instance.classes)
            problems.append(Problem(key=f"routing.{name}", what=f"no class '{name}'", hint=f"one of {known}"))
    return problems


def _patience_problems(
    item: RequestClass, paths: Sequence[Path], classes: Mapping[str, RequestClass], fleet: Fleet
) -> list[Problem]:
    """Requests that leave are predicted in unified pools, beside classes with the same patience and priority."""
    key, problems = f"routing.{item.name}", []
    for path in paths:
        if len(path.pools) > 1:
            what = f"requests of class '{item.name}' leave (patience_s), which is not predicted in pools in a row"
            problems.append(Problem(key=key, what=what, hint="give it a unified pool"))
        for pool in (name for name in path.pools if name in fleet.pools and fleet.pools[name].role != "api"):
            if fleet.pools[pool].engine.get("router") == "round_robin":
                what = f"requests of class '{item.name}' leave (patience_s), which is not predicted with round_robin"
                problems.append(Problem(key=f"pools.{pool}.engine", what=what, hint="use random or jsq"))
            for name, ways in fleet.routing.items():
                other = classes.get(name)
                if other is None or not any(pool in way.pools for way in ways):
                    continue
                differs = "patience_s" if other.patience != item.patience else "priority"
                if other.patience != item.patience or other.priority != item.priority:
                    what = f"pool '{pool}' serves classes '{item.name}' and '{name}', whose {differs} differs"
                    problems.append(Problem(key=key, what=what, hint="give each of them a pool of its own"))
    return problems


def _batch_problems(item: RequestClass, paths: Sequence[Path], fleet: Fleet) -> list[Problem]:
    """A batch has its pools to itself, and passes one of them only."""
    key, problems = f"routing.{item.name}", []
    for path in paths:
        if len(path.pools) > 1:
            what = f"class '{item.name}' is a batch, which is not predicted in pools in a row"
            problems.append(Problem(key=key, what=what, hint="give it a unified pool"))
        for pool in (name for name in path.pools if name in fleet.pools):
            if fleet.pools[pool].role == "api":
                what = f"class '{item.name}' is a batch, and no API says when one is done"
                problems.append(Problem(key=key, what=what, hint="give it a unified pool"))
            if fleet.pools[pool].engine.get("preemption") == "swap":
                what = f"class '{item.name}' is a batch, which is predicted with recomputation only"
                problems.append(Problem(key=f"pools.{pool}.engine", what=what, hint="use preemption: recompute"))
            others = [name for name, ways in fleet.routing.items() if any(pool in way.pools for way in ways)]
            others.remove(item.name)
            if others:
                what = f"class '{item.name}' is a batch, and pool '{pool}' serves {', '.join(others)} too"
                hint = "give the batch a pool of its own; qmodel.queueing.batch_with_online predicts one that is shared"
                problems.append(Problem(key=key, what=what, hint=hint))
    return problems


def _path_problems(item: RequestClass, path: Path, key: str, fleet: Fleet) -> list[Problem]:
    """Pools that do not exist or do not follow each other, and classes that have no part in one."""
    unknown = [name for name in path.pools if name not in fleet.pools]
    if unknown:
        return [Problem(key=key, what=f"no pool '{name}'", hint=f"one of {', '.join(fleet.pools)}") for name in unknown]
    pools = [fleet.pools[name] for name in path.pools]
    problems = []
    for pool in pools:
        if not item.served_by(pool.model):
            what = f"class '{item.name}' asks for {' or '.join(item.models)} but pool '{pool.name}' serves {pool.model}"
            problems.append(Problem(key=key, what=what))
    roles = tuple(pool.role for pool in pools)
    if roles not in ROLES_IN_A_ROW:
        told = ", ".join(f"{pool.name} ({pool.role})" for pool in pools)
        hint = "a path is one unified pool, or prefill, decode, or prefill, decode, answer"
        problems.append(Problem(key=key, what=f"pools do not follow each other: {told}", hint=hint))
    elif len(pools) > 1 and item.lengths.output.maximum <= 1.0:
        hint = "give it a unified pool"
        problems.append(Problem(key=key, what=f"class '{item.name}' makes one token only", hint=hint))
    elif len(pools) == 3 and (item.lengths.reasoning is None or item.lengths.reasoning.maximum < 2.0):
        what = f"class '{item.name}' has no thinking tokens: an answer pool has no part of its own"
        problems.append(Problem(key=key, what=what, hint="end the path with the decode pool"))
    return problems


def _curve_row(pools: Sequence[LoadedPart], factor: float, total_rps: float) -> CurveRow:
    busiest = max(item.utilisations([factor])[0] for item in pools)
    worst, name = -1.0, ""
    for item in pools:
        ratios = item.ratios([factor])[0]
        index = int(np.argmax(ratios))
        if ratios[index] > worst:
            cls, slo, _ = item.targets[index]
            worst, name = float(ratios[index]), f"{cls} {slo.key}"
    finite = bool(np.isfinite(worst))
    leaving = [item for item in pools if isinstance(item, LoadedPool) and item.patience is not None]
    stable = all(item in leaving or item.utilisations([factor])[0] < 1.0 for item in pools)
    lost_rps = sum(item.lost_rps(factor) for item in leaving) if stable else 0.0
    return CurveRow(
        factor=factor,
        rate_rps=factor * total_rps,
        utilisation=busiest if stable else None,
        goodput_rps=factor * total_rps - lost_rps if stable else None,
        worst_slo=name,
        worst_ratio=worst if finite else None,
        met=finite and worst <= 1.0 + 1e-9,
    )
