"""Which layouts of a model are legal on a GPU and node, and why the others are not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from qmodel.perf.capabilities import capability_problem, engine_limits
from qmodel.perf.lookup import engine_of, fabric_of, gpu_of, model_of, node_of
from qmodel.perf.memory_model import memory
from qmodel.perf.precision import precision_problem, quant_family
from qmodel.perf.speculation import speculation_problem
from qmodel.perf.splits import split_problem
from qmodel.types.hardware import Fabric, Gpu, Model, Node
from qmodel.types.layouts import Engine, Layout, Refusal

__all__ = ["LayoutSet", "layouts"]

Degrees = Sequence[int] | Literal["auto"]

# Attention data parallelism is tried on stages of up to this many scale-up islands.
WIDE_STAGE_ISLANDS = 4
DEFAULT_ISLANDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSet:
    """Layouts of one model on one GPU type.

    Attributes:
        legal: layouts that can run, fewest GPUs first.
        refused: the others, each with its reason and the nearest change.
    """

    legal: tuple[Layout, ...]
    refused: tuple[Refusal, ...]


def layouts(
    model: Model | str,
    gpu: Gpu | str,
    node: Node | str | None = None,
    fabric: Fabric | str | None = None,
    *,
    max_gpus: int | None = None,
    tp: Sequence[int] = (1, 2, 4, 8),
    pp: Sequence[int] = (1, 2),
    ep: Degrees = "auto",
    dp: Degrees = "auto",
    cp: Sequence[int] = (1,),
    engine: Engine | str | None = None,
    precision: str | None = None,
    max_tokens: float | None = None,
) -> LayoutSet:
    """Enumerate the layouts of one replica and sort them into legal and refused.

    Tensor parallelism beyond one scale-up island is legal where a network joins the islands; its
    collectives are then priced on that network. ``dp="auto"`` adds attention data parallelism with
    whole experts (``tp=1, dp=ep=n``) for latent-attention mixtures, whose cache tensor parallelism copies.

    Args:
        model: record or catalog name.
        gpu: record or catalog name.
        node: its scale-up domain and NICs; None for the GPU's default node.
        fabric: network between nodes; None for the node's own NICs.
        max_gpus: most GPUs of one replica, None: no limit of its own.
        tp: tensor-parallel degrees to try.
        pp: pipeline stages to try.
        ep: expert-parallel degrees, each 1 or the whole stage; ``auto``: sliced experts with tensor parallelism,
            whole ones with attention data parallelism and where slices would cut FP8 blocks.
        dp: attention ranks to try, or ``auto``.
        cp: context-parallel degrees.
        engine: record, catalog name, or None for vLLM defaults.
        precision: ``auto`` or None for the checkpoint's own type.
        max_tokens: longest request that must fit in the KV pool.

    Raises:
        ValueError: for an unknown precision or a degree below 1. A precision that the checkpoint cannot have
            is a refusal, as is a GPU without a known peak.

    Example:
        >>> import qmodel.perf as perf
        >>> found = perf.layouts("llama-3.3-70b", "h100-sxm", "dgx-h100", max_gpus=8)
        >>> [str(layout) for layout in found.legal]
        ['tp2', 'tp1-pp2', 'tp4', 'tp2-pp2', 'tp8', 'tp4-pp2']
        >>> found.refused[0].kind
        'memory'

    Reference: docs/theory/step-time.md, "Legal layouts".
    """
    architecture, accelerator = model_of(model), gpu_of(gpu)
    machine = node_of(node, accelerator)
    rules = _Rules(
        model=architecture,
        gpu=accelerator,
        node=machine,
        fabric=fabric_of(fabric),
        engine=engine_of(engine, accelerator),
        precision=precision,
        block_quantised=_block_quantised(architecture, accelerator, precision),
        max_gpus=max_gpus,
        max_tokens=max_tokens,
    )
    for name, degrees in (("tp", tp), ("pp", pp), ("ep", ep), ("dp", dp), ("cp", cp)):
        if degrees != "auto" and (not degrees or min(degrees) < 1):
            raise ValueError(f"{name}: needs degrees of at least 1 (got {list(degrees)})")
    legal, refused = [], []
    for layout in sorted(set(_enumerate(rules, tp, pp, ep, dp, cp)), key=_size_order):
        refusal = rules.refuse(layout)
        if refusal is None:
            legal.append(layout)
        else:
            refused.append(refusal)
    return LayoutSet(legal=tuple(legal), refused=tuple(refused))


def _size_order(layout: Layout) -> tuple[int, int, int, Layout]:
    return (layout.gpus, layout.pp, layout.dp, layout)


def _block_quantised(model: Model, gpu: Gpu, precision: str | None) -> bool:
    if precision_problem(model, precision):
        return False
    return quant_family(model, gpu, precision) == "fp8" and model.fp8_block > 0


def _enumerate(
    rules: _Rules, tp: Sequence[int], pp: Sequence[int], ep: Degrees, dp: Degrees, cp: Sequence[int]
) -> Iterator[Layout]:
    for stages in pp:
        for contexts in cp:
            for tensor in tp:
                for ranks in (1,) if dp == "auto" else dp:
                    group = tensor * ranks * contexts
                    for experts in _expert_degrees(rules, ep, ranks, group):
                        yield Layout(tp=tensor, pp=stages, ep=experts, dp=ranks, cp=contexts)
        if dp == "auto":
            for ranks in _attention_ranks(rules):
                for experts in _expert_degrees(rules, ep, ranks, ranks):
                    yield Layout(tp=1, pp=stages, ep=experts, dp=ranks)


def _expert_degrees(rules: _Rules, ep: Degrees, ranks: int, group: int) -> Sequence[int]:
    if ep != "auto":
        return ep
    if ranks > 1:
        return (group,)
    moe = rules.model.moe
    if group > 1 and moe and rules.block_quantised and moe.expert_width % (group * rules.model.fp8_block):
        return (1, group)  # slices would cut FP8 blocks, whole experts do not
    return (1,)


def _attention_ranks(rules: _Rules) -> list[int]:
    """Powers of two from 2 up to the widest stage worth trying."""
    if rules.model.mla is None or rules.model.moe is None:
        return []
    island = rules.node.domain.gpus
    widest = min(rules.max_gpus or DEFAULT_ISLANDS * island, WIDE_STAGE_ISLANDS * island)
    return [2**power for power in range(1, int(math.log2(max(widest, 1))) + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """Everything a layout is checked against, cheapest check first."""

    model: Model
    gpu: Gpu
    node: Node
    fabric: Fabric | None
    engine: Engine
    precision: str | None
    block_quantised: bool
    max_gpus: int | None
    max_tokens: float | None

    def refuse(self, layout: Layout) -> Refusal | None:
        """The first rule that ``layout`` breaks, None where it is legal."""
        checks: tuple[Callable[[Layout], Refusal | None], ...] = (
            self._gpus,
            self._engine,
            self._context,
            self._splits,
            self._network,
            self._memory,
        )
        for check in checks:
            refusal = check(layout)
            if refusal is not None:
                return refusal
        return None

    def _gpus(self, layout: Layout) -> Refusal | None:
        if self.max_gpus is None or layout.gpus <= self.max_gpus:
            return None
        reason = f"needs {layout.gpus} GPUs, at most {self.max_gpus} are allowed"
        return Refusal(layout=layout, kind="gpus", reason=reason, change=f"allow {layout.gpus} GPUs")

    def _engine(self, layout: Layout) -> Refusal | None:
        if problem := precision_problem(self.model, self.precision):
            return Refusal(layout=layout, kind="engine", reason=problem, change="precision auto")
        if not self.gpu.dense_tflops.get("bf16"):
            reason = f"{self.gpu.name} has no dense bf16 peak in the catalog"
            return Refusal(layout=layout, kind="engine", reason=reason, change="state dense_peak_tflops.bf16 for it")
        found = capability_problem(self.model, self.gpu, layout, self.engine, self.precision) or speculation_problem(
            self.model, layout, self.engine
        )
        if found is None:
            return None
        return Refusal(layout=layout, kind="engine", reason=found[0], change=found[1])

    def _context(self, layout: Layout) -> Refusal | None:
        longest = self.model.max_context
        if self.max_tokens is None or self.max_tokens <= longest:
            return None
        reason = f"requests of {self.max_tokens:,.0f} tokens are longer than the context of {self.model.name}"
        return Refusal(layout=layout, kind="context", reason=reason, change=f"requests of at most {longest:,} tokens")

    def _splits(self, layout: Layout) -> Refusal | None:
        found = split_problem(
            self.model,
            layout,
            block_quantised=self.block_quantised,
            mixed_experts=engine_limits(self.engine).mixed_experts,
            redundant_experts=self.engine.redundant_experts,
        )
        if found is None:
            return None
        return Refusal(layout=layout, kind=found.kind, reason=found.reason, change=found.change)

    def _network(self, layout: Layout) -> Refusal | None:
        island = self.node.domain.gpus
        if layout.gpus <= max(island, self.node.gpus_per_node) or self.fabric or self.node.nic_fabric:
            return None
        reason = f"{layout.gpus} GPUs span several {self.node.name} of {island} GPUs, and no fabric joins them"
        return Refusal(layout=layout, kind="network", reason=reason, change=f"at most {island} GPUs, or name a fabric")

    def _memory(self, layout: Layout) -> Refusal | None:
        plan = memory(self.model, self.gpu, layout, self.engine, precision=self.precision, max_tokens=self.max_tokens)
        if plan.fits:
            return None
        return Refusal(layout=layout, kind="memory", reason=plan.reason, change=plan.change)
