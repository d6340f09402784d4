"""Pools under bursty arrivals: limits, properties, and the simulator as an outside oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.queueing import pool, pool_metrics
from qmodel.queueing.bursts.phase_mixture import over_phases
from qmodel.queueing.bursts.phases import burst_components, rate_phases
from qmodel.queueing.bursts.request_bursts import request_burst
from qmodel.queueing.replica.percentiles import GridLaw, KernelLaw
from qmodel.queueing.replica.work import pooled_work
from qmodel.simulation import simulate_pool, table_from_arrays
from qmodel.types import Law, Lengths, Metric, Replica, Router, Stream
from qmodel.types.arrivals import Burst
from qmodel.workload import lognormal_law
from qmodel.workload.arrival_processes import ArrivalProcess, Batches, GammaRenewal, TwoRates
from tests.queueing.llm_cases import small

METRICS: tuple[Metric, ...] = ("ttft", "tpot", "completion")
SWINGS = TwoRates(rates=(2.5, 0.625), mean_stay_s=(10.0, 40.0))
MILD = TwoRates(rates=(1.6, 0.85), mean_stay_s=(10.0, 40.0))


def bursty(process: ArrivalProcess, rate_rps: float, **settings: object) -> tuple[Replica, Stream]:
    replica, stream = small(rate_rps, **settings)
    return replica, replace(stream, burst=process.burst(rate_rps))


def summary(replica: Replica, streams: list[Stream], replicas: int, router: Router = "random") -> list[float]:
    found = pool(replica, streams, replicas, router)
    return [
        value
        for stream in streams
        for name in METRICS
        for value in (found[stream.name].metric(name).mean, found[stream.name].metric(name).quantile(0.95))
    ]


@pytest.mark.parametrize("router", ["random", "jsq"])
def test_a_burst_of_no_size_is_poisson(router: Router) -> None:
    replica, stream = small(30.0)
    nothing = replace(stream, burst=Burst(excess=(0.0,), decay_per_s=(0.1,)))
    faint = replace(stream, burst=Burst(excess=(1e-6,), decay_per_s=(0.1,)))
    poisson = summary(replica, [stream], 3, router)
    assert summary(replica, [nothing], 3, router) == pytest.approx(poisson, rel=2e-3)
    assert summary(replica, [faint], 3, router) == pytest.approx(poisson, rel=0.03)


def test_a_random_router_gives_each_replica_its_share_of_the_burst() -> None:
    replica, stream = bursty(SWINGS, 24.0)
    assert stream.burst is not None
    share = replace(stream, rate_rps=8.0, burst=stream.burst.thinned(1.0 / 3.0))
    assert summary(replica, [stream], 3) == pytest.approx(summary(replica, [share], 1), rel=1e-9)


def test_part_of_a_load_brings_part_of_the_burst() -> None:
    replica, stream = bursty(SWINGS, 12.0)
    assert stream.burst is not None
    half = replace(stream, rate_rps=6.0, burst=stream.burst.thinned(0.5))
    wanted = [("chat", name, p) for name in METRICS for p in (None, 0.95)]
    found = pool_metrics(replica, [stream], [1], [0.5], "random", wanted)[0]
    assert found == pytest.approx(summary(replica, [half], 1), rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(rate_rps=st.floats(4.0, 9.5), decay=st.floats(0.01, 5.0), excess=st.floats(1.0, 60.0))
def test_a_larger_burst_is_never_served_faster(rate_rps: float, decay: float, excess: float) -> None:
    replica, stream = small(rate_rps)
    calm = replace(stream, burst=Burst(excess=(excess / 2.0,), decay_per_s=(decay,)))
    wild = replace(stream, burst=Burst(excess=(excess,), decay_per_s=(decay,)))
    for name in ("ttft", "completion"):
        slower = pool(replica, [wild], 1)["chat"].metric(name).mean
        assert slower >= 0.995 * pool(replica, [calm], 1)["chat"].metric(name).mean


def test_smooth_arrivals_wait_less_than_poisson() -> None:
    replica, even = bursty(GammaRenewal(scv=0.25), 10.3)
    assert pool(replica, [even], 1).p_wait < 0.9 * pool(replica, [replace(even, burst=None)], 1).p_wait


def test_a_shortest_queue_levels_batches_that_random_routing_does_not() -> None:
    replica, stream = bursty(Batches.geometric(8.0), 24.0)
    assert pool(replica, [stream], 4, "jsq")["chat"].ttft.mean < pool(replica, [stream], 4)["chat"].ttft.mean


def test_the_bursty_class_suffers_more_than_the_calm_one() -> None:
    replica, stream = small(5.0)
    wild = replace(stream, name="wild", burst=SWINGS.burst(5.0))
    found = pool(replica, [wild, replace(stream, name="calm")], 1)
    alone = pool(replica, [replace(stream, rate_rps=10.0)], 1)["chat"]
    assert found["wild"].completion.mean > 1.02 * found["calm"].completion.mean
    assert found["calm"].completion.mean > 1.02 * alone.completion.mean


def test_streams_of_one_kind_pool_their_bursts() -> None:
    _, stream = small(4.0)
    parts = [replace(stream, name=name, burst=SWINGS.burst(4.0)) for name in ("a", "b")]
    both = Burst.superposed([(item.rate_rps, item.burst) for item in parts])
    assert both is not None
    merged = {item.decay_per_s: 0.0 for item in burst_components(parts)}
    for item in burst_components(parts):
        merged[item.decay_per_s] += item.excess
    assert sum(merged.values()) == pytest.approx(sum(both.excess))


def test_phases_of_a_slow_process_are_its_own() -> None:
    replica, stream = bursty(TwoRates(rates=(3.0, 0.5), mean_stay_s=(500.0, 2000.0)), 6.0)
    one = np.ones(1)
    phases = rate_phases(
        burst_components([stream]),
        pooled_work(replica, [stream]),
        rate_rps=6.0 * one,
        one_rps=6.0 * one,
        residence_s=2.0 * one,
        step_s=0.02 * one,
        prefill_s=0.01,
    )
    assert phases.share[0] == pytest.approx([0.2, 0.8])
    assert phases.factor[0] == pytest.approx([3.0, 0.5], rel=0.01)
    assert np.diag(phases.switching[0]) == pytest.approx([-1.0 / 500.0, -1.0 / 2000.0])
    assert phases.by_class[0, 0] == pytest.approx([0.6, 0.4], rel=0.01)


def test_laws_of_phases_mix_by_their_weights() -> None:
    weight = np.array([[0.25, 0.75]])
    rows = GridLaw(
        mean_s=np.array([1.0, 2.0]),
        times_s=np.array([[0.0, 2.0], [0.0, 4.0]]),
        cdf=np.array([[0.0, 1.0], [0.0, 1.0]]),
    )
    mixed = over_phases(rows, weight)
    assert mixed.mean_s[0] == pytest.approx(1.75)
    assert mixed.share_within(np.array([1.0, 3.0])) == pytest.approx([0.3125, 0.8125])
    kernels = KernelLaw(
        weight=np.ones((2, 1)),
        centre_s=np.array([[1.0], [3.0]]),
        spread_s=np.full((2, 1), 0.01),
        skew=np.full((2, 1), 0.1),
        bounds_s=(np.array([0.5, 0.6]), np.array([4.0, 5.0])),
    )
    assert over_phases(kernels, weight).mean_s[0] == pytest.approx(2.5)
    assert over_phases(kernels, weight).quantile(0.2)[0] == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("process", "rate_rps", "replicas", "router", "tolerance"),
    [
        (MILD, 5.0, 1, "random", (0.15, 0.04, 0.04)),
        (MILD, 15.0, 3, "jsq", (0.15, 0.04, 0.04)),
        (GammaRenewal(scv=6.0), 8.0, 1, "random", (0.15, 0.05, 0.05)),
        (Batches.geometric(4.0), 8.0, 1, "random", (0.2, 0.08, 0.08)),
    ],
    ids=["swings", "swings-jsq", "gamma", "batches"],
)
def test_predictions_match_the_simulator(
    process: ArrivalProcess, rate_rps: float, replicas: int, router: Router, tolerance: tuple[float, float, float]
) -> None:
    replica, stream = bursty(process, rate_rps)
    rng = np.random.default_rng(11)
    count = 40_000
    arrival_s = process.draw(rng, count, rate_rps)
    lengths = stream.lengths
    run = simulate_pool(
        table_from_arrays(
            arrival_s, prompt=drawn(lengths.prompt, count, rng), output=drawn(lengths.output, count, rng)
        ),
        replica,
        replicas=replicas,
        router=router,
        rng=rng,
    )
    kept = slice(count // 20, count - count // 50)
    tpot = run.log.tpot_s[kept]
    simulated = [
        run.log.ttft_s[kept].mean(),
        tpot[np.isfinite(tpot)].mean(),
        run.log.completion_after_s[kept].mean(),
    ]
    found = pool(replica, [stream], replicas, router)["chat"]
    for name, value, most in zip(METRICS, simulated, tolerance, strict=True):
        assert found.metric(name).mean == pytest.approx(float(value), rel=most), name
    poisson = pool(replica, [replace(stream, burst=None)], replicas, router)["chat"].ttft.mean
    assert abs(found.ttft.mean - simulated[0]) < abs(poisson - simulated[0])


def drawn(law: Law, count: int, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    index = np.searchsorted(np.cumsum(law.weights), rng.random(count) * law.weights.sum())
    value = law.values[np.minimum(index, law.values.size - 1)]
    return np.maximum(np.floor(value + rng.random(count)), 1.0).astype(np.int64)


def test_recorded_bursts_of_short_outputs_swing_prompts_more() -> None:
    rng = np.random.default_rng(5)
    times = SWINGS.draw(rng, 60_000, 20.0)
    busy = np.searchsorted(times, times + 2.0) - np.arange(times.size) > 60  # in a peak 100 come in two seconds
    prompts = np.full(times.size, 500.0)
    alike = request_burst(times, prompts, np.full(times.size, 100.0))
    opposed = request_burst(times, prompts, np.where(busy, 60.0, 100.0))
    assert alike is not None and opposed is not None
    assert alike.prompt_swing[0] == 1.0 and opposed.prompt_swing[0] > 1.3


def test_prompts_that_swing_more_cost_first_tokens_and_not_residence() -> None:
    replica, stream = bursty(MILD, 5.0)
    assert stream.burst is not None
    more = replace(stream, burst=replace(stream.burst, prompt_swing=(2.0,)))
    calm, wild = (pool(replica, [item], 1) for item in (stream, more))
    assert wild["chat"].ttft.quantile(0.95) > 1.03 * calm["chat"].ttft.quantile(0.95)
    assert wild.mean_batch == pytest.approx(calm.mean_batch, rel=0.1)


def test_memory_limits_hold_back_bursts() -> None:
    lengths = Lengths.independent(lognormal_law(800, 0.8, maximum=8000), lognormal_law(300, 0.8, maximum=4000))
    replica, stream = bursty(SWINGS, 5.0, kv_tokens=60_000.0, watermark=0.05)
    stream = replace(stream, lengths=lengths)
    wild, calm = pool(replica, [stream], 1), pool(replica, [replace(stream, burst=None)], 1)
    assert wild.utilisation == calm.utilisation
    assert wild.p_wait > 2.0 * calm.p_wait
    assert wild["chat"].ttft.quantile(0.99) > calm["chat"].ttft.quantile(0.99)
