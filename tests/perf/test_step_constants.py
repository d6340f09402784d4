"""Which constants apply, and how far they may be off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qmodel.catalog import load_catalog
from qmodel.perf import StepConstants, quant_family, resolve_constants, step_law
from qmodel.perf.precision import kv_element_bytes, precision_of
from qmodel.types import Engine, Gpu, Layout, Model

CONSTANTS = load_catalog().constants
VLLM, SGLANG = Engine(), Engine(name="sglang", constants="SGLang")
TRT = Engine(name="tensorrt-llm", constants="TRT")


def _resolve(model: str | Model, gpu: str | Gpu, engine: Engine, precision: str | None = None) -> StepConstants:
    catalog = load_catalog()
    return resolve_constants(
        catalog.model(model) if isinstance(model, str) else model,
        catalog.gpu(gpu) if isinstance(gpu, str) else gpu,
        engine,
        constants=CONSTANTS,
        precision=precision,
    )


def test_a_release_without_a_row_widens_the_band(h100: Gpu) -> None:
    work = {"context_tokens": 2000.0, "prompt_tokens": 1000.0, "batch": 32.0}
    qwen = load_catalog().model("qwen3-32b")
    versions = ("", "0.11.2", "0.33.0", "0.8.5")
    bands = [step_law(qwen, h100, Layout(), Engine(version=version), **work).band for version in versions]
    exact, unseen = (
        CONSTANTS.bands[level]["p90"] / 100 for level in ("exact override", "GPU x engine x model slice never seen")
    )
    assert [band.p90 for band in bands] == [exact, exact, unseen, unseen]
    assert bands[2].level == "release 0.33.0 of vllm never fitted; exact override"


def test_a_fit_is_multiplied_by_the_class_factors_only() -> None:
    fit = CONSTANTS.override("H100", "vLLM", "bf16")
    assert fit is not None
    found = _resolve("qwen3-32b", "h100-sxm", VLLM)
    assert found.c_l == pytest.approx(fit["constants"]["c_l"] * CONSTANTS.class_factors["dense"]["c_l"])
    assert found.ar_a == fit["constants"]["ar_a"]


def test_without_a_fit_the_row_is_multiplied_by_all_factors_and_capped() -> None:
    assert CONSTANTS.override("A100", "vLLM", "bf16") is None
    found = _resolve("llama-3.1-8b", "a100-80-sxm", VLLM)
    row, engine = CONSTANTS.gpu_defaults["A100"], CONSTANTS.engine_factors["vLLM"]
    assert found.h0 == pytest.approx(row["h0"] * engine["h0"] * CONSTANTS.class_factors["dense"]["h0"])
    assert found.e_w == CONSTANTS.caps["e_w"]  # row times factors is above what a memory can do


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "level", "confidence"),
    [
        ("deepseek-r1", "h200-sxm", SGLANG, "exact override", "high"),
        ("qwen3-32b", "h100-sxm", VLLM, "exact override", "high"),
        ("llama-3.3-70b", "h100-sxm", VLLM, "GPU x engine x model slice never seen", "medium"),
        ("deepseek-v3", "h200-sxm", SGLANG, "GPU x engine x model slice never seen", "medium"),
        ("deepseek-r1", "h100-sxm", SGLANG, "GPU x engine x model slice never seen", "medium"),
        ("llama-3.3-70b", "h100-pcie", VLLM, "GPU never seen", "low"),
        ("deepseek-r1", "b300-sxm", SGLANG, "GPU never seen", "low"),
        ("qwen3-32b", "l40s", VLLM, "nothing fitted (start values, final structure)", "low"),
        ("qwen3-235b-a22b", "h100-sxm", VLLM, "MoE/MLA architecture never seen", "low"),
    ],
)
def test_the_band_follows_the_evidence(model: str, gpu: str, engine: Engine, level: str, confidence: str) -> None:
    found = _resolve(model, gpu, engine)
    assert (found.band.level, found.band.confidence) == (level, confidence)
    assert found.band.p90 == pytest.approx(CONSTANTS.bands[level]["p90"] / 100)
    assert level in found.provenance


def test_an_unknown_engine_takes_the_factors_of_vllm_and_no_exact_band() -> None:
    found = _resolve("qwen3-32b", "h100-sxm", Engine(name="new", constants="new"))
    known = _resolve("qwen3-32b", "h100-sxm", VLLM)
    assert replace(found, band=known.band, provenance=known.provenance) == known
    assert found.band.level == "GPU x engine x model slice never seen"


def test_an_unknown_gpu_borrows_efficiencies_but_not_overheads() -> None:
    found = _resolve("llama-3.1-8b", "h100-pcie", VLLM)
    fitted = [item["constants"]["c_l"] for item in CONSTANTS.overrides if item["engine"] in ("vLLM", "SGLang", "TRT")]
    factor = CONSTANTS.class_factors["dense"]["c_l"]
    assert min(fitted) * factor < found.c_l < max(fitted) * factor
    factor = CONSTANTS.engine_factors["vLLM"]["e_fa"]
    assert found.e_fa == pytest.approx(CONSTANTS.gpu_defaults["H100"]["e_fa"] * factor)
    assert "row H100" in found.provenance


def test_a_gpu_with_other_speeds_is_another_gpu(h200: Gpu) -> None:
    faster = replace(h200, hbm_bandwidth_gbps=2 * h200.hbm_bandwidth_gbps)
    assert _resolve("deepseek-r1", faster, SGLANG).band.level == "GPU never seen"
    smaller = replace(h200, usable_gib=h200.usable_gib / 2)
    assert _resolve("deepseek-r1", smaller, SGLANG).band.level == "exact override"


def test_four_bit_weights_run_natively_only_on_fp4_units(gpt_oss: Model, h100: Gpu, b200: Gpu) -> None:
    assert (quant_family(gpt_oss, h100), quant_family(gpt_oss, b200)) == ("w4", "fp4")
    on_hopper = precision_of(gpt_oss, h100)
    assert on_hopper.ffn_flops == on_hopper.bf16_flops
    assert on_hopper.expert_bytes == 4.25 / 8
    assert quant_family(load_catalog().model("kimi-k2-thinking"), b200) == "w4"


def test_fp8_weights_on_an_a100_are_multiplied_at_16_bit(llama_70b: Model) -> None:
    found = precision_of(llama_70b, load_catalog().gpu("a100-80-sxm"), "fp8")
    assert (found.family, found.dense_bytes, found.ffn_flops) == ("fp8", 1.0, found.bf16_flops)


def test_attention_of_four_bit_mixtures_stays_at_16_bit(r1: Model, llama_70b: Model, b200: Gpu) -> None:
    assert precision_of(r1, b200, "fp4").attention_bytes == 2.0
    assert precision_of(llama_70b, b200, "fp4").attention_bytes == 4.5 / 8


def test_a_checkpoint_cannot_gain_bits(gpt_oss: Model, h100: Gpu) -> None:
    with pytest.raises(ValueError, match="precision: 'bf16' needs more bits than the 4-bit checkpoint"):
        quant_family(gpt_oss, h100, "bf16")
    with pytest.raises(ValueError, match="precision: unknown 'fp3'"):
        quant_family(gpt_oss, h100, "fp3")


def test_kv_is_16_bit_unless_tensorrt_llm_serves_a_scaled_checkpoint(r1: Model, llama_8b: Model) -> None:
    assert kv_element_bytes(r1, VLLM) == 2.0
    assert kv_element_bytes(r1, TRT) == 1.0
    assert kv_element_bytes(llama_8b, TRT) == 2.0
    assert kv_element_bytes(llama_8b, TRT, "fp8") == 1.0
    assert kv_element_bytes(load_catalog().model("gpt-oss-120b"), TRT) == 2.0
    assert kv_element_bytes(llama_8b, replace(VLLM, kv_dtype="fp8")) == 1.0
