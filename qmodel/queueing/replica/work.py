"""What a pool's requests ask of one replica: the moments that the replica models use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from qmodel.types import FloatArray, Lengths, Replica, RequestClass, Stream, mix_lengths

__all__ = ["ClassWork", "Work", "bands", "pooled_work"]

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
        held_skew: its skewness.
        longest: pool tokens that one request in a hundred exceeds when it ends, of the class that needs most.
        memory_time: first three moments of a request's tokens held times steps held, tokens^k.
    """

    rate_rps: float
    classes: tuple[ClassWork, ...]
    lengths: Lengths
    chunks: float
    steps: float
    context: float
    held: float
    held_variance: float
    held_skew: float
    longest: float
    memory_time: tuple[float, float, float]


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
    weight, prompt, output = _joint_atoms(members)
    grown = prompt + output * (1.0 if replica.admission == "no_evict" else 0.5)
    area = (replica.kv_slope * grown + replica.kv_fixed_tokens) * output
    return Work(
        rate_rps=float(rates.sum()),
        classes=members,
        lengths=lengths,
        chunks=chunks,
        steps=lengths.output.mean - 1.0 + chunks,
        context=lengths.mean_context,
        held=held,
        held_variance=variance,
        held_skew=_held_skew(replica, weight, prompt, output),
        longest=max(_longest(replica, *_joint_atoms([item])) for item in members if item.share > 0),
        memory_time=(float(weight @ area), float(weight @ area**2), float(weight @ area**3)),
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


def _class_work(replica: Replica, item: Stream, share: float) -> ClassWork:
    prompt, output, reasoning = item.lengths.prompt, item.lengths.output, item.lengths.reasoning
    chunks = float(prompt.weights @ np.ceil(np.maximum(prompt.values, 1.0) / replica.max_batched_tokens))
    return ClassWork(
        name=item.name,
        share=share,
        lengths=item.lengths,
        chunks=chunks,
        output_bands=bands(output.values, output.weights),
        reasoning_bands=None if reasoning is None else bands(reasoning.values, reasoning.weights),
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


def _held_skew(replica: Replica, weight: FloatArray, prompt: FloatArray, output: FloatArray) -> float:
    """Skewness of the tokens of a resident sequence at one of its steps; the same in tokens of context and of pool."""
    total = prompt + output
    if replica.admission == "no_evict":
        raw = [weight @ (output * total**power) for power in (1.0, 2.0, 3.0)]
    else:
        raw = [weight @ (total**power - prompt**power) / power for power in (2.0, 3.0, 4.0)]
    first, second, third = (float(item / (weight @ output)) for item in raw)
    variance = second - first**2
    if variance <= 1e-9 * first**2:
        return 0.0
    return float((third - 3.0 * first * second + 2.0 * first**3) / variance**1.5)


def _joint_atoms(members: Sequence[ClassWork]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights, prompts and outputs of a request of any class, prompt and output independent within a class."""
    weights, prompts, outputs = [], [], []
    for item in members:
        prompt = bands(item.lengths.prompt.values, item.lengths.prompt.weights, 24)
        output = bands(item.lengths.output.values, item.lengths.output.weights, 64)
        weights.append(item.share * np.multiply.outer(prompt[0], output[0]).ravel())
        prompts.append(np.repeat(prompt[1], output.shape[1]))
        outputs.append(np.tile(output[1], prompt.shape[1]))
    return np.concatenate(weights), np.concatenate(prompts), np.concatenate(outputs)


def _longest(replica: Replica, weight: FloatArray, prompt: FloatArray, output: FloatArray) -> float:
    """Pool tokens at the end of a request that one in a hundred exceeds."""
    total = prompt + output
    order = np.argsort(total)
    index = int(np.searchsorted(np.cumsum(weight[order]), 0.99 * weight.sum()))
    return replica.kv_slope * float(total[order][min(index, total.size - 1)]) + replica.kv_fixed_tokens
