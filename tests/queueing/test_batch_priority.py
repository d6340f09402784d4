from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qmodel.queueing import pool, pool_metrics, utilisation
from qmodel.simulation import EnginePolicy, draw_requests, simulate_pool
from qmodel.types import METRICS, Lengths, Replica, StepLaw, Stream
from qmodel.workload import lognormal_law
from tests.queueing.priority_pools import pool_errors

STEP = StepLaw.linear(alpha_s=9.8e-3, beta_s=1.03e-4, gamma_s=8e-8, delta_s=1.03e-4)
SLOTS = Replica(step=STEP, max_num_seqs=32, max_batched_tokens=4096)
MEMORY = Replica(step=STEP, max_num_seqs=256, max_batched_tokens=4096, kv_tokens=100_000, watermark=0.05)
PREFILL = Replica(
    step=StepLaw.linear(alpha_s=9.8e-3, beta_s=5e-5, gamma_s=4e-8, delta_s=1e-4),
    max_num_seqs=256,
    max_batched_tokens=2048,
)
CHAT = Lengths.independent(lognormal_law(800, 1.0), lognormal_law(200, 0.9))
LONG = Lengths.independent(lognormal_law(400, 1.0), lognormal_law(1200, 0.8))
DOCUMENTS = Lengths.independent(lognormal_law(5000, 0.6), lognormal_law(150, 0.7))


def at_load(replica: Replica, load: float, *streams: Stream) -> list[Stream]:
    """The streams, whose rates are weights, scaled to a utilisation."""
    used = float(utilisation(replica, streams, 1, 1.0)[0])
    return [replace(item, rate_rps=item.rate_rps * load / used) for item in streams]


def two(replica: Replica, load: float, high: int = 1, low: int = 0, second: Lengths = LONG) -> list[Stream]:
    return at_load(
        replica,
        load,
        Stream(name="high", rate_rps=3.0, lengths=CHAT, priority=high),
        Stream(name="low", rate_rps=1.0, lengths=second, priority=low),
    )


@pytest.mark.parametrize("replica", [SLOTS, MEMORY, PREFILL])
@pytest.mark.parametrize("router", ["random", "jsq"])
def test_equal_priorities_change_no_digit(replica: Replica, router) -> None:
    plain, ranked = (pool(replica, two(replica, 0.85, level, level), 3, router) for level in (0, 7))
    for name in ("high", "low"):
        for metric in METRICS:
            first, second = plain[name].metric(metric), ranked[name].metric(metric)
            assert first.mean == second.mean
            assert first.quantile(0.95) == second.quantile(0.95)


def test_only_the_order_of_priorities_counts() -> None:
    one, other = (pool(SLOTS, two(SLOTS, 0.9, *levels), 1) for levels in ((1, 0), (100, -5)))
    assert one["low"].ttft.mean == other["low"].ttft.mean
    assert one["high"].ttft.quantile(0.99) == other["high"].ttft.quantile(0.99)


@pytest.mark.parametrize("replica", [SLOTS, MEMORY, PREFILL])
def test_the_important_class_gains_what_the_other_loses(replica: Replica) -> None:
    second = DOCUMENTS if replica is PREFILL else LONG
    plain, ranked = (pool(replica, two(replica, 0.9, level, 0, second), 1) for level in (0, 1))
    for metric in ("ttft", "completion"):
        assert ranked["high"].metric(metric).mean < plain["high"].metric(metric).mean
        assert ranked["low"].metric(metric).mean > plain["low"].metric(metric).mean
    assert ranked["high"].tpot.mean == plain["high"].tpot.mean
    assert ranked.mean_batch == plain.mean_batch
    assert ranked.utilisation == plain.utilisation


def test_waits_of_equal_lengths_average_to_the_wait_without_priorities() -> None:
    streams = two(SLOTS, 0.93, second=CHAT)
    plain, ranked = pool(SLOTS, [replace(item, priority=0) for item in streams], 1), pool(SLOTS, streams, 1)
    rates = np.array([item.rate_rps for item in streams])
    mean = rates @ [ranked[item.name].ttft.mean for item in streams] / rates.sum()
    assert mean == pytest.approx(plain["high"].ttft.mean, rel=0.05)


