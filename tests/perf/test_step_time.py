"""The component model and the law that queues read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.catalog import load_catalog
from qmodel.perf import (
    LawPoint,
    decode_step_s,
    prefill_s,
    resolve_constants,
    step_components,
    step_law,
    step_laws,
)
from qmodel.perf.components import Pass, pass_model, stack_passes
from qmodel.topology import link_costs
from qmodel.types import Engine, Gpu, Layout, LinkCosts, Model

VLLM, SGLANG = Engine(), Engine(name="sglang", constants="SGLang")
MODELS = ("llama-3.3-70b", "gpt-oss-120b", "deepseek-r1", "gemma-3-27b", "qwen3-next-80b-a3b-thinking")


def test_small_batches_read_the_weights_at_the_fitted_share_of_bandwidth(llama_8b: Model, h100: Gpu) -> None:
    parts = step_components(llama_8b, h100, Layout(), VLLM, batch=1, context_tokens=1)
    # All weights but the input table, two bytes each, at the fitted share of 3.35 TB/s.
    share = resolve_constants(llama_8b, h100, VLLM, constants=load_catalog().constants).e_w
    by_hand = 2 * (8.03e9 - 4096 * 128256) / (share * 3.35e12)
    assert float(parts["gemm"]) == pytest.approx(by_hand, rel=2e-3)


def test_kv_reads_are_bytes_over_bandwidth_where_arithmetic_is_cheap(llama_70b: Model, h100: Gpu) -> None:
    parts = step_components(llama_70b, h100, Layout(tp=8), VLLM, batch=64, context_tokens=4000)
    by_hand = 64 * 4000 * 2 * 128 * 80 * 2 / (0.97 * 3.35e12)
    assert by_hand < float(parts["kv"]) < 1.1 * by_hand


def test_components_add_up_to_the_step(r1: Model, h200: Gpu) -> None:
    work = {"batch": np.array([1.0, 32.0, 256.0]), "context_tokens": 3000.0}
    parts = step_components(r1, h200, Layout(tp=8), SGLANG, **work)
    assert set(parts) == {"gemm", "moe", "kv", "attention", "fixed", "collectives", "host"}
    total = np.sum(np.broadcast_arrays(*parts.values()), axis=0)
    np.testing.assert_allclose(decode_step_s(r1, h200, Layout(tp=8), SGLANG, **work), total)


def test_a_single_gpu_has_no_collectives_and_a_dense_model_no_experts(llama_8b: Model, h100: Gpu) -> None:
    parts = step_components(llama_8b, h100, Layout(), VLLM, batch=[1, 100], context_tokens=1000)
    assert not parts["collectives"].any() and not parts["moe"].any()


@pytest.mark.parametrize("name", MODELS)
def test_steps_grow_with_batch_and_context(name: str, h200: Gpu) -> None:
    batch, context = np.array([0, 1, 2, 8, 64, 512])[:, None], np.array([0, 100, 3000, 30000])
    step_s = decode_step_s(name, h200, Layout(tp=8), VLLM, batch=batch, context_tokens=context)
    assert step_s.shape == (6, 4)
    assert (np.diff(step_s[1:], axis=0) > 0).all() and (np.diff(step_s[1:], axis=1) > 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_prefill_grows_with_the_prompt(name: str, h200: Gpu) -> None:
    seconds = prefill_s(name, h200, Layout(tp=8), VLLM, prompt_tokens=[1, 128, 1000, 8192, 8193, 65536])
    assert (np.diff(seconds) > 0).all()


@pytest.mark.parametrize("layout", [Layout(tp=8), Layout(dp=8, ep=8)])
@pytest.mark.parametrize("name", ["gpt-oss-120b", "deepseek-r1"])
def test_the_law_has_the_kv_slope_everywhere(name: str, layout: Layout, h200: Gpu) -> None:
    law = step_law(name, h200, layout, SGLANG, context_tokens=4000, prompt_tokens=1000, batch=64)
    batch = np.array([1.0, 16.0, 64.0, 256.0])
    low, high = (decode_step_s(name, h200, layout, SGLANG, batch=batch, context_tokens=s) for s in (2000, 9000))
    np.testing.assert_allclose((high - low) / (batch * 7000), law.gamma_s, rtol=1e-9)
    np.testing.assert_allclose(law.tau_s(batch, 9000.0), high, rtol=1e-9)


@given(batch=st.floats(1, 256), context=st.floats(200, 50000))
@settings(max_examples=30, deadline=None)
def test_the_law_is_close_between_its_knots(batch: float, context: float) -> None:
    gpu = load_catalog().gpu("h200-sxm")
    law = step_law("deepseek-r1", gpu, Layout(tp=8), SGLANG, context_tokens=2000, prompt_tokens=1000, batch=64)
    exact = decode_step_s("deepseek-r1", gpu, Layout(tp=8), SGLANG, batch=batch, context_tokens=context)
    assert float(law.tau_s(batch, context)) == pytest.approx(float(exact), rel=0.005)


def test_a_mixture_is_concave_and_a_dense_model_nearly_straight(llama_70b: Model, r1: Model, h200: Gpu) -> None:
    def bend(model: Model, engine: Engine) -> float:
        law = step_law(model, h200, Layout(tp=8), engine, context_tokens=2000, prompt_tokens=1000, batch=64)
        tau = law.tau_s(np.array([1.0, 32.0, 63.0]), 0.0)
        return float(tau[1] / ((tau[0] + tau[2]) / 2))

    assert bend(r1, SGLANG) > 1.1
    assert bend(llama_70b, VLLM) == pytest.approx(1.0, abs=0.02)


def test_delta_is_the_secant_of_one_chunk(llama_70b: Model, h100: Gpu) -> None:
    law = step_law(llama_70b, h100, Layout(tp=4), VLLM, context_tokens=2000, prompt_tokens=20000, batch=16)
    work = {"batch": 16.0, "context_tokens": 2000.0, "prefill_tokens": [0.0, 8192.0], "prompt_tokens": 20000.0}
    parts = step_components(llama_70b, h100, Layout(tp=4), VLLM, **work)
    step_s = np.sum(np.broadcast_arrays(*parts.values()), axis=0)
    assert law.delta_s == pytest.approx(float(step_s[1] - step_s[0]) / 8192)


def test_the_law_carries_its_band_and_where_it_comes_from(r1: Model, h200: Gpu) -> None:
    law = step_law(r1, h200, Layout(tp=8), SGLANG, context_tokens=2000, prompt_tokens=1000, batch=64)
    assert law.band.level == "exact override"
    assert law.provenance.startswith("fit of H200 x SGLang x fp8")
    assert law.batch[0] == 0 and law.batch[-1] == 256


def test_attention_ranks_share_out_the_traffic_of_a_latent_cache(r1: Model, h200: Gpu) -> None:
    tensor = step_components(r1, h200, Layout(tp=8), SGLANG, batch=256, context_tokens=8000)["kv"]
    ranks = step_components(r1, h200, Layout(dp=8, ep=8), SGLANG, batch=256, context_tokens=8000)["kv"]
    assert 1.0 < tensor / ranks < 8.0


def test_pipelines_reread_weights_and_leave_kv_traffic_alone(llama_70b: Model, h100: Gpu) -> None:
    tensor = step_components(llama_70b, h100, Layout(tp=8), VLLM, batch=[2, 1e8], context_tokens=4000)
    pipeline = step_components(llama_70b, h100, Layout(tp=4, pp=2), VLLM, batch=[2, 1e8], context_tokens=4000)
    assert float(pipeline["gemm"][0] / tensor["gemm"][0]) == pytest.approx(2.0, rel=0.01)
    assert float(pipeline["kv"][1] / tensor["kv"][1]) == pytest.approx(1.0, rel=1e-3)


def test_a_lone_sequence_passes_all_stages(llama_70b: Model, h100: Gpu) -> None:
    single = step_components(llama_70b, h100, Layout(tp=2), VLLM, batch=1, context_tokens=4000)
    pipeline = step_components(llama_70b, h100, Layout(tp=2, pp=4), VLLM, batch=1, context_tokens=4000)
    assert float(pipeline["kv"]) == pytest.approx(float(single["kv"]))


def test_the_largest_micro_batch_is_that_of_balls_in_bins(llama_70b: Model, h100: Gpu) -> None:
    stages, batch = 4, 256
    rng = np.random.default_rng(1)
    largest = rng.multinomial(batch, [1 / stages] * stages, size=4000).max(axis=1).mean()
    kv = [
        float(step_components(llama_70b, h100, layout, VLLM, batch=count, context_tokens=4000)["kv"])
        for layout, count in ((Layout(tp=2, pp=stages), batch), (Layout(tp=2), 1))
    ]
    assert kv[0] / kv[1] == pytest.approx(largest, rel=0.1)


def test_the_law_of_a_pipeline_is_exact_at_its_context(llama_70b: Model, h100: Gpu) -> None:
    layout = Layout(tp=2, pp=4)
    law = step_law(llama_70b, h100, layout, VLLM, context_tokens=3000, prompt_tokens=1000, batch=1)
    batch = np.array([1.0, 16.0, 256.0])
    np.testing.assert_allclose(
        law.tau_s(batch, 3000.0), decode_step_s(llama_70b, h100, layout, VLLM, batch=batch, context_tokens=3000)
    )
    assert (law.base_s > 0).all()


def test_r1_over_two_nodes_collapses_on_tcp(r1: Model, h100: Gpu) -> None:
    catalog = load_catalog()
    node, layout = catalog.default_node("h100-sxm"), Layout(tp=16)
    steps = {}
    for fabric in ("ib-ndr", "tcp-25"):
        links = link_costs(layout, node, catalog.fabric(fabric), None)
        assert not links.stage_in_island
        steps[fabric] = decode_step_s(r1, h100, layout, SGLANG, batch=[1.0, 64.0], context_tokens=2000, links=links)
    island = decode_step_s(r1, h100, layout, SGLANG, batch=[1.0, 64.0], context_tokens=2000)
    assert (steps["ib-ndr"] > island).all()
    assert (steps["tcp-25"] > 2.5 * steps["ib-ndr"]).all()


def test_split_contexts_share_out_the_cache_and_pay_for_it(r1: Model, h200: Gpu) -> None:
    work = {"batch": 64, "context_tokens": 32000, "prefill_tokens": 2048, "prompt_tokens": 32000}
    tensor = step_components(r1, h200, Layout(tp=8), SGLANG, **work)
    split = step_components(r1, h200, Layout(tp=1, cp=8), SGLANG, **work)
    # Eight copies of the latent cache become one, and every rank scores all heads on an eighth of the tokens.
    assert 1.0 < float(tensor["kv"] / split["kv"]) < 8.0
    assert float(split["attention"] / tensor["attention"]) == pytest.approx(1.0)  # heads stay split in prefill
    assert split["collectives"] > tensor["collectives"]
    assert split["gemm"] == pytest.approx(tensor["gemm"])
    law = step_law(r1, h200, Layout(tp=1, cp=8), SGLANG, context_tokens=32000, prompt_tokens=8000, batch=32)
    assert law.band.confidence == "low" and "context parallelism" in law.band.level


@given(cp=st.sampled_from([2, 4, 8]), batch=st.floats(1, 256), context=st.floats(100, 100_000))
@settings(max_examples=30, deadline=None)
def test_queries_and_outputs_travel_whatever_the_context(cp: int, batch: float, context: float) -> None:
    model, gpu = load_catalog().model("deepseek-r1"), load_catalog().gpu("h200-sxm")
    layout = Layout(tp=8 // cp, cp=cp)
    short = step_components(model, gpu, layout, SGLANG, batch=batch, context_tokens=context)
    long = step_components(model, gpu, layout, SGLANG, batch=batch, context_tokens=2 * context)
    assert float(long["collectives"]) == pytest.approx(float(short["collectives"]))
    assert float(long["kv"]) == pytest.approx(2 * float(short["kv"]), rel=1e-6)


def test_split_contexts_over_a_network_pay_for_it(r1: Model, h100: Gpu) -> None:
    catalog = load_catalog()
    layout, node = Layout(tp=2, cp=8), catalog.default_node("h100-sxm")
    steps = [
        float(
            decode_step_s(
                r1,
                h100,
                layout,
                SGLANG,
                batch=64,
                context_tokens=8000,
                links=link_costs(layout, node, catalog.fabric(name), None),
            )
        )
        for name in ("ib-ndr", "tcp-25")
    ]
    assert steps[1] > 2 * steps[0]


def test_wide_expert_parallelism_hides_what_the_network_can_carry(r1: Model, h100: Gpu) -> None:
    catalog = load_catalog()
    node, layout = catalog.default_node("h100-sxm"), Layout(dp=72, ep=72)
    links = link_costs(layout, node, catalog.fabric("ib-ndr"), None)
    work = {"batch": 72 * 256.0, "context_tokens": 2500.0, "links": links}
    parts = step_components(r1, h100, layout, SGLANG, **work)
    step_s = float(decode_step_s(r1, h100, layout, SGLANG, **work))
    transfer = float(parts.pop("collectives"))
    rest = float(np.sum(np.broadcast_arrays(*parts.values()), axis=0))
    assert step_s == pytest.approx(max(transfer, rest))
    # Published deployment: 256 sequences a GPU on 72 H100 decode in about 92 ms.
    assert step_s == pytest.approx(0.092, rel=0.25)


def test_stage_hand_overs_are_paid_on_the_network(llama_70b: Model, h100: Gpu) -> None:
    catalog = load_catalog()
    layout = Layout(tp=8, pp=2)
    links = link_costs(layout, catalog.default_node("h100-sxm"), catalog.fabric("tcp-10"), None)
    free = decode_step_s(llama_70b, h100, layout, VLLM, batch=64, context_tokens=2000, links=LinkCosts())
    paid = decode_step_s(llama_70b, h100, layout, VLLM, batch=64, context_tokens=2000, links=links)
    payload = 2 * (32 + np.sqrt(2 * 32 * np.log(2))) * 8192 / 8
    assert float(paid - free) == pytest.approx(links.stage_send.seconds(payload))


def test_half_the_bandwidth_is_slower(llama_70b: Model, h100: Gpu) -> None:
    slow = replace(h100, hbm_bandwidth_gbps=h100.hbm_bandwidth_gbps / 2)
    full = decode_step_s(llama_70b, h100, Layout(tp=4), VLLM, batch=8, context_tokens=2000)
    assert 1.5 < float(decode_step_s(llama_70b, slow, Layout(tp=4), VLLM, batch=8, context_tokens=2000) / full) < 2.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": -1}, r"batch: must be at least 0 \(got -1\)"),
        ({"context_tokens": float("nan")}, r"context_tokens: must be at least 0 \(got nan\)"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, object], message: str, llama_8b: Model, h100: Gpu) -> None:
    work: dict[str, object] = {"layout": Layout(), "batch": 1, "context_tokens": 100} | change
    with pytest.raises(ValueError, match=message):
        decode_step_s(llama_8b, h100, **work)  # type: ignore[arg-type]


def test_a_prompt_must_have_tokens(llama_8b: Model, h100: Gpu) -> None:
    with pytest.raises(ValueError, match=r"prompt_tokens: must be greater than 0 \(got 0\)"):
        prefill_s(llama_8b, h100, Layout(), prompt_tokens=[100, 0])


def _points() -> list[LawPoint]:
    catalog = load_catalog()
    return [
        LawPoint(
            model=catalog.model(model),
            gpu=(gpu := catalog.gpu(accelerator)),
            layout=layout,
            engine=engine,
            context_tokens=3000.0,
            prompt_tokens=prompt,
            batch=batch,
            links=link_costs(layout, catalog.default_node(gpu.name), None, None),
        )
        for model, layout in (("llama-3.3-70b", Layout(tp=4, pp=2)), ("gpt-oss-120b", Layout(dp=4, ep=4)))
        for accelerator, engine in (("h200-sxm", VLLM), ("b200-sxm", SGLANG))
        for prompt, batch in ((500.0, 0.0), (20000.0, 40.0))
    ]


def test_laws_of_many_replicas_are_those_of_each() -> None:
    points = _points()
    for point, law in zip(points, step_laws(points), strict=True):
        alone = step_law(
            point.model,
            point.gpu,
            point.layout,
            point.engine,
            context_tokens=point.context_tokens,
            prompt_tokens=point.prompt_tokens,
            batch=point.batch,
            links=point.links,
        )
        assert law.to_dict() == alone.to_dict()


def test_passes_of_many_models_are_those_of_each(r1: Model, llama_8b: Model, h100: Gpu, h200: Gpu) -> None:
    constants = load_catalog().constants
    wide = link_costs(
        Layout(dp=72, ep=72), load_catalog().default_node("h100-sxm"), load_catalog().fabric("ib-ndr"), None
    )
    models = [
        pass_model(r1, h100, Layout(dp=72, ep=72), SGLANG, constants=constants, links=wide),
        pass_model(r1, h200, Layout(tp=8), SGLANG, constants=constants, links=LinkCosts()),
        pass_model(llama_8b, h200, Layout(), VLLM, constants=constants, links=LinkCosts()),
    ]
    work = Pass.of(np.array([0.0, 1.0, 300.0]), 2000.0, np.array([512.0, 0.0, 2048.0]), 4000.0)
    np.testing.assert_allclose(stack_passes(models).step_s(work), [model.step_s(work) for model in models], rtol=1e-12)


def test_prefill_is_tabulated_by_batch_and_dearest_where_nobody_decodes(r1: Model, h200: Gpu) -> None:
    law = step_law(r1, h200, Layout(tp=8), SGLANG, context_tokens=2000, prompt_tokens=1000, batch=64)
    cost = law.prefill_token_s(np.array([0.0, 64.0, 256.0]))
    assert cost[1] == pytest.approx(law.delta_s, rel=1e-9)
    assert cost[0] > 1.1 * cost[1]  # the experts that a prompt wakes are read for it alone
    alone = prefill_s(r1, h200, Layout(tp=8), SGLANG, prompt_tokens=1000)
    assert float(law.tau_s(0.0, 0.0) + 1000 * cost[0]) == pytest.approx(float(alone), rel=1e-9)


def test_long_kernels_hide_the_launches_of_a_prompt(llama_8b: Model, h100: Gpu) -> None:
    parts = step_components(llama_8b, h100, Layout(), VLLM, batch=0, context_tokens=0, prefill_tokens=[1, 16, 4096])
    kernels = parts["gemm"] + parts["attention"] + parts["kv"]
    launched = kernels + parts["fixed"]
    assert launched[1] == pytest.approx(launched[0], rel=0.02)  # the host sets the pace of short prompts
    gaps = step_components(llama_8b, h100, Layout(), VLLM, batch=1, context_tokens=0)["fixed"]
    assert parts["fixed"][2] == pytest.approx(float(gaps), rel=0.02)


def test_thin_slices_of_experts_compute_slower(gpt_oss: Model, h200: Gpu) -> None:
    sliced, whole = (
        step_components(gpt_oss, h200, layout, VLLM, batch=0, context_tokens=0, prefill_tokens=16384)["moe"]
        for layout in (Layout(tp=8), Layout(tp=8, ep=8))
    )
    assert float(sliced) > 1.1 * float(whole)
    single = step_components(gpt_oss, h200, Layout(), VLLM, batch=0, context_tokens=0, prefill_tokens=16384)["moe"]
    assert float(sliced) > float(single) / 8
