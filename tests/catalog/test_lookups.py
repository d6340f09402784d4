"""Look-ups by name, hardware records, engine settings."""

from __future__ import annotations

import pytest

from qmodel.catalog import load_catalog
from qmodel.catalog.engines import version_matches
from qmodel.catalog.hardware import constants_name
from qmodel.errors import CatalogError

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h100-sxm", "h100-sxm"),
        ("H100-SXM", "h100-sxm"),
        ("H200", "h200-sxm"),
        ("A100-SXM-80GB", "a100-80-sxm"),
        ("a100-sxm", "a100-80-sxm"),
        ("b200", "b200-sxm"),
        ("h100_sxm", "h100-sxm"),
        (" MI300X ", "mi300x"),
    ],
)
def test_gpus_are_found_by_any_of_their_names(name: str, expected: str) -> None:
    assert CATALOG.gpu(name).name == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.3-70b", "llama-3.3-70b"),
        ("Llama-3.3-70B", "llama-3.3-70b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"),
        ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("DeepSeek-R1", "deepseek-r1"),
        ("deepseek-ai/deepseek-r1-0528", "deepseek-ai/DeepSeek-R1-0528"),
    ],
)
def test_models_are_found_by_any_of_their_names(name: str, expected: str) -> None:
    assert CATALOG.model(name).name == expected


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(CatalogError) as caught:
        CATALOG.model("lama-3.3-70b")
    assert str(caught.value).startswith("no model 'lama-3.3-70b' in the catalog; nearest: 'llama-3.3-70b'")


@pytest.mark.parametrize("kind", ["gpu", "node", "fabric", "topology", "model"])
def test_a_name_like_nothing_says_where_the_list_is(kind: str) -> None:
    with pytest.raises(CatalogError, match=rf"no {kind} 'zzzzzzzz' in the catalog; 'qmodel catalog"):
        getattr(CATALOG, kind)("zzzzzzzz")


def test_every_listed_name_is_found_and_goes_by_that_name() -> None:
    for name in CATALOG.gpu_names():
        assert CATALOG.gpu(name).name == name
    for name in CATALOG.model_names():
        assert CATALOG.model(name).name == name
    for name in CATALOG.node_names():
        assert CATALOG.node(name).name == name
    for name in CATALOG.fabric_names():
        assert CATALOG.fabric(name).name == name
    for name in CATALOG.topology_names():
        assert CATALOG.topology(name).name == name


def test_figures_come_from_the_constants_where_those_cover_the_gpu() -> None:
    b200 = CATALOG.gpu("b200-sxm")
    assert b200.hbm_bandwidth_gbps == 7700.0  # the data sheet says 8000
    assert (b200.usable_gib, b200.constants_row, b200.constants_status) == (178.3, "B200", "fitted")
    assert b200.dense_tflops == {"bf16": 2250.0, "fp8": 4500.0, "fp4": 9000.0}


def test_a_gpu_without_constants_keeps_its_data_sheet_and_hides_half_a_gib() -> None:
    gpu = CATALOG.gpu("h20")
    assert (gpu.constants_row, gpu.constants_status) == (None, "none")
    assert gpu.usable_gib == pytest.approx(gpu.hbm_gib - 0.5)


def test_unsupported_precisions_are_absent() -> None:
    assert set(CATALOG.gpu("a100-sxm").dense_tflops) == {"bf16"}
    assert set(CATALOG.gpu("h100-sxm").dense_tflops) == {"bf16", "fp8"}


@pytest.mark.parametrize(
    ("gpu", "row", "status"),
    [
        ("gb200", "GB200", "thin"),
        ("mi355x", "MI355X", "guess"),
        ("h800-sxm", "H100", "thin"),
        ("b300-sxm", "B200", "thin"),
    ],
)
def test_a_borrowed_or_thin_row_is_not_called_fitted(gpu: str, row: str, status: str) -> None:
    record = CATALOG.gpu(gpu)
    assert (record.constants_row, record.constants_status) == (row, status)


def test_frameworks_never_see_more_memory_than_the_driver() -> None:
    for name in CATALOG.gpu_names():
        gpu = CATALOG.gpu(name)
        assert 0 < gpu.usable_gib < gpu.hbm_gib


def test_every_gpu_of_the_constants_is_a_gpu_of_the_catalog() -> None:
    found = {CATALOG.gpu(name).name for name in CATALOG.constants.gpus}
    assert len(found) == len(CATALOG.constants.gpus)
    assert constants_name({"gpus": CATALOG.constants.gpus}, ["nothing"]) is None


def test_constants_carry_their_levels_and_their_source() -> None:
    constants = CATALOG.constants
    assert len(constants.overrides) == 22
    override = constants.override("H100", "vLLM", "bf16")
    assert override is not None
    assert override["models"] == ["qwen3-32b"]
    assert constants.bands["exact override"]["p90"] == 13
    assert "InferenceMAX" in constants.source
    again = type(constants).from_dict(constants.to_dict())
    assert again.to_dict() == constants.to_dict()


