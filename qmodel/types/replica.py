"""What a queue needs to know of one engine instance: its step law, its slots and its KV memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from qmodel.types.laws import FloatArray

__all__ = ["Admission", "Band", "Preemption", "Replica", "Router", "StepLaw"]

Admission = Literal["full_prompt", "no_evict", "first_chunk"]
Router = Literal["random", "round_robin", "jsq"]
Preemption = Literal["recompute", "swap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """How far a predicted step time may be off.

    Attributes:
        p50: half of the measured points lie within this relative error, e.g. 0.034.
        p90: nine in ten lie within this relative error.
        level: which evidence the band comes from.
        confidence: ``high``, ``medium`` or ``low``.
    """

    p50: float = 0.0
    p90: float = 0.0
    level: str = "stated by the user"
    confidence: Literal["high", "medium", "low"] = "high"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepLaw:
    """Time of one engine step: tau(b) + gamma * KV tokens read + delta * prefill tokens.

    ``tau`` is piecewise linear through (``batch``, ``base_s``) and goes on with its
    last slope. Two knots make the linear law alpha + beta b; mixture-of-experts
    laws are concave and have more.

    Attributes:
        batch: knots, sequences decoding in the replica, ascending, shape (k,), k >= 2, first 0.
        base_s: step time at the knots without KV reads and prefill, s, shape (k,).
        gamma_s: s per KV token read in the step (summed over the sequences).
        delta_s: s per prefill token in the step, at one operating point.
        band: relative error of the step times.
        provenance: where the numbers come from.
        delta_by_batch_s: s per prefill token at each knot, shape (k,); None: ``delta_s`` at every batch.
    """

    batch: FloatArray
    base_s: FloatArray
    gamma_s: float
    delta_s: float
    band: Band = Band()
    provenance: str = "profile"
    delta_by_batch_s: FloatArray | None = None

    @classmethod
    def linear(
        cls,
        *,
        alpha_s: float,
        beta_s: float,
        gamma_s: float = 0.0,
        delta_s: float = 0.0,
        band: Band | None = None,
        provenance: str = "profile",
    ) -> StepLaw:
        """The law alpha + beta b + gamma KV + delta q.

        Example:
            >>> law = StepLaw.linear(alpha_s=0.01, beta_s=1e-4, gamma_s=0.0, delta_s=1e-4)
            >>> round(float(law.tau_s(10.0, 0.0)), 6)
            0.011
        """
        return cls(
            batch=np.array([0.0, 1.0]),
            base_s=np.array([alpha_s, alpha_s + beta_s]),
            gamma_s=gamma_s,
            delta_s=delta_s,
            band=band or Band(),
            provenance=provenance,
        )

    @classmethod
    def table(
        cls,
        *,
        batch: Sequence[float],
        step_s: Sequence[float],
        gamma_s: float = 0.0,
        delta_s: float = 0.0,
        band: Band | None = None,
        provenance: str = "profile",
    ) -> StepLaw:
        """The law whose tau goes through measured points.

        Args:
            batch: sequences, ascending, first 0, shape (k,), k >= 2.
            step_s: step times there without KV reads and prefill, shape (k,).
            gamma_s: s per KV token read.
            delta_s: s per prefill token.
            band: relative error.
            provenance: where the points come from.

        Example:
            >>> float(StepLaw.table(batch=[0, 10], step_s=[0.01, 0.02]).tau_s(5.0, 0.0))
            0.015
        """
        return cls(
            batch=np.asarray(batch, dtype=float),
            base_s=np.asarray(step_s, dtype=float),
            gamma_s=gamma_s,
            delta_s=delta_s,
            band=band or Band(),
            provenance=provenance,
        )

    @property
    def is_linear(self) -> bool:
        """Whether tau(b) has one slope."""
        slopes = np.diff(self.base_s) / np.diff(self.batch)
        return bool(np.allclose(slopes, slopes[0], rtol=1e-9, atol=0.0))

    def tau_s(self, batch: FloatArray | float, kv_tokens_per_sequence: FloatArray | float) -> FloatArray:
        """Step time of ``batch`` decoding sequences that each hold ``kv_tokens_per_sequence``, s; broadcasts.

        The batch may be fractional: it is then a mean.
        """
        b = np.asarray(batch, dtype=float)
        first, end, base_s, slope = _last_piece(self)
        if self.batch.size == 2:
            base = base_s + slope * np.maximum(b - first, 0.0)
        else:
            base = np.interp(b, self.batch, self.base_s) + slope * np.maximum(b - end, 0.0)
        return np.asarray(base + (self.gamma_s * kv_tokens_per_sequence) * b)

    def prefill_token_s(self, batch: FloatArray | float) -> FloatArray:
        """Time that one prefill token adds to a step in which ``batch`` sequences decode, s; broadcasts.

        Example:
            >>> float(StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=2e-5).prefill_token_s(10.0))
            2e-05
        """
        b = np.asarray(batch, dtype=float)
        if self.delta_by_batch_s is None:
            return np.full(b.shape, self.delta_s)
        return np.asarray(np.interp(b, self.batch, self.delta_by_batch_s))

    def scaled(self, factor: float) -> StepLaw:
        """The same law with every step ``factor`` times as long."""
        return replace(
            self,
            base_s=self.base_s * factor,
            gamma_s=self.gamma_s * factor,
            delta_s=self.delta_s * factor,
            delta_by_batch_s=None if self.delta_by_batch_s is None else self.delta_by_batch_s * factor,
        )

    def at(self, batch: float) -> tuple[float, float]:
        """Intercept alpha_s and slope beta_s of tau around ``batch``, without KV reads."""
        low, high = 0.9 * batch, 1.1 * batch + 1e-9
        tau_low, tau_high = self.tau_s(low, 0.0), self.tau_s(high, 0.0)
        beta = float((tau_high - tau_low) / (high - low))
        return float(self.tau_s(batch, 0.0)) - beta * batch, beta

    def to_dict(self) -> dict[str, object]:
        """Plain numbers; the inverse of :meth:`from_dict`."""
        return {
            "batch": self.batch.tolist(),
            "base_s": self.base_s.tolist(),
            "gamma_s": self.gamma_s,
            "delta_s": self.delta_s,
            **({} if self.delta_by_batch_s is None else {"delta_by_batch_s": self.delta_by_batch_s.tolist()}),
            "band": {name: getattr(self.band, name) for name in ("p50", "p90", "level", "confidence")},
            "provenance": self.provenance,
        }

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> StepLaw:
        """The inverse of :meth:`to_dict`."""
        band = data["band"]
        assert isinstance(band, dict)
        return cls(
            batch=np.asarray(data["batch"], dtype=float),
            base_s=np.asarray(data["base_s"], dtype=float),
            gamma_s=float(str(data["gamma_s"])),
            delta_s=float(str(data["delta_s"])),
            band=Band(**band),
            provenance=str(data["provenance"]),
            delta_by_batch_s=(
                np.asarray(data["delta_by_batch_s"], dtype=float) if "delta_by_batch_s" in data else None
            ),
        )


@lru_cache(maxsize=512)
def _last_piece(law: StepLaw) -> tuple[float, float, float, float]:
    """First and last measured batch, the step time at the first, and the slope of the last piece, which goes on."""
    slope = (law.base_s[-1] - law.base_s[-2]) / (law.batch[-1] - law.batch[-2])
    return float(law.batch[0]), float(law.batch[-1]), float(law.base_s[0]), float(slope)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replica:
    """One engine instance as the queueing models see it.

    Attributes:
        step: step-time law.
        max_num_seqs: most sequences that run at once, over all attention-DP ranks.
        kv_tokens: KV pool in tokens of growing context; None: memory never limits.
        max_batched_tokens: token budget of one step (decodes and prefill chunks).
        watermark: fraction of the pool kept free when a request is admitted.
        admission: ``full_prompt`` admits when the whole prompt fits and grows by evicting the newest;
            ``no_evict`` reserves prompt and output at admission; ``first_chunk`` admits when the first chunk of the
            prompt fits, and needs ``recompute_factor``.
        kv_slope: pool tokens held per context token (0.5 where half of the layers have a sliding window).
        kv_fixed_tokens: pool tokens held per sequence whatever its context (window contents, linear state).
        recompute_factor: measured tokens that evictions lose per output token when memory is saturated: recomputed
            tokens per request of a simulated overload over the mean output. None: not measured; it is estimated for
            ``full_prompt``.
        preemption: what evicted tokens cost: ``recompute`` prefills them again, ``swap`` copies them out and back.
        swap_out_s_per_token, swap_in_s_per_token: time that one copied token adds to a step, s.
        memory_tight: the KV pool is below 3 % of the memory of a GPU, by the memory model.
    """

    step: StepLaw
    max_num_seqs: int = 256
    kv_tokens: float | None = None
    max_batched_tokens: int = 8192
    watermark: float = 0.03
    admission: Admission = "full_prompt"
    kv_slope: float = 1.0
    kv_fixed_tokens: float = 0.0
    recompute_factor: float | None = None
    preemption: Preemption = "recompute"
    swap_out_s_per_token: float = 0.0
    swap_in_s_per_token: float = 0.0
    memory_tight: bool = False

    @property
    def eviction_s_per_token(self) -> float:
        """Step time that one token costs that an eviction loses, s."""
        if self.preemption == "swap":
            return self.swap_out_s_per_token + self.swap_in_s_per_token
        return self.step.delta_s

    def to_dict(self) -> dict[str, object]:
        """Plain numbers; the inverse of :meth:`from_dict`."""
        return {
            "step": self.step.to_dict(),
            "max_num_seqs": self.max_num_seqs,
            "kv_tokens": self.kv_tokens,
            "max_batched_tokens": self.max_batched_tokens,
            "watermark": self.watermark,
            "admission": self.admission,
            "kv_slope": self.kv_slope,
            "kv_fixed_tokens": self.kv_fixed_tokens,
            "recompute_factor": self.recompute_factor,
            "preemption": self.preemption,
            "swap_out_s_per_token": self.swap_out_s_per_token,
            "swap_in_s_per_token": self.swap_in_s_per_token,
            "memory_tight": self.memory_tight,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Replica:
        """The inverse of :meth:`to_dict`."""
        return cls(**{**data, "step": StepLaw.from_dict(data["step"])})
