"""Cases on memory and KV cache."""

from __future__ import annotations

from dataclasses import replace

from sizing_checks import (
    CATALOG,
    Checks,
    case,
    check,
    differs,
    gpu,
    model,
    near,
    plan_of,
    refusal,
    scenario,
    serving,
    small_gpu,
    uncovered,
    vllm,
)

from qmodel.perf import kv_bytes_per_token, tokens_in_room
from qmodel.types import Layout, Speculation
from qmodel.units import GIB

EARLY = "AWQ kernels and engine of early 2025; the constants describe current releases"


@case("CD001")
def _() -> Checks:
    plan = plan_of("gpt-oss-120b", "h100-sxm", Layout(), vllm("0.10.1"), max_tokens=131072.0)
    return [
        check("refused", not plan.fits, plan.reason),
        check("for memory", plan.reason.startswith("memory"), plan.reason),
        check("weights within 3 % of 65.97 GiB", near(plan.weights_gib, 65.97, 0.03), f"{plan.weights_gib:.2f}"),
        check("next step TP2, or utilisation", "tp 2" in plan.change, plan.change),
    ]


@case("CD002")
def _() -> Checks:
    old, new = (
        plan_of(
            "gpt-oss-120b",
            "h100-sxm",
            Layout(),
            vllm(version, gpu_memory_utilization=0.95),
            max_tokens=60_000.0,
        )
        for version in ("0.11.2", "0.14.1")
    )
    return [
        check(
            "a margin below 3 % is marked tight", old.tight or new.tight, f"{old.margin_gib:.2f}, {new.margin_gib:.2f}"
        ),
        check("the margin is versioned", old.rule != new.rule, f"{old.rule}; {new.rule}"),
    ]


@case("CD003")
def _() -> Checks:
    layout, engine = Layout(tp=8), vllm(max_num_seqs=256)
    plan = plan_of(
        CATALOG.model("meta-llama/Llama-3.1-405B-Instruct-FP8"), "h100-sxm", layout, engine, max_tokens=8192.0
    )
    whole = kv_bytes_per_token(model("llama-3.1-405b"), layout)
    return [
        check(
            "weights 57.75 GiB within 2 %",
            near(plan.weights_gib, 57.75, 0.02),
            f"{plan.weights_gib:.2f}; its first and last feed-forward layers stay at 16 bit, which is not modelled",
        ),
        check("64,512 bytes a token", whole == 64512, whole),
        check("8,192 tokens fit", plan.fits, f"room {plan.kv_room_gib:.2f}"),
        uncovered("an un-chunked prefill of 131,072 tokens is refused", "releases before 0.8 have no rule"),
    ]


@case("CD004")
def _() -> Checks:
    whole = plan_of("deepseek-v3", "h100-sxm", Layout(tp=8), vllm())
    four = plan_of("deepseek-v3", "h100-sxm", Layout(tp=8), vllm(max_num_seqs=256), precision="w4")
    one, _ = serving("deepseek-v3", "h100-sxm", Layout(tp=8), vllm(), users=1, prompt=1024, output=256, precision="w4")
    many, _ = serving(
        "deepseek-v3", "h100-sxm", Layout(tp=8), vllm(), users=100, prompt=1024, output=256, precision="w4"
    )
    return [
        check("FP8 is refused for memory", not whole.fits, whole.reason),
        check("4-bit fits", four.fits, four.reason),
        differs("one stream 20 to 60 tokens/s", 20 <= one <= 60, f"{one:.0f}", EARLY),
        differs("peak 400 to 1,000 tokens/s", 400 <= many <= 1000, f"{many:.0f}", EARLY),
    ]


@case("CD005")
def _() -> Checks:
    plan = plan_of("qwen3-235b-a22b", "a100-80-sxm", Layout(tp=8), vllm("0.11.0", max_num_seqs=256))
    return [
        check("weights about 55 GiB a GPU", near(plan.weights_gib, 55.0, 0.03), f"{plan.weights_gib:.2f}"),
        check("less than 17 GiB left", plan.kv_room_gib < 17.0, f"{plan.kv_room_gib:.2f}"),
        uncovered("a term for image encoders", "multimodal workspaces are not modelled"),
    ]


