"""Families of length laws: lognormal, normal, gamma, mixtures of lognormals, and laws through given quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qmodel.types import FloatArray, Law
from qmodel.workload.discrete import AtCap, compress, discretise

__all__ = [
    "gamma_law",
    "lognormal_law",
    "lognormal_parameters",
    "mixture_cdf",
    "mixture_law",
    "normal_law",
    "quantile_law",
]

Cdf = Callable[[FloatArray], FloatArray]
_WEIGHT_TOLERANCE = 2e-3  # three weights of 0.333 are meant to be one


def lognormal_law(
    mean: float, cv: float, *, minimum: int = 1, maximum: int | None = None, at_cap: AtCap = "atom"
) -> Law:
    """Lognormal lengths; mean and coefficient of variation are those before rounding and before the cap.

    Args:
        mean: tokens, at least 1.
        cv: standard deviation over mean, at least 0; 0 gives a constant.
        minimum: smallest count.
        maximum: largest count, None for no limit.
        at_cap: ``atom`` or ``truncate``, see :func:`qmodel.workload.length_law`.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> law = lognormal_law(300, 0.9)
        >>> round(law.mean, 1), round(law.scv, 2)
        (300.0, 0.81)

    Reference: Crow and Shimizu (eds), Lognormal Distributions, 1988, ch. 1.
    """
    _check(mean=mean, least=1.0)
    _check(cv=cv, least=0.0)
    label = f"lognormal(mean {mean:g}, cv {cv:g})"
    if cv == 0.0:
        return _constant(mean, minimum, maximum, at_cap)
    mu, sigma = lognormal_parameters(mean, cv)
    return discretise(mixture_cdf([(1.0, mu, sigma)]), label=label, minimum=minimum, maximum=maximum, at_cap=at_cap)


def normal_law(mean: float, sd: float, minimum: int = 1, maximum: int | None = None) -> Law:
    """Normal lengths, rounded and clipped: what lies outside ``[minimum, maximum]`` moves to the nearer end.

    Args:
        mean: of the normal before clipping, tokens.
        sd: standard deviation before clipping, tokens, at least 0.
        minimum: smallest count, at least 1.
        maximum: largest count, None for no limit.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> law = normal_law(8192, 4096, 256, 32768)
        >>> round(law.mean), round(float(law.weights[0]), 4)
        (8233, 0.0263)
    """
    _check(mean=mean, least=1.0)
    _check(sd=sd, least=0.0)
    if sd == 0.0:
        return _constant(mean, minimum, maximum, "atom")
    return discretise(
        lambda x: _phi((x - mean) / sd), label=f"normal({mean:g}, {sd:g})", minimum=minimum, maximum=maximum
    )


def gamma_law(mean: float, cv: float, *, minimum: int = 1, maximum: int | None = None, at_cap: AtCap = "atom") -> Law:
    """Gamma lengths; mean and coefficient of variation are those before rounding and before the cap.

    Args:
        mean: tokens, at least 1.
        cv: standard deviation over mean, at least 0; 1 is the exponential law, 0 a constant.
        minimum: smallest count.
        maximum: largest count, None for no limit.
        at_cap: ``atom`` or ``truncate``.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> round(gamma_law(1000, 1.0).quantile(0.5) / 1000, 2)
        0.69
    """
    from scipy.special import gammainc

    _check(mean=mean, least=1.0)
    _check(cv=cv, least=0.0)
    if cv == 0.0:
        return _constant(mean, minimum, maximum, at_cap)
    shape = 1.0 / cv**2
    return discretise(
        lambda x: np.asarray(gammainc(shape, x * shape / mean)),
        label=f"gamma(mean {mean:g}, cv {cv:g})",
        minimum=minimum,
        maximum=maximum,
        at_cap=at_cap,
    )


def mixture_law(
    components: Sequence[Mapping[str, float]],
    *,
    minimum: int = 1,
    maximum: int | None = None,
    at_cap: AtCap = "atom",
) -> Law:
    """A mixture of lognormals, the best standard description of the outputs of reasoning models.

    Args:
        components: each ``{weight, mu, sigma}`` (of log tokens) or ``{weight, mean, cv}``; weights sum to 1.
        minimum: smallest count.
        maximum: largest count, None for no limit.
        at_cap: ``atom`` or ``truncate``.

    Raises:
        ValueError: if a component is incomplete, or weights are not positive or do not sum to 1 (within 0.002).

    Example:
        >>> law = mixture_law([{"weight": 0.584, "mu": 7.567, "sigma": 0.828},
        ...                    {"weight": 0.416, "mu": 9.195, "sigma": 0.484}], maximum=32768)
        >>> round(law.survival(5000), 2)
        0.46
    """
    if not components:
        raise ValueError("mixture: needs at least one component")
    parts: list[tuple[float, float, float]] = []
    for index, item in enumerate(components):
        name = f"mixture[{index}]"
        weight = float(item.get("weight", 1.0 if len(components) == 1 else math.nan))
        if not weight > 0.0:
            raise ValueError(f"{name}.weight: must be greater than 0 (got {item.get('weight')})")
        if {"mu", "sigma"} <= item.keys():
            mu, sigma = float(item["mu"]), float(item["sigma"])
            if not (math.isfinite(mu) and sigma >= 0.0):
                raise ValueError(f"{name}: mu must be finite and sigma at least 0 (got {mu:g}, {sigma:g})")
        elif {"mean", "cv"} <= item.keys():
            _check(mean=float(item["mean"]), least=1.0)
            _check(cv=float(item["cv"]), least=0.0)
            mu, sigma = lognormal_parameters(float(item["mean"]), float(item["cv"]))
        else:
            raise ValueError(f"{name}: needs mu and sigma, or mean and cv (got {', '.join(item) or 'nothing'})")
        parts.append((weight, mu, sigma))
    total = sum(weight for weight, _, _ in parts)
    if abs(total - 1.0) > _WEIGHT_TOLERANCE:
        raise ValueError(f"mixture: weights must sum to 1 (got {total:g})")
    text = " + ".join(f"{weight:g} LN({mu:g}, {sigma:g})" for weight, mu, sigma in parts)
    return discretise(
        mixture_cdf([(weight / total, mu, sigma) for weight, mu, sigma in parts]),
        label=f"mixture({text})",
        minimum=minimum,
        maximum=maximum,
        at_cap=at_cap,
    )


def quantile_law(
    quantiles: Mapping[float, float], *, minimum: int = 1, maximum: int | None = None, at_cap: AtCap = "atom"
) -> Law:
    """The law through given quantiles: lognormal between neighbours, and beyond the outermost ones.

    Log tokens are a piecewise linear function of the normal score of the level. Two quantiles therefore give a
    lognormal; beyond the first and the last one the slope of the nearest piece goes on.

    Args:
        quantiles: tokens by level in (0, 1), at least two, rising with the level.
        minimum: smallest count.
        maximum: largest count, None for no limit.
        at_cap: ``atom`` or ``truncate``.

    Raises:
        ValueError: if there are fewer than two levels, or they or their values do not rise.

    Example:
        >>> law = quantile_law({0.5: 400, 0.9: 1200, 0.99: 6000})
        >>> [round(law.quantile(p) / x, 2) for p, x in [(0.5, 400), (0.9, 1200), (0.99, 6000)]]
        [1.0, 1.0, 1.0]
    """
    from scipy.special import ndtri

    levels = np.array(sorted(quantiles))
    tokens = np.array([float(quantiles[level]) for level in levels])
    if levels.size < 2:
        raise ValueError(f"quantiles: needs at least two levels (got {levels.size})")
    if levels[0] <= 0.0 or levels[-1] >= 1.0:
        raise ValueError(f"quantiles: levels must lie between 0 and 1 (got {levels[0]:g} to {levels[-1]:g})")
    if tokens[0] < 1.0 or not np.all(np.isfinite(tokens)) or np.any(np.diff(tokens) <= 0.0):
        raise ValueError(f"quantiles: tokens must be at least 1 and rise with the level (got {tokens.tolist()})")
    score, log_tokens = np.asarray(ndtri(levels)), np.log(tokens)
    slope = np.diff(score) / np.diff(log_tokens)

    def cdf(x: FloatArray) -> FloatArray:
        at = np.log(x)
        inside = np.interp(at, log_tokens, score)
        left = slope[0] * np.minimum(at - log_tokens[0], 0.0)
        right = slope[-1] * np.maximum(at - log_tokens[-1], 0.0)
        return _phi(inside + left + right)

    text = ", ".join(f"p{100 * level:g} {value:g}" for level, value in zip(levels, tokens, strict=True))
    return discretise(cdf, label=f"quantiles({text})", minimum=minimum, maximum=maximum, at_cap=at_cap)


def lognormal_parameters(mean: float, cv: float) -> tuple[float, float]:
    """Mean and standard deviation of log tokens of a lognormal law.

    Example:
        >>> mu, sigma = lognormal_parameters(math.exp(0.5), math.sqrt(math.e - 1.0))
        >>> round(mu, 12) + 0.0, round(sigma, 12)
        (0.0, 1.0)
    """
    variance = math.log1p(cv**2)
    return math.log(mean) - variance / 2.0, math.sqrt(variance)


def mixture_cdf(parts: Sequence[tuple[float, float, float]]) -> Cdf:
    """Distribution function of a mixture of lognormals given as (weight, mu, sigma)."""

    def cdf(x: FloatArray) -> FloatArray:
        at = np.log(x)
        total = np.zeros_like(at)
        for weight, mu, sigma in parts:
            total += weight * (_phi((at - mu) / sigma) if sigma > 0.0 else (at >= mu))
        return total

    return cdf


def _constant(tokens: float, minimum: int, maximum: int | None, at_cap: AtCap) -> Law:
    """A count that is always the same; a fraction becomes the mix of the two neighbours with that mean."""
    if maximum is not None and tokens > maximum:
        if at_cap == "truncate":
            raise ValueError(f"max: nothing is left of a constant length of {tokens:g} below {maximum}")
        law = Law.constant(float(maximum))
        return Law(
            values=law.values, weights=law.weights, moments=law.moments, label=f"constant({tokens:g})", capped_share=1.0
        )
    tokens = max(tokens, float(minimum))
    low = math.floor(tokens)
    if low == tokens:
        return Law.constant(tokens)
    values, mass = np.array([low, low + 1.0]), np.array([low + 1.0 - tokens, tokens - low])
    return compress(values, mass, label=f"constant({tokens:g})")


def _phi(score: FloatArray) -> FloatArray:
    from scipy.special import ndtr

    return np.asarray(ndtr(score), dtype=np.float64)


def _check(*, least: float, **named: float) -> None:
    for name, value in named.items():
        if not (math.isfinite(value) and value >= least):
            raise ValueError(f"{name}: must be at least {least:g} (got {value:g})")
