"""What a pool's requests ask of one replica: the moments that the replica models use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from qmodel.types import FloatArray, Law, Lengths, Replica, RequestClass, Stream, mix_lengths

__all__ = ["ClassWork", "MemoryUse", "Work", "bands", "law_bands", "memory_use", "pooled_work"]

_BANDS = 32  # output bands per class; more than 24 moves no percentile by a tenth of a per cent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassWork:
    """One class inside a pool.

    Attributes:
        name: of the class.
        share: of the pool's requests.
        lengths: joint length law.
        chunks: E[ceil(P / budget)], prefill steps of one request.
        output_bands: weights, means and variances of N in bands, shape (3, k).
        reasoning_bands: the same for thinking tokens, None where there are none.
        priority: larger is admitted first.
    """

    name: str
    share: float
    lengths: Lengths
    chunks: float
    output_bands: FloatArray
    reasoning_bands: FloatArray | None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """Requests of all classes of a pool, per request.

    Attributes:
        rate_rps: nominal arrivals of the whole pool.
        classes: the classes with their shares.
        lengths: pooled length law.
        chunks: mean prefill steps.
        steps: mean engine steps of one request, E[N] - 1 + chunks.
        context: KV tokens read per resident sequence and step.
        held: pool tokens held per resident sequence, averaged over its steps.
        held_variance: variance of the same.
    """

    rate_rps: float
    classes: tuple[ClassWork, ...]
    lengths: Lengths
    chunks: float
    steps: float
    context: float
    held: float
    held_variance: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryUse:
    """What requests hold of a replica's memory, beyond the mean and the variance.

    Attributes:
        skew: skewness of the pool tokens held per resident sequence.
        longest: pool tokens that one request in a hundred exceeds when it ends, of the class that needs most.
        time: first three moments of a request's tokens held times steps held, tokens^k.
    """

    skew: float
    longest: float
    time: tuple[float, float, float]


def pooled_work(replica: Replica, classes: Sequence[Stream | RequestClass]) -> Work:
    """Pool the classes and take the moments that ``replica`` makes of them.

    Args:
        replica: gives the step budget and how context turns into pool tokens.
        classes: streams with their rates, at least one of them positive.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.types import Law, StepLaw
        >>> lengths = Lengths.independent(Law.constant(5000), Law.constant(11))
        >>> work = pooled_work(Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4)),
        ...                    [Stream(name="a", rate_rps=1.0, lengths=lengths)])
        >>> work.steps, work.context
        (11.0, 5005.5)
    """
    parts = tuple((item.name, float(item.rate_rps), item.lengths, item.priority) for item in classes)
    return _pooled_work(replica, parts)


@lru_cache(maxsize=256)
def _pooled_work(replica: Replica, parts: tuple[tuple[str, float, Lengths, int], ...]) -> Work:
    """A search asks for the same replica and mix at many loads; records compare by identity, so a hit is exact."""
    classes = [
        Stream(name=name, rate_rps=rate_rps, lengths=lengths, priority=priority)
        for name, rate_rps, lengths, priority in parts
    ]
    if not classes:
        raise ValueError("classes must have at least one stream")
    rates = np.array([item.rate_rps for item in classes], dtype=float)
    if not np.all(np.isfinite(rates) & (rates >= 0.0)) or rates.sum() <= 0.0:
        raise ValueError(f"rate_rps must be finite, not negative and positive in sum (got {rates.tolist()})")
    names = [item.name for item in classes]
    if len(set(names)) < len(names):
        raise ValueError(f"class names must differ (got {names})")
    shares = rates / rates.sum()
    members = tuple(_class_work(replica, item, float(share)) for item, share in zip(classes, shares, strict=True))
    lengths = mix_lengths([item.lengths for item in classes], shares.tolist())
    chunks = float(sum(item.share * item.chunks for item in members))
    held, variance = _held(replica, lengths)
    return Work(
        rate_rps=float(rates.sum()),
        classes=members,
        lengths=lengths,
        chunks=chunks,
        steps=lengths.output.mean - 1.0 + chunks,
        context=lengths.mean_context,
        held=held,
        held_variance=variance,
    )


@lru_cache(maxsize=512)
def memory_use(replica: Replica, work: Work) -> MemoryUse:
    """What requests hold of a memory that is limited; others need not know."""
    shares = np.array([item.share for item in work.classes])
    grown = [_grown(replica, item.lengths) for item in work.classes]
    mixed = shares @ np.stack([item.sums for item in grown])
    return MemoryUse(
        skew=_held_skew(*mixed[:4].tolist()),
        longest=max(item.longest for item, share in zip(grown, shares.tolist(), strict=True) if share > 0),
        time=(float(mixed[4]), float(mixed[5]), float(mixed[6])),
    )


def bands(values: FloatArray, weights: FloatArray, count: int = _BANDS) -> FloatArray:
    """Atoms gathered into bands that share probability, size and squared size evenly.

    Returns:
        Weights, means and variances within the bands, shape (3, k), k <= ``count``.

    Example:
        >>> bands(np.array([1.0, 2.0]), np.array([0.5, 0.5]), 1).tolist()
        [[1.0], [1.5], [0.25]]
    """
    powers = values ** np.arange(3.0)[:, None]
    reached = (np.cumsum(weights * powers, axis=1) / np.maximum(powers @ weights, 1e-300)[:, None]).mean(axis=0)
    rank = (reached + np.concatenate([[0.0], reached[:-1]])) / 2.0
    band = np.minimum((rank * count).astype(int), count - 1)
    starts = np.flatnonzero(np.diff(band, prepend=-1))
    mass = np.add.reduceat(weights, starts)
    mean = np.add.reduceat(weights * values, starts) / mass
    second = np.add.reduceat(weights * (values - np.repeat(mean, np.diff([*starts, values.size]))) ** 2, starts) / mass
    return np.stack([mass, mean, second])


@lru_cache(maxsize=1024)
def law_bands(law: Law, count: int = _BANDS) -> FloatArray:
    """The bands of a law, not to be written to; every replica that serves a class asks for the same."""
    found = bands(law.values, law.weights, count)
    found.setflags(write=False)
    return found


def _class_work(replica: Replica, item: Stream, share: float) -> ClassWork:
    prompt, output, reasoning = item.lengths.prompt, item.lengths.output, item.lengths.reasoning
    chunks = float(prompt.weights @ np.ceil(np.maximum(prompt.values, 1.0) / replica.max_batched_tokens))
    return ClassWork(
        name=item.name,
        share=share,
        lengths=item.lengths,
        chunks=chunks,
        output_bands=law_bands(output),
        reasoning_bands=None if reasoning is None else law_bands(reasoning),
        priority=item.priority,
    )


def _held(replica: Replica, lengths: Lengths) -> tuple[float, float]:
    """Mean and variance of the pool tokens of a resident sequence at one of its steps."""
    p1 = lengths.e_pn
    n1, n2, n3 = lengths.output.moments
    if replica.admission == "no_evict":
        first = (p1 + n2) / n1
        second = (lengths.e_p2n + 2.0 * lengths.e_pn2 + n3) / n1
    else:
        first = (p1 + n2 / 2.0) / n1
        second = (lengths.e_p2n + lengths.e_pn2 + n3 / 3.0) / n1
    variance = max(second - first**2, 0.0)
    return replica.kv_slope * first + replica.kv_fixed_tokens, replica.kv_slope**2 * variance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Grown:
    """What the lengths of one class make of a replica's memory; a mix weighs the sums by the classes' shares.

    Attributes:
        sums: E[N], three raw moments of the tokens of a resident sequence times E[N], and three moments of a request's
            tokens held times steps held, shape (7,).
        longest: pool tokens that one request in a hundred exceeds when it ends.
    """

    sums: FloatArray
    longest: float


@lru_cache(maxsize=1024)
def _grown(replica: Replica, lengths: Lengths) -> _Grown:
    """From bands of prompt and output, which are independent within a class."""
    prompts, outputs = law_bands(lengths.prompt, 24), law_bands(lengths.output, 64)
    weight = np.multiply.outer(prompts[0], outputs[0]).ravel()
    prompt, output = np.repeat(prompts[1], outputs.shape[1]), np.tile(outputs[1], prompts.shape[1])
    total = prompt + output
    if replica.admission == "no_evict":
        raw = [output * total**power for power in (1.0, 2.0, 3.0)]
    else:
        raw = [(total**power - prompt**power) / power for power in (2.0, 3.0, 4.0)]
    grown = prompt + output * (1.0 if replica.admission == "no_evict" else 0.5)
    area = (replica.kv_slope * grown + replica.kv_fixed_tokens) * output
    return _Grown(
        sums=np.stack([output, *raw, area, area**2, area**3]) @ weight, longest=_longest(replica, weight, total)
    )


def _held_skew(steps: float, first: float, second: float, third: float) -> float:
    """Skewness of the tokens of a resident sequence at one of its steps, from raw moments times ``steps``; the same in
    tokens of context and of pool."""
    first, second, third = first / steps, second / steps, third / steps
    variance = second - first**2
    if variance <= 1e-9 * first**2:
        return 0.0
    return float((third - 3.0 * first * second + 2.0 * first**3) / variance**1.5)


def _longest(replica: Replica, weight: FloatArray, total: FloatArray) -> float:
    """Pool tokens at the end of a request that one in a hundred exceeds."""
    order = np.argsort(total)
    index = int(np.searchsorted(np.cumsum(weight[order]), 0.99 * weight.sum()))
    return replica.kv_slope * float(total[order][min(index, total.size - 1)]) + replica.kv_fixed_tokens
