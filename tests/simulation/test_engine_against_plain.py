"""Every policy of the event-jumping engine against engines that walk every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qmodel.simulation import (
    Availability,
    EnginePolicy,
    Outage,
    PoolRun,
    RequestTable,
    SimRouter,
    Speculation,
    simulate_pool,
    table_from_arrays,
)
from qmodel.types import Replica, StepLaw
from tests.plain_policies import PlainPool, plain_pool
from tests.step_engine import Request, replay

STEP = StepLaw.linear(alpha_s=0.01, beta_s=2e-4, gamma_s=3e-7, delta_s=5e-5)
TABULATED = StepLaw.table(batch=[0, 2, 5, 9], step_s=[0.009, 0.011, 0.0125, 0.013], gamma_s=4e-6, delta_s=6e-5)
ROUTERS: tuple[SimRouter, ...] = ("random", "round_robin", "jsq", "least_kv")
OUTAGES = (
    Outage(replica=0, down_s=0.71, up_s=1.9),
    Outage(replica=1, down_s=1.13, up_s=1.61),
    Outage(replica=0, down_s=2.83, up_s=3.3),
    Outage(replica=2, down_s=1.31, up_s=2.3),
)

POLICIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "priority": {"policy": EnginePolicy(order="priority")},
    "first chunk": {"policy": EnginePolicy(admission="first_chunk")},
    "first chunk by priority": {"policy": EnginePolicy(admission="first_chunk", order="priority", block_tokens=4)},
    "no eviction": {"policy": EnginePolicy(admission="no_evict")},
    "patience": {"policy": EnginePolicy(patience_s=0.31)},
    "patience by priority": {"policy": EnginePolicy(patience_s=0.23, order="priority", admission="no_evict")},
    "retries": {"policy": EnginePolicy(patience_s=0.17, retries=2, backoff_s=0.11)},
    "blocks": {"policy": EnginePolicy(block_tokens=16)},
    "blocks without eviction": {"policy": EnginePolicy(block_tokens=7, admission="no_evict")},
    "swap": {"policy": EnginePolicy(preemption="swap", swap_out_s_per_token=3e-5, swap_in_s_per_token=2e-5)},
    "swap by priority in blocks": {
        "policy": EnginePolicy(preemption="swap", order="priority", swap_in_s_per_token=2e-5, block_tokens=8)
    },
    "speculation": {"policy": EnginePolicy(speculation=Speculation(draft_tokens=3, acceptance=0.6, draft_cost=0.05))},
    "speculation with swap": {
        "policy": EnginePolicy(preemption="swap", speculation=Speculation(draft_tokens=2, acceptance=0.71))
    },
    "growing": {"availability": Availability(counts=((0.37, 3), (0.91, 5), (1.7, 4)), startup_s=0.23)},
    "shrinking": {"availability": Availability(counts=((0.21, 1), (0.83, 0), (1.31, 2), (1.9, 3)), startup_s=0.41)},
    "to and fro": {
        "availability": Availability(
            counts=((0.2, 4), (0.3, 1), (0.5, 4), (0.9, 2), (1.2, 5), (1.3, 2), (1.5, 4)),
            startup_s=0.45,
            outages=OUTAGES,
            notice_s=0.05,
            checkpoint_s=0.07,
        )
    },
    "outages": {"availability": Availability(outages=OUTAGES)},
    "outages with notice": {"availability": Availability(outages=OUTAGES, notice_s=0.19)},
    "checkpoints": {"availability": Availability(outages=OUTAGES, checkpoint_s=0.13)},
    "checkpoints and notice": {"availability": Availability(outages=OUTAGES, notice_s=0.3, checkpoint_s=0.17)},
    "everything": {
        "policy": EnginePolicy(
            order="priority",
            preemption="swap",
            swap_out_s_per_token=1e-5,
            swap_in_s_per_token=2e-5,
            block_tokens=5,
            patience_s=0.4,
            retries=1,
            backoff_s=0.2,
        ),
        "availability": Availability(
            outages=OUTAGES, notice_s=0.1, checkpoint_s=0.17, counts=((0.4, 4), (1.5, 2)), startup_s=0.15
        ),
    },
}


def table_of(seed: int, requests: int = 70) -> RequestTable:
    rng = np.random.default_rng(seed)
    output = rng.integers(1, 80, requests)
    prompt = rng.integers(1, 90, requests)
    handed_over = rng.random(requests) < (0.3 if seed % 3 == 2 else 0.0)
    return table_from_arrays(
        np.cumsum(rng.exponential(float(rng.choice([0.01, 0.03, 0.1])), requests)),
        prompt=prompt,
        output=output,
        reasoning=(rng.random(requests) * output).astype(int),
        priority=rng.integers(0, 3, requests),
        cached_prefix=(rng.random(requests) * prompt * (rng.random(requests) < 0.4)).astype(int),
        generated=np.where(handed_over, (rng.random(requests) * output).astype(int), 0),
    )


def replica_of(seed: int) -> Replica:
    rng = np.random.default_rng([seed, 1])
    return Replica(
        step=TABULATED if seed % 4 == 3 else STEP,
        max_num_seqs=int(rng.integers(1, 11)),
        kv_tokens=(420.37, 300.13, None, 265.71)[seed % 4],
        max_batched_tokens=44,
        watermark=(0.1, 0.0)[seed % 2],
        kv_slope=(0.9, 1.0)[seed // 2 % 2],
        kv_fixed_tokens=(2.0, 0.0)[seed // 2 % 2],
    )


def settings_of(name: str, seed: int) -> dict[str, Any]:
    """One case of a policy; outages of replicas that the pool never has are left out."""
    settings: dict[str, Any] = {"replicas": 1 + seed % 3, "router": ROUTERS[(seed // 2 + seed) % 4], **POLICIES[name]}
    availability: Availability | None = settings.get("availability")
    if availability is not None:
        most = availability.most(settings["replicas"])
        kept = tuple(outage for outage in availability.outages if outage.replica < most)
        settings["availability"] = replace(availability, outages=kept)
    return settings


def assert_same(run: PoolRun, plain: PlainPool) -> None:
    log, everyone = run.log, plain.sequences
    outcomes = [log.outcomes[outcome] for outcome in log.outcome]
    assert outcomes == [item.outcome for item in everyone]
    for mine, theirs in (
        (log.admitted_s, "admitted_s"),
        (log.first_token_s, "first_s"),
        (log.answer_start_s, "answer_s"),
        (log.completion_s, "done_s"),
    ):
        np.testing.assert_allclose(mine, [getattr(item, theirs) for item in everyone], rtol=1e-9, err_msg=theirs)
    for counts, theirs in (
        (log.replica, "replica"),
        (log.preemptions, "preemptions"),
        (log.recomputed_tokens, "recomputed"),
        (log.swapped_tokens, "swapped"),
        (log.retries, "retries"),
    ):
        assert counts.tolist() == [getattr(item, theirs) for item in everyone], theirs


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", POLICIES)
def test_events_come_at_the_times_of_a_step_by_step_walk(name: str, seed: int) -> None:
    table, replica, settings = table_of(seed), replica_of(seed), settings_of(name, seed)
    run = simulate_pool(table, replica, rng=np.random.default_rng(seed), **settings)
    plain = plain_pool(table, replica, rng=np.random.default_rng(seed), **settings)
    assert_same(run, plain)


@pytest.mark.parametrize("seed", range(50))
def test_events_come_at_the_times_of_the_step_engine(seed: int) -> None:
    table = replace(
        table_of(seed, 90), generated=np.zeros(90, dtype=np.int64), cached_prefix=np.zeros(90, dtype=np.int64)
    )
    replica = replace(replica_of(seed), admission=("full_prompt", "no_evict")[seed // 8 % 2])
    replicas, router = 1 + seed % 3, ("random", "jsq")[seed // 3 % 2]
    requests = [
        Request(cls="all", arrival_s=arrival, prompt=prompt, output=output, reasoning=reasoning)
        for arrival, prompt, output, reasoning in zip(
            *(getattr(table, name).tolist() for name in ("arrival_s", "prompt", "output", "reasoning")), strict=True
        )
    ]
    stepped = replay(replica, iter(requests), replicas=replicas, router=router, rng=np.random.default_rng(seed))
    run = simulate_pool(table, replica, replicas=replicas, router=router, rng=np.random.default_rng(seed))
    for mine, theirs in (
        (run.log.admitted_s, "admitted_s"),
        (run.log.first_token_s, "first_token_s"),
        (run.log.answer_start_s, "answer_s"),
        (run.log.completion_s, "done_s"),
        (run.log.preemptions, "preemptions"),
    ):
        np.testing.assert_allclose(mine, [getattr(item, theirs) for item in requests], rtol=1e-9, err_msg=theirs)
    assert run.track.steps == stepped.steps
    assert run.track.mean_running == pytest.approx(stepped.mean_batch, rel=1e-9)
    if stepped.kv_fill is not None:
        assert run.track.kv_fill == pytest.approx(stepped.kv_fill, rel=1e-9)


@pytest.mark.parametrize("name", ["plain", "blocks", "no eviction", "blocks without eviction", "first chunk", "swap"])
@pytest.mark.parametrize("window", [(0.0, 1e9), (0.4, 1.3)])
def test_time_averages_are_those_of_the_walked_steps(name: str, window: tuple[float, float]) -> None:
    table, replica = table_of(4), replica_of(5)
    grid_s = np.linspace(0.0, 2.0, 81) + 1e-4
    settings: dict[str, Any] = {"replicas": 2, "router": "round_robin", **POLICIES[name]}
    run = simulate_pool(table, replica, window_s=window, grid_s=grid_s, **settings)
    steps = [step for engine in plain_pool(table, replica, **settings).replicas for step in engine.history]
    inside = [step for step in steps if window[0] < step[1] <= window[1]]
    span_s = 2 * (window[1] - window[0])
    track = run.track
    assert track.steps == len(inside)
    assert track.busy_share * span_s == pytest.approx(sum(end - start for start, end, *_ in inside), rel=1e-9)
    assert track.mean_running * span_s == pytest.approx(sum((e - s) * n for s, e, n, _, _ in inside), rel=1e-9)
    assert track.kv_tokens * span_s == pytest.approx(sum((e - s) * pool for s, e, _, pool, _ in inside), rel=1e-9)
    assert track.kv_waste_tokens * span_s == pytest.approx(
        sum((e - s) * (pool - exact) for s, e, _, pool, exact in inside), rel=1e-7, abs=1e-7
    )
    assert track.course is not None
    for place, time_s in enumerate(grid_s):
        present = [step for step in steps if step[0] <= time_s < step[1]]
        assert track.course.running[place] == sum(step[2] for step in present)
        assert track.course.kv_tokens[place] == pytest.approx(sum(step[3] for step in present), rel=1e-9)
        waste = sum(step[3] - step[4] for step in present)
        assert track.course.kv_waste_tokens[place] == pytest.approx(waste, rel=1e-9, abs=1e-9)
