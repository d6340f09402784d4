"""How those that wait for a slot or for memory wait: mean and spread against the exponential queue."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from qmodel.queueing.replica.kv_limited import LimitStack, MemoryLimit, memory_wait
from qmodel.queueing.replica.stacks import ReplicaStack, WorkStack
from qmodel.queueing.replica.work import Work
from qmodel.queueing.servers.conditional_wait import conditional_wait_scv
from qmodel.queueing.servers.halfin_whitt import halfin_whitt_weight, light_traffic_ratio, residual_spread
from qmodel.types import FloatArray, Law, Replica

__all__ = ["slot_wait_shape"]


def slot_wait_shape(
    replica: Replica | ReplicaStack,
    work: Work | WorkStack,
    limit: MemoryLimit | LimitStack | None,
    machines: FloatArray,
    rho: FloatArray,
    by_memory: FloatArray | bool,
) -> tuple[FloatArray, FloatArray]:
    """Mean wait of those that wait over that of the exponential queue, 1/(top rate - rate), and its SCV.

    Args:
        replica: engine instance.
        work: its requests.
        limit: its memory limit, None without.
        machines: replicas behind one queue, shape (C,).
        rho: utilisation, shape (C,).
        by_memory: the part of those that wait that waits for memory, the rest for a slot; shape (C,) or one for all.
    """
    part = np.asarray(by_memory, dtype=float)
    if limit is not None and np.all(part == 1.0):
        return memory_wait(limit, machines, rho)
    servers = replica.max_num_seqs * machines
    heavy, nu = _service_shape(work.lengths.output)
    weight = halfin_whitt_weight(servers, rho, nu)
    light = _light_ratios(work, servers)
    ratio = light + (heavy - light) * weight  # as wait_ratio has it
    shape = conditional_wait_scv(rho, nu, heavy, weight)
    if limit is None:
        return ratio, shape
    memory_ratio, memory_shape = memory_wait(limit, machines, rho)
    return ratio + part * (memory_ratio - ratio), shape + part * (memory_shape - shape)


def _light_ratios(work: Work | WorkStack, servers: FloatArray) -> FloatArray:
    """The light-traffic limit of the wait ratio for each number of servers."""
    if (servers == servers[0]).all():
        return np.full(servers.shape, _light(work.lengths.output, float(servers[0])))
    sizes, which = np.unique(servers, return_inverse=True)
    return np.array([_light(work.lengths.output, size) for size in sizes.tolist()])[which]


@lru_cache(maxsize=512)
def _service_shape(output: Law) -> tuple[float, float]:
    """(1 + scv)/2 of the outputs, and the spread of their residual."""
    return (1.0 + output.scv) / 2.0, float(residual_spread(*output.moments))


@lru_cache(maxsize=512)
def _light(output: Law, servers: float) -> float:
    return float(light_traffic_ratio(output.values, output.weights, servers))
