"""Requests as columns: drawn from streams, or taken from arrays such as those of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from qmodel.types import FloatArray, IntArray, Law, RequestClass, Stream

__all__ = ["RequestTable", "draw_requests", "table_from_arrays"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestTable:
    """n requests in order of arrival.

    Attributes:
        classes: class names; ``cls`` points into them.
        arrival_s: ascending, s, shape (n,).
        cls: class of each request, shape (n,).
        prompt: prompt tokens, at least 1, shape (n,).
        output: generated tokens, thinking included, at least 1, shape (n,).
        reasoning: those of them that come before the answer, less than ``output``, shape (n,).
        priority: larger is more important, shape (n,).
        cached_prefix: prompt tokens found in a prefix cache, less than ``prompt``, shape (n,).
        generated: tokens that another pool has generated already, and whose context comes along so that nothing is
            prefilled here, less than ``output``; 0: a request as usual, shape (n,).
    """

    classes: tuple[str, ...]
    arrival_s: FloatArray
    cls: IntArray
    prompt: IntArray
    output: IntArray
    reasoning: IntArray
    priority: IntArray
    cached_prefix: IntArray
    generated: IntArray

    def __len__(self) -> int:
        return int(self.arrival_s.size)

    def select(self, rows: npt.NDArray[np.bool_] | IntArray) -> RequestTable:
        """The requests at ``rows``, an index or a mask of shape (n,)."""
        columns = {item.name: getattr(self, item.name)[rows] for item in fields(self) if item.name != "classes"}
        return RequestTable(classes=self.classes, **columns)


def table_from_arrays(
    arrival_s: npt.ArrayLike,
    *,
    prompt: npt.ArrayLike,
    output: npt.ArrayLike,
    reasoning: npt.ArrayLike = 0,
    priority: npt.ArrayLike = 0,
    cached_prefix: npt.ArrayLike = 0,
    generated: npt.ArrayLike = 0,
    cls: npt.ArrayLike = 0,
    classes: Sequence[str] = ("all",),
) -> RequestTable:
    """A table from columns; single numbers stand for whole columns, rows are put in order of arrival.

    Args:
        arrival_s: times of arrival, s, shape (n,).
        prompt: tokens, at least 1, shape (n,) or a number, as all the others.
        output: tokens, at least 1.
        reasoning: thinking tokens, in [0, output).
        priority: larger is more important.
        cached_prefix: prompt tokens in a prefix cache, in [0, prompt).
        generated: tokens generated elsewhere, in [0, output).
        cls: index into ``classes``.
        classes: class names.

    Raises:
        ValueError: naming the column and the first row that is out of range.

    Example:
        >>> table = table_from_arrays([3.0, 1.0], prompt=100, output=[5, 6])
        >>> table.arrival_s.tolist(), table.output.tolist()
        ([1.0, 3.0], [6, 5])
    """
    times = np.atleast_1d(np.asarray(arrival_s, dtype=np.float64))
    given = {
        "cls": cls,
        "prompt": prompt,
        "output": output,
        "reasoning": reasoning,
        "priority": priority,
        "cached_prefix": cached_prefix,
        "generated": generated,
    }
    columns = {name: _integers(name, values, times.size) for name, values in given.items()}
    if not np.isfinite(times).all():
        raise ValueError(f"arrival_s must be finite (row {int(np.argmin(np.isfinite(times)))})")
    infinite = np.full(times.size, np.iinfo(np.int64).max)
    for name, least, below in (
        ("cls", 0, np.full(times.size, len(classes))),
        ("prompt", 1, infinite),
        ("output", 1, infinite),
        ("reasoning", 0, columns["output"]),
        ("cached_prefix", 0, columns["prompt"]),
        ("generated", 0, columns["output"]),
    ):
        wrong = (columns[name] < least) | (columns[name] >= below)
        if wrong.any():
            row = int(np.argmax(wrong))
            limit = f" and below {int(below[row])}" if below is not infinite else ""
            raise ValueError(f"{name} must be at least {least}{limit} (row {row}: {int(columns[name][row])})")
    order = np.argsort(times, kind="stable")
    return RequestTable(
        classes=tuple(classes), arrival_s=times[order], **{name: values[order] for name, values in columns.items()}
    )


def draw_requests(
    streams: Sequence[Stream | RequestClass],
    *,
    rng: np.random.Generator,
    count: int | None = None,
    horizon_s: float | None = None,
) -> RequestTable:
    """Poisson arrivals of several streams.

    Prompt and output are drawn independently from the atoms of their laws; a fractional atom is rounded up or down at
    random, so that the mean stays. Reasoning is drawn with the same uniform as the output, which keeps both laws, and
    cut below the output.

    Args:
        streams: classes with their rates, requests/s; the priority of request classes is kept.
        rng: source of all draws.
        count: requests of all streams together; or
        horizon_s: arrivals before this time, s.

    Raises:
        ValueError: if not exactly one of count and horizon_s is given, or nothing arrives.

    Example:
        >>> from qmodel.types import Law, Lengths
        >>> chat = Stream(name="chat", rate_rps=2.0, lengths=Lengths.independent(Law.constant(9), Law.constant(4.5)))
        >>> table = draw_requests([chat], rng=np.random.default_rng(1), count=1000)
        >>> len(table), sorted(set(table.output.tolist()))
        (1000, [4, 5])
    """
    rates = np.array([stream.rate_rps for stream in streams], dtype=float)
    if not rates.size or not np.isfinite(rates).all() or (rates < 0).any() or rates.sum() <= 0:
        raise ValueError(f"streams must have finite rates of at least 0 with a positive sum (got {rates.tolist()})")
    if (count is None) == (horizon_s is None):
        raise ValueError("give either count or horizon_s")
    if horizon_s is not None:
        if not 0.0 < horizon_s < np.inf:
            raise ValueError(f"horizon_s must be greater than 0 and finite (got {horizon_s})")
        number = int(rng.poisson(rates.sum() * horizon_s))
        times = np.sort(rng.random(number)) * horizon_s
    else:
        assert count is not None
        if count < 1:
            raise ValueError(f"count must be at least 1 (got {count})")
        number = count
        times = np.cumsum(rng.exponential(1.0 / rates.sum(), number))
    which = rng.choice(rates.size, size=number, p=rates / rates.sum()).astype(np.int64)
    prompt, output = np.ones(number, dtype=np.int64), np.ones(number, dtype=np.int64)
    reasoning = np.zeros(number, dtype=np.int64)
    for index, stream in enumerate(streams):
        mine = which == index
        uniform = rng.random(int(mine.sum()))
        prompt[mine] = _draw(stream.lengths.prompt, rng.random(uniform.size), rng, least=1)
        output[mine] = _draw(stream.lengths.output, uniform, rng, least=1)
        if stream.lengths.reasoning is not None:
            reasoning[mine] = np.minimum(_draw(stream.lengths.reasoning, uniform, rng, least=0), output[mine] - 1)
    priorities = np.array([getattr(stream, "priority", 0) for stream in streams], dtype=np.int64)
    return RequestTable(
        classes=tuple(stream.name for stream in streams),
        arrival_s=times,
        cls=which,
        prompt=prompt,
        output=output,
        reasoning=reasoning,
        priority=priorities[which],
        cached_prefix=np.zeros(number, dtype=np.int64),
        generated=np.zeros(number, dtype=np.int64),
    )


def _integers(name: str, values: npt.ArrayLike, rows: int) -> IntArray:
    given = np.asarray(values)
    if given.size not in (1, rows) or given.ndim > 1:
        raise ValueError(f"{name} must be a number or have one value per arrival, {rows} (got shape {given.shape})")
    whole = given.astype(np.int64)
    if (whole != given).any():
        raise ValueError(f"{name} must be whole numbers (got {given.ravel()[int(np.argmax(whole != given))]})")
    return np.broadcast_to(whole, (rows,)).copy()


def _draw(law: Law, uniform: FloatArray, rng: np.random.Generator, *, least: int) -> IntArray:
    index = np.searchsorted(np.cumsum(law.weights), uniform * law.weights.sum())
    value = law.values[np.minimum(index, law.values.size - 1)]
    return np.asarray(np.maximum(np.floor(value + rng.random(value.size)), least), dtype=np.int64)