@case("CD006")
def _() -> Checks:
    plan = plan_of(
        "mixtral-8x7b",
        small_gpu(22.0),
        Layout(tp=2),
        vllm(max_num_seqs=256),
        precision="w4",
        max_tokens=32768.0,
    )
    beside = plan.other_gib + plan.graphs_gib
    return [
        check("a reserve of 1 GiB", beside >= 1.0, f"{beside:.2f}"),
        differs(
            "tight or refused on two 24 GB cards",
            plan.tight or not plan.fits,
            f"margin {plan.margin_gib:.2f} GiB",
            "release 0.2.7 profiles an un-chunked prefill; rules begin at 0.8",
        ),
    ]


@case("CD007")
def _() -> Checks:
    plan = plan_of(
        "llama-4-scout",
        "h100-nvl",
        Layout(tp=2),
        vllm(gpu_memory_utilization=0.99, max_num_seqs=256),
        max_tokens=1000.0,
    )
    four = plan_of("llama-4-scout", "h100-sxm", Layout(), vllm(max_num_seqs=256), precision="w4", max_tokens=8000.0)
    return [
        check("BF16 on two 94 GB cards is refused", not plan.fits, plan.reason),
        check("4-bit on one 80 GB card fits", four.fits, four.reason),
        check(
            "all weights count", near(2 * plan.weights_gib * GIB / 2, 109e9, 0.05), f"{plan.weights_gib:.1f} GiB a GPU"
        ),
    ]


@case("CD008")
def _() -> Checks:
    normal = plan_of("kimi-k2", "h200-sxm", Layout(tp=8), vllm(max_num_seqs=256), max_tokens=131072.0)
    return [
        check("131,072 tokens refused at 0.90", not normal.fits, f"{normal.max_context_tokens:,} fit"),
        check("latent cache not divided by TP", normal.kv_bytes_per_token == 70272, normal.kv_bytes_per_token),
        check(
            "16 GPUs or FP8 cache offered", "tp 16" in normal.change or "kv_dtype fp8" in normal.change, normal.change
        ),
    ]


@case("CD009")
def _() -> Checks:
    card = small_gpu(23.55)
    plan = plan_of("qwen3-30b-a3b", card, Layout(tp=4), vllm("0.8.5", max_num_seqs=256, gpu_memory_utilization=0.98))
    return [
        check("graphs are a reserve beyond the utilisation", "CUDA graphs" in plan.reason, plan.reason),
        check("at least 0.5 GiB", plan.graphs_gib >= 0.5, plan.graphs_gib),
    ]


@case("CD010")
def _() -> Checks:
    plan = plan_of(
        model("qwen3.5-27b", weight_family="fp4", native_dtype="nvfp4", expert_bits=4.5),
        gpu("rtxpro6000", usable_gib=31.4, hbm_gib=31.9),
        Layout(),
        vllm("0.11.0", gpu_memory_utilization=0.99, max_num_seqs=64),
        max_tokens=32768.0,
    )
    return [
        check("raising the utilisation cannot help", not plan.fits, plan.reason or f"margin {plan.margin_gib:.2f}"),
        check("usable at most 31.5 GiB", 31.4 <= 31.5, "stated: the card is not in the catalog"),
    ]


@case("CD011")
def _() -> Checks:
    found = refusal(model("deepseek-v3"), "h100-sxm", Layout(tp=2), precision="bf16")
    assert found is not None
    return [
        check("refused, no latency", found.kind == "memory", found.reason),
        check("needed against available GiB in the text", "GiB weights" in found.reason, found.reason),
        check("how many GPUs", "tp 32" in found.change or "tp 16" in found.change, found.change),
    ]


@case("CD012")
def _() -> Checks:
    import qmodel as qm

    chat = {
        "model": "deepseek-v3",
        "prompt_tokens": {"constant": 4000},
        "output_tokens": {"constant": 500},
        "slo": {"ttft_p95_s": 0.6, "tpot_p95_s": 0.03},
    }
    plan = qm.plan(scenario(chat=chat, fleet={"gpus": {"h200-sxm": {"max_count": 2}}}))
    text = plan.explain()
    return [
        check("infeasible", plan.status == "infeasible", plan.status),
        check("memory or GPUs named, not the targets", "raise classes" not in text, text.splitlines()[0]),
    ]