def test_priorities_matter_less_the_lighter_the_load() -> None:
    gaps = []
    for load in (0.3, 0.6, 0.8, 0.92):
        found = pool(SLOTS, two(SLOTS, load, second=CHAT), 1)
        gaps.append(found["low"].ttft.mean / found["high"].ttft.mean)
    assert gaps[0] == pytest.approx(1.0, abs=5e-3)
    assert gaps == sorted(gaps)


def test_classes_of_one_priority_wait_alike_between_the_others() -> None:
    streams = at_load(
        SLOTS,
        0.9,
        *(
            Stream(name=name, rate_rps=1.0, lengths=CHAT, priority=level)
            for name, level in zip("abcd", (2, 1, 1, 0), strict=True)
        ),
    )
    found = pool(SLOTS, streams, 1)
    assert found["b"].ttft.mean == found["c"].ttft.mean
    assert found["a"].ttft.mean < found["b"].ttft.mean < found["d"].ttft.mean


def test_a_class_without_requests_changes_nothing() -> None:
    streams = two(SLOTS, 0.9)
    empty = Stream(name="none", rate_rps=0.0, lengths=CHAT, priority=5)
    with_it, without = pool(SLOTS, [*streams, empty], 1), pool(SLOTS, streams, 1)
    assert with_it["high"].ttft.mean == pytest.approx(without["high"].ttft.mean, rel=1e-9)
    assert with_it["none"].ttft.mean <= with_it["high"].ttft.mean * 1.001


@pytest.mark.parametrize("router", ["random", "jsq"])
def test_the_many_case_interface_gives_the_numbers_of_single_pools(router) -> None:
    streams = two(SLOTS, 0.5)
    wanted = [(name, metric, p) for name in ("high", "low") for metric in ("ttft", "completion") for p in (None, 0.95)]
    table = pool_metrics(SLOTS, streams, [1, 1, 2], [1.0, 1.8, 3.0], router, wanted)
    for row, (count, load) in zip(table, [(1, 1.0), (1, 1.8), (2, 3.0)], strict=True):
        found = pool(SLOTS, [replace(item, rate_rps=item.rate_rps * load) for item in streams], count, router)
        single = [
            found[name].metric(metric).mean if p is None else found[name].metric(metric).quantile(p)
            for name, metric, p in wanted
        ]
        assert row.tolist() == pytest.approx(single, rel=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replica", "second", "load", "mean_within", "p95_within"),
    [(SLOTS, CHAT, 0.75, 0.3, 0.35), (SLOTS, LONG, 0.85, 0.35, 0.4), (PREFILL, DOCUMENTS, 0.75, 0.2, 0.25)],
)
def test_simulated_engines_agree(
    replica: Replica, second: Lengths, load: float, mean_within: float, p95_within: float
) -> None:
    streams = two(replica, load, second=second)
    table = draw_requests(streams, rng=np.random.default_rng(5), count=40_000)
    log = simulate_pool(table, replica, policy=EnginePolicy(order="priority")).log
    found = pool(replica, streams, 1)
    for index, item in enumerate(streams):
        mine = table.cls == index
        mine[:4000] = mine[-2000:] = False
        ttft_s = log.ttft_s[mine]
        assert found[item.name].ttft.mean == pytest.approx(ttft_s.mean(), rel=mean_within)
        assert found[item.name].ttft.quantile(0.95) == pytest.approx(np.quantile(ttft_s, 0.95), rel=p95_within)


def test_stored_simulations_of_slot_limited_pools_agree() -> None:
    errors = pool_errors()
    known = errors[(errors["limit"] == "slots") & (errors["load"] <= 0.85)]
    assert len(known) >= 20
    assert known["ttft_mean"].abs().mean() <= 0.08
    assert known["ttft_p95"].abs().mean() <= 0.08
    assert known["tpot_mean"].abs().mean() <= 0.02
    assert known["completion_mean"].abs().mean() <= 0.02
    assert known["ttft_mean"].abs().mean() < 0.5 * known["plain_ttft_mean"].abs().mean()


def test_at_high_load_the_split_is_right_where_one_wait_for_all_would_be_far_off() -> None:
    errors = pool_errors()
    known = errors[(errors["limit"] == "slots") & (errors["load"] > 0.85)]
    assert known["ttft_mean"].abs().mean() <= 0.25
    assert known["plain_ttft_mean"].abs().mean() >= 1.0
