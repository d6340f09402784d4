"""What an entry of each section may hold. Read when data is compiled or a user's file is layered, never else."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from qmodel.catalog.dtypes import weight_format

__all__ = ["CONSTANTS", "ENTRIES"]


def _known_dtype(dtype: str) -> str:
    weight_format(dtype)
    return dtype


Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)] | None
Name = Annotated[str, Field(min_length=1)]
Dtype = Annotated[str, AfterValidator(_known_dtype)]
Source = Name | Annotated[list[Name], Field(min_length=1)]
Date = Annotated[str, Field(pattern=r"^\d{4}(-\d{2}){0,2}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Sourced(_Strict):
    source: Source
    as_of: Date
    confidence: Literal["high", "medium", "low"]
    verified: str | None = None
    note: str | None = None
    also: list[Name] = []


class _ScaleUp(_Strict):
    type: Name
    gb_per_s_per_direction_per_gpu: Positive
    gb_per_s_per_direction_per_peer: Positive | None = None
    switched: bool = False
    max_group: Count | None = None
    pair_only: bool = False
    peers: Count | None = None
    to: str | None = None
    note: str | None = None


class GpuEntry(_Sourced):
    id: Name
    name: str | None = None
    vendor: Name
    architecture: Name
    compute_capability: float | str | None = None
    memory_type: str | None = None
    nominal_memory_gb: Positive | None = None
    hbm_gib: Positive | None
    usable_gib: Positive | None = None
    hbm_bandwidth_gbps: Positive
    dense_peak_tflops: dict[Literal["bf16", "fp8", "fp4", "int8"], Positive | None]
    supported_dtypes: list[Name] = []
    scale_up: _ScaleUp
    tdp_w: Positive | None = None


class _Nic(_Strict):
    count: Count
    gbit_per_s: Positive
    kind: Name
    fabric: Name | None
    role: Literal["gpu", "storage", "host"]


class NodeEntry(_Sourced):
    id: Name
    name: str | None = None
    provider: str | None = None
    gpu: Name
    gpus_per_node: Count
    scale_up_domain: Name
    intra_node_topology: str | None = None
    numa_nodes: Count = 1
    nics: list[_Nic] = []
    scale_out_gbit_per_s_total: NotNegative | None = None
    host_dram_gb: Positive | None = None
    host_dram_gib: Positive | None = None
    local_nvme_tb: NotNegative | None = None
    local_nvme_drives: CountOrNone = None
    local_nvme_read_gb_per_s: NotNegative | None = None
    pcie_gen: Count
    vcpus: Count | None = None
    max_power_kw: Positive | None = None
    gpus_per_tray: Count | None = None
    trays: Count | None = None


class FabricEntry(_Sourced):
    id: Name
    port_gbit_per_s: Positive | None = None
    port_gb_per_s_per_direction: Positive
    base_latency_us: Positive
    cross_leaf_latency_us: Positive | None = None
    switch_hop_latency_us: Positive | None = None
    achievable_fraction: Annotated[float, Field(gt=0, le=1)]
    transport: Name


class TopologyEntry(_Sourced):
    id: Name
    name: str | None = None
    oversubscription: Annotated[float, Field(ge=1)] | None
    same_rail_hops: Count | None = None
    cross_rail_hops: Count | None = None
    same_leaf_hops: Count | None = None
    cross_leaf_hops: Count | None = None
    max_hops: Count | None = None
    planes: Count | None = None
    max_gpus: Count | None = None


class DomainEntry(_Sourced):
    id: Name
    gpus: Count
    kind: Name
    gb_per_s_per_direction_per_gpu: Positive
    gb_per_s_per_direction_per_pair: Positive | None = None
    gpus_applicable: list[Name] = []
    in_network_reduction: str | None = None
    gpus_per_tray: Count | None = None
    trays: Count | None = None
    aggregate_tb_per_s: Positive | None = None
    rccl_all_reduce_busbw_threshold_gb_per_s: Positive | None = None
    cross_numa_gb_per_s_effective: Positive | None = None


class _Mla(_Strict):
    kv_lora_rank: Count
    qk_rope_head_dim: Count
    qk_nope_head_dim: Count
    v_head_dim: Count
    q_lora_rank: Count | None


class _Indexer(_Strict):
    heads: Count
    head_dim: Count
    topk: Count


class _Linear(_Strict):
    type: Literal["gated_deltanet", "mamba2", "lightning"]
    layers: Count
    heads: Count | None = None
    head_dim: Count | None = None
    key_heads: Count | None = None
    value_heads: Count | None = None
    key_head_dim: Count | None = None
    value_head_dim: Count | None = None
    groups: Count | None = None
    state_size: Count | None = None
    conv_kernel: Count | None = None
    state_dtype: Literal["float32", "bfloat16", "float16"] = "float32"


class _Attention(_Strict):
    type: Literal["mha", "gqa", "mqa", "mla", "sliding", "hybrid", "sparse-indexer"]
    heads: Count
    kv_heads: Count
    head_dim: Count | None
    softmax_layers: Count | None = None
    sliding_window: Count | None = None
    window_kind: str | None = None
    window_pattern: str | None = None
    qkv_bias: bool = False
    attention_sinks: bool = False
    output_gate: bool = False
    linear: _Linear | None = None
    mla: _Mla | None = None
    indexer: _Indexer | None = None


class _MoeEntry(_Strict):
    experts: Count
    experts_per_token: Count
    shared_experts: CountOrNone = 0
    expert_intermediate_size: Count
    shared_expert_intermediate_size: Count | None = None
    moe_layers: Count
    first_dense_layers: CountOrNone = 0
    dense_layers: CountOrNone = None
    dense_intermediate_size: Count | None = None
    moe_layer_step: Count | None = None
    expert_groups: Count | None = None
    groups_per_token: Count | None = None
    latent_size: Count | None = None
    expert_bias: bool = False


class _Variant(_Strict):
    hf_id: Name
    native_dtype: Dtype | None = None
    sixteen_bit: list[Literal["attention", "dense"]] = []
    native_max_context_tokens: Count | None = None
    reasoning: bool | Literal["hybrid"] | None = None
    reasoning_parser: dict[str, str] | None = None
    note: str | None = None


class ModelEntry(_Sourced):
    hf_id: Name
    short_id: Name | None = None
    family: str | None = None
    same_architecture: list[_Variant] = []
    total_params_b: Positive
    total_params_basis: str | None = None
    active_params_b: Positive | None = None
    layers: Count
    hidden_size: Count
    intermediate_size: Count | None
    ffn_intermediate_sizes_rle: list[list[Count]] | None = None
    mlp_type: Literal["relu2"] | None = None
    attention: _Attention
    moe: _MoeEntry | None = None
    vocab_size: Count
    tie_embeddings: bool
    native_max_context_tokens: Count
    extended_max_context_tokens: Count | None = None
    native_dtype: Dtype
    sixteen_bit: list[Literal["attention", "dense"]] = []
    extra_params_b: NotNegative | None = None
    extra_params_what: str | None = None
    mtp_layers: CountOrNone = 0
    mtp_params_b: NotNegative | None = None
    checkpoint_size_gb: Positive | None = None
    checkpoint_size_basis: str | None = None
    reasoning: bool | Literal["hybrid"] = False
    reasoning_parser: dict[str, str] | None = None


class PriceEntry(_Sourced):
    provider: Name
    gpu: Name
    region: str | None = None
    instance: str | None = None
    gpus_per_instance: Count | None = None
    tier: Literal["secure", "community", "marketplace", "serverless-per-second"] | None = None
    on_demand_usd_per_gpu_hour: Positive | None = None
    reserved_1y_usd_per_gpu_hour: Positive | None = None
    reserved_3y_usd_per_gpu_hour: Positive | None = None
    spot_usd_per_gpu_hour: Positive | None = None
    capacity_block_usd_per_gpu_hour: Positive | None = None


class _ByMemory(_Strict):
    min_gib: NotNegative = 0
    except_architecture: Name | None = None
    value: Positive


ByMemory = Annotated[list[_ByMemory], Field(min_length=1)]


class _EngineDefaults(_Strict):
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    reserved_mib: ByMemory | None = None
    reserved_note: str | None = None
    block_tokens: Count
    admission: Literal["full_prompt", "no_evict"]
    max_num_seqs: ByMemory
    max_num_seqs_note: str | None = None
    max_batched_tokens: ByMemory


class EngineEntry(_Sourced):
    model_config = ConfigDict(extra="allow", strict=True)  # flags, parsers and notes differ from engine to engine
    id: Name
    version: Name
    defaults: _EngineDefaults


class _GpuSpec(_Strict):
    constants_row: Name
    hbm_bw_Bps: Positive
    dense_bf16_flops: Positive
    dense_fp8_flops: Positive
    dense_fp4_flops: Positive
    hbm_usable_GiB: Positive
    scaleup_uni_Bps: Positive


class _Override(_Strict):
    gpu: Name
    engine: Name
    quant: Name
    n_points: Count
    n_by_quantity: dict[str, Count] = {}
    models: list[Name]
    classes: list[Name]
    constants: dict[str, Positive]
    at_bound: list[str] = []
    not_identified_here: list[str] = []
    band: dict[str, float | None]


_ConstantName = Literal[
    "e_w",
    "e_f",
    "e_kv",
    "e_fa",
    "e_ap",
    "e_mw",
    "e_mf",
    "c_l",
    "c_m",
    "c_pl",
    "ar_a",
    "ar_f",
    "ar_fp",
    "h0",
    "h1",
    "t_fe",
]


class _CalibratedBand(_Strict):
    p50: Annotated[float, Field(gt=0, lt=10)]
    p90: Annotated[float, Field(gt=0, lt=10)]


class CalibrationEntry(_Sourced):
    model_config = ConfigDict(extra="allow", strict=True)  # how it was found, for people: errors, multipliers, files
    model: Name
    gpu: Name
    engine: Name
    precision: Literal["bf16", "fp8", "fp4", "w4"]
    layouts: Annotated[list[Name], Field(min_length=1)]
    points: Count
    largest_batch: Positive
    largest_context_tokens: NotNegative
    constants: dict[_ConstantName, Positive]
    band: _CalibratedBand


class _Evidence(_Strict):
    dev_points: Annotated[int, Field(ge=0)]
    status: Annotated[str, Field(pattern="^(fitted|thin|guess)")]


Levels = dict[str, dict[str, Positive | str]]


class _Fallback(_Strict):
    order: list[str] = []
    bands_tpot_ape_pct: Levels
    bands_offline_ape_pct: Levels


class Constants(_Strict):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)
    schema_: str = Field(alias="schema", default="")
    provenance: Annotated[dict[str, Any], Field(min_length=1)]
    source: Source | None = None
    as_of: Date
    confidence: Literal["high", "medium", "low"] = "medium"
    about: str = ""
    units: dict[str, str]
    quant_families: dict[str, str] = {}
    engine_families: dict[str, str] = {}
    gpu_specs_note: str = ""
    bytes_per_weight: dict[str, Positive]
    gpus: dict[str, _GpuSpec]
    gpu_defaults: dict[str, dict[str, Positive]]
    gpu_default_evidence: dict[str, _Evidence]
    engine_factors: dict[str, dict[str, Positive]]
    quant_factors: dict[str, dict[str, Positive]]
    class_factors: dict[str, dict[str, Positive]]
    caps: dict[str, Positive]
    memory: dict[str, dict[str, Any]] = {}
    overrides: list[_Override] = []
    calibrations: list[CalibrationEntry] = []
    fallback: _Fallback


ENTRIES: dict[str, type[BaseModel]] = {
    "gpus": GpuEntry,
    "nodes": NodeEntry,
    "scale_out": FabricEntry,
    "topologies": TopologyEntry,
    "scale_up_domains": DomainEntry,
    "models": ModelEntry,
    "gpu_hour": PriceEntry,
    "engines": EngineEntry,
    "calibrations": CalibrationEntry,
}
CONSTANTS: type[BaseModel] = Constants
