"""Limits of a fleet from its scenario sections: what nodes hold and draw, and what that assumes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from math import ceil, inf
from typing import TYPE_CHECKING

from qmodel.errors import Problem, ScenarioError
from qmodel.files import join_key
from qmodel.problem.engine_settings import difference, engine_of, fully_stated, profile_for, settings_of
from qmodel.problem.gpu_power import power_of
from qmodel.problem.instances import GpuOption, Instance
from qmodel.types import (
    Change,
    Fleet,
    Forbidden,
    GpuLimits,
    Limits,
    MeasuredCapacity,
    Pool,
    Quota,
    SpotTerms,
    settings_text,
)

if TYPE_CHECKING:
    from qmodel.scenario import Scenario
    from qmodel.scenario.fleet_section import GpuSpec

__all__ = ["bind_limits", "with_running"]


def bind_limits(
    scenario: Scenario, gpus: Mapping[str, GpuOption]
) -> tuple[Limits, tuple[Problem, ...], tuple[str, ...]]:
    """The limits that a scenario states, problems with them, and sentences a reader must know.

    Args:
        scenario: checked against its schema.
        gpus: options by name, those that could be bound.
    """
    fleet, policy = scenario.fleet, scenario.policy
    problems: list[Problem] = []
    notes: list[str] = []
    found = {}
    for name, option in gpus.items():
        spec = fleet.gpus[name]
        node_gpus = _node_gpus(scenario, name, spec, option, problems)
        power = power_of(spec, option.gpu, option.node)
        if fleet.power_kw is not None:
            if power is None:
                what = f"fleet.power_kw needs the power of '{name}', which is not known"
                problems.append(scenario.problem(f"fleet.gpus.{name}", what, "add power_w: <W per GPU>"))
            else:
                counted = f"{name}: {power.power_w:.0f} W per GPU count against fleet.power_kw"
                notes.append(f"{counted}, {power.basis}")
        found[name] = GpuLimits(
            max_count=spec.max_count,
            max_nodes=spec.max_nodes,
            node_gpus=node_gpus,
            whole_nodes=spec.billing == "per_node",
            offers=option.offers,
            spot=_spot(scenario, name, spec, node_gpus, problems, notes),
            provider=spec.provider or "",
            region=spec.region or "",
            kw_per_gpu=None if power is None else power.power_w / 1000.0,
        )
    problems += _unknown_forbidden(scenario)
    quotas = _quotas(scenario, problems)
    limits = Limits(
        gpus=found,
        quotas=quotas,
        budget_usd_per_hour=fleet.budget_usd_per_hour,
        power_kw=fleet.power_kw,
        max_pools=policy.max_pools,
        spare_replicas=policy.spare_replicas,
        survive_nodes=policy.survive_nodes,
        forbidden=tuple(Forbidden(**item.model_dump()) for item in scenario.layouts.forbid),
    )
    return limits, tuple(problems), (*notes, *_notes(limits))


def with_running(instance: Instance, fleet: Fleet, scenario: Scenario) -> Instance:
    """The same problem for a fleet that runs already.

    Args:
        instance: the bound problem.
        fleet: what runs.
        scenario: the problem as stated; says what starting and stopping replicas costs.

    Raises:
        ScenarioError: for costs under which a replica would be kept though nothing needs it.
    """
    if instance.periods is not None:
        what = "not supported yet: a running fleet where the demand differs by the hour (profile)"
        raise ScenarioError([scenario.problem("classes", what, "plan without it, or leave the profiles out")])
    if instance.policy.slo_scope == "fleet":
        what = "not supported yet: a running fleet with policy.slo_scope: fleet"
        raise ScenarioError([scenario.problem("policy.slo_scope", what, "plan without it, or set slo_scope: pool")])
    costs = scenario.policy.change
    known = {} if costs is None else costs.model_dump()
    whole, unclear = fully_stated(instance, fleet)
    if unclear:
        raise ScenarioError(replace(problem, file="<fleet>") for problem in unclear)
    fleet = replace(whole, pools={name: _as_planned(instance, pool) for name, pool in whole.pools.items()})
    change = Change.from_fleet(fleet, **known)
    _refuse_dear_stops(scenario, instance, change)
    notes = [
        f"running pool {pool.name} ({pool.model} on {pool.gpu}) cannot be kept: {why}"
        for pool in fleet.gpu_pools
        if (why := _cannot_stay(instance, pool)) is not None
    ]
    if costs is None:
        notes.append("starting and stopping replicas counts nothing: policy.change does not say what it costs")
    return replace(
        instance,
        limits=replace(instance.limits, change=change),
        assumptions=(*instance.assumptions, *notes),
    )


def _refuse_dear_stops(scenario: Scenario, instance: Instance, change: Change) -> None:
    """A replica that costs more to stop than to keep would be kept for nothing: the hours it is spread are too few.

    Raises:
        ScenarioError: with the least hours that make sense.
    """
    options = [instance.gpus[item.key.gpu] for item in change.running if item.key.gpu in instance.gpus]
    cheapest = min((option.price.usd_per_gpu_hour for option in options), default=inf)
    if change.stop_usd_per_gpu_hour > cheapest:
        spread = f"{change.stop_usd_per_gpu:g} USD over {change.spread_h:g} h"
        what = f"stopping a GPU costs more ({spread}) than keeping it ({cheapest:g} USD/h)"
        hint = f"raise spread_h to at least {ceil(change.stop_usd_per_gpu / cheapest)}"
        raise ScenarioError([scenario.problem("policy.change", what, hint)])


def _as_planned(instance: Instance, pool: Pool) -> Pool:
    """The pool with the settings that a plan would state of it: those that are chosen, and those that differ."""
    option = instance.gpus.get(pool.gpu)
    if option is None or pool.role == "api":
        return pool
    chosen = {key for item in _choices(instance, pool) for key in item}
    engine = engine_of(instance, pool)
    return replace(pool, engine=difference(engine, option.engine, pool.engine, sorted(chosen)))


def _choices(instance: Instance, pool: Pool) -> list[Mapping[str, object]]:
    """Settings that some class of a pool's model may choose from."""
    profile = profile_for(instance, pool.model, pool.gpu, pool.layout)
    if profile is not None and isinstance(profile.replica, MeasuredCapacity):
        return [{}]
    classes = instance.classes_of(pool.model)
    return [item for one in classes for item in settings_of(instance, one.name, pool.gpu, profile)]


