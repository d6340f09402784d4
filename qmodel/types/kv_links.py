"""The link that brings the KV of a sequence from one pool to the next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heapreplace

import numpy as np

from qmodel.types.laws import FloatArray, IntArray

__all__ = ["KvLink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLink:
    """Equal lanes, each of which carries the KV of one sequence after the other, in the order in which they come.

    Attributes:
        bytes_per_s: bandwidth of a lane.
        bytes_per_token: KV bytes of one token of context.
        latency_s: from the last byte sent to the arrival; it does not hold up the next sequence.
        lanes: sequences that travel at a time.

    Example:
        >>> link = KvLink(bytes_per_s=1e9, bytes_per_token=1e6, latency_s=0.5)
        >>> link.arrivals_s(np.array([0.0, 0.1]), np.array([1000, 2000])).tolist()
        [1.5, 3.5]
    """

    bytes_per_s: float
    bytes_per_token: float
    latency_s: float = 0.0
    lanes: int = 1

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0.0:
            raise ValueError(f"bytes_per_s must be greater than 0 (got {self.bytes_per_s})")
        for name in ("bytes_per_token", "latency_s"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite (got {getattr(self, name)})")
        if self.lanes < 1:
            raise ValueError(f"lanes must be at least 1 (got {self.lanes})")

    @property
    def s_per_token(self) -> float:
        """How long a token of context occupies a lane, s."""
        return self.bytes_per_token / self.bytes_per_s

    def arrivals_s(self, ready_s: FloatArray, tokens: IntArray) -> FloatArray:
        """When each sequence is across.

        Args:
            ready_s: when it may be sent, ascending, s, shape (n,).
            tokens: context tokens, shape (n,).
        """
        sending_s = self.sending_s(tokens)
        if self.lanes == 1:
            before_s = np.cumsum(sending_s) - sending_s
            # Lindley: a sequence waits for the latest time from which on the link was never idle
            return np.asarray(np.maximum.accumulate(ready_s - before_s) + before_s + sending_s + self.latency_s)
        free_s = [0.0] * self.lanes
        across_s = np.empty_like(ready_s)
        for row, (ready, sending) in enumerate(zip(ready_s.tolist(), sending_s.tolist(), strict=True)):
            done = max(ready, free_s[0]) + sending
            heapreplace(free_s, done)
            across_s[row] = done
        return np.asarray(across_s + self.latency_s)

    def sending_s(self, tokens: IntArray) -> FloatArray:
        """How long each sequence occupies its lane, s."""
        return np.asarray(tokens * self.s_per_token, dtype=np.float64)
