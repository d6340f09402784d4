"""Which degrees a model's tensors can be cut into, whatever the GPU: heads, KV heads, experts, FP8 blocks, layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from qmodel.types.hardware import Model
from qmodel.types.layouts import Layout

__all__ = ["SplitProblem", "split_problem"]

SplitKind = Literal["heads", "kv_heads", "experts", "fp8_block", "layers"]
WIDER = 2  # the nearest wider degree is named up to so many times what was asked


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProblem:
    """Why a layout cannot be cut.

    Attributes:
        kind: which rule it breaks.
        reason: one sentence with the numbers that broke.
        change: the nearest layouts that can, empty where there are none.
    """

    kind: SplitKind
    reason: str
    change: str


def split_problem(
    model: Model,
    layout: Layout,
    *,
    block_quantised: bool = False,
    mixed_experts: bool = False,
    redundant_experts: int = 0,
) -> SplitProblem | None:
    """The first rule that a layout breaks, None where the model can be cut so.

    Args:
        model: architecture.
        layout: degrees to check.
        block_quantised: weights carry a scale per block of ``model.fp8_block``, which no slice may cut.
        mixed_experts: the engine can place whole experts on groups that slice them (1 < ep < GPUs of a stage).
        redundant_experts: copies per mixture layer beside the experts.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> from qmodel.types import Layout
        >>> problem = split_problem(load_catalog().model("qwen2.5-32b"), Layout(tp=6))
        >>> problem.kind, problem.change
        ('heads', 'tp 4 or tp 8')
    """
    rules: tuple[Callable[[], SplitProblem | None], ...] = (
        lambda: _heads(model, layout),
        lambda: _kv_heads(model, layout),
        lambda: _experts(model, layout, mixed_experts, redundant_experts),
        lambda: _fp8_blocks(model, layout) if block_quantised else None,
        lambda: _layers(model, layout),
    )
    for rule in rules:
        problem = rule()
        if problem is not None:
            return problem
    return None


def _heads(model: Model, layout: Layout) -> SplitProblem | None:
    degree = layout.tp * layout.cp
    if model.heads % degree == 0:
        return None
    if layout.cp > 1 and model.heads % layout.tp == 0:
        most = max(cp for cp in range(1, layout.cp) if model.heads % (layout.tp * cp) == 0)
        reason = f"{model.heads} attention heads do not split over tp {layout.tp} x cp {layout.cp}"
        return SplitProblem(kind="heads", reason=reason, change=f"cp {most}")
    reason = f"{model.heads} attention heads do not split over tp {degree}"
    return SplitProblem(kind="heads", reason=reason, change=_nearest_tp(model, layout))


def _kv_heads(model: Model, layout: Layout) -> SplitProblem | None:
    if model.mla or _kv_heads_split(model, layout.tp):
        return None  # a latent cache has no heads to split
    reason = f"{model.kv_heads} KV heads neither split over nor repeat evenly on tp {layout.tp}"
    return SplitProblem(kind="kv_heads", reason=reason, change=_nearest_tp(model, layout))


def _kv_heads_split(model: Model, degree: int) -> bool:
    return model.kv_heads % degree == 0 or degree % model.kv_heads == 0


def _experts(model: Model, layout: Layout, mixed: bool, redundant: int) -> SplitProblem | None:
    group, moe = layout.stage_gpus, model.moe
    if layout.ep == 1:
        return None
    if moe is None:
        return SplitProblem(kind="experts", reason=f"ep {layout.ep}: {model.name} has no experts", change="ep 1")
    if layout.ep != group and (not mixed or group % layout.ep):
        known = [degree for degree in range(1, group + 1) if group % degree == 0] if mixed else [1, group]
        reason = f"ep {layout.ep} does not divide" if mixed else f"ep {layout.ep} is neither 1 nor"
        change = " or ".join(f"ep {degree}" for degree in _nearest(known, layout.ep))
        return SplitProblem(kind="experts", reason=f"{reason} the {group} GPUs of a stage", change=change)
    slots = moe.experts + redundant
    if slots % layout.ep:
        copies = f" and {redundant} redundant ones" if redundant else ""
        reason = f"{moe.experts} experts{copies} do not split over ep {layout.ep}"
        even = -slots % layout.ep + redundant
        change = f"redundant_experts {even} or ep 1" if redundant else "ep 1"
        return SplitProblem(kind="experts", reason=reason, change=change)
    return None


def _fp8_blocks(model: Model, layout: Layout) -> SplitProblem | None:
    rank, block, moe = layout.tp * layout.cp, model.fp8_block, model.moe
    widths = [("dense FFN", model.ffn_width, rank)]
    if moe:
        widths.append(("shared-expert", float(moe.shared_width), rank))
        widths.append(("expert", float(moe.expert_width), layout.stage_gpus // layout.ep))  # whole ones are not sliced
    for what, width, degree in widths:
        if width % (degree * block):
            reason = (
                f"{what} width {width:g} / {degree} = {width / degree:g} is not a multiple of the FP8 block {block}"
            )
            ways = [f"tp {t}" for t in (degree // 2, degree // 4) if t >= 1 and width % (t * block) == 0][:1]
            if what == "expert":
                ways.append(f"ep {layout.stage_gpus}")
            return SplitProblem(kind="fp8_block", reason=reason, change=" or ".join(ways))
    return None


def _layers(model: Model, layout: Layout) -> SplitProblem | None:
    if layout.pp <= model.layers:
        return None
    reason = f"{model.layers} layers are fewer than pp {layout.pp}"
    return SplitProblem(kind="layers", reason=reason, change=f"pp {model.layers}")


def _nearest_tp(model: Model, layout: Layout) -> str:
    """The closest degrees below and above that split the heads and the KV heads."""

    def splits(tp: int) -> bool:
        narrow = replace(layout, tp=tp)
        return model.heads % (narrow.tp * narrow.cp) == 0 and (bool(model.mla) or _kv_heads_split(model, tp))

    known = [tp for tp in range(1, WIDER * layout.tp + 1) if splits(tp)]
    return " or ".join(f"tp {tp}" for tp in _nearest(known, layout.tp))


def _nearest(known: list[int], asked: int) -> list[int]:
    below, above = [n for n in known if n < asked], [n for n in known if n > asked]
    return below[-1:] + above[:1]