def _cannot_stay(instance: Instance, pool: Pool) -> str | None:
    if pool.gpu not in instance.gpus:
        return f"'{pool.gpu}' is not in fleet.gpus"
    if pool.model not in instance.models:
        return "no class asks for its model"
    if all(dict(pool.engine) != dict(item) for item in _choices(instance, pool)):
        told = settings_text(pool.engine) or "those of the GPU type"
        return f"no class may have its engine settings ({told})"
    return None


def _spot(
    scenario: Scenario, name: str, spec: GpuSpec, node_gpus: int | None, problems: list[Problem], notes: list[str]
) -> SpotTerms | None:
    """The terms of spot GPUs as stated; a note where spot prices come without them."""
    stated, key = spec.spot, f"fleet.gpus.{name}"
    if stated is None:
        term = (spec.price.term if spec.price is not None else None) or scenario.fleet.price_book.term
        if spec.tiers is None and term == "spot":
            notes.append(f"{name}: at a spot price, but taken as never taken away: state {key}.spot")
        return None
    measured = [item for item in scenario.profiles if item.max_rate_rps and item.gpu in (name, spec.gpu)]
    if measured:
        what = f"'{name}' has measured capacities, which say nothing of lost work"
        problems.append(scenario.problem(f"{key}.spot", what, "profile step times instead, or leave spot out"))
    instance_gpus = stated.instance_gpus or node_gpus or 1
    terms = SpotTerms(
        preemptions_per_hour=stated.preemptions_per_hour,
        restart_s=stated.restart_s,
        instance_gpus=instance_gpus,
        share_of_time=stated.share_of_time,
    )
    notes.append(
        f"{name}: spot instances of {instance_gpus} GPUs, lost {stated.preemptions_per_hour:g} times per hour and back"
        f" after {stated.restart_s:g} s, are up {terms.availability(1):.2%} of the time; pools keep their targets with"
        f" the replicas that are up {stated.share_of_time:.2%} of it; requests begin anew when their replica is lost,"
        " counted as longer steps"
    )
    return terms


