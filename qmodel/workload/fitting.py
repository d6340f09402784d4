"""Standard laws fitted to recorded lengths, with what the fit loses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.trace import Trace
from qmodel.types import FloatArray, Law
from qmodel.workload.families import mixture_cdf
from qmodel.workload.specs import length_law

__all__ = ["FittedLaw", "LengthFit", "TraceFit", "fit", "fit_law", "fit_lengths"]

_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
_WRITTEN = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999])  # a gamma law as a scenario file writes it
_EM_STEPS = 300
_LEAST_SIGMA = 0.02  # of log tokens; below, a component is a spike on one count


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLaw:
    """One family fitted to a sample.

    Attributes:
        family: ``lognormal``, ``gamma`` or ``mixture`` (of two lognormals).
        ks: largest distance between the two distribution functions at whole token counts. With thousands of
            requests every family fails a test at any level; read it as a distance.
        mean_ratio: mean of the family as fitted, over the mean of the sample.
        spec: as a scenario file writes it, capped at the largest count seen and moved so that the mean is kept; a
            gamma law is written by its quantiles.
        spec_ks: distance after that.
    """

    family: str
    ks: float
    mean_ratio: float
    spec: dict[str, object]
    spec_ks: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFit:
    """A sample of lengths in numbers.

    Attributes:
        count: requests.
        mean: tokens.
        scv: squared coefficient of variation.
        quantiles: tokens by ``p10`` ... ``p99.9``.
        largest: tokens.
        share_at_largest: share of requests with exactly the largest count; more than a few says that a cap cut them.
        families: the fitted families, best ``ks`` first.
    """

    count: int
    mean: float
    scv: float
    quantiles: dict[str, float]
    largest: float
    share_at_largest: float
    families: tuple[FittedLaw, ...]

    @property
    def best(self) -> FittedLaw:
        """The family with the smallest distance."""
        return self.families[0]

    @property
    def written(self) -> FittedLaw:
        """The family with the smallest distance as a scenario file writes it, with its cap and the mean kept."""
        return min(self.families, key=lambda law: law.spec_ks)

    @property
    def spec(self) -> dict[str, object]:
        """The best family as a scenario file writes it."""
        return self.best.spec


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFit:
    """A trace in numbers.

    Attributes:
        source: the file.
        requests: rows used.
        rate_rps: requests per second over the whole trace, None without arrival times.
        prompt, output: lengths; ``reasoning`` and ``answer`` where the trace tells them apart.
        prompt_output_correlation: Pearson correlation of prompt and output tokens.
    """

    source: str
    requests: int
    rate_rps: float | None
    prompt: LengthFit
    output: LengthFit
    reasoning: LengthFit | None
    answer: LengthFit | None = None
    prompt_output_correlation: float


def fit(trace: Trace) -> TraceFit:
    """Describe a trace by moments, quantiles and standard laws.

    A class fed by the trace itself needs no fit and keeps its joint lengths; a fit is for writing a workload down.

    Example:
        >>> trace = Trace(arrival_s=np.arange(4.0), prompt_tokens=np.array([9, 10, 12, 30]),
        ...               output_tokens=np.array([5, 7, 8, 20]), source="four requests")
        >>> fit(trace).prompt.mean
        15.25
    """
    correlation = 0.0
    if np.ptp(trace.prompt_tokens) > 0 and np.ptp(trace.output_tokens) > 0:
        correlation = float(np.corrcoef(trace.prompt_tokens, trace.output_tokens)[0, 1])
    reasoning = trace.reasoning_tokens
    return TraceFit(
        source=trace.source,
        requests=int(trace.prompt_tokens.size),
        rate_rps=trace.rate_rps,
        prompt=fit_lengths(trace.prompt_tokens),
        output=fit_lengths(trace.output_tokens),
        reasoning=None if reasoning is None else fit_lengths(np.maximum(reasoning, 1)),
        answer=None if reasoning is None else fit_lengths(np.maximum(trace.output_tokens - reasoning, 1)),
        prompt_output_correlation=correlation,
    )


def fit_lengths(tokens: npt.ArrayLike) -> LengthFit:
    """Fit a lognormal, a gamma law and a mixture of two lognormals to token counts.

    Lognormal and gamma by maximum likelihood, the mixture by expectation-maximisation on log tokens.

    Args:
        tokens: counts, at least 1, shape (n,).

    Raises:
        ValueError: if there are none, or one is below 1.

    Example:
        >>> sample = np.round(np.exp(np.random.default_rng(1).normal(6.0, 0.8, 5000)))
        >>> fit_lengths(sample).best.ks < 0.02
        True

    Reference: McLachlan and Peel, Finite Mixture Models, 2000, ch. 3.
    """
    sample = np.asarray(tokens, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0 or not np.all(np.isfinite(sample)) or sample.min() < 1.0:
        raise ValueError("tokens: needs at least one count, each at least 1")
    values, counts = np.unique(sample, return_counts=True)
    return _fit_atoms(values, counts / sample.size, count=int(sample.size))


def fit_law(law: Law, *, count: int = 0) -> LengthFit:
    """Fit the same families to a law that is given by its atoms, such as one from a histogram.

    Args:
        law: its atoms at least 1; distances are to the atoms, so they do not see what the histogram hid.
        count: requests behind it, 0 where that is not known.

    Raises:
        ValueError: if an atom is below 1.

    Example:
        >>> from qmodel.workload.families import lognormal_law
        >>> fit_law(lognormal_law(300, 0.9)).best.ks < 0.02
        True
    """
    if law.values[0] < 1.0:
        raise ValueError(f"law: needs atoms of at least 1 token (got {law.values[0]:g})")
    return _fit_atoms(law.values, law.weights, count=count)


def _fit_atoms(values: FloatArray, share: FloatArray, *, count: int) -> LengthFit:
    families = [_constant_fit(values[0])] if values.size == 1 else _fitted(values, share)
    mean = float(share @ values)
    at = np.searchsorted(np.cumsum(share), np.array(_LEVELS) * (1.0 - 1e-12))
    levels = values[np.minimum(at, values.size - 1)]
    return LengthFit(
        count=count,
        mean=mean,
        scv=float(share @ (values - mean) ** 2) / mean**2,
        quantiles={f"p{100 * p:g}": float(x) for p, x in zip(_LEVELS, levels, strict=True)},
        largest=float(values[-1]),
        share_at_largest=float(share[-1]),
        families=tuple(sorted(families, key=lambda law: law.ks)),
    )


def _constant_fit(tokens: float) -> FittedLaw:
    return FittedLaw(family="lognormal", ks=0.0, mean_ratio=1.0, spec={"constant": int(tokens)}, spec_ks=0.0)


def _fitted(values: FloatArray, share: FloatArray) -> list[FittedLaw]:
    from scipy.optimize import brentq
    from scipy.special import digamma, gammainc, gammaincinv

    log_values = np.log(values)
    mu = float(share @ log_values)
    sigma = max(math.sqrt(float(share @ (log_values - mu) ** 2)), _LEAST_SIGMA)
    mean = float(share @ values)
    gap = math.log(mean) - mu  # log of arithmetic over geometric mean, positive: gamma's likelihood equation
    shape = float(brentq(lambda a: math.log(a) - float(digamma(a)) - gap, 1e-3, 1e9)) if gap > 1e-9 else 1e9
    fitted_mean = math.exp(mu + sigma**2 / 2)
    parts = _two_lognormals(log_values, share)
    gamma_quantiles = np.asarray(gammaincinv(shape, _WRITTEN)) * mean / shape
    top = float(values[-1])
    return [
        _judge(
            "lognormal",
            values,
            share,
            mixture_cdf([(1.0, mu, sigma)]),
            fitted_mean,
            lambda factor: {"mean": fitted_mean * factor, "cv": math.sqrt(math.expm1(sigma**2)), "max": int(top)},
        ),
        _judge(
            "gamma",
            values,
            share,
            lambda x: np.asarray(gammainc(shape, x * shape / mean)),
            mean,
            lambda factor: {"quantiles": _rising(gamma_quantiles * factor), "max": int(top)},
        ),
        _judge(
            "mixture",
            values,
            share,
            mixture_cdf(parts),
            sum(weight * math.exp(m + s**2 / 2) for weight, m, s in parts),
            lambda factor: {
                "mixture": [{"weight": weight, "mu": m + math.log(factor), "sigma": s} for weight, m, s in parts],
                "max": int(top),
            },
        ),
    ]


def _rising(tokens: FloatArray) -> dict[str, float]:
    """Quantiles at the written levels, of at least one token each and rising."""
    rising = np.maximum(tokens, 1.0 + 1e-6 * np.arange(tokens.size))
    return {f"p{100 * level:g}": float(value) for level, value in zip(_WRITTEN, rising, strict=True)}


def _judge(
    family: str,
    values: FloatArray,
    share: FloatArray,
    cdf: Callable[[FloatArray], FloatArray],
    fitted_mean: float,
    spec_of: Callable[[float], dict[str, object]],
) -> FittedLaw:
    """Distance of a fit, and its spec with the scale at which the capped law has the sample's mean."""
    mean = float(share @ values)
    factor = 1.0
    for _ in range(20):
        law = length_law(spec_of(factor))
        if abs(law.mean / mean - 1.0) < 1e-4:
            break
        factor *= min(max(mean / law.mean, 0.5), 2.0)
    below = np.cumsum(law.weights)
    at = np.searchsorted(law.values, values + 0.25, side="right")
    spec_cdf = np.concatenate([[0.0], below])[at]
    return FittedLaw(
        family=family,
        ks=_distance(share, cdf(values + 0.5), cdf(np.maximum(values - 0.5, 1e-9))),
        mean_ratio=fitted_mean / mean,
        spec=spec_of(factor),
        spec_ks=float(np.max(np.abs(spec_cdf - np.cumsum(share)))),
    )


