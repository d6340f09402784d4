"""Requests that leave when they have waited too long, and come again."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.queueing import Replica, StepLaw, impatient_pool, pool, pool_metrics, predict_pool
from qmodel.simulation import EnginePolicy, draw_requests, simulate_pool
from qmodel.types import Burst, Law, Lengths, Metric, Patience, Stream
from qmodel.workload import lognormal_law

FREE = StepLaw.linear(alpha_s=0.01, beta_s=0.0)
DENSE = StepLaw.linear(alpha_s=0.0131, beta_s=7.1e-5, gamma_s=3.06e-8, delta_s=7.1e-5)
CHAT = Stream(name="chat", rate_rps=1.0, lengths=Lengths.independent(lognormal_law(1000, 1.0), lognormal_law(300, 0.9)))
ENGINE = Replica(step=DENSE, max_num_seqs=32)


def exponential(mean: float) -> Law:
    level = (np.arange(2000) + 0.5) / 2000
    return Law.from_atoms(np.maximum(-mean * np.log1p(-level), 1.0), np.ones(2000))


def lost_share(servers: int, load: float, patience: float) -> float:
    """M/M/c+D of unit service time: Baccelli and Hebuterne (1981), written out state by state."""
    free = [load**n / math.factorial(n) for n in range(servers)]
    times = np.linspace(0.0, patience, 20_001)
    density = load * free[-1] * np.exp((load - servers) * times)
    beyond = density[-1] / servers
    return float(beyond / (sum(free) + np.trapezoid(density, times) + beyond))


@pytest.mark.parametrize(("slots", "load", "patience"), [(1, 0.8, 1.0), (8, 7.0, 0.5), (8, 10.0, 0.5), (20, 24.0, 2.0)])
def test_constant_steps_make_the_textbook_queue(slots: int, load: float, patience: float) -> None:
    lengths = Lengths.independent(Law.constant(1), exponential(1000.0))
    service = 0.01 * lengths.output.mean
    stream = Stream(name="a", rate_rps=load / service, lengths=lengths)
    found = impatient_pool(Replica(step=FREE, max_num_seqs=slots), [stream], 1, patience_s=patience * service)
    assert found.abandoned == pytest.approx(lost_share(slots, load, patience), rel=0.03)
    assert found.mean_batch == pytest.approx(load * (1.0 - found.abandoned), rel=0.01)


def test_endless_patience_is_the_pool_that_waits() -> None:
    stream = replace(CHAT, rate_rps=4.0)
    patient, usual = impatient_pool(ENGINE, [stream], 1, patience_s=1e4), pool(ENGINE, [stream], 1)
    assert patient.abandoned < 1e-9 and patient.attempts == pytest.approx(1.0)
    assert patient.mean_batch == pytest.approx(usual.mean_batch, rel=1e-3)
    assert patient.p_wait == pytest.approx(usual.p_wait, rel=0.05)
    assert patient["chat"].ttft.mean == pytest.approx(usual["chat"].ttft.mean, rel=0.1)
    assert patient["chat"].completion.quantile(0.95) == pytest.approx(usual["chat"].completion.quantile(0.95), rel=0.02)


def test_an_overload_loses_what_is_too_much() -> None:
    capacity = CHAT.rate_rps / pool(ENGINE, [CHAT], 1).utilisation
    for factor in (1.5, 3.0):
        found = impatient_pool(ENGINE, [replace(CHAT, rate_rps=factor * capacity)], 1, patience_s=30.0)
        assert found.abandoned == pytest.approx(1.0 - 1.0 / factor, rel=0.01)
        assert found.wait_mean_s == pytest.approx(30.0, rel=0.03) and found.wait_mean_s < 30.0
        assert found["chat"].ttft.quantile(0.99) < 32.0
        assert found.utilisation == pytest.approx(factor, rel=0.01)


@settings(max_examples=20, deadline=None)
@given(rate=st.floats(0.1, 8.0), patience=st.floats(0.2, 20.0), replicas=st.integers(1, 3))
def test_more_load_loses_more_and_patience_loses_less(rate: float, patience: float, replicas: int) -> None:
    def lost(factor: float, time: float) -> float:
        stream = replace(CHAT, rate_rps=rate * replicas * factor)
        return impatient_pool(ENGINE, [stream], replicas, patience_s=time, router="jsq").leaving

    base = lost(1.0, patience)
    assert 0.0 <= base <= 1.0
    assert lost(1.2, patience) >= base - 1e-9
    assert lost(1.0, 1.5 * patience) <= base + 1e-9


def test_coming_again_adds_load_and_loses_fewer() -> None:
    stream = replace(CHAT, rate_rps=2.2)
    once, again = (impatient_pool(ENGINE, [stream], 1, patience_s=2.0, retries=retries) for retries in (0, 3))
    assert again.attempt_rps > once.attempt_rps == stream.rate_rps
    assert again.leaving > once.leaving and again.abandoned < once.abandoned
    assert again.attempts == pytest.approx(again.attempt_rps / stream.rate_rps, rel=1e-6)
    assert again.abandoned == pytest.approx(again.leaving**4, rel=1e-9)
    assert once.lost_mean_s == 0.0 < again.lost_mean_s
    assert json.loads(json.dumps(again.to_dict()))["abandoned"] == again.abandoned


def test_a_request_that_fits_nowhere_is_an_overload() -> None:
    long = replace(CHAT, lengths=Lengths.independent(Law.constant(5000), Law.constant(6000)))
    found = impatient_pool(replace(ENGINE, kv_tokens=10_000.0), [long], 1, patience_s=1.0)
    assert found.overload is not None and found.overload.kind == "length"
    with pytest.raises(KeyError, match="no prediction for class 'chat'"):
        found["chat"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patience_s": 0.0}, r"patience_s must be greater than 0 s and finite \(got 0.0\); without it use pool"),
        ({"patience_s": math.inf}, "patience_s must be"),
        ({"retries": -1}, r"retries must be a whole number from 0 to 100 \(got -1\)"),
        ({"backoff_s": math.nan}, "backoff_s must be at least 0 s and finite"),
        ({"replicas": 0}, "replicas must be a whole number"),
        ({"router": "round_robin"}, r"router must be 'random' or 'jsq' \(got 'round_robin'\)"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, object], message: str) -> None:
    arguments = {"replicas": 1, "patience_s": 1.0} | change
    with pytest.raises(ValueError, match=message):
        impatient_pool(ENGINE, [CHAT], **arguments)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "patience", "retries"), [(2.4, 2.0, 0), (3.0, 5.0, 0), (3.0, 5.0, 2)])
def test_impatience_matches_simulation(rate: float, patience: float, retries: int) -> None:
    stream = replace(CHAT, rate_rps=rate)
    table = draw_requests([stream], rng=np.random.default_rng(6), count=15_000)
    policy = EnginePolicy(patience_s=patience, retries=retries, backoff_s=3.0)
    log = simulate_pool(table, ENGINE, policy=policy).log
    steady = np.zeros(len(log), dtype=bool)
    steady[2_000:-1_000] = True
    found = impatient_pool(ENGINE, [stream], 1, patience_s=patience, retries=retries, backoff_s=3.0)
    assert found.abandoned == pytest.approx(1.0 - log.done[steady].mean(), abs=0.015)
    assert found.attempts == pytest.approx(1.0 + log.retries[steady].mean(), rel=0.08)
    first = steady & log.done & (log.retries == 0)
    assert found["chat"].ttft.mean == pytest.approx(log.ttft_s[first].mean(), rel=0.15)
    assert found["chat"].tpot.mean == pytest.approx(np.nanmean(log.tpot_s[steady & log.done]), rel=0.02)


def test_many_cases_at_once_are_the_pools_one_by_one() -> None:
    patience = Patience(patience_s=3.0, retries=2, backoff_s=4.0)
    stream = replace(CHAT, rate_rps=1.0, patience=patience)
    wanted: list[tuple[str, Metric, float | None]] = [
        ("chat", "abandoned", None),
        ("chat", "ttft", 0.95),
        ("chat", "tpot", None),
    ]
    counts, loads = np.array([1, 2, 4]), np.array([3.0, 8.0, 30.0])
    tight = replace(ENGINE, kv_tokens=30_000.0)
    engines = [ENGINE, tight, ENGINE]
    found = pool_metrics(engines, [stream], counts, loads, "jsq", wanted)
    for row, (engine, count, load) in enumerate(zip(engines, counts.tolist(), loads.tolist(), strict=True)):
        one = predict_pool(engine, [replace(stream, rate_rps=load)], count, "jsq")["chat"]
        assert found[row].tolist() == pytest.approx(
            [one.metric("abandoned").mean, one.ttft.quantile(0.95), one.tpot.mean], rel=5e-3, abs=1e-6
        )


@settings(max_examples=20, deadline=None)
@given(load=st.floats(0.3, 2.0), retries=st.integers(0, 20), patience=st.floats(0.2, 20.0))
def test_attempts_are_those_that_leaving_brings(load: float, retries: int, patience: float) -> None:
    rate_rps = load * CHAT.rate_rps / pool(ENGINE, [CHAT], 1).utilisation
    found = impatient_pool(ENGINE, [replace(CHAT, rate_rps=rate_rps)], 1, patience_s=patience, retries=retries)
    brought = rate_rps * sum(found.leaving**k for k in range(retries + 1))
    assert found.attempt_rps == pytest.approx(brought, rel=1e-5)
    assert found.abandoned == pytest.approx(found.leaving ** (retries + 1))
    assert rate_rps <= found.attempt_rps * (1.0 + 1e-9) <= rate_rps * (retries + 1.0) * (1.0 + 1e-6)


def test_streams_that_no_model_describes_together_are_refused() -> None:
    one = replace(CHAT, patience=Patience(patience_s=1.0))
    for other, says in (
        (replace(CHAT, name="b"), "same patience"),
        (replace(one, name="b", priority=1), "same priority"),
        (replace(one, name="b", burst=Burst(excess=(1.0,), decay_per_s=(1.0,))), "Poisson"),
    ):
        with pytest.raises(ValueError, match=says):
            predict_pool(ENGINE, [one, other], 1)
