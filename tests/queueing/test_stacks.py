"""Different replicas in one call are predicted as each alone, whatever they differ in."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.queueing import pool_metrics, utilisation
from qmodel.queueing.replica.kv_limited import LimitStack, MemoryLimit
from qmodel.queueing.replica.pool_cases import Wanted
from qmodel.types import Burst, FloatArray, Replica, Router, StepLaw, Stream
from tests.queueing.llm_cases import chat_lengths, reasoning_lengths

CHAT = Stream(name="chat", rate_rps=4.0, lengths=chat_lengths())
THINK = Stream(name="think", rate_rps=0.2, lengths=reasoning_lengths())
WANTED: list[Wanted] = [
    (name, metric, p)
    for name in ("chat", "think")
    for metric in ("ttft", "tpot", "completion")
    for p in (None, 0.5, 0.99)
]
BASE = Replica(step=StepLaw.linear(alpha_s=0.008, beta_s=5e-5, gamma_s=5e-8, delta_s=4e-5), max_num_seqs=128)
SLOW = Replica(step=StepLaw.linear(alpha_s=0.02, beta_s=2e-4, gamma_s=1e-7, delta_s=1e-4), max_num_seqs=64)
TABLE = replace(BASE, step=StepLaw.table(batch=[0, 8, 64, 200], step_s=[0.008, 0.013, 0.02, 0.03], delta_s=3e-5))
MANY = [
    BASE,
    SLOW,
    TABLE,
    replace(BASE, max_num_seqs=400),
    replace(BASE, max_batched_tokens=2048),
    replace(BASE, max_num_seqs=1),
    replace(BASE, kv_tokens=300_000.0, watermark=0.05),
    replace(SLOW, kv_tokens=200_000.0, admission="no_evict"),
    replace(TABLE, kv_tokens=250_000.0, kv_slope=0.5, kv_fixed_tokens=40.0),
]


def loads_of(replicas: list[Replica], streams: list[Stream], counts: FloatArray, used: FloatArray) -> FloatArray:
    """Loads that use each pool to a part of its capacity."""
    ones = np.ones(len(replicas))
    return np.asarray(used / utilisation(replicas, streams, counts, ones))


@pytest.mark.parametrize("router", ["random", "jsq", "round_robin"])
@pytest.mark.parametrize("streams", [[CHAT, THINK], [CHAT, replace(THINK, priority=1)]], ids=["alike", "ranked"])
def test_replicas_together_are_predicted_as_each_alone(router: Router, streams: list[Stream]) -> None:
    replicas = [item for item in MANY for _ in range(3)]
    counts = np.array([1, 3, 6] * len(MANY))
    loads = loads_of(replicas, streams, counts, np.array([0.9, 0.5, 0.97] * len(MANY)))
    together = pool_metrics(replicas, streams, counts, loads, router, WANTED)
    alone = np.vstack(
        [
            pool_metrics([item], streams, [count], [load], router, WANTED)
            for item, count, load in zip(replicas, counts.tolist(), loads.tolist(), strict=True)
        ]
    )
    assert np.isfinite(alone).all()
    np.testing.assert_allclose(together, alone, rtol=1e-7)


@pytest.mark.parametrize("router", ["random", "jsq", "round_robin"])
def test_bursty_pools_of_different_sizes_are_predicted_as_each_alone(router: Router) -> None:
    bursty = replace(CHAT, burst=Burst(excess=(3.0,), decay_per_s=(0.02,)))
    counts = np.array([1, 2, 8, 1])
    loads = loads_of([BASE] * 4, [bursty], counts, np.array([0.9, 0.9, 0.9, 0.6]))
    wanted = [item for item in WANTED if item[0] == "chat"]
    together = pool_metrics([BASE] * 4, [bursty], counts, loads, router, wanted)
    for place, count in enumerate(counts.tolist()):
        alone = pool_metrics(BASE, [bursty], [count], loads[place : place + 1], router, wanted)
        np.testing.assert_allclose(together[place], alone[0], rtol=3e-3)  # the grid of states is that of the largest


def test_overloaded_replicas_among_others_are_infinite() -> None:
    found = pool_metrics([BASE, SLOW, TABLE], [CHAT], [1, 1, 1], [0.5, 50.0, 0.5], "random", [("chat", "ttft", None)])
    assert np.isfinite(found[:, 0]).tolist() == [True, False, True]


def test_more_cases_than_fit_into_one_part_keep_their_replicas() -> None:
    replicas = [replace(BASE, max_num_seqs=32 + place) for place in range(120)]
    loads = np.full(120, 0.6)
    wanted: list[Wanted] = [("chat", "ttft", 0.9), ("chat", "tpot", None)]
    together = pool_metrics(replicas, [CHAT], np.ones(120), loads, "random", wanted)
    for place in (0, 47, 48, 95, 119):
        alone = pool_metrics(replicas[place], [CHAT], [1], loads[:1], "random", wanted)
        np.testing.assert_allclose(together[place], alone[0], rtol=1e-9)


@settings(max_examples=20, deadline=None)
@given(
    slots=st.lists(st.integers(2, 300), min_size=2, max_size=5),
    budget=st.sampled_from([512, 4096, 16384]),
    used=st.floats(0.1, 0.98),
    memory=st.booleans(),
)
def test_any_mix_of_slots_and_budgets(slots: list[int], budget: int, used: float, memory: bool) -> None:
    replicas = [
        replace(
            (BASE, SLOW, TABLE)[place % 3],
            max_num_seqs=count,
            max_batched_tokens=max(budget, count + 1) * (1 + place % 2),
            kv_tokens=100_000.0 * (1 + place) if memory else None,
        )
        for place, count in enumerate(slots)
    ]
    counts = np.ones(len(replicas))
    loads = loads_of(replicas, [CHAT], counts, np.full(len(replicas), used))
    wanted = [item for item in WANTED if item[0] == "chat"]
    together = pool_metrics(replicas, [CHAT], counts, loads, "random", wanted)
    for place, item in enumerate(replicas):
        alone = pool_metrics(item, [CHAT], [1], loads[place : place + 1], "random", wanted)
        np.testing.assert_allclose(together[place], alone[0], rtol=1e-6)


def test_a_stack_of_limits_has_every_number_of_a_limit() -> None:
    assert [item.name for item in fields(LimitStack)] == [item.name for item in fields(MemoryLimit)]
