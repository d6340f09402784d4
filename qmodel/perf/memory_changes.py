"""Which changes would make a replica fit in memory, each tried on the model itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from qmodel.perf.precision import has_fp8_units, kv_element_bytes, quant_family
from qmodel.perf.splits import split_problem
from qmodel.types.hardware import Gpu, Model
from qmodel.types.layouts import Engine, Layout

__all__ = ["nearest_changes"]

HIGHEST_UTILISATION = 0.95  # beyond it fragmentation and graphs have failed starts that arithmetic allowed
FEWER_SEQUENCES = (256, 128, 64, 32)
MOST_STAGES = 4

Ask = tuple[Layout, Engine, str | None]


@dataclass(frozen=True, slots=True)
class _Step:
    """One kind of change, its degrees from mild to strong; degrees that lead nowhere are left out."""

    kind: str
    degrees: tuple[tuple[str, Callable[[Ask], Ask]], ...]


def nearest_changes(
    model: Model,
    gpu: Gpu,
    layout: Layout,
    engine: Engine,
    precision: str | None,
    *,
    fits: Callable[[Layout, Engine, str | None], bool],
) -> tuple[str, ...]:
    """The mildest change of each kind that makes the replica fit, nearest first; pairs where no single one does.

    Args:
        model: architecture.
        gpu: accelerator.
        layout: as it was asked.
        engine: as it was asked.
        precision: as it was asked.
        fits: whether a layout, engine settings and a weight type fit; every change named was tried on it.
    """
    ask: Ask = (layout, engine, precision)
    steps = list(_steps(model, gpu, layout, engine, precision))
    single = []
    for step in steps:
        text = next((text for text, change in step.degrees if fits(*change(ask))), "")
        if text:
            single.append(text)
    return tuple(single) or _pair(steps, ask, fits)


def _pair(steps: list[_Step], ask: Ask, fits: Callable[[Layout, Engine, str | None], bool]) -> tuple[str, ...]:
    """The first two changes that fit together, empty where no two do."""
    for first, second in combinations(steps, 2):
        if first.kind == second.kind:
            continue
        for left, change in first.degrees:
            for right, other in second.degrees:
                if fits(*other(change(ask))):
                    return (f"{left} with {right}",)
    return ()


def _steps(model: Model, gpu: Gpu, layout: Layout, engine: Engine, precision: str | None) -> Iterator[_Step]:
    percent = round(engine.gpu_memory_utilization * 100)
    if engine.name == "vllm":  # the other engines' shares leave their activations the rest
        yield _Step("engine", tuple(_utilisation(p / 100) for p in range(percent + 1, _percent(HIGHEST_UTILISATION))))
        fewer = [count for count in FEWER_SEQUENCES if count < engine.max_num_seqs]
        yield _Step("engine", tuple(_sequences(count) for count in fewer))
    if kv_element_bytes(model, engine, precision) > 1.0:
        yield _Step("kv", (("kv_dtype fp8", lambda ask: (ask[0], replace(ask[1], kv_dtype="fp8"), ask[2])),))
    if quant_family(model, gpu, precision) == "bf16" and has_fp8_units(gpu):
        yield _Step("weights", (("precision fp8", lambda ask: (ask[0], ask[1], "fp8")),))
    if layout.dp > 1:
        yield _Step("layout", tuple(_ranks(layout, factor) for factor in (2, 4, 8)))
        return
    widths = []
    tp = layout.tp
    quantised = quant_family(model, gpu, precision) == "fp8" and model.fp8_block > 0
    while (tp := 2 * tp) * layout.cp <= model.heads:
        text, change = _tensor(layout, tp)
        if split_problem(model, change((layout, engine, precision))[0], block_quantised=quantised) is None:
            widths.append((text, change))
    yield _Step("layout", tuple(widths))
    stages = [pp for pp in (2, 4) if pp > layout.pp and pp <= min(MOST_STAGES, model.layers)]
    yield _Step("layout", tuple(_stages(pp) for pp in stages))


def _percent(share: float) -> int:
    return round(share * 100) + 1


def _utilisation(share: float) -> tuple[str, Callable[[Ask], Ask]]:
    return (
        f"gpu_memory_utilization {share:g}",
        lambda ask: (ask[0], replace(ask[1], gpu_memory_utilization=share), ask[2]),
    )


def _sequences(count: int) -> tuple[str, Callable[[Ask], Ask]]:
    return f"max_num_seqs {count}", lambda ask: (ask[0], replace(ask[1], max_num_seqs=count), ask[2])


def _ranks(layout: Layout, factor: int) -> tuple[str, Callable[[Ask], Ask]]:
    ranks = factor * layout.dp
    return f"dp {ranks}", lambda ask: (
        replace(ask[0], dp=ranks, ep=factor * layout.ep if layout.ep > 1 else 1),
        ask[1],
        ask[2],
    )


def _tensor(layout: Layout, tp: int) -> tuple[str, Callable[[Ask], Ask]]:
    wide = replace(layout, tp=tp, ep=tp * layout.cp if layout.ep > 1 else 1)
    return f"tp {tp}", lambda ask: (replace(ask[0], tp=wide.tp, ep=wide.ep), ask[1], ask[2])


def _stages(pp: int) -> tuple[str, Callable[[Ask], Ask]]:
    return f"pp {pp}", lambda ask: (replace(ask[0], pp=pp), ask[1], ask[2])
