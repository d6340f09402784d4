"""Layouts that engines refuse are refused, each for its reason and with a way out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qmodel.catalog import load_catalog
from qmodel.perf import layouts
from qmodel.types import Engine, Gpu, Layout, Model, Node, Refusal
from tests.perf.architectures import dense_model


@pytest.fixture(scope="module")
def h100_node() -> Node:
    return load_catalog().node("dgx-h100")


def _refusal(model: Model, gpu: Gpu, node: Node, layout: Layout, **settings: object) -> Refusal:
    found = layouts(
        model,
        gpu,
        node,
        tp=[layout.tp],
        pp=[layout.pp],
        ep=[layout.ep],
        dp=[layout.dp],
        cp=[layout.cp],
        **settings,  # type: ignore[arg-type]
    )
    assert found.legal == ()
    (refusal,) = found.refused
    assert refusal.layout == layout
    return refusal


def test_a_70b_model_has_the_layouts_that_people_use(llama_70b: Model, h100: Gpu, h100_node: Node) -> None:
    found = layouts(llama_70b, h100, h100_node, max_gpus=8)
    assert [str(layout) for layout in found.legal] == ["tp2", "tp1-pp2", "tp4", "tp2-pp2", "tp8", "tp4-pp2"]
    assert {str(refusal.layout): refusal.kind for refusal in found.refused} == {
        "tp1": "memory",
        "tp8-pp2": "gpus",
    }


def test_heads_must_split(h100: Gpu, h100_node: Node) -> None:
    refusal = _refusal(dense_model(heads=40, kv_heads=8), h100, h100_node, Layout(tp=3))
    assert (refusal.kind, refusal.change) == ("heads", "tp 2 or tp 4")
    assert "40 attention heads do not split over tp 3" in refusal.reason


def test_kv_heads_must_split_or_repeat(h100: Gpu, h100_node: Node) -> None:
    refusal = _refusal(dense_model(heads=40, kv_heads=10), h100, h100_node, Layout(tp=4))
    assert (refusal.kind, refusal.change) == ("kv_heads", "tp 2 or tp 5")
    assert layouts(dense_model(heads=32, kv_heads=2), h100, h100_node, tp=[8], pp=[1]).legal == (Layout(tp=8),)


def test_experts_split_over_the_whole_stage_or_not_at_all(gpt_oss: Model, h100: Gpu, h100_node: Node) -> None:
    assert _refusal(gpt_oss, h100, h100_node, Layout(tp=8, ep=4)).change == "ep 1 or ep 8"
    assert layouts(gpt_oss, h100, h100_node, tp=[8], pp=[1], ep=[8]).legal == (Layout(tp=8, ep=8),)
    assert _refusal(dense_model(), h100, h100_node, Layout(tp=2, ep=2)).kind == "experts"
    odd = replace(gpt_oss, moe=replace(gpt_oss.moe, experts=100))  # type: ignore[arg-type]
    assert "100 experts do not split over ep 8" in _refusal(odd, h100, h100_node, Layout(tp=8, ep=8)).reason


def test_fp8_blocks_must_not_be_cut(r1: Model, h200: Gpu) -> None:
    node = load_catalog().default_node("h200-sxm")
    refusal = _refusal(r1, h200, node, Layout(tp=32))
    assert refusal.kind == "fp8_block"
    assert "dense FFN width 18432 / 32 = 576 is not a multiple of the FP8 block 128" in refusal.reason
    assert refusal.change == "tp 16"


def test_sliced_experts_obey_the_block_and_whole_experts_do_not(h100: Gpu, h100_node: Node) -> None:
    qwen = replace(
        load_catalog().model("qwen3-30b-a3b"), native_dtype="fp8-block128", weight_family="fp8", fp8_block=128
    )
    refusal = _refusal(qwen, h100, h100_node, Layout(tp=4))
    assert "expert width 768 / 4 = 192" in refusal.reason
    assert refusal.change == "tp 2 or ep 4"
    assert layouts(qwen, h100, h100_node, tp=[4], pp=[1], ep=[4]).legal == (Layout(tp=4, ep=4),)


def test_auto_places_whole_experts_where_slices_would_cut_a_block(h100: Gpu, h100_node: Node) -> None:
    found = layouts(load_catalog().model("minimax-m2"), h100, h100_node, tp=[8], pp=[1])
    assert found.legal == (Layout(tp=8, ep=8),)
    assert [refusal.kind for refusal in found.refused] == ["fp8_block"]


def test_stages_need_a_layer_each(h100: Gpu, h100_node: Node) -> None:
    refusal = _refusal(dense_model(layers=3), h100, h100_node, Layout(pp=4))
    assert (refusal.kind, refusal.change) == ("layers", "pp 3")
    assert layouts(dense_model(layers=3), h100, h100_node, tp=[1], pp=[2]).legal == (Layout(pp=2),)


def test_attention_ranks_are_for_mixtures(llama_70b: Model, h100: Gpu, h100_node: Node) -> None:
    refusal = _refusal(llama_70b, h100, h100_node, Layout(tp=4, dp=2))
    assert (refusal.kind, refusal.change) == ("engine", "2 replicas of dp 1")


def test_tokens_are_split_only_where_heads_are(
    llama_70b: Model, r1: Model, h100: Gpu, h200: Gpu, h100_node: Node
) -> None:
    refusal = _refusal(llama_70b, h100, h100_node, Layout(tp=4, cp=2))
    assert (refusal.kind, refusal.change) == ("engine", "tp 8 with cp 2, or cp 1")
    assert "vllm splits tokens only where 8 KV heads are split first" in refusal.reason
    wide = layouts(llama_70b, h100, h100_node, tp=[8], pp=[1], cp=[2])
    assert wide.legal == (Layout(tp=8, cp=2),)
    node = load_catalog().default_node("h200-sxm")
    assert layouts(r1, h200, node, tp=[1, 2], pp=[1], cp=[4, 8], dp=[1]).legal == (
        Layout(tp=1, cp=8),
        Layout(tp=2, cp=4),
        Layout(tp=2, cp=8),
    )
    assert _refusal(r1, h200, node, Layout(dp=4, ep=8, cp=2)).change == "cp 1 or dp 1"
    hybrid = load_catalog().model("qwen3-next-80b-a3b-thinking")
    assert "recurrent state" in _refusal(hybrid, h200, node, Layout(tp=2, cp=2)).reason


@pytest.mark.parametrize(
    ("layout", "engine", "reason", "change"),
    [
        (Layout(tp=8, pp=2), Engine(version="0.6.6"), "pp 2 of latent attention", "vllm 0.7 or later, or pp 1"),
        (
            Layout(dp=8, ep=8),
            Engine(version="0.7.2"),
            "dp 8: vllm 0.7.2 does not have it",
            "vllm 0.8 or later, or dp 1",
        ),
        (Layout(cp=8), Engine(version="0.10.1"), "cp 8: vllm 0.10.1", "vllm 0.11 or later, or cp 1"),
        (Layout(cp=8), Engine(name="tensorrt-llm"), "as a prototype only", "cp 1"),
    ],
)
def test_what_a_release_cannot_do_is_refused_for_it(
    r1: Model, h200: Gpu, layout: Layout, engine: Engine, reason: str, change: str
) -> None:
    refusal = _refusal(r1, h200, load_catalog().default_node("h200-sxm"), layout, engine=engine)
    assert (refusal.kind, refusal.change) == ("engine", change)
    assert reason in refusal.reason


def test_weight_types_that_a_gpu_lacks_are_refused_by_engine(h100: Gpu, h100_node: Node, llama_8b: Model) -> None:
    a100 = load_catalog().gpu("a100-80-sxm")
    node = load_catalog().default_node("a100-80-sxm")
    tensorrt = Engine(name="tensorrt-llm")
    refusal = _refusal(llama_8b, a100, node, Layout(), engine=tensorrt, precision="fp8")
    assert (refusal.kind, refusal.change) == ("engine", "precision bf16")
    assert "a100-80-sxm has no FP8 units, and tensorrt-llm does not unpack FP8 weights" in refusal.reason
    assert layouts(llama_8b, a100, node, tp=[1], pp=[1], precision="fp8").legal == (Layout(),)  # vLLM unpacks them
    assert "precision w4" in _refusal(llama_8b, h100, h100_node, Layout(), precision="fp4").change
    nvfp4 = load_catalog().model("nemotron-3-super-120b-a12b")
    assert nvfp4.native_dtype == "nvfp4"
    assert _refusal(nvfp4, h100, h100_node, Layout(tp=2), engine=tensorrt).change == "engine vllm"
    mi300 = load_catalog().gpu("mi300x")
    assert "runs no NVFP4" in _refusal(nvfp4, mi300, load_catalog().default_node("mi300x"), Layout(tp=2)).reason


def test_requests_beyond_the_context_are_refused(llama_8b: Model, h100: Gpu, h100_node: Node) -> None:
    refusal = _refusal(llama_8b, h100, h100_node, Layout(tp=8), max_tokens=200_000)
    assert (refusal.kind, refusal.change) == ("context", "requests of at most 131,072 tokens")


def test_some_engines_slice_experts_over_groups(gpt_oss: Model, h100: Gpu, h100_node: Node) -> None:
    sglang = Engine(name="sglang", gpu_memory_utilization=0.85)
    assert layouts(gpt_oss, h100, h100_node, tp=[8], pp=[1], ep=[4], engine=sglang).legal == (Layout(tp=8, ep=4),)
    refusal = _refusal(gpt_oss, h100, h100_node, Layout(tp=8, ep=3), engine=sglang)
    assert (refusal.reason, refusal.change) == ("ep 3 does not divide the 8 GPUs of a stage", "ep 2 or ep 4")


def test_redundant_experts_split_with_the_others(r1: Model, h200: Gpu) -> None:
    node = load_catalog().default_node("h200-sxm")
    layout = Layout(dp=8, ep=8)
    assert layouts(r1, h200, node, tp=[1], pp=[1], dp=[8], ep=[8], engine=Engine(redundant_experts=16)).legal == (
        layout,
    )
    refusal = _refusal(r1, h200, node, layout, engine=Engine(redundant_experts=12))
    assert "256 experts and 12 redundant ones do not split over ep 8" in refusal.reason
    assert refusal.change == "redundant_experts 16 or ep 1"


def test_a_wider_layout_that_is_named_for_memory_is_legal(r1: Model, h100: Gpu, h100_node: Node) -> None:
    refusal = _refusal(r1, h100, h100_node, Layout(tp=8))
    assert refusal.kind == "memory"
    assert "tp 16" in refusal.change
    assert Layout(tp=16) in layouts(r1, h100, h100_node, tp=[16], pp=[1]).legal


def test_islands_need_a_network_between_them(llama_70b: Model, h100: Gpu, h100_node: Node) -> None:
    alone = replace(h100_node, nic_fabric=None)
    assert _refusal(llama_70b, h100, alone, Layout(tp=16)).kind == "network"
    joined = layouts(llama_70b, h100, alone, load_catalog().fabric("ib-ndr"), tp=[16], pp=[1])
    assert joined.legal == (Layout(tp=16),)


def test_r1_needs_two_nodes_of_80_gb(r1: Model, h100: Gpu, h100_node: Node) -> None:
    one = layouts(r1, h100, h100_node, max_gpus=8)
    assert one.legal == ()
    assert {refusal.kind for refusal in one.refused} == {"memory", "gpus"}
    two = layouts(r1, h100, h100_node, max_gpus=16)
    assert Layout(tp=8, pp=2) in two.legal
    assert Layout(dp=16, ep=16) in two.legal


def test_a_long_request_is_part_of_what_must_fit(h100: Gpu, h100_node: Node) -> None:
    qwen = load_catalog().model("qwen3-32b")
    engine = Engine(max_num_seqs=1024)
    assert layouts(qwen, h100, h100_node, tp=[1], pp=[1], engine=engine, max_tokens=16000).legal == (Layout(),)
    refusal = _refusal(qwen, h100, h100_node, Layout(), engine=engine, max_tokens=32000)
    assert refusal.kind == "memory"
    assert "kv_dtype fp8" in refusal.change and "tp 2" in refusal.change


def test_every_asked_layout_is_either_legal_or_refused(r1: Model, h200: Gpu) -> None:
    found = layouts(r1, h200, tp=[1, 2, 4, 8], pp=[1, 2], dp=[1], ep=[1])
    assert len(found.legal) + len(found.refused) == 8
    assert all(refusal.reason for refusal in found.refused)


def test_degrees_start_at_one(llama_70b: Model, h100: Gpu, h100_node: Node) -> None:
    with pytest.raises(ValueError, match=r"tp: needs degrees of at least 1 \(got \[0\]\)"):
        layouts(llama_70b, h100, h100_node, tp=[0])


def test_what_no_layout_can_mend_is_still_a_refusal(gpt_oss: Model, h100: Gpu, h100_node: Node) -> None:
    refusal = _refusal(gpt_oss, h100, h100_node, Layout(tp=8), precision="fp8")
    assert (refusal.kind, refusal.change) == ("engine", "precision auto")
    peakless = replace(h100, dense_tflops={})
    assert "no dense bf16 peak" in _refusal(gpt_oss, peakless, h100_node, Layout(tp=8)).reason
    with pytest.raises(ValueError, match="precision: unknown 'int3'"):
        layouts(gpt_oss, h100, h100_node, precision="int3")
