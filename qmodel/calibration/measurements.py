"""What was measured: step times, and benchmarks at a known concurrency."""

from __future__ import annotations

import math
from dataclasses import dataclass

from qmodel.types import Layout

__all__ = ["LeftOut", "Measurements", "ServingPoint", "SourceFile", "StepTime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One measured engine step.

    Attributes:
        batch: sequences that decode in the whole replica, at least 0.
        context_tokens: their mean context.
        prefill_tokens: prompt tokens in the step.
        prompt_tokens: length of the prompt they belong to, None: ``prefill_tokens``.
        step_s: seconds.
        layout: how the replica was spread, None: the layout of the calibration.
        place: where it stands, ``file:line``.

    Raises:
        ValueError: for a number that is not finite or out of range, or a step without work.
    """

    batch: float
    context_tokens: float = 0.0
    prefill_tokens: float = 0.0
    prompt_tokens: float | None = None
    step_s: float
    layout: Layout | None = None
    place: str = ""

    def __post_init__(self) -> None:
        for name in ("batch", "context_tokens", "prefill_tokens"):
            _check(name, getattr(self, name))
        if self.prompt_tokens is not None:
            _check("prompt_tokens", self.prompt_tokens)
        _check("step_s", self.step_s, above=0.0)
        if self.batch == 0 and self.prefill_tokens == 0:
            raise ValueError("batch and prefill_tokens are both 0: a step without work has no time")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPoint:
    """What a benchmark measured of one replica at one concurrency.

    Attributes:
        users: requests in the replica while one is served, that one included; of users that ask again at once, their
            number.
        prompt_tokens: mean prompt.
        output_tokens: mean output, at least 2.
        tpot_s: mean time per output token after the first.
        ttft_s: mean or median time to first token.
        output_tokens_per_s: generated tokens per second of the replica.
        burst_share: share of the requests behind ``ttft_s`` that started together.
        layout: as in :class:`StepTime`.
        place: where it stands, ``file:line``.

    Raises:
        ValueError: for a number that is not finite or out of range, or a point that states neither TPOT nor throughput.
    """

    users: float
    prompt_tokens: float
    output_tokens: float
    tpot_s: float | None = None
    ttft_s: float | None = None
    output_tokens_per_s: float | None = None
    burst_share: float = 0.0
    layout: Layout | None = None
    place: str = ""

    def __post_init__(self) -> None:
        _check("users", self.users, least=1.0)
        _check("prompt_tokens", self.prompt_tokens, above=0.0)
        _check("output_tokens", self.output_tokens, least=2.0)
        _check("burst_share", self.burst_share)
        for name in ("tpot_s", "ttft_s", "output_tokens_per_s"):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name), above=0.0)
        if self.burst_share > 1.0:
            raise ValueError(f"burst_share must be at most 1 (got {self.burst_share!r})")
        if self.tpot_s is None and self.output_tokens_per_s is None:
            raise ValueError("tpot_s or output_tokens_per_s must be stated: neither is")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Measurements that were not used, and why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file that measurements were read from.

    Attributes:
        file: the name that the caller gave.
        sha256: digest of its bytes.
        kind: what it was read as.
    """

    file: str
    sha256: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Everything that a calibration takes in.

    Example:
        >>> few = Measurements(points=(ServingPoint(users=8, prompt_tokens=1000, output_tokens=200, tpot_s=0.011),))
        >>> len(few)
        1
    """

    steps: tuple[StepTime, ...] = ()
    points: tuple[ServingPoint, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    files: tuple[SourceFile, ...] = ()

    def __len__(self) -> int:
        return len(self.steps) + len(self.points)

    @property
    def all(self) -> tuple[StepTime | ServingPoint, ...]:
        """Step times, then points."""
        return (*self.steps, *self.points)

    def joined(self, other: Measurements) -> Measurements:
        """Both together."""
        return Measurements(
            steps=self.steps + other.steps,
            points=self.points + other.points,
            left_out=self.left_out + other.left_out,
            files=self.files + other.files,
        )


def _check(name: str, value: float, *, least: float = 0.0, above: float | None = None) -> None:
    if not (math.isfinite(value) and value >= least and (above is None or value > above)):
        bound = f"above {above:g}" if above is not None else f"at least {least:g}"
        raise ValueError(f"{name} must be finite and {bound} (got {value!r})")
