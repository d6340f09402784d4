"""A user's own files over the shipped catalog."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from qmodel.catalog import Catalog, CatalogFileError, PriceRule, load_catalog
from qmodel.errors import ScenarioError

SHIPPED = load_catalog()
HEAD = "source: our own measurement\nas_of: '2026-12-01'\n"
Load = Callable[..., Catalog]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def call(*texts: str) -> Catalog:
        paths = []
        for index, text in enumerate(texts):
            path = tmp_path / f"own{index}.yaml"
            path.write_text(textwrap.dedent(text))
            paths.append(path)
        return load_catalog(paths)

    return call


def _messages(load: Load, text: str) -> list[str]:
    with pytest.raises(CatalogFileError) as caught:
        load(text)
    return [str(problem).split("own0.yaml", 1)[1] for problem in caught.value.problems]


def test_halving_memory_halves_what_the_framework_sees_less_what_stays_hidden(load: Load) -> None:
    shipped = SHIPPED.gpu("h200-sxm")
    gpu = load(HEAD + "gpus:\n- {id: h200-sxm, hbm_gib: 70.2}\n").gpu("h200-sxm")
    assert gpu.hbm_gib == 70.2
    assert gpu.usable_gib == pytest.approx(70.2 - (shipped.hbm_gib - shipped.usable_gib))
    assert gpu.hbm_bandwidth_gbps == shipped.hbm_bandwidth_gbps
    assert (gpu.constants_row, gpu.constants_status) == ("H200", "fitted")


def test_a_stated_figure_wins_over_the_constants(load: Load) -> None:
    gpu = load(HEAD + "gpus:\n- {id: B200, hbm_bandwidth_gbps: 6000, dense_peak_tflops: {fp8: 4000}}\n").gpu("b200-sxm")
    assert (gpu.hbm_bandwidth_gbps, gpu.dense_tflops["fp8"]) == (6000.0, 4000.0)
    assert gpu.dense_tflops["bf16"] == SHIPPED.gpu("b200-sxm").dense_tflops["bf16"]


def test_restating_the_shipped_memory_changes_nothing(load: Load) -> None:
    gpu = load(HEAD + "gpus:\n- {id: h100-sxm, hbm_gib: 79.65}\n").gpu("h100-sxm")
    assert gpu.usable_gib == pytest.approx(SHIPPED.gpu("h100-sxm").usable_gib)


def test_usable_memory_can_be_stated(load: Load) -> None:
    assert load(HEAD + "gpus:\n- {id: h100-sxm, usable_gib: 78.0}\n").gpu("h100-sxm").usable_gib == 78.0


def test_the_merged_entry_takes_the_users_source_and_date(load: Load) -> None:
    gpu = load(HEAD + "gpus:\n- {id: h100-sxm, tdp_w: 650}\n").gpu("h100-sxm")
    assert (gpu.source, gpu.as_of, gpu.tdp_w) == ("our own measurement", "2026-12-01", 650)


def test_a_new_gpu_with_its_node_and_price(load: Load) -> None:
    catalog = load(
        HEAD
        + """
gpus:
- id: x1
  also: [X-One]
  hbm_gib: 128
  hbm_bandwidth_gbps: 4000
  dense_peak_tflops: {bf16: 900, fp8: 1800}
  scale_up: {type: own-link, gb_per_s_per_direction_per_gpu: 400}
scale_up_domains:
- {id: x-8, gpus: 8, kind: nvswitch, gb_per_s_per_direction_per_gpu: 400}
nodes:
- id: x-node
  gpu: x-one
  gpus_per_node: 8
  scale_up_domain: x-8
  pcie_gen: 5
  nics: [{count: 8, gbit_per_s: 400, kind: roce, fabric: roce-400, role: gpu}]
gpu_hour:
- {provider: ours, gpu: X-One, on_demand_usd_per_gpu_hour: 1.9}
"""
    )
    gpu = catalog.gpu("X-ONE")
    assert (gpu.name, gpu.usable_gib, gpu.constants_row, gpu.constants_status) == ("x1", 127.5, None, "none")
    node = catalog.default_node("x1")
    assert (node.name, node.gpu, node.domain.gpus, node.nic_fabric) == ("x-node", "x1", 8, "roce-400")
    assert catalog.price("x1").usd_per_gpu_hour == 1.9
    assert "x1" in catalog.gpu_names()


def test_a_users_price_can_be_chosen_alone(load: Load) -> None:
    catalog = load(
        HEAD
        + "gpu_hour:\n- {provider: ours, gpu: H100, reserved_1y_usd_per_gpu_hour: 2.1}\n".replace("H100", "h100-sxm")
    )
    rule = PriceRule(providers=("ours",), term="reserved_1y")
    assert catalog.price("h100-sxm", rule).usd_per_gpu_hour == 2.1


def test_a_new_model_goes_by_its_short_id(load: Load) -> None:
    catalog = load(
        HEAD
        + """
models:
- hf_id: ours/Chat-8B
  short_id: chat-8b
  total_params_b: 8.03
  layers: 32
  hidden_size: 4096
  intermediate_size: 14336
  attention: {type: gqa, heads: 32, kv_heads: 8, head_dim: 128}
  vocab_size: 128256
  tie_embeddings: false
  native_max_context_tokens: 8192
  native_dtype: fp8
