"""How an engine schedules beyond what a replica record says; the defaults are the rules of the closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from qmodel.types import Replica

__all__ = ["AdmissionRule", "EnginePolicy", "Order", "Preemption", "Speculation"]

Order = Literal["fcfs", "priority"]
AdmissionRule = Literal["full_prompt", "no_evict", "first_chunk"]
Preemption = Literal["recompute", "swap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding at its mean pace.

    A step drafts ``draft_tokens`` tokens per sequence and verifies them together with the next one. Each draft is
    accepted with probability ``acceptance`` as long as those before it were, so that a step brings
    (1 - a^(k+1)) / (1 - a) tokens on average; the engine moves every sequence at exactly that pace.

    Attributes:
        draft_tokens: k, drafts per sequence and step, at least 1.
        acceptance: a, in [0, 1].
        draft_cost: time of one draft step over the step time without KV reads of the large model.

    Example:
        >>> Speculation(draft_tokens=2, acceptance=0.5).tokens_per_step
        1.75

    Source: Leviathan, Kalman, Matias, Fast Inference from Transformers via Speculative Decoding (2023), eq. 1.
    """

    draft_tokens: int
    acceptance: float
    draft_cost: float = 0.0

    def __post_init__(self) -> None:
        if self.draft_tokens < 1:
            raise ValueError(f"draft_tokens must be at least 1 (got {self.draft_tokens})")
        if not 0.0 <= self.acceptance <= 1.0:
            raise ValueError(f"acceptance must be in [0, 1] (got {self.acceptance})")
        if not 0.0 <= self.draft_cost < math.inf:
            raise ValueError(f"draft_cost must be at least 0 and finite (got {self.draft_cost})")

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens that one step brings a sequence."""
        return sum(self.acceptance**k for k in range(self.draft_tokens + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePolicy:
    """Scheduling rules of one engine.

    Attributes:
        order: ``fcfs``, or ``priority``: larger priorities first, equal ones in order of arrival; running sequences
            are never stopped for waiting ones, but memory is taken from the least important, latest one.
        admission: ``full_prompt`` or ``no_evict`` as in a replica record; ``first_chunk`` admits when the first chunk
            of the prompt fits, and takes memory chunk by chunk; None: as the replica record says.
        preemption: what happens to the KV of a sequence that loses its memory: ``recompute`` prefills it again,
            ``swap`` copies it to host memory and back (of sequences whose prompt is complete).
        swap_out_s_per_token: added to the step that swaps out, s per KV token.
        swap_in_s_per_token: added to the step that swaps in, s per KV token.
        block_tokens: KV is handed out in blocks of so many tokens; 1: exactly.
        patience_s: a request leaves the queue when it was not admitted so long after it came; None: never.
        retries: times that such a request comes back.
        backoff_s: pause before it first comes back; doubles with every further time.
        speculation: speculative decoding; None: one token per step.
    """

    order: Order = "fcfs"
    admission: AdmissionRule | None = None
    preemption: Preemption = "recompute"
    swap_out_s_per_token: float = 0.0
    swap_in_s_per_token: float = 0.0
    block_tokens: int = 1
    patience_s: float | None = None
    retries: int = 0
    backoff_s: float = 1.0
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        for name, allowed in (
            ("order", ("fcfs", "priority")),
            ("admission", (None, "full_prompt", "no_evict", "first_chunk")),
            ("preemption", ("recompute", "swap")),
        ):
            if getattr(self, name) not in allowed:
                options = ", ".join(str(option) for option in allowed)
                raise ValueError(f"{name} must be one of {options} (got {getattr(self, name)!r})")
        for name in ("swap_out_s_per_token", "swap_in_s_per_token", "backoff_s"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite (got {getattr(self, name)})")
        if self.block_tokens < 1:
            raise ValueError(f"block_tokens must be at least 1 (got {self.block_tokens})")
        if self.patience_s is not None and not self.patience_s > 0.0:
            raise ValueError(f"patience_s must be greater than 0, or None (got {self.patience_s})")
        if self.retries < 0:
            raise ValueError(f"retries must be at least 0 (got {self.retries})")
        if self.speculation is not None and self.block_tokens > 1:
            raise ValueError(
                f"block_tokens must be 1 with speculation (got {self.block_tokens}): sequences then grow by fractions"
            )

    @classmethod
    def for_replica(cls, replica: Replica, block_tokens: int = 1) -> EnginePolicy:
        """The rules of the closed forms for ``replica``: what evictions do is in its record."""
        return cls(
            block_tokens=block_tokens,
            preemption=replica.preemption,
            swap_out_s_per_token=replica.swap_out_s_per_token,
            swap_in_s_per_token=replica.swap_in_s_per_token,
        )

    def rule(self, replica: Replica) -> AdmissionRule:
        """The admission rule in force for ``replica``."""
        return self.admission or replica.admission

    def check(self, replica: Replica) -> None:
        """Check that the policy and the replica go together.

        Raises:
            ValueError: if a full batch would not fit into the token budget.
        """
        per_sequence = 1 if self.speculation is None else 1 + self.speculation.draft_tokens
        if replica.max_num_seqs * per_sequence > replica.max_batched_tokens:
            raise ValueError(
                f"max_num_seqs must not exceed max_batched_tokens / {per_sequence} = "
                f"{replica.max_batched_tokens // per_sequence} (got {replica.max_num_seqs}): "
                f"each decoding sequence takes {per_sequence} of the token budget"
            )