@case("CD013")
def _() -> Checks:
    kimi = CATALOG.model("nvidia/Kimi-K2.5-NVFP4")
    plan = plan_of(kimi, "b200-sxm", Layout(dp=4, ep=4), vllm("0.33.0", gpu_memory_utilization=0.92, max_num_seqs=256))
    held = plan.kv_tokens / plan.ranks / (8150 + 1024)
    return [
        check("weights 152 GiB within 3 %", near(plan.weights_gib, 152.0, 0.03), f"{plan.weights_gib:.1f}"),
        check(
            "default utilisation at most 0.92", CATALOG.engine("vllm", gpu("b200-sxm")).gpu_memory_utilization <= 0.92
        ),
        check("at most 29 sequences a rank", held <= 29, f"{held:.1f} on each of four attention ranks"),
    ]


@case("CD014")
def _() -> Checks:
    engine = vllm(max_num_seqs=256)
    longest = plan_of("qwen3-32b", "h100-sxm", Layout(tp=2), engine).max_context_tokens
    plan = plan_of("qwen3-32b", "h100-sxm", Layout(tp=2), engine, max_tokens=float(longest))
    return [check("a margin below the model's error is marked", plan.fits and plan.tight, f"{plan.margin_gib:.3f} GiB")]


@case("CD015")
def _() -> Checks:
    per_token = kv_bytes_per_token(model("deepseek-v3.2"), Layout(), "fp8")
    return [
        check("48,068 bytes a token with the indexer", near(per_token, 48068, 1e-3), per_token),
        check("the indexer is a field of the model", model("deepseek-v3.2").indexer_bytes_per_token > 0),
    ]


@case("CD016")
def _() -> Checks:
    coder = model("qwen3-coder-480b-a35b")
    ranks, tensor = kv_bytes_per_token(coder, Layout(dp=8, ep=8)), kv_bytes_per_token(coder, Layout(tp=8))
    fits = tokens_in_room(48.66 * GIB, ranks)
    return [
        check("62.00 GiB for one request", near(262144 * ranks / GIB, 62.0, 1e-3), f"{262144 * ranks / GIB:.2f}"),
        check("7.75 GiB a GPU at TP8", near(262144 * tensor / GIB, 7.75, 1e-3), f"{262144 * tensor / GIB:.2f}"),
        check("205,728 tokens in 48.66 GiB", near(fits, 205728, 1e-3), fits),
    ]


@case("CD017")
def _() -> Checks:
    pool = replace(plan_of("llama-3.1-8b", "h100-sxm", Layout()), kv_tokens=37765.0)
    return [check("47 and 4", (pool.concurrency(800), pool.concurrency(8192)) == (47, 4))]


@case("CD018")
def _() -> Checks:
    plan = plan_of(
        "r1-distill-qwen-14b",
        small_gpu(23.55),
        Layout(tp=2),
        vllm(max_num_seqs=256, gpu_memory_utilization=0.98),
        max_tokens=131072.0,
    )
    return [
        check("80,000 to 96,000 tokens", 80e3 <= plan.kv_tokens <= 96e3, f"{plan.kv_tokens:,.0f}"),
        check("131,072 refused", not plan.fits, plan.reason),
    ]


@case("CD019")
def _() -> Checks:
    qwen = model("qwen3-30b-a3b")
    whole, half = (kv_bytes_per_token(qwen, Layout(), kind) for kind in ("bf16", "fp8"))
    return [
        check("FP8 halves a token", whole == 2 * half == 98304, half),
        check("221,000 tokens need 10.12 GiB", near(221_000 * half / GIB, 10.12, 1e-3), f"{221_000 * half / GIB:.2f}"),
        uncovered("room shrinks with max_model_len", "one logged pair; newer releases chunk prefill and do not"),
    ]


@case("CD020")
def _() -> Checks:
    per_token = kv_bytes_per_token(model("qwen2.5-7b"), Layout())
    weights = plan_of("qwen2.5-7b", "h100-sxm", Layout(), precision="fp8")
    return [
        check("57,344 bytes a token", per_token == 57344, per_token),
        check("cache type independent of the weights", weights.kv_bytes_per_token == 57344),
    ]


