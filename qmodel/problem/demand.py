"""Request classes from their scenario sections: laws from numbers, rates and joint lengths from traces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qmodel.errors import Problem, ScenarioError
from qmodel.files import join_key
from qmodel.problem.arrivals import arrival_process, arrivals_words, trace_burst, trace_words
from qmodel.scenario.sections import LEAST_RPS, MOST_RPS
from qmodel.types import Batch, Law, Lengths, Model, ModelTier, Patience, RequestClass, Slo
from qmodel.workload import combine_reasoning, length_law, lengths_from_arrays

if TYPE_CHECKING:
    from qmodel.scenario import Scenario
    from qmodel.scenario.class_section import ClassSpec, ModelTierSpec, TraceSpec
    from qmodel.scenario.length_section import LengthSpec

__all__ = ["bind_class"]

_WORTH_A_NOTE = 0.001  # share of requests


def bind_class(
    scenario: Scenario,
    name: str,
    spec: ClassSpec,
    models: Mapping[str, Model | None],
    *,
    factor: float = 1.0,
    longer: tuple[float, float] = (1.0, 1.0),
) -> tuple[RequestClass, tuple[str, ...]]:
    """One class with its laws, and what a reader must know about them.

    Neither a prompt nor an output exceeds the model's context length, whatever the law says; the notes tell how
    many are cut. Where several models may serve it, the shortest context counts.

    Args:
        scenario: for positions and the folder that relative paths start at.
        name: name of the class.
        spec: its section.
        models: catalog records by name, None where only profiles describe the model.
        factor: on its rate.
        longer: factors on the prompts and outputs of a trace.

    Raises:
        ScenarioError: a law or trace that cannot be used.
    """
    if spec.trace is not None:
        source = spec.trace
        scaled = source if factor == 1.0 else source.model_copy(update={"rate_scale": source.rate_scale * factor})
        bound, notes = _from_trace(scenario, name, spec, scaled, longer)
        laws = dict.fromkeys(spec.served_by, bound.lengths)
    else:
        laws, cut = _laws_under(scenario, name, spec, models)
        bound, notes = _from_laws(name, spec, laws[spec.served_by[0]], factor)
        notes = (*cut, *notes)
    if bound.patience is not None:
        notes = (*notes, _patience_note(name, bound.patience))
    if not spec.tiers:
        return bound, notes
    own_laws = len({id(lengths) for lengths in laws.values()}) > 1
    slos = {model: _slos(spec, model) for model in spec.tiers}
    own_slos = any(tier.slo for tier in spec.tiers.values())
    bounds = spec.share_bounds
    tiers = tuple(
        ModelTier(
            model=model,
            quality=tier.quality,
            least=bounds[model][0],
            most=bounds[model][1],
            lengths=laws[model] if own_laws else None,
            slos=slos[model] if own_slos else None,
            own_targets=tuple(tier.slo or ()),
        )
        for model, tier in spec.tiers.items()
    )
    alike = [model for model in laws if laws[model] is laws[spec.served_by[0]]]
    if len(tiers) > 1 and len(alike) > 1:
        told = f"class {name}: lengths of prompts and outputs are taken to be the same under {', '.join(alike)}"
        notes = (*notes, told)
    return replace(bound, alternatives=tiers, min_quality=spec.min_quality), notes


def _laws_under(
    scenario: Scenario, name: str, spec: ClassSpec, models: Mapping[str, Model | None]
) -> tuple[dict[str, Lengths], tuple[str, ...]]:
    """Joint lengths under each model, one record for models without laws of their own; what is cut at a cap.

    Prompts, and outputs that no model states for itself, are cut at the shortest context.
    """
    key = f"classes.{name}"
    contexts = {name: record.max_context for name in spec.served_by if (record := models.get(name)) is not None}
    shortest = min(contexts, key=lambda name: contexts[name], default=None)
    context = None if shortest is None else contexts[shortest]
    assert spec.prompt_tokens is not None  # the schema asks for it
    prompt = _law(scenario, f"{key}.prompt_tokens", spec.prompt_tokens, context)
    if context is not None and prompt.values[0] >= context:
        what = f"every prompt is longer than the context of {shortest}, {context} tokens"
        raise ScenarioError([scenario.problem(f"{key}.prompt_tokens", what, "shorten it, or use another model")])
    notes = _cut_notes(f"class {name}", "prompts", prompt)
    found: dict[str, Lengths] = {}
    common: Lengths | None = None
    for model in spec.served_by:
        tier = spec.tiers.get(model)
        if tier is not None and (tier.outputs or tier.max_tokens is not None):
            place = join_key(f"{key}.models", model)
            limits = (tier.max_tokens or spec.max_tokens, contexts.get(model))
            own = bool(tier.outputs)
            output, reasoning = _outputs(scenario, place if own else key, tier if own else spec, place, _least(limits))
            found[model] = Lengths.independent(prompt, output, reasoning)
            notes += _cut_notes(f"class {name} under {model}", "outputs", output)
            continue
        if common is None:
            output, reasoning = _outputs(scenario, key, spec, key, _least((spec.max_tokens, context)))
            common = Lengths.independent(prompt, output, reasoning)
            notes += _cut_notes(f"class {name}", "outputs", output)
        found[model] = common
    return found, tuple(notes)


def _least(limits: tuple[int | None, ...]) -> int | None:
    return min((most for most in limits if most is not None), default=None)


def _cut_notes(who: str, what: str, law: Law) -> list[str]:
    return [f"{who}: {law.capped_share:.1%} of {what} are cut at a cap"] if law.capped_share > _WORTH_A_NOTE else []


def _outputs(
    scenario: Scenario, key: str, stated: ClassSpec | ModelTierSpec, capped: str, cap: int | None
) -> tuple[Law, Law | None]:
    """Laws of all output tokens and of the thinking among them; ``capped`` is the section that states the cap."""
    if stated.output_tokens is not None:
        return _law(scenario, f"{key}.output_tokens", stated.output_tokens, cap), None
    assert stated.reasoning_tokens is not None and stated.answer_tokens is not None  # the schema asks for both
    thinking = _law(scenario, f"{key}.reasoning_tokens", stated.reasoning_tokens, cap)
    answer = _law(scenario, f"{key}.answer_tokens", stated.answer_tokens, cap)
    try:
        return combine_reasoning(thinking, answer, max_tokens=cap)
    except ValueError as error:
        raise ScenarioError([scenario.problem(f"{capped}.max_tokens", str(error))]) from error


def _slos(spec: ClassSpec, model: str) -> tuple[Slo, ...]:
    """Targets under a model; the deadline of a batch is the first."""
    slos = spec.slos_under(model)
    if spec.batch is None:
        return slos
    return (Slo(metric="makespan", p=spec.batch.deadline_p, target_s=spec.batch.deadline_s), *slos)


def _from_laws(name: str, spec: ClassSpec, lengths: Lengths, factor: float) -> tuple[RequestClass, tuple[str, ...]]:
    batch = None if spec.batch is None else Batch(**spec.batch.model_dump())
    stated_rps = spec.rate if batch is None else batch.rate_rps
    assert stated_rps is not None  # the schema asks for it
    rate_rps = stated_rps * factor
    notes = []
    burst = None if spec.arrivals is None else arrival_process(spec.arrivals).burst(rate_rps)
    words = arrivals_words(spec.arrivals) if batch is None else "all at once"
    if batch is not None:
        notes.append(_batch_note(name, batch))
    if burst is not None:
        notes.append(f"class {name}: arrivals are {words}")
    bound = RequestClass(
        name=name,
        model=spec.served_by[0],
        rate_rps=rate_rps,
        lengths=lengths,
        slos=_slos(spec, spec.served_by[0]),
        priority=spec.priority,
        isolate=spec.isolate or batch is not None,
        arrivals_note=words,
        burst=burst,
        batch=batch,
        patience=_patience(spec),
    )
    return bound, tuple(notes)


def _patience(spec: ClassSpec) -> Patience | None:
    if spec.patience_s is None:
        return None
    return Patience(patience_s=spec.patience_s, retries=spec.retries, backoff_s=spec.backoff_s)


def _patience_note(name: str, patience: Patience) -> str:
    times, first_s = patience.retries, patience.backoff_s
    again = f" and comes again up to {times} times, after {first_s:g} s and twice as long each time" if times else ""
    return (
        f"class {name}: a request leaves when it was not admitted {patience.patience_s:g} s after it came{again}; "
        "latencies are those of the attempt that is served"
    )


def _batch_note(name: str, batch: Batch) -> str:
    return (
        f"class {name}: {batch.requests:,} requests that are there at once are done {batch.deadline_s:g} s later with"
        f" probability {batch.deadline_p:g}; they are dealt to the replicas of their pools in turn, and these serve no"
        " other class"
    )


def _law(scenario: Scenario, key: str, spec: LengthSpec, maximum: int | None) -> Law:
    try:
        return _cached_law(spec.model_dump_json(exclude_none=True), maximum)
    except ValueError as error:
        raise ScenarioError([scenario.problem(key, str(error))]) from error


@lru_cache(maxsize=512)
def _cached_law(spec: str, maximum: int | None) -> Law:
    """The law of a spec given as JSON: discretising takes milliseconds, and sweeps ask for the same laws again."""
    return length_law(json.loads(spec), maximum=maximum)


def _from_trace(
    scenario: Scenario, name: str, spec: ClassSpec, source: TraceSpec, longer: tuple[float, float]
) -> tuple[RequestClass, tuple[str, ...]]:
    from qmodel.trace import read_trace, select_requests

    key = f"classes.{name}.trace"
    try:
        trace = read_trace(Path(scenario.base_dir) / source.file, by=source.by)
    except ScenarioError as error:
        raise ScenarioError([_placed(scenario, f"{key}.file", problem) for problem in error.problems]) from error
    try:
        trace = select_requests(
            trace,
            cls=source.cls,
            above_output_tokens=source.above_output_tokens or 0,
            up_to_output_tokens=source.up_to_output_tokens,
        )
    except ValueError as error:
        what, _, text = str(error).partition(": ")
        place = f"{key}.class" if what == "class" else key
        raise ScenarioError([scenario.problem(place, text)]) from error
    if trace.rate_rps is None:
        what = "has no arrival times" if trace.arrival_s is None else "has arrivals at one instant only, so no rate"
        hint = "use its lengths as quantiles, and state rate_rps"
        raise ScenarioError([scenario.problem(f"{key}.file", f"'{source.file}' {what}", hint)])
    rate_rps = trace.rate_rps * source.rate_scale
    if not LEAST_RPS <= rate_rps <= MOST_RPS:
        what = f"turns the trace's {trace.rate_rps:.4g} requests/s into {rate_rps:.4g}"
        hint = f"a class has from {LEAST_RPS:g} to {MOST_RPS:g} requests/s"
        raise ScenarioError([scenario.problem(f"{key}.rate_scale", what, hint)])
    prompts, outputs, thinking = trace.prompt_tokens, trace.output_tokens, trace.reasoning_tokens
    if longer != (1.0, 1.0):
        prompts = np.maximum(np.rint(prompts * longer[0]), 1)
        outputs = np.maximum(np.rint(outputs * longer[1]), 1)
        thinking = None if thinking is None else np.minimum(np.rint(thinking * longer[1]), outputs)
    lengths = lengths_from_arrays(prompts, outputs, thinking)
    span_s = len(trace) / rate_rps
    if source.arrivals == "measured":
        burst = trace_burst(trace, source.rate_scale)
        words = trace_words(burst, lengths, span_s)
        caution = f"in {span_s:,.0f} s, which show nothing of slower changes of the rate"
    else:
        burst, words, caution = None, "Poisson, optimistic", "the burstiness of the trace is not modelled"
    bound = RequestClass(
        name=name,
        model=spec.served_by[0],
        rate_rps=rate_rps,
        lengths=lengths,
        slos=_slos(spec, spec.served_by[0]),
        priority=spec.priority,
        isolate=spec.isolate,
        arrivals_note=words,
        burst=burst,
        patience=_patience(spec),
    )
    notes = (
        f"class {name}: arrivals are {words}: {rate_rps:.4g} requests/s is the mean rate of {source.file}; {caution}",
        *(f"{source.file}: {note}" for note in trace.notes),
    )
    return bound, notes


def _placed(scenario: Scenario, key: str, problem: Problem) -> Problem:
    return scenario.problem(key, problem.what, problem.hint)