"""
    )
    model = catalog.model("CHAT-8B")
    assert (model.name, model.hf_id, model.weight_family) == ("chat-8b", "ours/Chat-8B", "fp8")


def test_an_override_of_a_model_merges_deeply(load: Load) -> None:
    model = load(HEAD + "models:\n- {hf_id: llama-3.1-8b, attention: {kv_heads: 4}}\n").model("llama-3.1-8b")
    assert (model.kv_heads, model.heads) == (4, 32)


def test_engine_defaults_can_be_overridden(load: Load) -> None:
    catalog = load(HEAD + "engines:\n- {id: vllm, defaults: {gpu_memory_utilization: 0.95}}\n")
    engine = catalog.engine("vllm", catalog.gpu("h100-sxm"))
    assert (engine.gpu_memory_utilization, engine.max_num_seqs) == (0.95, 1024)


def test_constants_merge_and_fits_replace_those_of_the_same_case(load: Load) -> None:
    catalog = load(
        HEAD
        + """
constants:
  gpu_defaults: {H100: {e_w: 0.9}}
  overrides:
  - {gpu: H100, engine: vLLM, quant: bf16, n_points: 5, models: [m], classes: [dense], constants: {e_w: 0.8}, band: {}}
"""
    )
    constants, shipped = catalog.constants, SHIPPED.constants
    assert constants.gpu_defaults["H100"]["e_w"] == 0.9
    assert constants.gpu_defaults["H100"]["e_f"] == shipped.gpu_defaults["H100"]["e_f"]
    assert len(constants.overrides) == len(shipped.overrides)
    override = constants.override("H100", "vLLM", "bf16")
    assert override is not None
    assert override["n_points"] == 5


def test_a_default_node_can_be_named(load: Load) -> None:
    assert load(HEAD + "default_node: {h100-sxm: lambda-8xH100}\n").default_node("h100-sxm").name == "lambda-8xH100"


def test_later_files_win(load: Load) -> None:
    first, second = (HEAD + f"gpus:\n- {{id: h100-sxm, tdp_w: {watt}}}\n" for watt in (600, 500))
    assert load(first, second).gpu("h100-sxm").tdp_w == 500


def test_a_layered_catalog_leaves_the_shipped_one_alone_and_has_its_own_digest(load: Load) -> None:
    layered = load(HEAD + "gpus:\n- {id: h100-sxm, hbm_gib: 40}\n")
    assert SHIPPED.gpu("h100-sxm").hbm_gib == 79.65
    assert load_catalog().gpu("h100-sxm").hbm_gib == 79.65
    assert layered.digest != SHIPPED.digest


def test_a_number_without_source_is_refused_even_over_a_shipped_entry(load: Load) -> None:
    (message,) = _messages(load, "as_of: '2026-12-01'\ngpus:\n- {id: h100-sxm, hbm_gib: 40}\n")
    assert message == (
        ":3:3: gpus[0]: a number without source; state them in the entry, or once at the head of the file"
    )


def test_an_entry_may_state_its_own_source(load: Load) -> None:
    assert load("gpus:\n- {id: h100-sxm, hbm_gib: 40, source: s, as_of: '2026'}\n").gpu("h100-sxm").source == "s"


def test_a_typing_error_is_positioned_with_a_suggestion(load: Load) -> None:
    (message,) = _messages(load, HEAD + "gpus:\n- id: h100-sxm\n  hbm_gb: 40\n")
    assert message == ":5:3: gpus[0].hbm_gb: unknown key 'hbm_gb'; did you mean 'hbm_gib'?"


def test_a_key_inside_a_mapping_gets_a_suggestion(load: Load) -> None:
    (message,) = _messages(load, HEAD + "models:\n- hf_id: llama-3.1-8b\n  attention:\n    kv_head: 4\n")
    assert message == ":6:5: models[0].attention.kv_head: unknown key 'kv_head'; did you mean 'kv_heads'?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prices: []\n", ":3:1: prices: unknown section 'prices'; did you mean 'gpu_hour'?"),
        ("gpus: {h100-sxm: {}}\n", "must be a list of entries"),
        ("gpus: [3]\n", "gpus[0]: must be a mapping (got 3)"),
        ("gpus: [{hbm_gib: 3}]\n", "gpus[0]: 'id' is missing"),
        ("gpus: [{id: new, hbm_gib: 3}]\n", "gpus[0]: 'hbm_bandwidth_gbps' is missing"),
        ("gpus: [{id: l4, hbm_gib: -3}]\n", "gpus[0].hbm_gib: must be greater than 0 (got -3)"),
        (
            "gpu_hour: [{provider: a, gpu: zz, on_demand_usd_per_gpu_hour: 1}]\n",
            "gpu_hour[0].gpu: no entry 'zz' in gpus",
        ),
        ("default_node: {h100-sxm: zz}\n", "default_node.h100-sxm: no node 'zz' in the catalog"),
        ("constants: 3\n", "constants: must be a mapping (got 3)"),
        ("constants: {caps: {e_w: high}}\n", "constants.caps.e_w: must be a valid number (got 'high')"),
        ("engines: [{id: mine, version: '1'}]\n", "engines[0]: 'defaults' is missing"),
    ],
)
def test_what_is_wrong_is_said(load: Load, text: str, message: str) -> None:
    assert any(message in found for found in _messages(load, HEAD + text))


def test_all_problems_of_a_file_come_at_once(load: Load) -> None:
    text = HEAD + "gpus:\n- {id: h100-sxm, hbm_gib: 0}\n- {id: l4, hbm_gib: x}\nprices: []\n"
    assert len(_messages(load, text)) == 3


def test_a_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError):
        load_catalog([tmp_path / "nothing.yaml"])
    (tmp_path / "broken.yaml").write_text("gpus: [")
    with pytest.raises(ScenarioError):
        load_catalog([tmp_path / "broken.yaml"])