def test_the_default_node_follows_the_list_then_the_only_one_then_pcie() -> None:
    assert CATALOG.default_node("h200-sxm").name == "dgx-h200"
    assert CATALOG.default_node("h100-nvl").name == "azure-NC80adis_H100_v5"
    alone = CATALOG.default_node("a30")
    assert (alone.gpus_per_node, alone.domain.gpus, alone.confidence, alone.nic_fabric) == (1, 1, "low", None)


def test_only_gpu_nics_count() -> None:
    node = CATALOG.node("dgx-h100")
    assert (node.nics, node.nic_gbit_per_s, node.nic_fabric) == (8, 400.0, "ib-ndr")
    assert (node.domain.gpus, node.domain.gbps_per_gpu) == (8, 450.0)
    tray = CATALOG.node("gb200-tray")
    assert (tray.gpus_per_node, tray.domain.gpus) == (4, 72)


def test_fabrics_and_topologies_carry_alpha_beta_and_hops() -> None:
    fabric = CATALOG.fabric("IB-NDR")
    assert (fabric.gbps, fabric.base_latency_us, fabric.achievable_fraction) == (50.0, 2.8, 0.92)
    assert {CATALOG.topology(name).max_hops for name in CATALOG.topology_names()} == {3, 5}


def test_engine_settings_depend_on_the_gpu() -> None:
    h100, a100 = CATALOG.gpu("h100-sxm"), CATALOG.gpu("a100-sxm")
    vllm = CATALOG.engine("vLLM", h100)
    assert (vllm.name, vllm.max_num_seqs, vllm.max_batched_tokens) == ("vllm", 1024, 8192)
    assert (vllm.gpu_memory_utilization, vllm.watermark, vllm.constants) == (0.9, 0.03, "vLLM")
    small = CATALOG.engine("vllm", a100)
    assert (small.max_num_seqs, small.max_batched_tokens) == (256, 2048)


def test_engine_versions_are_matched() -> None:
    b200 = CATALOG.gpu("b200-sxm")
    newer = CATALOG.engine("vllm", b200, version="0.33")
    assert (newer.version, newer.gpu_memory_utilization, newer.max_batched_tokens) == ("0.33.0", 0.92, 16384)
    assert newer.defaults_of == ""
    between = CATALOG.engine("vllm", b200, version="0.20")
    assert (between.version, between.defaults_of, between.gpu_memory_utilization) == ("0.20", "0.8 to 0.11", 0.9)
    assert CATALOG.engine("vllm", b200, version="0.40").defaults_of == "0.33.0"
    assert CATALOG.engine("vllm", b200, version="0.11.2").version == "0.11.2"
    with pytest.raises(CatalogError, match=r"no version 'nightly' of engine 'vllm'"):
        CATALOG.engine("vllm", b200, version="nightly")
    assert CATALOG.engine_versions("vllm") == ["0.8 to 0.11", "0.33.0"]


@pytest.mark.parametrize(
    ("stated", "wanted", "matches"),
    [
        ("0.8 to 0.11", "0.11.2", True),
        ("0.8 to 0.11", "0.7", False),
        ("0.33.0", "0.33.1", False),
        ("1.x (PyTorch backend)", "1.2.0", True),
        ("1.x (PyTorch backend)", "main", False),
    ],
)
def test_version_ranges(stated: str, wanted: str, matches: bool) -> None:
    assert version_matches(stated, wanted) is matches


def test_sglang_memory_follows_its_reservation_rule() -> None:
    # chunk 8192 on an H100: 512 + 1.5 x 8192 + 128 + 512 MiB kept free
    assert CATALOG.engine("sglang", CATALOG.gpu("h100-sxm")).gpu_memory_utilization == pytest.approx(0.835, abs=5e-4)


def test_tensorrt_llm_admits_without_eviction_and_has_two_families_of_constants() -> None:
    gpu = CATALOG.gpu("h100-sxm")
    engine = CATALOG.engine("TensorRT-LLM (Dynamo)", gpu)
    assert (engine.name, engine.constants, engine.admission) == ("tensorrt-llm", "TRT", "no_evict")
    assert CATALOG.engine("TRTcpp", gpu).constants == "TRTcpp"


@pytest.mark.parametrize("kind", ["gpus", "nodes", "fabrics", "topologies", "models", "engines", "prices"])
def test_every_kind_has_a_table_whose_rows_have_the_same_columns(kind: str) -> None:
    rows = CATALOG.entries(kind)
    assert rows
    assert len({tuple(row) for row in rows}) == 1
    assert all(isinstance(value, str | int | float | bool | None) for row in rows for value in row.values())


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind 'gizmos'"):
        CATALOG.entries("gizmos")


def test_an_entry_can_be_seen_whole() -> None:
    assert CATALOG.entry("models", "llama-3.1-8b")["hidden_size"] == 4096
    assert CATALOG.entry("gpu", "h100-sxm")["as_of"]


def test_the_catalog_is_loaded_once_and_has_a_digest() -> None:
    assert load_catalog() is CATALOG
    assert len(CATALOG.digest) == 64
