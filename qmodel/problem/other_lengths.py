"""Lengths that classes have in scenarios of the demand, where these are not those of the class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from qmodel.errors import Problem, ScenarioError
from qmodel.problem.demand import bind_class
from qmodel.types import Lengths, Model

if TYPE_CHECKING:
    from qmodel.scenario import Scenario
    from qmodel.scenario.class_section import ClassSpec
    from qmodel.scenario.demand_section import LengthChange
    from qmodel.scenario.length_section import LengthSpec

__all__ = ["OtherLengths", "bind_lengths"]

OtherLengths = dict[str, dict[str, Lengths]]  # by scenario of the demand and class
_LAWS = ("prompt_tokens", "output_tokens", "reasoning_tokens", "answer_tokens")


def bind_lengths(
    scenario: Scenario, models: Mapping[str, Model | None]
) -> tuple[OtherLengths, tuple[Problem, ...], tuple[str, ...]]:
    """Lengths by scenario of the demand and class, problems with them, and sentences a reader must know.

    Args:
        scenario: checked against its schema.
        models: catalog records by name, None where only profiles describe the model.
    """
    problems: list[Problem] = []
    notes: list[str] = []
    found: OtherLengths = {}
    known: dict[tuple[str, str], Lengths] = {}
    measured = {name for spec in scenario.profiles for name in spec.max_rate_rps or ()}
    for name, item in scenario.demand.scenarios.items() if scenario.demand is not None else ():
        for cls, change in item.lengths.items():
            key = f"demand.scenarios.{name}.lengths.{cls}"
            spec = scenario.classes.get(cls)
            if spec is None:  # told with the names in factors
                continue
            spec = _under_its_model(spec)
            wrong = _unfit(spec, change)
            if cls in measured:
                wrong = (
                    f"class '{cls}' has measured capacities (max_rate_rps), which say nothing of other lengths",
                    "profile step times instead, or change factors only",
                )
            if wrong is not None:
                problems.append(scenario.problem(key, *wrong))
                continue
            same = (cls, change.model_dump_json(exclude_none=True))
            if same not in known:
                try:
                    known[same] = _lengths(scenario, cls, spec, change, models, key)
                except ScenarioError as error:
                    problems += error.problems
                    continue
            lengths = known[same]
            found.setdefault(name, {})[cls] = lengths
            means = f"prompts of {lengths.prompt.mean:.4g} and outputs of {lengths.output.mean:.4g} tokens on average"
            capped = lengths.output.capped_share
            cut = f", {capped:.1%} of the outputs cut at a cap" if capped > 1e-3 else ""
            notes.append(f"scenario {name}: class {cls} has {means}{cut}")
    return found, tuple(problems), tuple(notes)


def _under_its_model(spec: ClassSpec) -> ClassSpec:
    """A class with one model as if what is stated under that were stated for the class."""
    if len(spec.tiers) != 1:
        return spec
    ((model, tier),) = spec.tiers.items()
    laws = {name: getattr(tier, name) for name in _LAWS[1:]} if tier.outputs else {}
    own = {**laws, "max_tokens": tier.max_tokens or spec.max_tokens}
    plain = tier.model_copy(update=dict.fromkeys((*_LAWS[1:], "max_tokens")))
    return spec.model_copy(update={**own, "models": {model: plain}})


def _unfit(spec: ClassSpec, change: LengthChange) -> tuple[str, str] | None:
    """What is wrong with a change of a class, and what would do."""
    stated = [name for name in _LAWS if getattr(change, name) is not None]
    if spec.trace is not None:
        stated += ["max_tokens"] if change.max_tokens is not None else []
        if stated:
            return f"states {' and '.join(stated)}, but a trace gives the lengths", "state prompt_factor, output_factor"
        return None
    for name in stated:
        if getattr(spec, name) is None:
            own = " and ".join(law for law in _LAWS[1:] if getattr(spec, law) is not None)
            return f"states {name}, but the class has {own}", f"change {own}"
    return None


def _lengths(
    scenario: Scenario,
    name: str,
    spec: ClassSpec,
    change: LengthChange,
    models: Mapping[str, Model | None],
    key: str,
) -> Lengths:
    """The lengths of a class under a change: laws that it states in place of the class's, factors before any cap.

    Raises:
        ScenarioError: a law that cannot be used.
    """
    prompt, output = change.prompt_factor or 1.0, change.output_factor or 1.0
    if spec.trace is not None:
        return bind_class(scenario, name, spec, models, longer=(prompt, output))[0].lengths
    update: dict[str, object] = {}
    for law in _LAWS:
        own, factor = getattr(change, law) or getattr(spec, law), prompt if law == "prompt_tokens" else output
        if own is not None:
            update[law] = own if factor == 1.0 else _scaled(own, factor)
    if change.max_tokens is not None:
        update["max_tokens"] = change.max_tokens
    changed = spec.model_copy(update=update)
    try:
        return bind_class(scenario, name, changed, models)[0].lengths
    except ScenarioError as error:
        placed = [scenario.problem(key, problem.what, problem.hint) for problem in error.problems]
        raise ScenarioError(placed) from error


def _scaled(law: LengthSpec, factor: float) -> LengthSpec:
    """The law of lengths times a factor; where they stop stays what it is."""
    update: dict[str, object] = {}
    if law.mean is not None:
        update["mean"] = law.mean * factor
    if law.constant is not None:
        update["constant"] = max(round(law.constant * factor), 1)
    if law.normal is not None:
        scaled = {"mean": law.normal.mean * factor, "sd": law.normal.sd * factor}
        update["normal"] = law.normal.model_copy(update=scaled)
    if law.quantiles is not None:
        update["quantiles"] = {level: tokens * factor for level, tokens in law.quantiles.items()}
    if law.mixture is not None:
        update["mixture"] = tuple(
            part.model_copy(
                update={"mean": part.mean * factor}
                if part.mean is not None
                else {"mu": (part.mu or 0.0) + math.log(factor)}
            )
            for part in law.mixture
        )
    return law.model_copy(update=update)
