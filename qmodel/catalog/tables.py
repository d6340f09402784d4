"""Tables of the catalog for people: one row per entry, a few columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmodel.catalog.prices import PriceRule
from qmodel.errors import CatalogError

if TYPE_CHECKING:
    from qmodel.catalog.store import Catalog

__all__ = ["TABLE_KINDS", "table_rows"]

Row = dict[str, object]


def table_rows(catalog: Catalog, kind: str) -> list[Row]:
    """One row per entry of ``kind``, in the order of the catalog; the first column is the name.

    Raises:
        ValueError: the kind is not known.
    """
    if kind not in _TABLES:
        raise ValueError(f"no kind {kind!r} in the catalog; kinds: {', '.join(_TABLES)}")
    return _TABLES[kind](catalog)


def _gpus(catalog: Catalog) -> list[Row]:
    return [
        {
            "gpu": gpu.name,
            "hbm_gib": round(gpu.hbm_gib, 2),
            "usable_gib": round(gpu.usable_gib, 2),
            "hbm_gbps": gpu.hbm_bandwidth_gbps,
            "bf16_tflops": gpu.dense_tflops.get("bf16"),
            "fp8_tflops": gpu.dense_tflops.get("fp8"),
            "fp4_tflops": gpu.dense_tflops.get("fp4"),
            "scale_up": gpu.scale_up_type,
            "scale_up_gbps": gpu.scale_up_gbps,
            "usd_per_gpu_hour": _usual_price(catalog, gpu.name),
            "step_time": gpu.constants_status,
            "confidence": gpu.confidence,
            "as_of": gpu.as_of,
        }
        for gpu in map(catalog.gpu, catalog.gpu_names())
    ]


def _nodes(catalog: Catalog) -> list[Row]:
    return [
        {
            "node": node.name,
            "gpu": node.gpu,
            "gpus": node.gpus_per_node,
            "domain": node.domain.name,
            "domain_gpus": node.domain.gpus,
            "nic_fabric": node.nic_fabric,
            "nics": node.nics,
            "nic_gbit_per_s": node.nic_gbit_per_s,
            "confidence": node.confidence,
            "as_of": node.as_of,
        }
        for node in map(catalog.node, catalog.node_names())
    ]


def _fabrics(catalog: Catalog) -> list[Row]:
    return [
        {
            "fabric": fabric.name,
            "gbps": fabric.gbps,
            "latency_us": fabric.base_latency_us,
            "achievable": fabric.achievable_fraction,
            "transport": fabric.transport,
            "confidence": fabric.confidence,
            "as_of": fabric.as_of,
        }
        for fabric in map(catalog.fabric, catalog.fabric_names())
    ]


def _topologies(catalog: Catalog) -> list[Row]:
    return [
        {
            "topology": topology.name,
            "oversubscription": topology.oversubscription,
            "max_hops": topology.max_hops,
            "confidence": topology.confidence,
            "as_of": topology.as_of,
        }
        for topology in map(catalog.topology, catalog.topology_names())
    ]


def _models(catalog: Catalog) -> list[Row]:
    return [
        {
            "model": model.name,
            "hf_id": model.hf_id,
            "params_b": round(model.total_params / 1e9, 2),
            "layers": model.layers,
            "attention": model.attention,
            "experts": model.moe.experts if model.moe else None,
            "dtype": model.native_dtype,
            "max_context": model.max_context,
            "reasoning": model.reasoning,
            "confidence": model.confidence,
            "as_of": model.as_of,
        }
        for model in map(catalog.model, catalog.model_names())
    ]


def _engines(catalog: Catalog) -> list[Row]:
    rows: list[Row] = []
    for name in catalog.engine_names():
        entry = catalog.entry("engine", name)
        default, *others = catalog.engine_versions(name)
        facts = {key: entry[key] for key in ("confidence", "as_of")}
        rows.append({"engine": name, "default_version": default, "other_versions": "; ".join(others), **facts})
    return rows


def _prices(catalog: Catalog) -> list[Row]:
    rows: list[Row] = []
    for name in catalog.gpu_names():
        try:
            choice = catalog.price(name)
        except CatalogError:
            continue
        rows.append(
            {
                "gpu": name,
                "usd_per_gpu_hour": choice.usd_per_gpu_hour,
                "low": choice.rows[0].usd_per_gpu_hour,
                "high": choice.rows[-1].usd_per_gpu_hour,
                "rows": len(choice.rows),
                "as_of": choice.as_of,
            }
        )
    return rows


def _usual_price(catalog: Catalog, gpu: str) -> float | None:
    try:
        return catalog.price(gpu, PriceRule()).usd_per_gpu_hour
    except CatalogError:
        return None


_TABLES = {
    "gpus": _gpus,
    "nodes": _nodes,
    "fabrics": _fabrics,
    "topologies": _topologies,
    "models": _models,
    "engines": _engines,
    "prices": _prices,
}
TABLE_KINDS: tuple[str, ...] = tuple(_TABLES)
