"""Accelerators, nodes, fabrics and model architectures as plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "AttentionKind",
    "Confidence",
    "Fabric",
    "Gpu",
    "LinearState",
    "Mla",
    "Model",
    "Moe",
    "Node",
    "ScaleUpDomain",
    "Topology",
    "WeightFamily",
]

Confidence = Literal["high", "medium", "low"]
AttentionKind = Literal["mha", "gqa", "mqa", "mla", "sliding", "hybrid", "sparse-indexer"]
WeightFamily = Literal["bf16", "fp8", "fp4", "w4"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator.

    Attributes:
        name: short id as scenario files write it, e.g. ``h100-sxm``.
        catalog_id: id of the catalog entry, e.g. ``H100-SXM``.
        hbm_gib: memory the driver reports, GiB.
        usable_gib: memory the framework sees, GiB; the memory model works with this.
        hbm_bandwidth_gbps: peak, 1e9 bytes/s, the value the efficiency constants were fitted with.
        dense_tflops: dense peak per precision ``bf16``, ``fp8``, ``fp4``; absent where unsupported.
        scale_up_type: ``nvlink4``, ``pcie5``, ``xgmi``, ...
        scale_up_gbps: one direction per GPU, 1e9 bytes/s.
        tdp_w: board power, W.
        constants_row: row of the step-time constants that describes it, None where no row was fitted.
        constants_status: ``fitted``, ``thin``, ``guess`` or ``none``.
    """

    name: str
    catalog_id: str
    vendor: str
    architecture: str
    hbm_gib: float
    usable_gib: float
    hbm_bandwidth_gbps: float
    dense_tflops: Mapping[str, float]
    scale_up_type: str
    scale_up_gbps: float
    tdp_w: float | None
    constants_row: str | None
    constants_status: Literal["fitted", "thin", "guess", "none"]
    confidence: Confidence
    source: str
    as_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpDomain:
    """The island inside which GPUs reach each other at memory-like speed.

    Attributes:
        gpus: GPUs in one domain.
        kind: ``nvswitch``, ``pcie-tree``, ``xgmi-full-mesh``, ``ethernet-full-mesh``, ...
        gbps_per_gpu: one direction, 1e9 bytes/s.
        gbps_per_pair: limit between one pair in a full mesh, None where switched.
    """

    name: str
    gpus: int
    kind: str
    gbps_per_gpu: float
    gbps_per_pair: float | None = None
    confidence: Confidence = "medium"
    source: str = ""
    as_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine or rack shape.

    Attributes:
        gpus_per_node: GPUs in it.
        domain: its scale-up domain (may span several nodes, as in an NVL72 rack).
        nic_fabric: fabric of the GPU NICs, None where there is none.
        nics: number of GPU NICs.
        nic_gbit_per_s: line rate of one GPU NIC.
        max_power_kw: most that the whole machine draws, kW; None: not known.
    """

    name: str
    gpu: str
    gpus_per_node: int
    domain: ScaleUpDomain
    intra_node_topology: str
    numa_nodes: int
    nic_fabric: str | None
    nics: int
    nic_gbit_per_s: float
    pcie_gen: int
    confidence: Confidence
    source: str
    as_of: str
    max_power_kw: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """One scale-out port type.

    Attributes:
        gbps: line rate of one port, one direction, 1e9 bytes/s.
        base_latency_us: end-to-end latency of a small message, us.
        achievable_fraction: large-message goodput over line rate.
        transport: ``infiniband``, ``rocev2``, ``srd``, ``tcp``, ...
    """

    name: str
    gbps: float
    base_latency_us: float
    achievable_fraction: float
    transport: str
    confidence: Confidence
    source: str
    as_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How the ports of many nodes are joined.

    Attributes:
        oversubscription: bandwidth below over bandwidth above the first switch tier; None: not stated.
        max_hops: switch hops between two nodes that do not share a leaf.
    """

    name: str
    oversubscription: float | None
    max_hops: int
    confidence: Confidence
    source: str
    as_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mla:
    """Ranks of multi-head latent attention."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Routed and shared experts.

    Attributes:
        experts: routed experts per MoE layer.
        experts_per_token: routed experts each token visits.
        expert_width: intermediate size of one routed expert.
        shared_width: intermediate size of all shared experts together, 0 without.
        layers: MoE layers; the others are dense with ``Model.ffn_width``.
        latent_width: width the experts act on, None: the hidden size.
        groups: expert groups for node-limited routing, 1 without.
        groups_per_token: groups a token may visit.
    """

    experts: int
    experts_per_token: int
    expert_width: int
    shared_width: int
    layers: int
    latent_width: int | None = None
    groups: int = 1
    groups_per_token: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearState:
    """Linear-attention or state-space layers: a fixed state per sequence takes the place of a KV cache.

    Attributes:
        layers: such layers of the model.
        bytes_per_layer: recurrent and convolution state of one layer and sequence, bytes.
        params_per_layer: weights of one such mixer.
    """

    layers: int
    bytes_per_layer: float
    params_per_layer: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One transformer architecture.

    Attributes:
        name: short id as scenario files write it, or the path of a config file.
        layers: all transformer layers.
        kv_layers: layers that hold a growing KV cache.
        windowed_layers: of those, layers that stop growing at ``window_tokens``.
        head_dim: per attention head; for MLA the query-key width (nope + rope).
        ffn_width: intermediate size of the dense layers (mean where layers differ).
        ffn_matrices: 3 for gated MLPs, 2 for plain ones.
        indexer_bytes_per_token: extra bytes per token and layer of a sparse-attention indexer.
        weight_family: ``bf16``, ``fp8`` or ``fp4`` (4-bit experts) as the checkpoint ships.
        fp8_block: block size of block-quantised FP8 checkpoints, 0 without.
        attention_16_bit: a quantised checkpoint keeps its attention at 16 bit.
        dense_16_bit: a quantised checkpoint keeps its dense layers and shared experts at 16 bit.
        expert_bits: bits per routed-expert weight incl. scales, as the checkpoint ships.
        total_params: of the text model, or as published.
        extra_params: vision towers and the like, kept at 16 bit.
        checkpoint_gb: size of the weights on disk, 1e9 bytes, None where unknown.
        max_context: native context length, tokens.
    """

    name: str
    hf_id: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    attention: AttentionKind
    kv_layers: int
    ffn_width: float
    vocab: int
    tied_embeddings: bool
    native_dtype: str
    weight_family: WeightFamily
    max_context: int
    total_params: float
    windowed_layers: int = 0
    window_tokens: int = 0
    ffn_matrices: int = 3
    mla: Mla | None = None
    moe: Moe | None = None
    linear: LinearState | None = None
    indexer_bytes_per_token: float = 0.0
    indexer_topk: int = 0
    output_gate: bool = False
    fp8_block: int = 0
    attention_16_bit: bool = False
    dense_16_bit: bool = False
    expert_bits: float = 16.0
    extra_params: float = 0.0
    mtp_layers: int = 0
    checkpoint_gb: float | None = None
    reasoning: bool = False
    reasoning_parser: Mapping[str, str] = field(default_factory=dict)
    confidence: Confidence = "high"
    source: str = ""
    as_of: str = ""
