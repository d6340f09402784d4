"""Names under which files state measured numbers with their units, and rows read by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from qmodel.calibration.measurements import LeftOut, ServingPoint, StepTime
from qmodel.errors import Problem
from qmodel.trace.formats import plain_name
from qmodel.types import Layout

__all__ = ["ROW_KINDS", "Mismatch", "Row", "RowKind", "missing_names", "read_rows", "row_kind"]

SECONDS, MILLIS, MICROS = 1.0, 1e-3, 1e-6
LEAST_OUTPUT = 2.0
LARGEST = 1e12

# Of each quantity, names by preference with the factor that makes seconds or tokens of them. Bench tools write
# milliseconds with a suffix; InferenceMAX writes seconds without one.
_PROMPT = (
    "prompt_tokens",
    "isl_mean",
    "isl",
    "input_tokens",
    "input_len",
    "input_length",
    "random_input_len",
    "prompt_len",
    "mean_input_tokens",
)
_OUTPUT = ("output_tokens", "osl_mean", "osl", "output_len", "output_length", "random_output_len", "mean_output_tokens")
_TPOT = {"tpot_s": SECONDS, "tpot_ms": MILLIS, "mean_tpot_ms": MILLIS, "tpot_ms_mean": MILLIS, "mean_tpot": SECONDS}
_TPOT |= {"median_tpot_ms": MILLIS, "tpot_ms_p50": MILLIS, "median_tpot": SECONDS}
_TPOT |= {"mean_itl_ms": MILLIS, "itl_ms": MILLIS, "inter_token_latency_ms": MILLIS}
_TTFT = {"ttft_s": SECONDS, "ttft_ms": MILLIS, "median_ttft_ms": MILLIS, "ttft_ms_p50": MILLIS, "ttft_p50_ms": MILLIS}
_TTFT |= {"median_ttft": SECONDS, "mean_ttft_ms": MILLIS, "ttft_ms_mean": MILLIS, "mean_ttft": SECONDS}
_RATE = ("output_tokens_per_s", "output_tps_total", "output_tps", "output_throughput", "output_tok_s")
_STEP = {"step_s": SECONDS, "step_ms": MILLIS, "step_us": MICROS, "step_time_s": SECONDS, "step_time_ms": MILLIS}
_STEP |= {"latency_s": SECONDS, "latency_ms": MILLIS, "latency_us": MICROS}
_DEGREES = ("tp", "pp", "ep", "dp")
_REQUESTS = {"inputlens", "itls"}  # lists of vLLM's details, one item a request
Mismatch = Callable[[Mapping[str, object]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One number of a row.

    Attributes:
        names: names by preference, with the factor to SI units.
        required: whether a file must have one of the names.
        least: smallest value allowed; 0 allows 0, None: above 0.
    """

    names: Mapping[str, float]
    required: bool = False
    least: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKind:
    """A kind of row: its numbers by what they are."""

    name: str
    title: str
    marks: tuple[str, ...]  # quantities of which a file has at least one, by which it is told
    numbers: Mapping[str, Number]


def _plain(names: Sequence[str], factor: float = 1.0) -> dict[str, float]:
    return dict.fromkeys(names, factor)


