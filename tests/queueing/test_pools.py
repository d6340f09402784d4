"""Pools: published simulated values, agreement of the two interfaces, monotonicity, invariances, errors."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qmodel.queueing import Replica, pool, pool_metrics, utilisation
from qmodel.queueing.replica.pool_cases import Wanted
from qmodel.types import METRICS, Law, Lengths, RequestClass, Stream, mix_lengths
from qmodel.workload import lognormal_law
from tests.queueing.llm_cases import chat_8b, linear, reasoning_70b, small

STATS = (None, 0.5, 0.9, 0.95, 0.99)
LEAST_SHARE = 0.003  # of requests: what a percentile in a gap of the law may hang on


def all_metrics(name: str) -> list[Wanted]:
    return [(name, metric, p) for metric in METRICS for p in STATS]


def values(replica: Replica, classes: list[Stream], replicas: int, router: str, name: str) -> np.ndarray:
    prediction = pool(replica, classes, replicas, router)[name]  # type: ignore[arg-type]
    found = [(prediction.metric(metric), p) for _, metric, p in all_metrics(name)]
    return np.array([item.mean if p is None else item.quantile(p) for item, p in found])


@pytest.mark.parametrize(
    ("gpu", "replicas", "ttft_ms", "ttft_p99_ms", "tpot_ms"),
    [
        ("A100", 4, 259.7, 855.3, 49.0),
        ("A100", 5, 198.5, 606.8, 28.1),
        ("A100", 6, 174.8, 508.1, 21.7),
        ("A100", 7, 162.0, 453.5, 18.7),
        ("H100", 2, 63.9, 170.5, 14.1),
    ],
)
def test_chat_on_an_8b_model_matches_its_simulation(
    gpu: str, replicas: int, ttft_ms: float, ttft_p99_ms: float, tpot_ms: float
) -> None:
    replica, stream = chat_8b(gpu)
    chat = pool(replica, [stream], replicas)["chat"]
    assert chat.ttft.mean * 1e3 == pytest.approx(ttft_ms, rel=0.01)
    assert chat.ttft.quantile(0.99) * 1e3 == pytest.approx(ttft_p99_ms, rel=0.03)
    assert chat.tpot.mean * 1e3 == pytest.approx(tpot_ms, rel=0.015)


def test_six_a100_miss_half_a_second_and_seven_meet_it() -> None:
    replica, stream = chat_8b("A100")
    six, seven = pool_metrics(replica, [stream], [6, 7], 1.0, "random", [("chat", "ttft", 0.99)])[:, 0]
    assert six > 0.5 > seven


def test_reasoning_on_a_70b_model_matches_its_simulation() -> None:
    replica, stream = reasoning_70b()
    five, six, seven = (pool(replica, [stream], n)["reason"] for n in (5, 6, 7))
    assert seven.tpot.mean == pytest.approx(0.0317, rel=0.01)
    assert seven.completion.quantile(0.95) == pytest.approx(482.0, rel=0.01)
    assert seven.ttft.quantile(0.99) == pytest.approx(0.137, rel=0.02)
    assert six.tpot.mean == pytest.approx(0.0410, rel=0.015)
    assert six.completion.quantile(0.95) == pytest.approx(625.0, rel=0.015)
    assert six.completion.quantile(0.95) > 600.0
    assert five.tpot.mean > 0.05
    assert five.ttft.quantile(0.99) > 100.0


@pytest.mark.parametrize("router", ["random", "jsq"])
def test_one_case_and_many_cases_agree(router: str) -> None:
    replica, stream = reasoning_70b(519_500.0)
    other = Stream(name="chat", rate_rps=0.5, lengths=Lengths.independent(Law.constant(800), Law.constant(300)))
    counts, loads = np.array([8, 9, 12, 40]), np.array([0.7, 1.0, 1.3, 0.2])
    table = pool_metrics(replica, [stream, other], counts, loads, router, all_metrics("reason"))  # type: ignore[arg-type]
    for row, (count, load) in enumerate(zip(counts.tolist(), loads.tolist(), strict=True)):
        scaled = [replace(item, rate_rps=item.rate_rps * load) for item in (stream, other)]
        np.testing.assert_allclose(values(replica, scaled, count, router, "reason"), table[row], rtol=1e-6)


@pytest.mark.parametrize("router", ["random", "jsq"])
@pytest.mark.parametrize("kv_tokens", [None, 519_500.0])
def test_every_metric_rises_with_load(router: str, kv_tokens: float | None) -> None:
    replica, stream = reasoning_70b(kv_tokens)
    check_rising(replica, stream, 8, router)


@settings(max_examples=12, deadline=None)
@given(
    prompt=st.integers(20, 6000),
    output=st.integers(8, 1500),
    spread=st.floats(0.2, 2.0),
    slots=st.sampled_from([8, 64, 256]),
    prefill_us=st.floats(5.0, 150.0),
    replicas=st.integers(1, 12),
    router=st.sampled_from(["random", "jsq"]),
)
@example(prompt=967, output=428, spread=0.5, slots=64, prefill_us=101.0, replicas=4, router="jsq")  # p95 in a gap
def test_every_metric_rises_with_load_whatever_the_requests(
    prompt: int, output: int, spread: float, slots: int, prefill_us: float, replicas: int, router: str
) -> None:
    replica = Replica(step=linear(9.0, 0.06, 4e-5, prefill_us / 1e3), max_num_seqs=slots, max_batched_tokens=2048)
    lengths = Lengths.independent(lognormal_law(prompt, spread), lognormal_law(output, spread))
    check_rising(replica, Stream(name="a", rate_rps=1.0, lengths=lengths), replicas, router)


def check_rising(replica: Replica, stream: Stream, replicas: int, router: str) -> None:
    name = stream.name
    full = 1.0 / float(utilisation(replica, [stream], [replicas], [1.0])[0])
    loads = full * np.linspace(0.05, 0.97, 24)
    used = utilisation(replica, [stream], replicas, loads)
    assert np.all(np.diff(used) > 0.0)
    table = pool_metrics(replica, [stream], replicas, loads, router, all_metrics(name))  # type: ignore[arg-type]
    assert np.all(np.isfinite(table)) and np.all(table > 0.0)
    counts = np.arange(replicas, replicas + 8)
    more = pool_metrics(
        replica,
        [stream],
        counts,
        0.9 * full,
        router,  # type: ignore[arg-type]
        all_metrics(name),
    )
    heavier = [(replicas, load, replicas, next_load) for load, next_load in itertools.pairwise(loads.tolist())]
    fewer = [(count + 1, 0.9 * full, count, 0.9 * full) for count in counts[:-1].tolist()]
    rises = np.concatenate([np.diff(table, axis=0) / table[:-1], -np.diff(more, axis=0) / more[:-1]])
    for column, (_, metric, p) in enumerate(all_metrics(name)):
        if p == 0.5:  # the median of a law with two humps (a prompt of others met or not) may fall between them
            continue
        for row in np.flatnonzero(rises[:, column] < (-0.002 if p is None else -0.02)):
            assert p is not None, metric
            assert moved_share(replica, stream, (heavier + fewer)[row], router, metric, p) < LEAST_SHARE, (metric, p)


def moved_share(
    replica: Replica, stream: Stream, cases: tuple[int, float, int, float], router: str, metric: str, p: float
) -> float:
    """Share of requests by which the more loaded of two pools is quicker: little where a percentile falls in a gap."""
    easy_count, easy_load, hard_count, hard_load = cases
    easy, hard = (
        getattr(pool(replica, [part], count, router)[stream.name], metric)  # type: ignore[arg-type]
        for part, count in (
            (replace(stream, rate_rps=stream.rate_rps * easy_load), easy_count),
            (replace(stream, rate_rps=stream.rate_rps * hard_load), hard_count),
        )
    )
    return p - float(easy.share_within(np.array([hard.quantile(p)]))[0])


@pytest.mark.parametrize("factor", [0.1, 7.0])
def test_time_scales(factor: float) -> None:
    replica, stream = small(9.0)
    slow = replace(replica, step=replica.step.scaled(factor))
    late = replace(stream, rate_rps=stream.rate_rps / factor)
    np.testing.assert_allclose(
        values(slow, [late], 1, "random", "chat"), factor * values(replica, [stream], 1, "random", "chat"), rtol=1e-6
    )


def test_a_class_split_in_two_is_the_class() -> None:
    replica, stream = small(8.0)
    halves = [replace(stream, rate_rps=3.0), replace(stream, name="rest", rate_rps=5.0)]
    np.testing.assert_allclose(
        values(replica, halves, 1, "random", "chat"), values(replica, [stream], 1, "random", "chat"), rtol=2e-3
    )


def test_classes_share_the_wait_and_keep_their_lengths() -> None:
    replica, chat = small(6.0)
    long = Stream(name="long", rate_rps=1.0, lengths=Lengths.independent(chat.lengths.prompt, Law.constant(1000)))
    both = pool(replica, [chat, long], 1)
    assert set(both) == {"chat", "long"} and len(both) == 2
    assert both["long"].ttft.mean == pytest.approx(both["chat"].ttft.mean, rel=1e-9)
    assert both["long"].completion.mean > 3.0 * both["chat"].completion.mean
    pooled = mix_lengths([chat.lengths, long.lengths], [6.0, 1.0])
    assert both.mean_batch == pytest.approx(
        pool(replica, [Stream(name="all", rate_rps=7.0, lengths=pooled)], 1).mean_batch, rel=1e-4
    )


def test_thinking_tokens_come_before_the_answer() -> None:
    replica, stream = small(2.0)
    thinking = Lengths.independent(stream.lengths.prompt, Law.constant(600), reasoning=Law.constant(500))
    chat = pool(replica, [replace(stream, lengths=thinking)], 1)["chat"]
    assert chat.answer_start.mean == pytest.approx(chat.ttft.mean + 500 * chat.tpot.mean, rel=1e-3)
    for p in (0.5, 0.95):
        assert chat.ttft.quantile(p) < chat.answer_start.quantile(p) < chat.completion.quantile(p)
    plain = pool(replica, [stream], 1)["chat"]
    assert plain.answer_start.quantile(0.95) == plain.ttft.quantile(0.95)


def test_requests_of_one_token_have_no_time_per_token() -> None:
    replica, stream = small(2.0)
    scoring = replace(stream, lengths=Lengths.independent(stream.lengths.prompt, Law.constant(1)))
    chat = pool(replica, [scoring], 1)["chat"]
    assert chat.tpot.mean == 0.0 and chat.tpot.quantile(0.99) == 0.0
    assert chat.completion.mean == pytest.approx(chat.ttft.mean)


def test_a_request_class_is_accepted_as_a_stream() -> None:
    replica, stream = small()
    request_class = RequestClass(name="chat", model="m", rate_rps=4.0, lengths=stream.lengths, slos=())
    assert values(replica, [request_class], 1, "random", "chat")[0] == values(replica, [stream], 1, "random", "chat")[0]  # type: ignore[list-item]


def test_too_much_load_is_an_overload_and_infinite_in_tables() -> None:
    replica, stream = small(100.0)
    prediction = pool(replica, [stream], 2)
    assert not prediction.stable and prediction.utilisation > 1.0 and prediction.mean_batch is None
    overload = prediction.overload
    assert overload is not None and overload.kind == "steps"
    assert overload.value == 100.0 and 2 * 10.0 < overload.limit < 2 * 30.0
    enough = int(overload.reason.split("at least ")[1].split()[0])
    assert pool(replica, [stream], enough).stable and not pool(replica, [stream], enough - 1).stable
    table = pool_metrics(replica, [stream], [2, enough], 1.0, "jsq", [("chat", "ttft", 0.9), ("chat", "tpot", None)])
    assert np.all(np.isinf(table[0])) and np.all(np.isfinite(table[1]))


def test_cases_may_have_their_own_replicas() -> None:
    fast, stream = small(3.0)
    slow = replace(fast, step=fast.step.scaled(1.5))
    wanted: list[Wanted] = [("chat", "completion", 0.95)]
    table = pool_metrics([fast, slow, fast], [stream], [1, 1, 2], [1.0, 1.0, 2.0], "random", wanted)
    assert table[0, 0] == pytest.approx(table[2, 0], rel=1e-9)
    assert table[1, 0] > 1.4 * table[0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"router": "fastest"}, "router must be"),
        ({"replicas": 0}, "counts"),
        ({"replica": {"max_num_seqs": 0}}, "max_num_seqs must be at least 1"),
        ({"replica": {"max_batched_tokens": 64}}, "max_batched_tokens must exceed"),
        ({"replica": {"watermark": 1.0}}, "watermark"),
        ({"replica": {"kv_tokens": -5.0}}, "kv_tokens must be positive"),
        ({"stream": {"rate_rps": float("nan")}}, "rate_rps must be finite"),
        ({"stream": {"rate_rps": -1.0}}, "rate_rps must be finite"),
        ({"classes": []}, "at least one stream"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, object], message: str) -> None:
    replica, stream = small(**change.get("replica", {}))  # type: ignore[arg-type]
    stream = replace(stream, **change.get("stream", {}))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        pool(
            replica,
            change.get("classes", [stream]),  # type: ignore[arg-type]
            change.get("replicas", 1),  # type: ignore[arg-type]
            change.get("router", "random"),  # type: ignore[arg-type]
        )


def test_wanted_must_name_what_exists() -> None:
    replica, stream = small()
    for wanted in (("rag", "ttft", None), ("chat", "latency", None), ("chat", "ttft", 95.0)):
        with pytest.raises(ValueError, match="wanted"):
            pool_metrics(replica, [stream], [1], [1.0], "random", [wanted])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="p must lie"):
        pool(replica, [stream], 1)["chat"].ttft.quantile(95.0)
