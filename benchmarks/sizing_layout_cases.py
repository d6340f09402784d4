"""Cases on legal layouts."""

from __future__ import annotations

from sizing_checks import (
    CATALOG,
    Checks,
    case,
    check,
    model,
    near,
    plan_of,
    refusal,
    small_gpu,
    vllm,
)

from qmodel.perf import layouts
from qmodel.types import Engine, Layout


@case("CD028")
def _() -> Checks:
    wide = model("qwen2.5-32b")
    six, three = (refusal(wide, "l40s", Layout(tp=tp)) for tp in (6, 3))
    four_bit = plan_of(wide, small_gpu(15.5), Layout(tp=2), vllm(max_num_seqs=64), precision="w4", max_tokens=4096.0)
    return [
        check(
            "TP 6 and 3 refused by heads",
            all(item and item.kind == "heads" for item in (six, three)),
            six and six.change,
        ),
        check("TP 2 in 4 bit fits two 16 GB cards", four_bit.fits, four_bit.reason),
    ]


@case("CD029")
def _() -> Checks:
    legal = []
    for heads, kv_heads in ((52, 52), (28, 4)):
        odd = model("llama-3.1-8b", heads=heads, kv_heads=kv_heads, head_dim=128)
        found = layouts(odd, "h200-sxm", tp=range(1, 9), pp=[1], engine=vllm())
        legal.append({layout.tp for layout in found.legal})
    return [check("TP 1, 2, 4 for both", legal == [{1, 2, 4}, {1, 2, 4}], legal)]


@case("CD030")
def _() -> Checks:
    found = layouts("gemma-3-27b", "h100-sxm", tp=[1, 2, 3], pp=[1], engine=vllm())
    return [check("no TP 3, but TP 2", {layout.tp for layout in found.legal} == {1, 2}, found.refused[0].reason)]


@case("CD031")
def _() -> Checks:
    small = CATALOG.model("Qwen/Qwen3-30B-A3B-FP8")
    four, two = (refusal(small, "h100-sxm", Layout(tp=tp)) for tp in (4, 2))
    return [
        check("TP 4 refused by the block", four and four.kind == "fp8_block", four and four.reason),
        check("TP 2 legal", two is None),
    ]


@case("CD032")
def _() -> Checks:
    wide, half = (refusal("deepseek-r1", "h200-sxm", Layout(tp=tp)) for tp in (32, 16))
    return [
        check("TP 32 refused", wide and wide.kind == "fp8_block", wide and wide.reason),
        check("TP 16 legal", half is None),
    ]


@case("CD034")
def _() -> Checks:
    old = refusal("deepseek-v3", "h200-sxm", Layout(tp=8, pp=2), Engine(version="0.6.6"))
    new = plan_of("deepseek-v3", "h200-sxm", Layout(tp=8, pp=2))
    whole = plan_of("deepseek-v3", "h200-sxm", Layout(tp=8))
    share = new.kv_bytes_per_token / whole.kv_bytes_per_token
    return [
        check("the release rules it out", old and old.kind == "engine", old and old.reason),
        check("the larger stage of 31 layers sets memory", near(share, 31 / 61, 1e-6), f"{share:.4f}"),
    ]


@case("CD043")
def _() -> Checks:
    engine = vllm(gpu_memory_utilization=0.9, max_num_seqs=256)
    plans = [
        plan_of("deepseek-v3.2", "h200-sxm", layout, engine)
        for layout in (Layout(tp=8), Layout(tp=2, dp=4, ep=8), Layout(dp=8, ep=8))
    ]
    legal = layouts("deepseek-v3.2", "h200-sxm", tp=[2], pp=[1], dp=[4], ep=[8], engine=engine).legal
    weights = [f"{plan.weights_gib:.0f}" for plan in plans]
    return [
        check(
            "attention weights of every rank count",
            plans[0].weights_gib < plans[1].weights_gib < plans[2].weights_gib,
            weights,
        ),
        check("TP2 x DP4 is in the search space", legal == (Layout(tp=2, dp=4, ep=8),), "where listed, not under auto"),
    ]
