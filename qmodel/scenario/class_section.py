"""Request classes as a scenario file writes them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from qmodel.scenario.arrival_section import Arrivals
from qmodel.scenario.batch_section import BatchSpec
from qmodel.scenario.engine_section import ClassEngineSpec
from qmodel.scenario.length_section import LengthSpec
from qmodel.scenario.patience_section import ABANDONED, Retries, patience_complaints
from qmodel.scenario.sections import Complaint, Name, NonNegative, Positive, Rate, Section, Text, Tokens, refusal
from qmodel.scenario.share_section import Share, bounds_of, share_complaints
from qmodel.types import METRICS, Metric, Slo, best_average, settled_bounds

__all__ = ["ClassSpec", "ModelTierSpec", "TraceSpec", "known_target", "slo_from_key"]

_SLO_KEY = re.compile(r"(?P<metric>[a-z_]+)_(?P<stat>mean|p\d{1,2}(?:\.\d)?)_s")
_BEYOND = re.compile(r"(?P<metric>[a-z_]+)_p\d+(?:\.\d+)?_s")  # percentiles that are not offered
_USUAL_KEYS = tuple(
    f"{metric}_{stat}_s" for metric in METRICS for stat in ("mean", "p50", "p90", "p95", "p99", "p99.9")
)
_LEVELS = "percentiles go from p1 to p99.9"
_OTHER_WORDS = {
    "e2e": "completion",
    "latency": "completion",
    "e2el": "completion",
    "itl": "tpot",
    "tbt": "tpot",
    "ttfat": "answer_start",
    "ttfvt": "answer_start",
}


def slo_from_key(key: str, target_s: float) -> Slo:
    """The target that a key such as ``ttft_p95_s``, or ``abandoned_share``, names.

    Raises:
        ValueError: the key is neither ``<metric>_<mean|pNN>_s`` nor that; the text has the nearest key that is.

    Example:
        >>> slo_from_key("tpot_mean_s", 0.05).stat
        'mean'
    """
    if key == ABANDONED:
        return Slo(metric="abandoned", p=None, target_s=target_s)
    match = _SLO_KEY.fullmatch(key)
    metrics: Mapping[str, Metric] = {metric: metric for metric in METRICS}
    if match is None or match["metric"] not in metrics:
        beyond = _BEYOND.fullmatch(key)
        way_out = _LEVELS if beyond and beyond["metric"] in metrics else _nearest_slo(key)
        raise ValueError(f"unknown target {key!r}; {way_out}")
    stat = match["stat"]
    level = None if stat == "mean" else round(float(stat[1:]) / 100, 6)
    if level is not None and not 0 < level <= 0.999:
        raise ValueError(f"unknown target {key!r}; {_LEVELS}")
    found = Slo(metric=metrics[match["metric"]], p=level, target_s=target_s)
    if found.key != key:  # p05, p95.0: two spellings of one target would pass as two
        raise ValueError(f"unknown target {key!r}; did you mean {found.key!r}?")
    return found


def _nearest_slo(key: str) -> str:
    wanted = re.sub(r"_ms$|_sec$|_seconds$", "_s", key.lower())
    first = wanted.split("_", 1)[0]
    if first in _OTHER_WORDS:
        wanted = wanted.replace(first, _OTHER_WORDS[first], 1)
    wanted = wanted if wanted.endswith("_s") else wanted + "_s"
    match = _SLO_KEY.fullmatch(wanted)
    close = [wanted] if match and match["metric"] in METRICS else difflib.get_close_matches(wanted, _USUAL_KEYS, 1, 0.6)
    unit = " (targets are in seconds)" if key.lower().endswith("_ms") else ""
    if close:
        return f"did you mean {close[0]!r}?{unit}"
    return f"write <metric>_<mean|pNN>_s with metric {', '.join(METRICS[:-1])} or {METRICS[-1]}"


def known_target(key: str) -> str:
    """The key of a target, for a validator; refused where it is none."""
    try:
        slo_from_key(key, 1.0)
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise refusal(what, hint) from None
    return key


class TraceSpec(Section):
    """Arrivals and joint lengths read from a trace file."""

    file: Text = Field(
        description="Trace file, see docs/workload.md; a relative path starts at the folder of this file."
    )
    cls: Text | None = Field(
        default=None, alias="class", description="Take only the rows of this class of the trace; all rows if left out."
    )
    by: Text | None = Field(
        default=None, description="Column or key that names the classes of the trace; its format's own if left out."
    )
    above_output_tokens: Tokens | None = Field(default=None, description="Take only rows with a longer output.")
    up_to_output_tokens: Tokens | None = Field(default=None, description="Take only rows with no longer output.")
    rate_scale: Positive = Field(default=1.0, description="Factor on the trace's mean rate; lengths stay as they are.")
    arrivals: Literal["measured", "poisson"] = Field(
        default="measured", description="Plan for the trace's burstiness, or for Poisson arrivals at its mean rate."
    )


Targets = Annotated[dict[Annotated[str, AfterValidator(known_target)], Positive], Field(min_length=1)]


class ModelTierSpec(Section):
    """One of the models that may serve a class, and what differs from the class under it."""

    quality: Positive | None = Field(
        default=None,
        description="Score of its answers to this class, on a scale of your own whose averages mean something.",
    )
    share: Share | None = Field(
        default=None,
        description="Its share of the requests of the class: a number, or {min: 0.1, max: 0.5}; any if left out.",
    )
    output_tokens: LengthSpec | None = Field(
        default=None, description="Law of the output length under this model; that of the class if left out."
    )
    reasoning_tokens: LengthSpec | None = Field(
        default=None, description="Law of the thinking tokens under this model; needs answer_tokens."
    )
    answer_tokens: LengthSpec | None = Field(
        default=None, description="Law of the visible answer under this model, independent of the thinking."
    )
    max_tokens: Tokens | None = Field(
        default=None, description="Most output tokens of a request under this model; that of the class if left out."
    )
    slo: Targets | None = Field(
        default=None, description="Targets under this model, over those of the class: the same key replaces."
    )

    @property
    def outputs(self) -> tuple[str, ...]:
        """Output laws that are stated."""
        return tuple(name for name in _OUTPUTS if getattr(self, name) is not None)

    def complaints(self) -> Iterator[Complaint]:
        if self.outputs:
            yield from _output_complaints(self.outputs)


class ClassSpec(Section):
    """A stream of requests: a model, arrivals, length laws and targets."""

    model: Text | None = Field(
        default=None, description="Short id of the catalog, Hugging Face id, or path of a config.json; excludes models."
    )
    models: Annotated[dict[Text, ModelTierSpec], Field(min_length=1)] | None = Field(
        default=None,
        description="Models that may serve the class, in shares stated or left to the plan; excludes model.",
    )
    min_quality: Positive | None = Field(
        default=None, description="Least average quality over the requests of the class; needs models."
    )
    floor: Positive | None = Field(
        default=None, description="Least quality of each model that serves the class; needs models."
    )
    rate_rps: Rate | None = Field(default=None, description="Mean arrival rate, requests per second; Poisson.")
    arrivals: Arrivals | None = Field(default=None, description="Rate and shape of the arrivals; excludes rate_rps.")
    trace: TraceSpec | None = Field(
        default=None, description="A trace that gives arrivals and joint lengths; excludes rates and token laws."
    )
    batch: BatchSpec | None = Field(
        default=None, description="Requests that come at once, with a deadline; excludes rates, arrivals and traces."
    )
    prompt_tokens: LengthSpec | None = Field(default=None, description="Law of the prompt length, tokens.")
    output_tokens: LengthSpec | None = Field(
        default=None, description="Law of the output length, tokens; excludes reasoning_tokens and answer_tokens."
    )
    reasoning_tokens: LengthSpec | None = Field(
        default=None, description="Law of the thinking tokens before the answer; needs answer_tokens."
    )
    answer_tokens: LengthSpec | None = Field(
        default=None, description="Law of the visible answer, tokens, independent of the thinking."
    )
    max_tokens: Tokens | None = Field(
        default=None, description="Most output tokens of a request, thinking included; longer ones stop there."
    )
    slo: Targets | None = Field(
        default=None,
        description="Targets in seconds: <metric>_<mean|pNN>_s with metric ttft, answer_start, tpot or completion.",
    )
    priority: int = Field(
        default=0, description="Classes with larger numbers are admitted and prefilled first where they share a pool."
    )
    isolate: bool = Field(default=False, description="Its pools serve no other class.")
    engine: ClassEngineSpec | None = Field(
        default=None,
        description="Engine settings of the pools that serve it, which win over engine and fleet.gpus.<gpu>.engine.",
    )
    patience_s: Positive | None = Field(
        default=None,
        description="A request leaves when it was not admitted so long after it came, s; it waits as long as it takes "
        "if left out.",
    )
    retries: Retries = Field(default=0, description="Times that a request that left comes back; needs patience_s.")
    backoff_s: NonNegative = Field(
        default=1.0, description="Pause before it first comes back, s; doubles with every further time."
    )

    @property
    def rate(self) -> float | None:
        """Mean arrival rate, in the busiest hour where it differs, requests per second; None where a trace gives it."""
        return self.arrivals.busiest_rps if self.arrivals is not None else self.rate_rps

    @property
    def slos(self) -> tuple[Slo, ...]:
        """The targets as records, in the order of the file."""
        return tuple(slo_from_key(key, target_s) for key, target_s in (self.slo or {}).items())

    @property
    def tiers(self) -> dict[str, ModelTierSpec]:
        """Models that may serve the class, the best first; empty where ``model`` is stated."""
        able = {
            name: item
            for name, item in (self.models or {}).items()
            if (item.quality is None or item.quality >= (self.floor or 0.0)) and bounds_of(item.share)[1] > 0.0
        }
        return dict(sorted(able.items(), key=lambda item: (-(item[1].quality or 0.0), item[0])))

    @property
    def share_bounds(self) -> dict[str, tuple[float, float]]:
        """Least and most share of each of :attr:`tiers`, as tight as their sum of 1 makes them."""
        found = settled_bounds([bounds_of(item.share) for item in self.tiers.values()])
        assert found is not None  # or the file was refused
        return dict(zip(self.tiers, found, strict=True))

    def slos_under(self, model: str) -> tuple[Slo, ...]:
        """The targets of the requests that a model serves."""
        own = (self.models or {}).get(model)
        stated = {**(self.slo or {}), **((own.slo if own is not None else None) or {})}
        return tuple(slo_from_key(key, target_s) for key, target_s in stated.items())

    @property
    def served_by(self) -> tuple[str, ...]:
        """Models that may serve the class."""
        return (self.model,) if self.model is not None else tuple(self.tiers)

    def complaints(self) -> Iterator[Complaint]:
        yield from self._model_complaints()
        sources = [name for name in ("rate_rps", "arrivals", "trace", "batch") if getattr(self, name) is not None]
        if not sources:
            yield Complaint("has no arrivals", hint="add rate_rps: <requests per second>, a trace or a batch")
        if len(sources) > 1:
            yield Complaint(
                f"states {' and '.join(sources)}, which exclude each other",
                hint=_remove(sources[:-1]),
                about=tuple(sources),
            )
        yield from self._target_complaints()
        yield from patience_complaints(self)
        own = [name for name, item in (self.models or {}).items() if item.outputs or item.max_tokens is not None]
        laws = [name for name in ("prompt_tokens", *_OUTPUTS) if getattr(self, name) is not None]
        if self.trace is not None:
            if laws:
                yield Complaint(
                    f"states {' and '.join(laws)}, but trace gives the lengths",
                    hint=_remove(laws),
                    about=("trace", *laws),
                )
            for name in own:
                what = "states lengths of its own, but trace gives the lengths"
                yield Complaint(what, key=("models", name), hint="leave them out, or state laws instead of the trace")
            return
        if self.prompt_tokens is None:
            yield Complaint("'prompt_tokens' is missing", hint="write prompt_tokens: {mean: 1200, cv: 1.1}")
        outputs = [name for name in laws if name != "prompt_tokens"]
        if outputs or not all(item.outputs for item in (self.models or {"": ModelTierSpec()}).values()):
            yield from _output_complaints(outputs)

    def _target_complaints(self) -> Iterator[Complaint]:
        if self.batch is None:
            if self.slo is None and not all(item.slo for item in (self.models or {"": ModelTierSpec()}).values()):
                yield Complaint("'slo' is missing", hint="add slo: {ttft_p95_s: 0.5}")
            return
        for slo in self.slos:
            if slo.metric not in _BATCH_METRICS:
                what = f"{slo.metric} of requests that come as a batch is not predicted"
                hint = f"state {' or '.join(_BATCH_METRICS)}, or leave it out"
                yield Complaint(what, key=("slo", slo.key), hint=hint)

    def _model_complaints(self) -> Iterator[Complaint]:
        if self.models is None:
            if self.model is None:
                yield Complaint("'model' is missing", hint="write model: <name>, or models: {<name>: {quality: 0.8}}")
            for name in ("min_quality", "floor"):
                if getattr(self, name) is not None:
                    hint = "state models: {<name>: {quality: 0.8}} instead of model, or leave it out"
                    yield Complaint("needs the quality of each model", key=(name,), hint=hint)
            return
        if self.model is not None:
            what = "states model and models, which exclude each other"
            yield Complaint(what, hint=_remove(["model"]), about=("model", "models"))
        yield from self._share_complaints(self.models)
        scores = {name: item.quality for name, item in self.models.items() if item.quality is not None}
        asked = [name for name in ("min_quality", "floor") if getattr(self, name) is not None]
        unscored = [name for name in self.models if name not in scores]
        if unscored and (scores or asked):
            reason = f"{asked[0]} asks for it" if asked else "other models of the class have one"
            yield Complaint(
                f"'quality' is missing: {reason}", key=("models", unscored[0]), hint="write quality: <score>"
            )
            return
        for name in asked:
            best = max(scores, key=lambda model: scores[model])
            if getattr(self, name) > scores[best]:
                what = f"{getattr(self, name):g} is more than any model has"
                yield Complaint(what, key=(name,), hint=f"at most {scores[best]:g}, the quality of {best}")
                return
        yield from self._average_complaints()

    def _share_complaints(self, models: Mapping[str, ModelTierSpec]) -> Iterator[Complaint]:
        yield from share_complaints({name: item.share for name, item in models.items()})
        for name, item in models.items():
            least = bounds_of(item.share)[0]
            if self.floor is not None and item.quality is not None and item.quality < self.floor and least > 0.0:
                what = f"is to get {least:g} of the requests at least, but floor {self.floor:g} leaves it out"
                yield Complaint(what, key=("models", name, "share"), hint=f"lower floor to {item.quality:g}")
                return
        most = sum(bounds_of(item.share)[1] for item in self.tiers.values())
        if self.floor is not None and self.tiers and most < 1.0:
            what = f"{self.floor:g} leaves models that may get {most:.6g} of the requests at most, less than all"
            yield Complaint(what, key=("floor",), hint="lower it, or raise a share or a max")

    def _average_complaints(self) -> Iterator[Complaint]:
        """The best average that shares allow is below the one asked for."""
        if self.min_quality is None:
            return
        bounds = [bounds_of(item.share) for item in self.tiers.values()]
        reached = best_average([item.quality or 0.0 for item in self.tiers.values()], bounds)
        if reached is not None and reached < self.min_quality * (1.0 - 1e-9):
            what = f"{self.min_quality:g} is more than the shares of the models allow"
            yield Complaint(what, key=("min_quality",), hint=f"at most {reached:.6g}, or give better models more")


def _output_complaints(outputs: Sequence[str]) -> Iterator[Complaint]:
    thinking = [name for name in outputs if name != "output_tokens"]
    if not outputs:
        hint = "write output_tokens: {mean: 300, cv: 0.9}, or reasoning_tokens and answer_tokens"
        yield Complaint("'output_tokens' is missing", hint=hint)
    elif thinking and len(thinking) < len(outputs):
        what = f"states output_tokens and {' and '.join(thinking)}, which exclude each other"
        yield Complaint(what, hint=_remove(["output_tokens"]), about=tuple(outputs))
    elif len(thinking) == 1:
        other = "answer_tokens" if thinking == ["reasoning_tokens"] else "reasoning_tokens"
        yield Complaint(f"states {thinking[0]} without {other}", hint="give both, or output_tokens alone")


_BATCH_METRICS = ("ttft", "completion")
_OUTPUTS = ("output_tokens", "reasoning_tokens", "answer_tokens")
Classes = Annotated[dict[Name, ClassSpec], Field(min_length=1)]


def _remove(names: Sequence[str]) -> str:
    written = ", ".join(f"'{name}: ~'" for name in names)
    return f"leave one side out; in a variant or override {written} removes what the file states"
