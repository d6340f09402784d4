"""What a trace holds once it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from qmodel.types import FloatArray, IntArray

__all__ = ["Trace"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Recorded requests in order of arrival; all arrays have shape (n,).

    Attributes:
        arrival_s: seconds from the first request of the file, None where the file has lengths only.
        prompt_tokens: at least 1.
        output_tokens: generated tokens, thinking included, at least 1.
        reasoning_tokens: thinking tokens, at most ``output_tokens``; None where not recorded.
        cached_prefix_tokens: prompt tokens found in a prefix cache, at most ``prompt_tokens``; None where not recorded.
        ttft_s, completion_s: from arrival to first and last token as the source measured them, NaN where a row states
            none; None where not recorded.
        cls: class names; None where not recorded.
        source: the file.
        format: name of the format it was read as; empty for a trace that was not read from a file.
        rejected: rows left out, by reason.
        notes: what a reader of results should know about the file.
        unused: columns of the file that nothing was taken from.
        clock_step_s: step of a coarse clock, None where arrivals are not stamped in steps, or were spread over them.
        span_s: time from first to last arrival of the file, also after :meth:`only`.
    """

    arrival_s: FloatArray | None
    prompt_tokens: IntArray
    output_tokens: IntArray
    reasoning_tokens: IntArray | None = None
    cached_prefix_tokens: IntArray | None = None
    ttft_s: FloatArray | None = None
    completion_s: FloatArray | None = None
    cls: npt.NDArray[np.str_] | None = None
    source: str
    format: str = ""
    rejected: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    clock_step_s: float | None = None
    span_s: float | None = None

    def __len__(self) -> int:
        return int(self.prompt_tokens.size)

    @property
    def rate_rps(self) -> float | None:
        """Requests per second over the span of the file; None without arrival times or with a single instant."""
        span_s = self.span_s
        if span_s is None and self.arrival_s is not None and self.arrival_s.size:
            span_s = float(self.arrival_s[-1] - self.arrival_s[0])
        return len(self) / span_s if span_s else None

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, sorted; empty where none are recorded."""
        return () if self.cls is None else tuple(np.unique(self.cls).tolist())

    def only(self, cls: str) -> Trace:
        """The requests of one class; the span, and so the rate, is that of the whole file.

        Raises:
            ValueError: if the trace has no such class.

        Example:
            >>> trace = Trace(arrival_s=np.array([0.0, 1.0, 4.0]), prompt_tokens=np.array([1, 2, 3]), span_s=4.0,
            ...               output_tokens=np.array([5, 5, 5]), cls=np.array(["a", "b", "a"]), source="three")
            >>> len(trace.only("a")), trace.only("a").rate_rps
            (2, 0.5)
        """
        if self.cls is None or cls not in self.classes:
            names = ", ".join(self.classes[:10]) or "no classes"
            raise ValueError(f"class: {cls!r} is not in {self.source} (it has {names})")
        return self.where(self.cls == cls)

    def where(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Trace:
        """These requests; the span, and so the rate, is that of the whole file.

        Args:
            rows: a mask, or positions in the order wanted.

        Example:
            >>> trace = Trace(
            ...     arrival_s=None, prompt_tokens=np.array([1, 2]), output_tokens=np.array([5, 9]), source="x"
            ... )
            >>> trace.where(trace.output_tokens > 6).prompt_tokens.tolist()
            [2]
        """
        span_s = self.span_s
        if span_s is None and self.arrival_s is not None and self.arrival_s.size:
            span_s = float(self.arrival_s[-1] - self.arrival_s[0])
        return replace(
            self,
            arrival_s=None if self.arrival_s is None else self.arrival_s[rows],
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            reasoning_tokens=None if self.reasoning_tokens is None else self.reasoning_tokens[rows],
            cached_prefix_tokens=None if self.cached_prefix_tokens is None else self.cached_prefix_tokens[rows],
            ttft_s=None if self.ttft_s is None else self.ttft_s[rows],
            completion_s=None if self.completion_s is None else self.completion_s[rows],
            cls=None if self.cls is None else self.cls[rows],
            span_s=span_s,
        )
