"""The link between two pools of a path: what the file states, and what follows from nodes, fabric and model."""

from __future__ import annotations

from dataclasses import replace

from qmodel.errors import Problem
from qmodel.perf import kv_bytes_per_token
from qmodel.perf.precision import kv_element_bytes
from qmodel.problem import Instance, engine_of
from qmodel.topology import link_costs
from qmodel.types import Fleet, KvLink, Layout, Model, Pool, PoolLink

__all__ = ["kv_token_bytes", "links_into", "own_link", "sources_of"]


def sources_of(fleet: Fleet, pool: str) -> tuple[str, ...]:
    """Pools that hand KV to ``pool``, in the order of the fleet."""
    before = {
        path.pools[place - 1]
        for paths in fleet.routing.values()
        for path in paths
        for place, name in enumerate(path.pools)
        if name == pool and place
    }
    return tuple(name for name in fleet.pools if name in before)


def links_into(instance: Instance, fleet: Fleet) -> tuple[dict[str, KvLink], list[Problem]]:
    """The link into every pool that gets KV from another one, and what keeps some from being known.

    A lane joins one sending and one receiving replica, whose GPUs each move the shard they hold over their own port:
    its bandwidth is that of a port, as all GPUs of a node send at once, times the fewer shards of the two layouts.
    There are as many lanes as the smaller side has replicas. Every pool of a path has nodes of its own.

    Args:
        instance: the bound problem.
        fleet: its pools and paths exist.

    Source: docs/theory/stages.md.
    """
    links, problems = {}, []
    for name, pool in fleet.pools.items():
        sources = [fleet.pools[source] for source in sources_of(fleet, name)]
        if not sources:
            continue
        stated = pool.link or PoolLink()
        found = _link(instance, stated, pool, sources)
        if isinstance(found, str):
            problems.append(Problem(key=f"pools.{name}.link", what=found, hint="state it in the pool's link"))
        else:
            links[name] = found
    return links, problems


def own_link(instance: Instance, pool: Pool) -> KvLink | str:
    """One lane into a pool from a pool whose port is no slower than its own, or what is not known of it."""
    found = _link(instance, pool.link or PoolLink(), pool, [pool])
    return found if isinstance(found, str) else replace(found, lanes=1)


def _link(instance: Instance, stated: PoolLink, pool: Pool, sources: list[Pool]) -> KvLink | str:
    """The link, or what is not known of it."""
    token_bytes = stated.kv_bytes_per_token or kv_token_bytes(instance, pool)
    if token_bytes is None:
        return f"kv_bytes_per_token is needed: only profiles describe {pool.model}"
    bandwidth_gbps, latency_s = stated.bandwidth_gbps, stated.latency_s
    if bandwidth_gbps is None or latency_s is None:
        ends = [_port(instance, item) for item in (pool, *sources)]
        known = [end for end in ends if end is not None]
        if len(known) < len(ends) and bandwidth_gbps is None:
            return "bandwidth_gbps is needed: a node of these pools has no GPU network in the catalog"
        if bandwidth_gbps is None:
            bandwidth_gbps = min(rate for rate, _ in known)
        if latency_s is None:
            latency_s = max((delay for _, delay in known), default=0.0)
    lanes = stated.lanes or min(_serving(instance, pool), sum(_serving(instance, source) for source in sources))
    return KvLink(bytes_per_s=bandwidth_gbps * 1e9, bytes_per_token=token_bytes, latency_s=latency_s, lanes=lanes)


def _serving(instance: Instance, pool: Pool) -> int:
    """Replicas beside those that may be lost."""
    return pool.replicas - instance.limits.lost(pool.gpu, pool.layout.gpus, pool.replicas)


def kv_token_bytes(instance: Instance, pool: Pool) -> float | None:
    """KV bytes of one token of the whole model; None where no catalog entry describes it."""
    model = instance.models[pool.model]
    if model is None:
        return None
    engine = engine_of(instance, pool)
    dtype = "fp8" if kv_element_bytes(model, engine, pool.precision) == 1.0 else "bf16"
    return kv_bytes_per_token(model, Layout(), dtype)


def _port(instance: Instance, pool: Pool) -> tuple[float, float] | None:
    """Bandwidth of all ports of one replica, 1e9 bytes/s, and latency, s; None where its node has no network."""
    option, model = instance.gpus[pool.gpu], instance.models[pool.model]
    if option.node is None:
        return None
    node = option.node
    island = max(1, min(node.domain.gpus, node.gpus_per_node))
    try:
        send = link_costs(Layout(tp=island, pp=2), node, option.fabric, option.topology).stage_send
    except ValueError:
        return None
    return _shards(pool.layout, model) * send.bytes_per_s / 1e9, send.latency_s


def _shards(layout: Layout, model: Model | None) -> int:
    """GPUs of a replica that hold different parts of one sequence's KV; latent caches are whole on every rank."""
    heads = 1 if model is not None and model.mla else layout.tp if model is None else min(layout.tp, model.kv_heads)
    return heads * layout.cp * layout.pp
