"""GPU, node, fabric and topology entries as records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from qmodel.catalog.architectures import source_text
from qmodel.types import Confidence, Fabric, Gpu, Node, ScaleUpDomain, Topology
from qmodel.units import GB, GIB

__all__ = ["constants_name", "fabric_record", "gpu_record", "lone_node", "node_record", "topology_record"]

# The driver and the CUDA context take 0.3 to 0.9 GiB of what the driver reports before a framework sees it
# (79.65 against 79.18 GiB on an H100); used for GPUs whose visible memory was not measured.
_HIDDEN_GIB = 0.5
_PCIE_GBPS = {4: 32.0, 5: 64.0}  # one direction of 16 lanes, PCI-SIG rates
_TERA = 1e12
_TWO_TIER_HOPS = 3  # leaf, spine, leaf


def gpu_record(
    entry: Mapping[str, Any],
    *,
    name: str,
    constants: Mapping[str, Any],
    constants_key: str | None,
    shipped: Mapping[str, Any] | None = None,
    stated: Collection[str] = (),
) -> Gpu:
    """The record of one checked entry of the ``gpus`` section.

    Bandwidth, peaks, link speed and usable memory are those the step-time constants were fitted with, where
    they cover this GPU; a figure that the user states wins over both.

    Args:
        entry: the entry, the user's file merged in.
        name: short id.
        constants: the ``constants`` section.
        constants_key: name of this GPU in ``constants["gpus"]``, None where it has none.
        shipped: the entry before the user's file, None where nothing was overridden.
        stated: dotted keys that the user's file states.
    """
    spec = constants["gpus"][constants_key] if constants_key else None
    hbm_gib, guessed = _hbm_gib(entry)
    tflops = {kind: peak for kind in ("bf16", "fp8", "fp4") if (peak := entry["dense_peak_tflops"].get(kind))}
    bandwidth = entry["hbm_bandwidth_gbps"]
    scale_up = entry["scale_up"]["gb_per_s_per_direction_per_gpu"]
    if spec is not None:
        tflops = {
            kind: peak if f"dense_peak_tflops.{kind}" in stated else spec[f"dense_{kind}_flops"] / _TERA
            for kind, peak in tflops.items()
        }
        if "hbm_bandwidth_gbps" not in stated:
            bandwidth = spec["hbm_bw_Bps"] / GB
        if "scale_up.gb_per_s_per_direction_per_gpu" not in stated:
            scale_up = spec["scaleup_uni_Bps"] / GB
    row, status = _constants_row(constants, constants_key)
    return Gpu(
        name=name,
        catalog_id=entry["id"],
        vendor=entry["vendor"],
        architecture=entry["architecture"],
        hbm_gib=hbm_gib,
        usable_gib=_usable_gib(entry, hbm_gib, spec=spec, shipped=shipped, stated=stated),
        hbm_bandwidth_gbps=float(bandwidth),
        dense_tflops={kind: float(peak) for kind, peak in tflops.items()},
        scale_up_type=entry["scale_up"]["type"],
        scale_up_gbps=float(scale_up),
        tdp_w=entry.get("tdp_w"),
        constants_row=row,
        constants_status=status,
        confidence="low" if guessed else entry["confidence"],
        source=source_text(entry["source"]),
        as_of=entry["as_of"],
    )


def constants_name(constants: Mapping[str, Any], names: Collection[str]) -> str | None:
    """The name under which the constants list the GPU that goes by ``names``, ignoring case."""
    folded = {name.lower() for name in names}
    return next((key for key in constants["gpus"] if key.lower() in folded), None)


def node_record(entry: Mapping[str, Any], *, name: str, gpu: str, domain: Mapping[str, Any]) -> Node:
    """The record of one checked entry of the ``nodes`` section.

    Args:
        entry: the entry.
        name: its id.
        gpu: short id of its GPU.
        domain: entry of its scale-up domain.
    """
    nics = [nic for nic in entry.get("nics") or () if nic["role"] == "gpu"]
    return Node(
        name=name,
        gpu=gpu,
        gpus_per_node=entry["gpus_per_node"],
        domain=ScaleUpDomain(
            name=domain["id"],
            gpus=domain["gpus"],
            kind=domain["kind"],
            gbps_per_gpu=float(domain["gb_per_s_per_direction_per_gpu"]),
            gbps_per_pair=domain.get("gb_per_s_per_direction_per_pair"),
            confidence=domain["confidence"],
            source=source_text(domain["source"]),
            as_of=domain["as_of"],
        ),
        intra_node_topology=entry.get("intra_node_topology") or domain["kind"],
        numa_nodes=entry.get("numa_nodes") or 1,
        nic_fabric=nics[0]["fabric"] if nics else None,
        nics=sum(nic["count"] for nic in nics),
        nic_gbit_per_s=float(nics[0]["gbit_per_s"]) if nics else 0.0,
        pcie_gen=entry["pcie_gen"],
        confidence=entry["confidence"],
        source=source_text(entry["source"]),
        as_of=entry["as_of"],
        max_power_kw=entry.get("max_power_kw"),
    )


def lone_node(gpu: Gpu) -> Node:
    """One GPU behind PCIe and nothing else: what is assumed of a GPU for which no node is known."""
    generation = 4 if gpu.scale_up_type in ("pcie4", "nvlink3") else 5
    confidence: Confidence = "low"
    source = "assumed: no node of this GPU is in the catalog"
    domain = ScaleUpDomain(
        name=f"pcie{generation}-1",
        gpus=1,
        kind="pcie-tree",
        gbps_per_gpu=_PCIE_GBPS[generation],
        confidence=confidence,
        source=source,
        as_of=gpu.as_of,
    )
    return Node(
        name=f"one-{gpu.name}",
        gpu=gpu.name,
        gpus_per_node=1,
        domain=domain,
        intra_node_topology="one GPU on PCIe",
        numa_nodes=1,
        nic_fabric=None,
        nics=0,
        nic_gbit_per_s=0.0,
        pcie_gen=generation,
        confidence=confidence,
        source=source,
        as_of=gpu.as_of,
    )


def fabric_record(entry: Mapping[str, Any]) -> Fabric:
    """The record of one checked entry of the ``scale_out`` section."""
    return Fabric(
        name=entry["id"],
        gbps=float(entry["port_gb_per_s_per_direction"]),
        base_latency_us=float(entry["base_latency_us"]),
        achievable_fraction=float(entry["achievable_fraction"]),
        transport=entry["transport"],
        confidence=entry["confidence"],
        source=source_text(entry["source"]),
        as_of=entry["as_of"],
    )


def topology_record(entry: Mapping[str, Any]) -> Topology:
    """The record of one checked entry of the ``topologies`` section."""
    hops = [entry.get(key) for key in ("max_hops", "cross_rail_hops", "cross_leaf_hops")]
    return Topology(
        name=entry["id"],
        oversubscription=entry.get("oversubscription"),
        max_hops=next((hop for hop in hops if hop), _TWO_TIER_HOPS),
        confidence=entry["confidence"],
        source=source_text(entry["source"]),
        as_of=entry["as_of"],
    )


def _hbm_gib(entry: Mapping[str, Any]) -> tuple[float, bool]:
    """Memory the driver reports, and whether it is only the marketed size, read as 1e9 bytes (the safe side)."""
    if entry["hbm_gib"] is not None:
        return float(entry["hbm_gib"]), False
    return entry["nominal_memory_gb"] * GB / GIB, True


def _usable_gib(
    entry: Mapping[str, Any],
    hbm_gib: float,
    *,
    spec: Mapping[str, Any] | None,
    shipped: Mapping[str, Any] | None,
    stated: Collection[str],
) -> float:
    """What a framework sees: measured with the constants, else the driver's figure less what the driver keeps.

    Where the user states another size, the same amount stays hidden as for the shipped one.
    """
    if entry.get("usable_gib"):
        return float(entry["usable_gib"])
    hidden = _HIDDEN_GIB
    if spec is not None:
        reported = _hbm_gib(shipped or entry)[0]
        hidden = reported - spec["hbm_usable_GiB"]
        if "hbm_gib" not in stated:
            return float(spec["hbm_usable_GiB"])
    return max(hbm_gib - hidden, 0.0)


def _constants_row(
    constants: Mapping[str, Any], key: str | None
) -> tuple[str | None, Literal["fitted", "thin", "guess", "none"]]:
    """The row that describes a GPU, and on what evidence.

    The constants list the GPU a row was fitted on first; others that borrow the row were never measured,
    so that their evidence is thin at best.
    """
    if key is None:
        return None, "none"
    row = constants["gpus"][key]["constants_row"]
    owner = next(name for name, spec in constants["gpus"].items() if spec["constants_row"] == row)
    status = constants["gpu_default_evidence"].get(row, {}).get("status", "guess")
    if status.startswith("guess"):
        return row, "guess"
    return row, "fitted" if status == "fitted" and owner == key else "thin"
