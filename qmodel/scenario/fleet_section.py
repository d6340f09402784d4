"""GPUs, prices, engine settings, layouts and measured profiles as a scenario file writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from qmodel.scenario.api_section import ApiSpec
from qmodel.scenario.engine_section import EngineSpec
from qmodel.scenario.price_section import PriceBook, PriceSpec, QuotaSpec, SpotSpec, TierSpec, no_term_twice
from qmodel.scenario.sections import (
    Complaint,
    Count,
    Degree,
    Degrees,
    Name,
    NonNegative,
    Positive,
    Precisions,
    Rate,
    Section,
    Stock,
    Text,
    as_tuple,
)
from qmodel.types import Layout

__all__ = [
    "FleetSpec",
    "ForbiddenSpec",
    "GpuSpec",
    "LayoutSpec",
    "LayoutsSpec",
    "ProfileSpec",
    "StepTable",
]


class GpuSpec(Section):
    """One GPU type that the fleet may use; what is left out comes from the catalog."""

    gpu: Name | None = Field(
        default=None,
        description="The GPU it is, a name of the catalog or of profiles; the name of the entry if left out.",
    )
    provider: Text | None = Field(default=None, description="Who sells it; picks prices of that provider.")
    region: Text | None = Field(default=None, description="Where it stands; picks prices of that region.")
    node: Text | None = Field(default=None, description="Machine the GPU comes in, a node of the catalog.")
    fabric: Text | None = Field(
        default=None, description="Network between nodes, a fabric of the catalog; the node's GPU NIC if left out."
    )
    topology: Text | None = Field(
        default=None, description="How nodes are joined, a topology of the catalog; rail-fat-tree if left out."
    )
    max_count: Stock | None = Field(default=None, description="GPUs in stock; no limit if left out.")
    max_nodes: Stock | None = Field(default=None, description="Nodes in stock; no limit if left out.")
    gpus_per_node: Count | None = Field(
        default=None, description="GPUs of one node, for a GPU that only profiles describe; else the node says it."
    )
    billing: Literal["per_gpu", "per_node"] = Field(
        default="per_gpu", description="What is paid for: per_gpu single GPUs, per_node whole nodes."
    )
    power_w: Positive | None = Field(
        default=None, description="Power that one GPU takes with its part of the node, W; from the catalog if left out."
    )
    price: PriceSpec | None = Field(default=None, description="The price of one GPU and hour.")
    tiers: (
        Annotated[tuple[TierSpec, ...], Field(min_length=1), BeforeValidator(as_tuple), AfterValidator(no_term_twice)]
        | None
    ) = Field(default=None, description="Instead of price: several prices; the cheapest GPUs are bought first.")
    spot: SpotSpec | None = Field(default=None, description="They are taken away at times: how often, for how long.")
    engine: EngineSpec | None = Field(default=None, description="Engine settings on this GPU; they win over engine.")

    def complaints(self) -> Iterator[Complaint]:
        if self.price is not None and self.tiers is not None:
            yield Complaint(
                "states price and tiers, which exclude each other",
                hint="keep one of them; in a variant or override '~' removes what the file states",
                about=("price", "tiers"),
            )
        if self.spot is not None and self.tiers is not None:
            yield Complaint(
                "states spot and tiers: GPUs that may be taken away cannot stand in for others",
                hint="give spot GPUs an entry of their own, with gpu: <the same GPU>",
                about=("spot", "tiers"),
            )


class FleetSpec(Section):
    """The hardware a plan may use."""

    gpus: Annotated[dict[Name, GpuSpec], Field(min_length=1)] = Field(
        description="GPU types by their catalog name; an empty entry takes everything from the catalog."
    )
    price_book: PriceBook = Field(
        default_factory=PriceBook, description="Rule that picks prices for GPUs without a price of their own."
    )
    providers: dict[Text, QuotaSpec] = Field(
        default_factory=dict, description="Limits by provider, as entries of gpus state it."
    )
    regions: dict[Text, QuotaSpec] = Field(
        default_factory=dict, description="Limits by region, as entries of gpus state it."
    )
    apis: dict[Name, ApiSpec] = Field(
        default_factory=dict, description="APIs that may serve models too, priced by the token."
    )
    budget_usd_per_hour: Positive | None = Field(
        default=None, description="Most that the whole fleet may cost, USD per hour; no limit if left out."
    )
    start_lag_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=0.0,
        description="Seconds for which GPUs that are bought by the hour are paid before they serve, at most an hour.",
    )
    power_kw: Positive | None = Field(
        default=None, description="Most power of all GPUs with their part of the nodes, kW; no limit if left out."
    )


class ForbiddenSpec(Section):
    """Pools that no fleet may have: those that agree with all that is stated here."""

    model: Text | None = Field(default=None, description="Model, as classes name it; any if left out.")
    gpu: Name | None = Field(default=None, description="GPU type, one of fleet.gpus; any if left out.")
    tp: Degree | None = Field(default=None, description="Tensor-parallel degree; any if left out.")
    pp: Degree | None = Field(default=None, description="Pipeline stages; any if left out.")
    ep: Degree | None = Field(default=None, description="Expert-parallel ranks; any if left out.")
    dp: Degree | None = Field(default=None, description="Attention data-parallel ranks; any if left out.")
    cp: Degree | None = Field(default=None, description="Context-parallel ranks; any if left out.")

    def complaints(self) -> Iterator[Complaint]:
        if not self.model_dump(exclude_none=True):
            yield Complaint("is empty: it would forbid every pool", hint="state model, gpu, tp, pp, ep, dp or cp")


class LayoutsSpec(Section):
    """Layouts that may be enumerated."""

    tp: Degrees = Field(default=(1, 2, 4, 8), description="Tensor-parallel degrees: auto or a list.")
    pp: Degrees = Field(default=(1, 2), description="Pipeline stages: auto or a list.")
    ep: Degrees = Field(default="auto", description="Expert-parallel ranks: auto or a list.")
    dp: Degrees = Field(default="auto", description="Attention data-parallel ranks inside a replica: auto or a list.")
    cp: Degrees = Field(default=(1,), description="Context-parallel ranks: auto (which is 1) or a list.")
    precision: Precisions = Field(
        default="auto", description="Weight types: auto is the checkpoint's own; or a list of auto, bf16, fp8, fp4, w4."
    )
    disaggregate: Literal["auto", True, False] = Field(
        default="auto",
        description="Separate prefill and decode pools beside unified ones: true, false, or auto: only where no fleet"
        " of unified pools meets every target.",
    )
    forbid: Annotated[tuple[ForbiddenSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(), description="Pools that no plan may have, each by any of model, gpu, tp, pp, ep, dp, cp."
    )


class LayoutSpec(Section):
    """One layout; degrees left out are 1."""

    tp: Degree = Field(default=1, description="Tensor-parallel degree.")
    pp: Degree = Field(default=1, description="Pipeline stages.")
    ep: Degree = Field(default=1, description="Expert-parallel ranks.")
    dp: Degree = Field(default=1, description="Attention data-parallel ranks inside the replica.")
    cp: Degree = Field(default=1, description="Context-parallel ranks.")

    @property
    def layout(self) -> Layout:
        """The record that the models work with."""
        return Layout(**self.model_dump())


class StepTable(Section):
    """Measured step time against the number of running sequences, without KV reads and prefill."""

    batch: Annotated[tuple[NonNegative, ...], Field(min_length=2), BeforeValidator(as_tuple)] = Field(
        description="Running sequences, ascending from 0; at least two."
    )
    step_s: Annotated[tuple[Positive, ...], Field(min_length=2), BeforeValidator(as_tuple)] = Field(
        description="Step time at each batch, seconds; never falling."
    )

    def complaints(self) -> Iterator[Complaint]:
        if len(self.batch) != len(self.step_s):
            yield Complaint(f"batch and step_s must be equally long (got {len(self.batch)} and {len(self.step_s)})")
        if self.batch[0] != 0:
            yield Complaint(f"must start at 0 (got {self.batch[0]:g})", ("batch",))
        for name, values, falls in (("batch", self.batch, _not_rising), ("step_s", self.step_s, _falling)):
            at = next((index for index in range(1, len(values)) if falls(values[index - 1], values[index])), None)
            if at is not None:
                word = "ascend" if name == "batch" else "not fall"
                yield Complaint(f"must {word} (got {values[at]:g} after {values[at - 1]:g})", (name, at))


def _not_rising(before: float, after: float) -> bool:
    return after <= before


def _falling(before: float, after: float) -> bool:
    return after < before


class ProfileSpec(Section):
    """What the user measured of one replica: its step times, or the rates that it carries with every target met.

    A step takes alpha + beta batch + gamma KV tokens + delta prefill tokens.
    """

    model: Text = Field(description="Model name; needs no catalog entry.")
    gpu: Name = Field(description="GPU name, one of fleet.gpus; needs no catalog entry if it states its price.")
    layout: LayoutSpec = Field(default_factory=LayoutSpec, description="Layout of the measured replica.")
    alpha_s: NonNegative | None = Field(default=None, description="Step time of an empty batch, seconds.")
    beta_s: NonNegative | None = Field(default=None, description="Seconds more per running sequence.")
    step_table: StepTable | None = Field(default=None, description="A measured curve instead of alpha_s and beta_s.")
    gamma_s: NonNegative | None = Field(
        default=None, description="Seconds per KV token read in a step, over all sequences."
    )
    delta_s: NonNegative | None = Field(default=None, description="Seconds per prefill token in a step.")
    max_num_seqs: Count | None = Field(default=None, description="Most running sequences; from engine if left out.")
    kv_tokens: Positive | None = Field(default=None, description="KV pool, tokens; no KV limit if left out.")
    kv_slope: Positive = Field(
        default=1.0, description="Pool tokens held per context token; below 1 where layers have a sliding window."
    )
    kv_fixed_tokens: NonNegative = Field(default=0.0, description="Pool tokens held per sequence whatever its context.")
    band_p90: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0, description="Nine in ten step times lie within this relative error, 0.08 for 8 %; 0: exact."
    )
    max_rate_rps: Annotated[dict[Name, Rate], Field(min_length=1)] | None = Field(
        default=None,
        description="Instead of step times: requests per second of each class alone that one replica was measured to "
        "carry with every target met; linear in the mix. Other classes are not served.",
    )

    def complaints(self) -> Iterator[Complaint]:
        if self.max_rate_rps is None:
            yield from self._step_complaints()
            return
        others = sorted(self.model_fields_set & _STEP_KEYS)
        if others:
            yield Complaint(
                f"states max_rate_rps and {', '.join(others)}, which exclude each other",
                hint="keep the rates or the step times; in a variant or override '~' removes what the file states",
                about=("max_rate_rps", *others),
            )

    def _step_complaints(self) -> Iterator[Complaint]:
        if not self.model_fields_set & _STEP_KEYS:
            yield Complaint("needs alpha_s, beta_s, gamma_s and delta_s, or max_rate_rps")
            return
        for name in ("gamma_s", "delta_s"):
            if getattr(self, name) is None:
                yield Complaint(f"'{name}' is missing")
        linear = [name for name in ("alpha_s", "beta_s") if getattr(self, name) is not None]
        if self.step_table is not None and linear:
            hint = "keep one of them; in a variant or override '~' removes what the file states"
            yield Complaint(
                f"states step_table and {' and '.join(linear)}, which exclude each other",
                hint=hint,
                about=("step_table", *linear),
            )
        elif self.step_table is None and len(linear) < 2:
            yield Complaint("needs alpha_s and beta_s, or a step_table")
        elif self.alpha_s == 0 and self.beta_s == 0:
            yield Complaint("must not be 0 together with beta_s: steps would take no time", ("alpha_s",))


_STEP_KEYS = {
    "alpha_s",
    "beta_s",
    "step_table",
    "gamma_s",
    "delta_s",
    "max_num_seqs",
    "kv_tokens",
    "kv_slope",
    "kv_fixed_tokens",
    "band_p90",
}
