"""Memory that never fills changes nothing: the wait for a slot is the same with and without a KV pool."""

from __future__ import annotations

import dataclasses

import pytest

from qmodel.queueing import pool
from qmodel.types import Law, Lengths, Replica, StepLaw, Stream

LENGTHS = Lengths.independent(Law.constant(400), Law.constant(200))


@pytest.mark.parametrize("router", ["random", "jsq"])
@pytest.mark.parametrize("slots", [1, 2, 8, 64])
@pytest.mark.parametrize("load", [0.5, 0.9, 0.97])
def test_ample_memory_leaves_the_wait_for_a_slot(slots: int, load: float, router: str) -> None:
    step = StepLaw.linear(alpha_s=0.01, beta_s=1e-4, gamma_s=1e-8, delta_s=2e-5)
    bare = Replica(step=step, max_num_seqs=slots)
    ample = dataclasses.replace(bare, kv_tokens=1e9)
    unit = pool(bare, [Stream(name="a", rate_rps=1e-3, lengths=LENGTHS)], 3, router=router)
    assert unit.utilisation is not None
    stream = Stream(name="a", rate_rps=1e-3 * load / unit.utilisation, lengths=LENGTHS)
    without, with_memory = (pool(item, [stream], 3, router=router) for item in (bare, ample))
    assert with_memory.p_wait == pytest.approx(without.p_wait, rel=1e-6)
    for p in (0.5, 0.95, 0.99):
        assert with_memory["a"].ttft.quantile(p) == pytest.approx(without["a"].ttft.quantile(p), rel=1e-6)


def test_tail_of_the_wait_grows_with_the_load_where_slots_bind() -> None:
    step = StepLaw.linear(alpha_s=0.01, beta_s=1e-4, gamma_s=1e-8, delta_s=2e-5)
    replica = Replica(step=step, max_num_seqs=2, kv_tokens=400_000)
    unit = pool(replica, [Stream(name="a", rate_rps=1e-3, lengths=LENGTHS)], 3, router="jsq").utilisation
    assert unit is not None
    tails = [
        pool(replica, [Stream(name="a", rate_rps=1e-3 * load / unit, lengths=LENGTHS)], 3, router="jsq")[
            "a"
        ].ttft.quantile(0.95)
        for load in (0.5, 0.7, 0.85, 0.92, 0.96, 0.99)
    ]
    assert tails == sorted(tails)
    assert tails[-1] > 10 * tails[1]