def _quotas(scenario: Scenario, problems: list[Problem]) -> tuple[Quota, ...]:
    """Limits by provider and by region; a name that no GPU states is a problem."""
    found = []
    for word, stated in (("provider", scenario.fleet.providers), ("region", scenario.fleet.regions)):
        of = {name: getattr(spec, word) for name, spec in sorted(scenario.fleet.gpus.items())}
        known = sorted({value for value in of.values() if value})
        for name, quota in sorted(stated.items()):
            key = join_key(f"fleet.{word}s", name)
            gpus = tuple(gpu for gpu, value in of.items() if value == name)
            if not gpus:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"state {word}: {name} in an entry of fleet.gpus"
                problems.append(scenario.problem(key, f"no GPU of the fleet has the {word} '{name}'", hint))
                continue
            found.append(
                Quota(
                    name=f"{word} {name}",
                    key=key,
                    gpus=gpus,
                    max_gpus=quota.max_gpus,
                    max_usd_per_hour=quota.max_usd_per_hour,
                )
            )
    return tuple(found)


def _unknown_forbidden(scenario: Scenario) -> list[Problem]:
    """Forbidden pools of models that no class asks for, or of GPUs that the fleet may not use."""
    models = [name for item in scenario.classes.values() for name in item.served_by]
    known = {"model": models, "gpu": list(scenario.fleet.gpus)}
    problems = []
    for index, item in enumerate(scenario.layouts.forbid):
        for part, names in known.items():
            stated = getattr(item, part)
            if stated is not None and stated not in names:
                where = "classes" if part == "model" else "fleet.gpus"
                hint = f"one of {', '.join(dict.fromkeys(names))}, or take it out"
                key = f"layouts.forbid[{index}].{part}"
                problems.append(scenario.problem(key, f"'{stated}' is not in {where}", hint))
    return problems


def _node_gpus(scenario: Scenario, name: str, spec: GpuSpec, option: GpuOption, problems: list[Problem]) -> int | None:
    key = f"fleet.gpus.{name}"
    if option.node is not None:
        if spec.gpus_per_node is not None:
            what = f"node '{option.node.name}' has {option.node.gpus_per_node} GPUs"
            problems.append(scenario.problem(f"{key}.gpus_per_node", what, "leave it out, or choose another node"))
        return option.node.gpus_per_node
    counted = [
        word
        for word, asked in (
            ("billing: per_node", spec.billing == "per_node"),
            ("max_nodes", spec.max_nodes is not None),
            ("policy.survive_nodes", scenario.policy.survive_nodes > 0),
        )
        if asked
    ]
    if counted and spec.gpus_per_node is None:
        verb = "need" if len(counted) > 1 else "needs"
        what = f"{' and '.join(counted)} {verb} the size of a node, and '{name}' is known by profiles only"
        problems.append(scenario.problem(key, what, "add gpus_per_node: 8"))
    return spec.gpus_per_node


def _notes(limits: Limits) -> tuple[str, ...]:
    notes = [
        f"{name}: {item.node_gpus} GPUs per node; a replica is given the next size that fills a node without a gap"
        for name, item in limits.gpus.items()
        if item.counts_nodes
    ]
    spare = f"{limits.spare_replicas} replica{'s' * (limits.spare_replicas > 1)}"
    if limits.survive_nodes:
        more = f", at least {spare} (spare_replicas)" if limits.spare_replicas else ""
        lost = f"as many replicas as one node holds (survive_nodes){more}"
        notes.append(f"every prediction is for pools that lost {lost}")
    elif limits.spare_replicas:
        notes.append(f"every prediction is for pools that lost {spare} each (spare_replicas)")
    return tuple(notes)
