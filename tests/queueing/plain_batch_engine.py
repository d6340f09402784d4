"""A batching engine written as plainly as possible: one loop turn per engine step, one object per request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.types import Replica


@dataclass
class _Request:
    number: int
    to_prefill: int
    left: int
    context: int = 0


@dataclass
class Times:
    """Per request, s; and the number of evictions."""

    arrival_s: np.ndarray
    first_token_s: np.ndarray
    completion_s: np.ndarray
    evictions: int = 0


def run_closed(replica: Replica, prompts: list[int], outputs: list[int], users: int | None = None) -> Times:
    """Serve the requests in order: all present at time 0, or each of ``users`` sends one when answered."""
    everything = [_Request(i, p, n) for i, (p, n) in enumerate(zip(prompts, outputs, strict=True))]
    start = len(everything) if users is None else users
    waiting, later = everything[:start], everything[start:]
    running: list[_Request] = []
    times = Times(np.zeros(len(everything)), np.full(len(everything), np.nan), np.zeros(len(everything)))
    room = float("inf") if replica.kv_tokens is None else replica.kv_tokens
    now = 0.0
    while waiting or running:
        decoding = [r for r in running if r.to_prefill == 0]
        evicted = False
        while len(running) > 1 and _held(running) + len(decoding) > room:
            victim = running.pop()
            victim.to_prefill, victim.context = victim.to_prefill + victim.context, 0
            waiting.insert(0, victim)
            decoding = [r for r in running if r.to_prefill == 0]
            evicted, times.evictions = True, times.evictions + 1
        while waiting and not evicted and len(running) < replica.max_num_seqs:
            if running and _held(running) + waiting[0].to_prefill > (1.0 - replica.watermark) * room:
                break
            running.append(waiting.pop(0))
        budget, prefilled, ready = replica.max_batched_tokens - len(decoding), 0, []
        for r in running:
            if r.to_prefill > 0 and budget > 0:
                chunk = min(r.to_prefill, budget)
                r.to_prefill, r.context = r.to_prefill - chunk, r.context + chunk
                budget, prefilled = budget - chunk, prefilled + chunk
                ready += [r] if r.to_prefill == 0 else []
        batch, read = len(decoding), sum(r.context for r in decoding)
        now += float(replica.step.tau_s(batch, read / max(batch, 1))) + replica.step.delta_s * prefilled
        for r in decoding + ready:
            r.context, r.left = r.context + 1, r.left - 1
            if np.isnan(times.first_token_s[r.number]):
                times.first_token_s[r.number] = now
            if r.left == 0:
                times.completion_s[r.number] = now
                running.remove(r)
                if later:
                    times.arrival_s[later[0].number] = now
                    waiting.append(later.pop(0))
    return times


def _held(running: list[_Request]) -> int:
    return sum(r.context + r.to_prefill for r in running)
