"""Length laws as a scenario file writes them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence

from qmodel.types import Law
from qmodel.workload.discrete import MOST_TOKENS, AtCap, capped, cut_given_atom
from qmodel.workload.families import lognormal_law, mixture_law, normal_law, quantile_law

__all__ = ["AtCap", "length_law"]

_SHAPES: dict[str, frozenset[str]] = {
    "mean": frozenset({"mean", "cv"}),
    "constant": frozenset({"constant"}),
    "normal": frozenset({"normal"}),
    "quantiles": frozenset({"quantiles"}),
    "mixture": frozenset({"mixture"}),
}
_LIMITS = frozenset({"max", "budget", "at_cap"})


def length_law(spec: Mapping[str, object], *, maximum: int | None = None) -> Law:
    """The law that a scenario file states.

    Forms: ``{mean, cv}`` (lognormal); ``{constant}``; ``{normal: {mean, sd, min, max}}`` (clipped);
    ``{quantiles: {p50: .., p90: ..}}``; ``{mixture: [{weight, mu, sigma} | {weight, mean, cv}, ...]}``. Beside each
    may stand ``max`` or ``budget``, with ``at_cap``: ``atom`` (default) puts the probability above it on it, as an
    engine that stops there does; ``truncate`` drops it and renormalises.

    Args:
        spec: plain data, tokens.
        maximum: a further cap from outside (``max_tokens``, a context limit); always an atom.

    Returns:
        The law; ``capped_share`` is the probability that a cap cut the value.

    Raises:
        ValueError: if the spec is not one of the forms or a number is out of range.

    Example:
        >>> length_law({"mean": 300, "cv": 0.9}).label
        'lognormal(mean 300, cv 0.9)'
        >>> length_law({"mixture": [{"weight": 1, "mu": 7.6, "sigma": 0.8}], "budget": 2048}).maximum
        2048.0
        >>> length_law({"quantiles": {"p50": 400, "p90": 1200}}, maximum=1000).capped_share > 0.1
        True
    """
    shape = _shape(_mapping(spec, "length"))
    own, at_cap = _limits(spec)
    if maximum is not None and maximum < 1:
        raise ValueError(f"maximum: must be at least 1 (got {maximum})")
    law = _law(spec, shape, _lower(own, maximum) if at_cap == "atom" else own, at_cap)
    if maximum is not None and law.maximum > maximum:
        law = capped(law.values, law.weights, law.moments, maximum, label=law.label, cut=cut_given_atom(law))
    return law


def _law(spec: Mapping[str, object], shape: str, maximum: int | None, at_cap: AtCap) -> Law:
    if shape == "mean":
        return lognormal_law(_number(spec, "mean"), _number(spec, "cv"), maximum=maximum, at_cap=at_cap)
    if shape == "constant":
        return lognormal_law(float(_count(spec, "constant")), 0.0, maximum=maximum, at_cap=at_cap)
    if shape == "normal":
        inner = _mapping(spec["normal"], "normal")
        if at_cap == "truncate":
            raise ValueError("at_cap: a normal law is clipped at its ends; truncate does not apply")
        low = _count(inner, "min") if "min" in inner else 1
        high = _count(inner, "max") if "max" in inner else None
        return normal_law(_number(inner, "mean"), _number(inner, "sd"), low, _lower(high, maximum))
    if shape == "quantiles":
        stated = _mapping(spec["quantiles"], "quantiles")
        levels = {_level(key): _number(stated, key) for key in stated}
        return quantile_law(levels, maximum=maximum, at_cap=at_cap)
    items = spec["mixture"]
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise ValueError(f"mixture: must be a list of components (got {items!r})")
    parts = []
    for index, item in enumerate(items):
        part = _mapping(item, f"mixture[{index}]")
        parts.append({key: _number(part, key) for key in part})
    return mixture_law(parts, maximum=maximum, at_cap=at_cap)


def _shape(spec: Mapping[str, object]) -> str:
    """Which form the keys of ``spec`` are; refuses none, several, and keys that belong to no form."""
    shapes = [shape for shape in _SHAPES if shape in spec]
    if len(shapes) != 1:
        forms = "mean and cv, constant, normal, quantiles or mixture"
        raise ValueError(f"length: needs one of {forms} (got {', '.join(map(str, spec)) or 'nothing'})")
    known = _SHAPES[shapes[0]] | _LIMITS
    for key in spec:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"length: unknown key {key!r} beside {shapes[0]}{hint}")
    return shapes[0]


def _limits(spec: Mapping[str, object]) -> tuple[int | None, AtCap]:
    """``max`` or ``budget``, and ``at_cap``."""
    if "max" in spec and "budget" in spec:
        raise ValueError("length: states budget and max, which exclude each other")
    maximum = next((_count(spec, key) for key in ("max", "budget") if key in spec), None)
    at_cap = spec.get("at_cap", "atom")
    if at_cap not in ("atom", "truncate"):
        raise ValueError(f"at_cap: must be atom or truncate (got {at_cap!r})")
    if "at_cap" in spec and maximum is None:
        raise ValueError("at_cap: means nothing without max or budget")
    return maximum, "truncate" if at_cap == "truncate" else "atom"


def _lower(first: int | None, second: int | None) -> int | None:
    both = [value for value in (first, second) if value is not None]
    return min(both) if both else None


def _level(key: object) -> float:
    text = str(key)
    try:
        level = round(float(text.removeprefix("p")) / 100.0, 12)
    except ValueError:
        level = math.nan
    if not text.startswith("p") or not 0.0 < level < 1.0:
        raise ValueError(f"quantiles: levels are written p50, p90, p99.9, ... (got {key!r})")
    return level


def _number(spec: Mapping[str, object], key: str) -> float:
    value = spec.get(key)
    if value is None:
        raise ValueError(f"{key}: is missing")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{key}: must be a number (got {value!r})")
    return float(value)


def _count(spec: Mapping[str, object], key: str) -> int:
    value = _number(spec, key)
    if value != int(value) or not 1 <= value <= MOST_TOKENS:
        raise ValueError(f"{key}: must be a whole number from 1 to {MOST_TOKENS:,} (got {value:g})")
    return int(value)


def _mapping(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: must be a mapping (got {value!r})")
    return value
