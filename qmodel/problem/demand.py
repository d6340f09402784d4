"""Request classes from their scenario sections: laws from numbers, rates and joint lengths from traces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from qmodel.errors import Problem, ScenarioError
from qmodel.problem.arrivals import arrival_process, arrivals_words, trace_burst, trace_words
from qmodel.scenario.sections import LEAST_RPS, MOST_RPS
from qmodel.types import Batch, Law, Lengths, Model, RequestClass, Slo
from qmodel.workload import combine_reasoning, length_law, lengths_from_arrays

if TYPE_CHECKING:
    from qmodel.scenario import Scenario
    from qmodel.scenario.class_section import ClassSpec, TraceSpec
    from qmodel.scenario.length_section import LengthSpec

__all__ = ["bind_class"]

_WORTH_A_NOTE = 0.001  # share of requests


def bind_class(
    scenario: Scenario, name: str, spec: ClassSpec, models: Mapping[str, Model | None], *, factor: float = 1.0
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

    Raises:
        ScenarioError: a law or trace that cannot be used.
    """
    bound, notes = _with_one_model(scenario, name, spec, models, factor)
    if not spec.alternatives:
        return bound, notes
    bound = replace(bound, alternatives=spec.alternatives, min_quality=spec.min_quality)
    if len(spec.alternatives) > 1:
        told = f"class {name}: lengths of prompts and outputs are taken to be the same under {', '.join(bound.models)}"
        notes = (*notes, told)
    return bound, notes


def _with_one_model(
    scenario: Scenario, name: str, spec: ClassSpec, models: Mapping[str, Model | None], factor: float
) -> tuple[RequestClass, tuple[str, ...]]:
    if spec.trace is not None:
        source = spec.trace
        scaled = source if factor == 1.0 else source.model_copy(update={"rate_scale": source.rate_scale * factor})
        return _from_trace(scenario, name, spec, scaled)
    key = f"classes.{name}"
    contexts = {name: record.max_context for name in spec.served_by if (record := models.get(name)) is not None}
    shortest = min(contexts, key=lambda name: contexts[name], default=None)
    context = None if shortest is None else contexts[shortest]
    cap = min((most for most in (spec.max_tokens, context) if most is not None), default=None)
    batch = None if spec.batch is None else Batch(**spec.batch.model_dump())
    stated_rps = spec.rate if batch is None else batch.rate_rps
    assert spec.prompt_tokens is not None and stated_rps is not None  # the schema asks for both
    rate_rps = stated_rps * factor
    prompt = _law(scenario, f"{key}.prompt_tokens", spec.prompt_tokens, context)
    if context is not None and prompt.values[0] >= context:
        what = f"every prompt is longer than the context of {shortest}, {context} tokens"
        raise ScenarioError([scenario.problem(f"{key}.prompt_tokens", what, "shorten it, or use another model")])
    reasoning: Law | None = None
    if spec.output_tokens is not None:
        output = _law(scenario, f"{key}.output_tokens", spec.output_tokens, cap)
    else:
        assert spec.reasoning_tokens is not None and spec.answer_tokens is not None  # the schema asks for both
        thinking = _law(scenario, f"{key}.reasoning_tokens", spec.reasoning_tokens, cap)
        answer = _law(scenario, f"{key}.answer_tokens", spec.answer_tokens, cap)
        try:
            output, reasoning = combine_reasoning(thinking, answer, max_tokens=cap)
        except ValueError as error:
            raise ScenarioError([scenario.problem(f"{key}.max_tokens", str(error))]) from error
    notes = [
        f"class {name}: {law.capped_share:.1%} of {what} are cut at a cap"
        for what, law in (("prompts", prompt), ("outputs", output))
        if law.capped_share > _WORTH_A_NOTE
    ]
    burst = None if spec.arrivals is None else arrival_process(spec.arrivals).burst(rate_rps)
    words = arrivals_words(spec.arrivals) if batch is None else "all at once"
    slos = spec.slos
    if batch is not None:
        slos = (Slo(metric="makespan", p=batch.deadline_p, target_s=batch.deadline_s), *slos)
        notes.append(_batch_note(name, batch))
    if burst is not None:
        notes.append(f"class {name}: arrivals are {words}")
    bound = RequestClass(
        name=name,
        model=spec.served_by[0],
        rate_rps=rate_rps,
        lengths=Lengths.independent(prompt, output, reasoning),
        slos=slos,
        priority=spec.priority,
        isolate=spec.isolate or batch is not None,
        arrivals_note=words,
        burst=burst,
        batch=batch,
    )
    return bound, tuple(notes)


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
    scenario: Scenario, name: str, spec: ClassSpec, source: TraceSpec
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
    lengths = lengths_from_arrays(trace.prompt_tokens, trace.output_tokens, trace.reasoning_tokens)
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
        slos=spec.slos,
        priority=spec.priority,
        isolate=spec.isolate,
        arrivals_note=words,
        burst=burst,
    )
    notes = (
        f"class {name}: arrivals are {words}: {rate_rps:.4g} requests/s is the mean rate of {source.file}; {caution}",
        *(f"{source.file}: {note}" for note in trace.notes),
    )
    return bound, notes


def _placed(scenario: Scenario, key: str, problem: Problem) -> Problem:
    return scenario.problem(key, problem.what, problem.hint)
