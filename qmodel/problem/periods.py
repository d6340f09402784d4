"""Demand by the hour, from the profiles of classes, or as scenarios."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from qmodel.errors import Problem
from qmodel.types import HOURS, Limits, Period, Periods, risk_words

if TYPE_CHECKING:
    from qmodel.problem.other_lengths import OtherLengths
    from qmodel.scenario import Scenario
    from qmodel.scenario.demand_section import DemandSpec

__all__ = ["bind_periods", "largest_factor", "limits_by_hour"]


def bind_periods(
    scenario: Scenario, lengths: OtherLengths
) -> tuple[Periods | None, tuple[Problem, ...], tuple[str, ...]]:
    """The periods of the day, problems with them, and sentences a reader must know; None: every hour is the same.

    Args:
        scenario: checked against its schema.
        lengths: that classes have in scenarios of the demand.
    """
    profiles = {
        name: spec.arrivals.profile
        for name, spec in scenario.classes.items()
        if spec.arrivals is not None and spec.arrivals.profile is not None
    }
    if scenario.demand is not None:
        return _scenarios(scenario, scenario.demand, list(profiles), lengths)
    if not profiles:
        lag = scenario.fleet.start_lag_s
        what = f"start_lag_s ({lag:g} s) needs a fleet that changes by the hour, and no class has a profile"
        hint = "leave it out, or add arrivals: {profile: [24 factors], hours: true} to a class"
        return None, (scenario.problem("fleet.start_lag_s", what, hint),) if lag else (), ()
    problems = _problems(scenario, list(profiles))
    changes = any(_hours(scenario, name) for name in profiles)
    factors = {
        name: tuple(factor / max(profiles[name]) for factor in profiles[name]) if name in profiles else (1.0,) * HOURS
        for name in scenario.classes
    }
    periods = Periods.of_day(factors, fleet_changes=changes, start_lag_h=scenario.fleet.start_lag_s / 3600.0)
    return periods, tuple(problems), tuple(_notes(scenario, profiles, periods))


def largest_factor(scenario: Scenario, name: str) -> float:
    """The largest factor that a scenario of the demand puts on the rate of a class; 1 where none is above 0."""
    if scenario.demand is None:
        return 1.0
    return max(item.factors.get(name, 1.0) for item in scenario.demand.scenarios.values()) or 1.0


def _scenarios(
    scenario: Scenario, stated: DemandSpec, profiles: list[str], lengths: OtherLengths
) -> tuple[Periods | None, tuple[Problem, ...], tuple[str, ...]]:
    """Scenarios of the demand as periods."""
    problems = []
    if profiles:
        what = f"not supported yet: scenarios of demand beside a profile of hours (class '{profiles[0]}')"
        problems.append(scenario.problem("demand", what, "keep one of the two"))
    for name, item in stated.scenarios.items():
        for part, stated_for in (("factors", item.factors), ("lengths", item.lengths)):
            for unknown in (one for one in stated_for if one not in scenario.classes):
                near = get_close_matches(unknown, scenario.classes, n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"one of {', '.join(scenario.classes)}"
                key = f"demand.scenarios.{name}.{part}.{unknown}"
                problems.append(scenario.problem(key, f"no class '{unknown}'", hint))
    for name in scenario.classes:
        if not any(item.factors.get(name, 1.0) for item in stated.scenarios.values()):
            what = f"class '{name}' has the factor 0 in every scenario"
            problems.append(scenario.problem("demand.scenarios", what, "leave the class out"))
    problems += _beside(scenario, changing=stated.fleet_changes, why="is uncertain (demand)")
    if scenario.fleet.start_lag_s:
        what = "start_lag_s needs a fleet that changes by the hour, and demand states scenarios"
        problems.append(scenario.problem("fleet.start_lag_s", what, "leave it out"))
    items = tuple(
        Period(
            factors={one: item.factors.get(one, 1.0) / largest_factor(scenario, one) for one in scenario.classes},
            scenario=name,
            probability=item.weight,
            lengths=lengths.get(name, {}),
        )
        for name, item in stated.scenarios.items()
    )
    least, risk = stated.least_weight, stated.risk
    periods = Periods(items=items, fleet_changes=stated.fleet_changes, least_weight=least, risk=risk)
    if stated.fleet_changes:
        kind = "GPUs that are paid anyway are bought before it is known which scenario comes, others after; cost is "
        kind += "the mean over scenarios" if risk is None else risk_words(risk)
    elif least < 1.0:
        kind = f"one fleet serves scenarios of the demand that weigh at least {least:g} together; in others it may be"
        kind += " overloaded"
    else:
        kind = "one fleet serves every scenario of the demand"
    return periods, tuple(problems), (kind,)


def limits_by_hour(limits: Limits) -> Limits:
    """The same where the fleet changes with the hour: what GPUs cost depends on when they are bought."""
    return replace(limits, gpus={name: replace(item, by_hour=True) for name, item in limits.gpus.items()})


def _hours(scenario: Scenario, name: str) -> bool:
    arrivals = scenario.classes[name].arrivals
    return arrivals is not None and arrivals.hours


def _problems(scenario: Scenario, names: list[str]) -> list[Problem]:
    problems = []
    changing = [name for name in names if _hours(scenario, name)]
    fixed = [name for name in names if name not in changing]
    if changing and fixed:
        what = f"class '{fixed[0]}' has a profile without hours: true, class '{changing[0]}' has one with it"
        hint = "there is one fleet: state hours: true for all classes with a profile, or for none"
        problems.append(scenario.problem(f"classes.{fixed[0]}.arrivals", what, hint))
    problems += _beside(scenario, changing=bool(changing), why=f"differs by the hour (profile of class '{names[0]}')")
    if scenario.fleet.start_lag_s and not changing:
        what = "start_lag_s needs a fleet that changes by the hour"
        problems.append(scenario.problem("fleet.start_lag_s", what, "add hours: true to the profile, or leave it out"))
    return problems


def _beside(scenario: Scenario, *, changing: bool, why: str) -> list[Problem]:
    """What does not go with demand that differs."""
    problems = []
    asked = scenario.objective.maximize or scenario.objective.target_key
    if asked is not None:
        what = f"not supported yet: {asked} where the demand {why}"
        problems.append(scenario.problem("objective", what, "state one rate of each class instead"))
    for name in (name for name, spec in scenario.classes.items() if spec.batch is not None):
        what = f"not supported yet: a batch where the demand {why}"
        problems.append(scenario.problem(f"classes.{name}.batch", what, "plan it apart, or state its mean rate"))
    for name in (name for name, spec in scenario.classes.items() if len(spec.served_by) > 1):
        what = f"not supported yet: several models for a class where the demand {why}"
        problems.append(scenario.problem(f"classes.{name}.models", what, "state one model, or one rate of each class"))
    if scenario.fleet.apis and scenario.demand is not None and scenario.demand.least_weight < 1.0:
        what = "not supported yet: an API where some scenarios may be left out (demand.plan_for.quantile)"
        problems.append(scenario.problem("fleet.apis", what, "state plan_for: all, mean or {cvar: 0.9}"))
    if scenario.layouts.disaggregate is True:
        what = f"not supported yet: separate pools where the demand {why}"
        problems.append(scenario.problem("layouts.disaggregate", what, "use false, or state one rate of each class"))
    quotas = {"providers": scenario.fleet.providers, "regions": scenario.fleet.regions}
    for kind, name, spec in ((kind, name, spec) for kind, found in quotas.items() for name, spec in found.items()):
        if changing and spec.max_usd_per_hour is not None:
            what = f"not supported yet: money by {kind[:-1]} where the fleet changes and the demand {why}"
            hint = "state fleet.budget_usd_per_hour, which is a mean"
            problems.append(scenario.problem(f"fleet.{kind}.{name}.max_usd_per_hour", what, hint))
    return problems


def _notes(scenario: Scenario, profiles: dict[str, tuple[float, ...]], periods: Periods) -> list[str]:
    notes = []
    for name, profile in profiles.items():
        arrivals = scenario.classes[name].arrivals
        assert arrivals is not None
        least, most = (arrivals.rate_rps * pick(profile) for pick in (min, max))
        notes.append(f"class {name}: from {least:.4g} to {most:.4g} requests/s by the hour (profile)")
    if periods.fleet_changes:
        notes.append(
            "the fleet changes by the hour: cost is the mean over the day, and what starts and stops between hours"
            + (
                f" is paid for {periods.start_lag_h * 3600:g} s before it serves (start_lag_s)"
                if periods.start_lag_h
                else " costs nothing"
            )
        )
    else:
        notes.append("one fleet serves every hour of the day; only routing changes by the hour")
    notes.append("within an hour demand, routing and fleet are taken as stationary")
    return notes
