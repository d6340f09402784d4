"""Recorded requests of classes, on the clock of a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qmodel.errors import Problem, ScenarioError
from qmodel.trace import Trace, read_trace, select_requests, spread_clock
from qmodel.types import FloatArray, IntArray, RequestClass

if TYPE_CHECKING:
    from qmodel.scenario import Scenario

__all__ = ["RecordedClass", "recorded_by_scenario", "recorded_by_trace"]

_STAMPED = "arrivals were stamped"  # how the note of a spread clock begins


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedClass:
    """The requests of one class, as they came.

    Attributes:
        arrival_s: ascending, from 0 on, s, shape (n,).
        prompt, output, reasoning: tokens, shape (n,).
        span_s: how long the recording is.
        note: where it comes from and how its clock was changed, for the reader.
    """

    arrival_s: FloatArray
    prompt: IntArray
    output: IntArray
    reasoning: IntArray
    span_s: float
    note: str

    def __len__(self) -> int:
        return int(self.arrival_s.size)

    def rows(self, rows: IntArray) -> RecordedClass:
        """The requests at ``rows``."""
        return replace(
            self,
            arrival_s=self.arrival_s[rows],
            prompt=self.prompt[rows],
            output=self.output[rows],
            reasoning=self.reasoning[rows],
        )

    def poisson(self, rate_rps: float, *, rng: np.random.Generator, horizon_s: float) -> RecordedClass:
        """Requests of the recording at random, that come at random: the joint lengths without the burstiness."""
        count = int(rng.poisson(rate_rps * horizon_s))
        drawn = self.rows(np.asarray(rng.integers(0, len(self), count), dtype=np.int64))
        return replace(drawn, arrival_s=np.sort(rng.random(count)) * horizon_s, span_s=horizon_s)


def recorded_by_scenario(scenario: Scenario) -> dict[str, RecordedClass]:
    """The recordings that feed classes of a scenario, with their times divided by ``rate_scale``.

    Arrivals that a coarse clock stamped are spread over its steps: they did not come all at once.

    Args:
        scenario: checked; its traces can be read.

    Raises:
        ScenarioError: a trace that cannot be used.
    """
    found = {}
    for name, spec in scenario.classes.items():
        source = spec.trace
        if source is None:
            continue
        trace = select_requests(
            spread_clock(read_trace(Path(scenario.base_dir) / source.file, by=source.by)),
            cls=source.cls,
            above_output_tokens=source.above_output_tokens or 0,
            up_to_output_tokens=source.up_to_output_tokens,
        )
        found[name] = _recorded(trace, name, source.rate_scale)
    return found


def recorded_by_trace(
    trace: Trace, classes: Mapping[str, RequestClass], *, split: Sequence[int] | None = None
) -> tuple[dict[str, RecordedClass], list[str]]:
    """The requests of one trace as those of classes, each at the mean rate that its class has.

    A trace that names classes gives those that the scenario has; any other gives the only class there is.

    Args:
        trace: with arrival times.
        classes: request classes by name.
        split: the largest output of each class but the one with the longest, tokens, rising: requests then belong to
            classes by their output, the shortest to the class with the smallest mean output.

    Returns:
        Recordings by class, and what a reader must know: requests that no class takes, classes that the trace lacks.

    Raises:
        ScenarioError: a trace without arrival times, or one whose requests belong to no class in particular.
    """
    if trace.rate_rps is None:
        what = "has no arrival times to replay" if trace.arrival_s is None else "has arrivals at one instant only"
        raise ScenarioError([Problem(what=what, file=trace.source, hint="use a trace with times")])
    trace = spread_clock(trace)
    notes = [f"{trace.source}: {note}" for note in trace.notes if not note.startswith(_STAMPED)]
    if split is not None:
        trace, note = _split_by_output(trace, classes, split)
        notes.append(note)
    shared = [name for name in classes if name in trace.classes]
    if shared:
        parts = {name: trace.only(name) for name in shared}
    elif len(classes) == 1:
        parts = {next(iter(classes)): trace}
    else:
        named = f"names {', '.join(trace.classes[:5])}" if trace.classes else "names no classes"
        what = f"{named}; the scenario has {', '.join(classes)}"
        hint = "name the same classes in both, or split the trace by output length"
        raise ScenarioError([Problem(what=what, file=trace.source, hint=hint)])
    left = len(trace) - sum(map(len, parts.values()))
    if left:
        others = ", ".join(sorted(set(trace.classes) - set(shared)))
        notes.append(f"{trace.source}: {left} requests of {others} are left out, which the scenario does not have")
    missing = [name for name in classes if name not in parts]
    if missing:
        notes.append(f"{trace.source} has no requests of {', '.join(missing)}; they arrive as a Poisson stream")
    recorded = {}
    for name, part in parts.items():
        rate_rps = part.rate_rps
        assert rate_rps is not None
        recorded[name] = _recorded(part, name, classes[name].rate_rps / rate_rps)
    return recorded, notes


def _split_by_output(trace: Trace, classes: Mapping[str, RequestClass], edges: Sequence[int]) -> tuple[Trace, str]:
    """The trace with classes by output length, and which range each class is."""
    problem = None
    if len(edges) != len(classes) - 1:
        problem = f"needs {len(classes) - 1} lengths for {len(classes)} classes (got {len(edges)})"
    elif not edges or edges[0] < 1 or any(high <= low for low, high in pairwise(edges)):
        problem = f"must be whole, at least 1 and rising (got {list(edges)})"
    if problem is not None:
        raise ScenarioError([Problem(what=problem, file="<arguments>", key="split", hint="e.g. 500,5000 for three")])
    names = sorted(classes, key=lambda name: classes[name].lengths.output.mean)
    ranges = [f"up to {edges[0]}", *(f"{low + 1} to {high}" for low, high in pairwise(edges)), f"above {edges[-1]}"]
    note = ", ".join(f"{words} are {name}" for words, name in zip(ranges, names, strict=True))
    which = np.searchsorted(np.asarray(edges), trace.output_tokens, side="left")
    return replace(trace, cls=np.array(names)[which]), f"{trace.source}: requests by output tokens: {note}"


def _recorded(trace: Trace, name: str, rate_scale: float) -> RecordedClass:
    assert trace.arrival_s is not None and trace.rate_rps is not None
    zeros = np.zeros(len(trace), dtype=np.int64)
    reasoning = zeros if trace.reasoning_tokens is None else trace.reasoning_tokens
    changed = "" if rate_scale == 1.0 else f", its times divided by {rate_scale:.4g}"
    if trace.cached_prefix_tokens is not None and trace.cached_prefix_tokens.any():
        changed += ", its prefix cache hits left out as in the predictions"
    changed += "".join(f"; {note}" for note in trace.notes if note.startswith(_STAMPED))
    return RecordedClass(
        arrival_s=trace.arrival_s / rate_scale,
        prompt=trace.prompt_tokens.astype(np.int64),
        output=trace.output_tokens.astype(np.int64),
        reasoning=np.minimum(reasoning, trace.output_tokens - 1).astype(np.int64),
        span_s=len(trace) / trace.rate_rps / rate_scale,
        note=f"class {name}: the requests of {trace.source} are replayed{changed}",
    )
