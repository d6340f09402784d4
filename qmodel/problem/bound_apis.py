"""APIs of a scenario: which classes each may serve, and what is missing to know it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from qmodel.errors import Problem
from qmodel.files import join_key
from qmodel.types import Api

if TYPE_CHECKING:
    from qmodel.scenario import Scenario
    from qmodel.scenario.api_section import ApiModelSpec

__all__ = ["bind_apis"]


def bind_apis(scenario: Scenario) -> tuple[tuple[Api, ...], tuple[Problem, ...], tuple[str, ...]]:
    """The APIs that a scenario states, problems with them, and sentences a reader must know.

    Args:
        scenario: checked against its schema.
    """
    found: list[Api] = []
    problems: list[Problem] = []
    notes: list[str] = []
    asked = {name for item in scenario.classes.values() for name in item.served_by}
    for name, section in sorted(scenario.fleet.apis.items()):
        key = join_key("fleet.apis", name)
        if name in scenario.fleet.gpus:
            problems.append(scenario.problem(key, f"'{name}' is a GPU of the fleet too", "give one another name"))
        for model, spec in sorted(section.models.items()):
            place = join_key(f"{key}.models", model)
            if model not in asked:
                near = difflib.get_close_matches(model, asked, n=1, cutoff=_TYPO)
                if near:
                    what = f"no class asks for '{model}'"
                    problems.append(scenario.problem(place, what, f"did you mean '{near[0]}'?"))
                notes.append(f"{name}: {model} is not used: no class asks for it")
                continue
            problems += _unmet(scenario, model, spec, place)
            api = Api(
                name=name,
                model=model,
                usd_per_million_input=spec.usd_per_million_input,
                usd_per_million_output=spec.usd_per_million_output,
                max_rate_rps=spec.max_rate_rps,
                latency=dict(spec.latency),
                meets=spec.meets,
            )
            found.append(api)
            notes += _notes(api)
            notes += _not_sent(scenario, api)
    return tuple(found), tuple(problems), tuple(notes)


def _unmet(scenario: Scenario, model: str, spec: ApiModelSpec, place: str) -> list[Problem]:
    """Classes in ``meets`` that are none, and targets for which no value is stated."""
    problems = []
    classes = scenario.classes
    for index, name in enumerate(spec.meets):
        key = f"{place}.meets[{index}]"
        if name not in classes:
            near = difflib.get_close_matches(name, classes, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"one of {', '.join(classes)}"
            problems.append(scenario.problem(key, f"no class '{name}'", hint))
        elif model not in classes[name].served_by:
            what = f"class '{name}' asks for {' or '.join(classes[name].served_by)}"
            problems.append(scenario.problem(key, what, "take it out"))
    if spec.meets:
        return problems
    api = Api(name="", model=model, usd_per_million_input=0.0, usd_per_million_output=0.0, latency=dict(spec.latency))
    for name, item in classes.items():
        slos = item.slos_under(model) if model in item.served_by else ()
        missing = [slo.key for slo in slos if api.value_s(slo) is None]
        if missing:
            what = f"says nothing of {', '.join(missing)}, a target of class '{name}'"
            value = "<share>" if missing[0] == "abandoned_share" else "<s>"
            hint = f"add {missing[0]}: {value}, or name the classes whose targets it meets under meets"
            problems.append(scenario.problem(f"{place}.latency", what, hint))
    return problems


def _notes(api: Api) -> list[str]:
    prices = (
        f"{api.usd_per_million_input:g} USD per million input tokens and {api.usd_per_million_output:g} per million"
    )
    paid = f"API {api.name}: {api.model} at {prices} output tokens, thinking included; cached input counts in full"
    stated = ", ".join(f"{key} {value:g}" for key, value in api.latency.items())
    said = f"its latency is as stated ({stated})" if stated else f"said to meet the targets of {', '.join(api.meets)}"
    return [paid, f"API {api.name}: {api.model}: {said}, whatever its load; not predicted"]


def _not_sent(scenario: Scenario, api: Api) -> list[str]:
    """Classes of the model that an API may not serve, and why."""
    notes = []
    for name, item in scenario.classes.items():
        if api.model not in item.served_by or api.meets:
            continue
        slos = item.slos_under(api.model)
        missed = [(slo, value) for slo in slos if (value := api.value_s(slo)) is not None and value > slo.target_s]
        if missed:
            slo, value = missed[0]
            told = f"{slo.key} is stated as {value:g} s there, its target is {slo.target_s:g} s"
            notes.append(f"API {api.name}: class {name} is not sent there: {told}")
    return notes


_TYPO = 0.8  # similarity from which a name counts as misspelt
