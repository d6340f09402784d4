"""Priorities inside a continuous batch: how the wait for a slot, for memory and for prefill divides between classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from qmodel.queueing.disciplines.priority_waits import ClassLoads, non_preemptive_waits
from qmodel.queueing.disciplines.residual_mixture import first_free_ratio
from qmodel.queueing.replica.chain import Occupancy, top_rate_rps
from qmodel.queueing.replica.kv_limited import MemoryLimit
from qmodel.queueing.replica.prefill import CELLS, Backlog
from qmodel.queueing.replica.work import ClassWork, Work, bands
from qmodel.queueing.servers.service_time import Service
from qmodel.types import FloatArray, Replica, mix_laws

__all__ = ["Ranks", "ranked"]

_FULLEST = 0.9995  # utilisation up to which the split is taken
_FULLEST_PREFILL = 0.98
_PROMPT_BANDS = 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranks:
    """What classes of G different priorities wait, C cases; classes of the same priority wait alike.

    Attributes:
        group: index of each class by name, 0 for the most important.
        wait_factor: mean wait for a slot or for memory over that without priorities, shape (G, C).
        wait_scv: squared coefficient of variation of the wait of those that wait, shape (G, C).
        left_factor: prompt tokens that a class finds before it beyond one step, over those without priorities, (G, C).
        run_in_s: part of the wait that the first step after it covers, shape (C,).
    """

    group: Mapping[str, int]
    wait_factor: FloatArray
    wait_scv: FloatArray
    left_factor: FloatArray
    run_in_s: FloatArray

    def seen_by(self, member: ClassWork, seen: Occupancy) -> Occupancy:
        """The occupancy with the waits of one class."""
        index = self.group[member.name]
        whole = np.minimum(seen.wait_mean_s + self.run_in_s, 4.0 * seen.wait_mean_s)
        wait = whole * self.wait_factor[index]
        return replace(seen, wait_mean_s=np.maximum(wait - self.run_in_s, wait / 4.0), wait_scv=self.wait_scv[index])

    def found_by(self, member: ClassWork, waiting: Backlog) -> Backlog:
        """The backlog with the prompts that go before those of one class: lattice masses moved by its factor."""
        factor = self.left_factor[self.group[member.name]]
        place = np.minimum(np.arange(CELLS) * factor[:, None], CELLS - 1.0)
        to_cell = np.maximum(1.0 - np.abs(place[..., None] - np.arange(CELLS)), 0.0)
        return replace(waiting, left=(waiting.left[:, None, :] @ to_cell)[:, 0])


def ranked(
    replica: Replica,
    work: Work,
    limit: MemoryLimit | None,
    seen: Occupancy,
    rate_rps: FloatArray,
    machines: FloatArray,
    run_in_s: FloatArray,
) -> Ranks | None:
    """Waits by priority, None where all classes have the same.

    The engine sorts those that wait by priority and never takes a slot away, so the number in service does not depend
    on priorities, and what is waited divides like in a queue with as many servers as slots (or as sequences that
    memory holds), whose services are the outputs (or tokens held times steps). Prompts of admitted requests are
    prefilled before those that wait, which go by priority: one server.

    Args:
        replica: engine instance.
        work: requests of all classes.
        limit: memory limit, None without.
        seen: occupancy, C cases.
        rate_rps: arrivals at one replica, shape (C,).
        machines: replicas that share one queue, shape (C,).
        run_in_s: part of the wait that the first step after it covers, shape (C,).

    Source: own construction, see docs/theory/priority.md.
    """
    levels = sorted({item.priority for item in work.classes if item.share > 0.0}, reverse=True)
    if len(levels) < 2:
        return None
    # a class without requests goes with the first level that is not more important than it
    group = {
        item.name: next((place for place, level in enumerate(levels) if level <= item.priority), len(levels) - 1)
        for item in work.classes
    }
    groups = [
        [item for item in work.classes if group[item.name] == place and item.share > 0.0]
        for place in range(len(levels))
    ]
    share = np.array([sum(item.share for item in members) for members in groups])
    by_memory = limit is not None and top_rate_rps(replica, work, limit)[1]
    servers = (limit.servers if limit is not None and by_memory else float(replica.max_num_seqs)) * machines
    moments = np.array(
        [
            sum(
                item.share * (_memory_time(replica, item) if by_memory else np.array(item.lengths.output.moments))
                for item in members
            )
            / mass
            for members, mass in zip(groups, share, strict=True)
        ]
    )  # (G, 3)
    first_free = np.ones_like(servers) if by_memory else _first_free(groups, share, servers)
    rho = np.minimum(seen.utilisation, _FULLEST)
    rate = share[:, None] * (rho * np.maximum(servers, 1.0) / float(share @ moments[:, 0]))
    shape = rate.shape
    waits = non_preemptive_waits(
        ClassLoads(
            rate_rps=rate,
            first=np.broadcast_to(moments[:, :1], shape),
            second=np.broadcast_to(moments[:, 1:2], shape),
            third=np.broadcast_to(moments[:, 2:], shape),
            servers=np.maximum(servers, 1.0),
            first_free=first_free,
        )
    )
    whole = np.where(waits.fcfs_wait_s > 0.0, waits.fcfs_wait_s, 1.0)
    return Ranks(
        group=group,
        wait_factor=np.where(waits.fcfs_wait_s > 0.0, waits.mean_wait_s / whole, 1.0),
        wait_scv=waits.delayed_scv,
        left_factor=_left_factor(replica, work, groups, seen, rate_rps),
        run_in_s=run_in_s,
    )


def _memory_time(replica: Replica, member: ClassWork) -> FloatArray:
    """First three moments of tokens held times steps held of one class, prompt and output independent."""
    prompt = bands(member.lengths.prompt.values, member.lengths.prompt.weights, _PROMPT_BANDS)
    output = member.output_bands
    grown = 1.0 if replica.admission == "no_evict" else 0.5
    area = (prompt[1][:, None] + grown * output[1]) * output[1]
    return np.array([prompt[0] @ area**power @ output[0] for power in (1, 2, 3)])


def _first_free(groups: list[list[ClassWork]], share: FloatArray, servers: FloatArray) -> FloatArray:
    sizes, which = np.unique(servers, return_inverse=True)
    services = [
        Service.of(mix_laws([item.lengths.output for item in members], [item.share for item in members]))
        for members in groups
    ]
    return first_free_ratio(np.repeat(share[:, None], sizes.size, axis=1), services, sizes)[which]


def _left_factor(
    replica: Replica, work: Work, groups: list[list[ClassWork]], seen: Occupancy, rate_rps: FloatArray
) -> FloatArray:
    """Wait for prefill over that without priorities, by Cobham's formula for the one server that prefills."""
    tokens = np.array([sum(item.share * item.lengths.prompt.mean for item in members) for members in groups])
    room = np.maximum(replica.max_batched_tokens - seen.mean_batch, 1.0)
    per_token = replica.step.delta_s + seen.tau_mean_s / room
    load = rate_rps * work.lengths.prompt.mean * per_token
    load = np.minimum(load, _FULLEST_PREFILL)
    upto = np.cumsum(tokens)[:, None] / tokens.sum() * load
    above = np.concatenate([np.zeros_like(upto[:1]), upto[:-1]])
    return np.asarray((1.0 - load) / ((1.0 - above) * (1.0 - upto)))