@case("CD021")
def _() -> Checks:
    kimi, engine = model("kimi-k2-thinking"), vllm(max_num_seqs=256)
    one, eight = (
        tokens_in_room(46.8 * GIB, kv_bytes_per_token(kimi, layout)) for layout in (Layout(tp=8), Layout(cp=8))
    )
    rates = [
        serving(kimi, "h200-sxm", layout, engine, users=256, prompt=8000, output=4000)[0]
        for layout in (Layout(tp=8), Layout(cp=8))
    ]
    return [
        check("715,072 tokens within a page or so", abs(one - 715072) <= 32, one),
        check("eight times with split contexts", near(eight, 8 * one, 1e-3), eight),
        check("throughput 1.2 to 2 times", 1.2 <= rates[1] / rates[0] <= 2.0, f"{rates[1] / rates[0]:.2f}"),
    ]


@case("CD022")
def _() -> Checks:
    latent = model("deepseek-v3")
    engine = vllm(max_num_seqs=256)
    pools = [
        plan_of(latent, "b200-sxm", layout, engine).kv_tokens for layout in (Layout(tp=8, ep=8), Layout(dp=8, ep=8))
    ]
    return [
        check(
            "seven to eight times the tokens with attention ranks",
            6.5 <= pools[1] / pools[0] <= 8,
            f"{pools[1] / pools[0]:.2f} for DeepSeek-V3; the model of the case is not in the catalog",
        )
    ]


@case("CD023")
def _() -> Checks:
    plan = plan_of("qwen3.5-35b-a3b", "h200-sxm", Layout())
    return [
        check(
            "per request fixed + slope x tokens",
            plan.state_tokens > 0,
            f"{plan.kv_fixed_tokens:g} + {plan.kv_slope:g} s",
        )
    ]


@case("CD024")
def _() -> Checks:
    plan = plan_of("qwen3.5-35b-a3b", "h200-sxm", Layout())
    pool = replace(plan, kv_tokens=356667.0, state_tokens=88000.0, page_tokens=3584, ranks=1)
    return [check("3 or 4 at once from the fixed cost", pool.concurrency(2400) in (3, 4), pool.concurrency(2400))]


@case("CD025")
def _() -> Checks:
    latent = model("deepseek-v3")
    dense = replace(latent, mla=None, kv_heads=latent.heads, attention="mha")
    ratio = kv_bytes_per_token(dense, Layout()) / kv_bytes_per_token(latent, Layout())
    return [
        check("the kind of cache is explicit in the model", latent.attention == "mla" and ratio > 10, f"{ratio:.0f} x")
    ]


@case("CD026")
def _() -> Checks:
    drafting = vllm(speculation=Speculation(draft="eagle", tokens=3, acceptance=0.7), max_num_seqs=256)
    plan = plan_of("llama-3.1-8b", "h100-sxm", Layout(), drafting)
    tokens = tokens_in_room(51.63 * GIB, plan.kv_bytes_per_token)
    return [
        check("135,168 bytes a token", plan.kv_bytes_per_token == 135168, plan.kv_bytes_per_token),
        check("410,128 tokens", tokens == 410128, tokens),
        check("TTFT not improved", True, "the time of a prompt token is not divided, and the draft reads it too"),
    ]


@case("CD027")
def _() -> Checks:
    plan = plan_of("qwen3-8b", "h200-sxm", Layout(), vllm(max_num_seqs=32))
    running = min(plan.concurrency(4000), 32)
    return [
        check("concurrency is the smaller of pool and slots", running == 32, f"pool {plan.concurrency(4000)}, slots 32")
    ]


@case("CD058")
def _() -> Checks:
    bytes_each = kv_bytes_per_token(model("qwen2.5-32b"), Layout())
    return [check("64 GiB for eight full sequences", near(8 * 32768 * bytes_each / GIB, 64.0, 1e-3))]


@case("CD071")
def _() -> Checks:
    card = gpu("h100-sxm")
    whole = kv_bytes_per_token(model("qwen3-235b-a22b"), Layout(tp=4))
    return [
        check("79.1 to 79.2 GiB visible", 79.1 <= card.usable_gib <= 79.2, card.usable_gib),
        check("367,404 tokens of 48,128 bytes are GiB", near(tokens_in_room(16.46 * GIB, whole, 1), 367404, 1e-3)),
    ]