ROW_KINDS: tuple[RowKind, ...] = (
    RowKind(
        name="steps",
        title="step times",
        marks=("step_s",),
        numbers={
            "batch": Number(names=_plain(("batch", "batch_size", "num_seqs", "running")), required=True, least=0.0),
            "context_tokens": Number(names=_plain(("context_tokens", "context_len", "context", "kv_len")), least=0.0),
            "kv_tokens": Number(names=_plain(("kv_tokens",)), least=0.0),
            "prefill_tokens": Number(names=_plain(("prefill_tokens", "num_prefill_tokens", "new_tokens")), least=0.0),
            "prompt_tokens": Number(names=_plain(("prompt_tokens", "prompt_len")), least=0.0),
            "step_s": Number(names=_STEP, required=True),
        },
    ),
    RowKind(
        name="points",
        title="benchmarks at a fixed concurrency",
        marks=("tpot_s", "output_tokens_per_s"),
        numbers={
            "users": Number(names=_plain(("users", "concurrency", "max_concurrency", "conc", "load_value")), least=1.0),
            "prompt_tokens": Number(names=_plain(_PROMPT)),
            "output_tokens": Number(names=_plain(_OUTPUT), least=LEAST_OUTPUT),
            "tpot_s": Number(names=_TPOT),
            "ttft_s": Number(names=_TTFT),
            "output_tokens_per_s": Number(names=_plain(_RATE)),
            "output_tokens_per_s_gpu": Number(names=_plain(("output_tput_per_gpu", "output_tps_per_gpu"))),
            "requests": Number(names=_plain(("completed", "requests", "num_prompts"))),
            "total_prompt_tokens": Number(names=_plain(("total_input_tokens",))),
            "total_output_tokens": Number(names=_plain(("total_output_tokens",))),
            "duration_s": Number(names=_plain(("duration", "duration_s"))),
            "rate": Number(names=_plain(("request_rate", "request_rate_rps"))),
        },
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a file: values by plain name, and where they stand."""

    values: Mapping[str, object]
    label: str
    problem: Callable[[str, str, str], Problem] = field(repr=False)


def row_kind(names: Collection[str], *, details: bool = False) -> RowKind | None:
    """The kind that a file with these columns or keys holds; None for another file.

    Args:
        names: columns or keys.
        details: take the summary of a file that also lists its requests.

    Example:
        >>> row_kind(["batch", "step_ms"]).name, row_kind(["conc", "mean_tpot"]).name, row_kind(["timestamp"])
        ('steps', 'points', None)
    """
    plain = {plain_name(name) for name in names}
    if _REQUESTS & plain and not details:
        return None
    return next((kind for kind in ROW_KINDS if any(_has(kind.numbers[mark], plain) for mark in kind.marks)), None)


def missing_names(kind: RowKind, names: Collection[str]) -> list[tuple[str, str]]:
    """(what no column states, names that would) for everything a kind needs."""
    plain = {plain_name(name) for name in names}
    needed = [name for name, number in kind.numbers.items() if number.required]
    found = [(name, kind.numbers[name]) for name in needed if not _has(kind.numbers[name], plain)]
    if kind.name == "steps" and not any(_has(kind.numbers[name], plain) for name in ("context_tokens", "kv_tokens")):
        found.append(("context_tokens or kv_tokens", kind.numbers["context_tokens"]))
    if kind.name == "points":
        for name, instead in (
            ("users", ("requests", "duration_s")),
            ("prompt_tokens", ("total_prompt_tokens", "requests")),
            ("output_tokens", ("total_output_tokens", "requests")),
        ):
            have = [name, *instead]
            if not _has(kind.numbers[name], plain) and not all(_has(kind.numbers[item], plain) for item in have[1:]):
                found.append((name, kind.numbers[name]))
    return [(name, ", ".join(number.names)) for name, number in found]


def read_rows(
    kind: RowKind, rows: Sequence[Row], layout: Layout | None, mismatch: Mismatch | None = None
) -> tuple[list[StepTime | ServingPoint], list[LeftOut], list[Problem]]:
    """Measurements of the rows, those that say too little with the reason, and what is wrong.

    Args:
        kind: what the rows hold.
        rows: in the order of the file.
        layout: of rows that state no degree.
        mismatch: says of a row's values why it is not wanted, empty where it is.
    """
    found: list[StepTime | ServingPoint] = []
    left_out: list[LeftOut] = []
    problems: list[Problem] = []
    for row in rows:
        reason = mismatch(row.values) if mismatch else ""
        if reason:
            left_out.append(LeftOut(place=row.label, reason=reason))
            continue
        numbers: dict[str, float] = {}
        wrong = list(_read_numbers(kind, row, numbers))
        own, broken = _layout(row, layout)
        wrong += broken
        if wrong:
            problems += wrong
            continue
        made = _step(numbers, row, own) if kind.name == "steps" else _point(numbers, row, own)
        if isinstance(made, LeftOut):
            left_out.append(made)
        else:
            found.append(made)
    return found, left_out, problems


def _has(number: Number, plain: Collection[str]) -> bool:
    return any(plain_name(name) in plain for name in number.names)


def _read_numbers(kind: RowKind, row: Row, numbers: dict[str, float]) -> Iterator[Problem]:
    for what, number in kind.numbers.items():
        for name, factor in number.names.items():
            given = row.values.get(plain_name(name))
            if isinstance(given, list | dict):  # of the requests, under a name that is alike without signs
                continue
            if given is None or given == "" or (what == "rate" and str(given) == "inf"):  # as vLLM writes no rate
                continue
            value = _number(given)
            if value is None:
                yield row.problem(name, f"must be a number (got {given!r})", "")
            elif not (value > 0.0 if number.least is None else value >= number.least) or value > LARGEST:
                bound = "greater than 0" if number.least is None else f"at least {number.least:g}"
                yield row.problem(name, f"must be {bound} and finite (got {given})", "correct it, or delete the row")
            else:
                numbers[what] = value * factor
            break
        else:
            if number.required:
                yield row.problem(next(iter(number.names)), "is empty", "fill it in, or delete the row")


def _number(given: object) -> float | None:
    if isinstance(given, bool):
        return None
    try:
        value = float(str(given))
    except ValueError:
        return None
    return value if not math.isnan(value) else None


def _layout(row: Row, layout: Layout | None) -> tuple[Layout | None, list[Problem]]:
    """The layout that the row states, of degrees above what the calibration has; attention ranks share ``tp``."""
    degrees: dict[str, int] = {}
    problems = []
    for name in _DEGREES:
        given = row.values.get(name)
        if given is None or given == "":
            continue
        value = _number(given)
        if value is None or value < 1 or value != int(value):
            problems.append(row.problem(name, f"must be a whole number of at least 1 (got {given!r})", ""))
        else:
            degrees[name] = int(value)
    if problems or not degrees:
        return layout, problems
    if str(row.values.get("dpattention", "")).lower() == "true" and degrees.get("dp", 1) == 1:
        degrees["dp"] = degrees.get("tp", 1)  # InferenceMAX counts the GPUs of the replica as tp
        degrees["tp"] = 1
    stage = degrees.get("tp", 1) * degrees.get("dp", 1)
    if degrees.get("ep", 1) > 1:
        degrees["ep"] = stage
    return Layout(**degrees), problems


def _step(numbers: Mapping[str, float], row: Row, layout: Layout | None) -> StepTime | LeftOut:
    batch = numbers["batch"]
    prefill = numbers.get("prefill_tokens", 0.0)
    if batch == 0.0 and prefill == 0.0:
        return LeftOut(place=row.label, reason="a step without sequences and without prompt tokens")
    context = numbers.get("context_tokens", numbers.get("kv_tokens", 0.0) / max(batch, 1.0))
    return StepTime(
        batch=batch,
        context_tokens=context,
        prefill_tokens=prefill,
        prompt_tokens=numbers.get("prompt_tokens"),
        step_s=numbers["step_s"],
        layout=layout,
        place=row.label,
    )


def _point(numbers: dict[str, float], row: Row, layout: Layout | None) -> ServingPoint | LeftOut:
    requests = numbers.get("requests")
    for name in ("prompt_tokens", "output_tokens"):
        if name not in numbers and f"total_{name}" in numbers and requests:
            numbers[name] = numbers[f"total_{name}"] / requests
    if "output_tokens_per_s" not in numbers and "output_tokens_per_s_gpu" in numbers and layout is not None:
        numbers["output_tokens_per_s"] = numbers["output_tokens_per_s_gpu"] * layout.gpus
    users = numbers.get("users") or _company(numbers)
    missing = [name for name in ("prompt_tokens", "output_tokens") if name not in numbers]
    if users is None:
        return LeftOut(place=row.label, reason="does not say how many requests were served at once")
    if missing:
        return LeftOut(place=row.label, reason=f"does not state {' and '.join(missing)}")
    if numbers["output_tokens"] < LEAST_OUTPUT:
        return LeftOut(
            place=row.label, reason="has outputs of less than 2 tokens, which have no time per further token"
        )
    if "tpot_s" not in numbers and "output_tokens_per_s" not in numbers:
        return LeftOut(place=row.label, reason="states neither a time per output token nor output tokens per second")
    return ServingPoint(
        users=users,
        prompt_tokens=numbers["prompt_tokens"],
        output_tokens=numbers["output_tokens"],
        tpot_s=numbers.get("tpot_s"),
        ttft_s=numbers.get("ttft_s"),
        output_tokens_per_s=numbers.get("output_tokens_per_s"),
        burst_share=min(users / requests, 1.0) if requests and _is_mean_ttft(row) else 0.0,
        layout=layout,
        place=row.label,
    )


def _is_mean_ttft(row: Row) -> bool:
    """Whether the time to first token is a mean, which the common start of all users is a part of."""
    stated = next((name for name in _TTFT if row.values.get(plain_name(name)) not in (None, "")), "")
    return "mean" in stated


def _company(numbers: Mapping[str, float]) -> float | None:
    """Requests in the replica while one is served, of a stream at a stated rate, by Little's law.

    A request of a random stream finds as many others as there are on average. Without a limit and without a rate, all
    requests came at once, and their number fell from all to none.
    """
    times = [numbers.get(name) for name in ("requests", "duration_s", "ttft_s", "tpot_s", "output_tokens")]
    if any(value is None for value in times) or "rate" not in numbers:
        return None
    requests, duration_s, ttft_s, tpot_s, output = (float(value or 0.0) for value in times)
    return 1.0 + requests / duration_s * (ttft_s + (output - 1.0) * tpot_s)
