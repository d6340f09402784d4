"""What was measured: step times, and benchmarks at a known concurrency."""

from __future__ import annotations

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
    """

    batch: float
    context_tokens: float = 0.0
    prefill_tokens: float = 0.0
    prompt_tokens: float | None = None
    step_s: float
    layout: Layout | None = None
    place: str = ""


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

    def joined(self, other: Measurements) -> Measurements:
        """Both together."""
        return Measurements(
            steps=self.steps + other.steps,
            points=self.points + other.points,
            left_out=self.left_out + other.left_out,
            files=self.files + other.files,
        )