def _distance(share: FloatArray, at: FloatArray, before: FloatArray) -> float:
    """Kolmogorov distance on counts; a step of the sample is compared on both sides, and a cap counts as reached."""
    empirical = np.cumsum(share)
    at = np.concatenate([at[:-1], [1.0]])
    return float(max(np.max(np.abs(empirical - at)), np.max(np.abs(empirical - share - before))))


def _two_lognormals(log_values: FloatArray, share: FloatArray) -> list[tuple[float, float, float]]:
    """(weight, mu, sigma) of two normals in log tokens by expectation-maximisation, the best of a few starts."""
    best, best_likelihood = [(1.0, float(share @ log_values), 1.0)], -math.inf
    cumulative = np.cumsum(share)
    for split in (0.2, 0.5, 0.8):
        low = cumulative <= split
        if not low.any() or low.all():
            low = np.arange(share.size) < share.size // 2
        weight, mu, sigma = _moments(log_values, share, np.where(low, 0.9, 0.1))
        likelihood = -math.inf
        for _ in range(_EM_STEPS):
            density = weight / sigma * np.exp(-0.5 * ((log_values[:, None] - mu) / sigma) ** 2)
            total = density.sum(axis=1) + 1e-300
            last, likelihood = likelihood, float(share @ np.log(total))
            if likelihood - last < 1e-9:
                break
            weight, mu, sigma = _moments(log_values, share, density[:, 0] / total)
        if likelihood > best_likelihood:
            best_likelihood = likelihood
            order = np.argsort(mu)
            best = [(float(weight[i]), float(mu[i]), float(sigma[i])) for i in order]
    return best


def _moments(log_values: FloatArray, share: FloatArray, first: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights, means and standard deviations of two components, given the probability of the first for each value."""
    member = np.stack([first, 1.0 - first], axis=1) * share[:, None]
    weight = np.maximum(member.sum(axis=0), 1e-12)
    mu = member.T @ log_values / weight
    variance = (member * (log_values[:, None] - mu) ** 2).sum(axis=0) / weight
    return weight, mu, np.maximum(np.sqrt(variance), _LEAST_SIGMA)
