"""A simulated fleet means the same as an evaluated one, and says where the two differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qmodel as qm
from qmodel.problem import bind
from qmodel.simulation import simulate_pool, table_from_arrays
from qmodel.simulation.length_buckets import alone_s
from qmodel.simulation.pool_runs import Demand, table_of
from qmodel.types import Fleet, Layout, Pool, Replica, StepLaw
from qmodel.types import Path as FleetPath
from qmodel.workload.arrival_processes import Batches

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def scenario(**classes: object) -> dict[str, object]:
    return {
        "qmodel": 1,
        "classes": classes,
        "fleet": {"gpus": {"g": {"price": {"usd_per_gpu_hour": 1.0}, "max_count": 8}}},
        "engine": {"max_num_seqs": 64, "max_batched_tokens": 2048, "router": "random"},
        "profiles": [
            {
                "model": "m",
                "gpu": "g",
                "layout": {"tp": 1},
                "alpha_s": 0.01,
                "beta_s": 1e-4,
                "gamma_s": 0.0,
                "delta_s": 1e-4,
            }
        ],
    }


def chat(rate_rps: float = 8.0, **slo: float) -> dict[str, object]:
    return {
        "model": "m",
        "rate_rps": rate_rps,
        "prompt_tokens": {"mean": 200, "cv": 0.5},
        "output_tokens": {"mean": 60, "cv": 0.8},
        "slo": slo or {"ttft_p95_s": 1.0, "tpot_mean_s": 0.1},
    }


def fleet(shares: dict[str, tuple[int, float]], classes: tuple[str, ...] = ("chat",)) -> Fleet:
    """Pools by name with their replicas and the share of every class that comes to them."""
    return Fleet(
        pools={
            name: Pool(name=name, model="m", gpu="g", layout=Layout(tp=1), replicas=count)
            for name, (count, _) in shares.items()
        },
        routing={
            cls: tuple(FleetPath(pools=(name,), share=share) for name, (_, share) in shares.items()) for cls in classes
        },
    )


def write_trace(path: Path, arrival_s: np.ndarray, output: np.ndarray, cls: list[str] | None = None) -> Path:
    lines = ["arrival_s,prompt_tokens,output_tokens" + (",class" if cls else "")]
    for row, (time_s, tokens) in enumerate(zip(arrival_s, output, strict=True)):
        lines.append(f"{time_s:.4f},200,{tokens}" + (f",{cls[row]}" if cls else ""))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_same_seed_gives_the_same_digits_and_another_one_does_not() -> None:
    one, two, other = (
        qm.simulate(scenario(chat=chat()), fleet({"p": (2, 1.0)}), requests=1000, seed=seed) for seed in (3, 3, 4)
    )
    assert one.to_dict() == two.to_dict()
    assert one.slo[0].simulated_s != other.slo[0].simulated_s


def test_rows_are_those_of_the_evaluation() -> None:
    pools = fleet({"p": (1, 0.4), "q": (2, 0.6)})
    found = qm.simulate(scenario(chat=chat()), pools, requests=2000)
    known = qm.evaluate(scenario(chat=chat()), pools)
    assert [(row.cls, row.path, row.metric, row.stat, row.target_s, row.predicted_s) for row in found.slo] == [
        (row.cls, row.path, row.metric, row.stat, row.target_s, row.predicted_s) for row in known.slo
    ]
    assert found.routing == known.routing
    assert found.cost_usd_per_hour == known.cost_usd_per_hour
    assert {row.stat for row in found.latency} == {"mean", "p50", "p90", "p95", "p99"}
    requests = {row.pool: row.requests for row in found.pools}
    assert requests["q"] / requests["p"] == pytest.approx(1.5, rel=0.15)


def test_predictions_and_simulation_agree_on_an_easy_load() -> None:
    found = qm.simulate(scenario(chat=chat()), fleet({"p": (2, 1.0)}), requests=10_000)
    for row in found.slo:
        assert row.decision == "met"
        assert row.simulated_s == pytest.approx(row.predicted_s, rel=0.1)
        assert row.ci_low_s is not None and row.ci_high_s is not None
        assert row.ci_low_s <= row.simulated_s <= row.ci_high_s  # type: ignore[operator]  # a stable pool has a number
    assert found.pools[0].mean_batch == pytest.approx(found.pools[0].predicted_batch, rel=0.05)


def test_targets_are_met_missed_or_not_decided_by_the_interval() -> None:
    free = qm.simulate(scenario(chat=chat()), fleet({"p": (2, 1.0)}), requests=1000)
    tpot = next(row for row in free.slo if row.metric == "tpot")
    assert tpot.simulated_s is not None and tpot.ci_high_s is not None and tpot.ci_low_s is not None
    for target, decision in (
        (tpot.ci_high_s * 1.01, "met"),
        (tpot.ci_low_s * 0.99, "missed"),
        (tpot.simulated_s, "not decided"),
    ):
        found = qm.simulate(scenario(chat=chat(tpot_mean_s=target)), fleet({"p": (2, 1.0)}), requests=1000)
        assert found.slo[0].decision == decision


def test_a_pool_that_overloads_has_a_reason_and_no_number() -> None:
    found = qm.simulate(scenario(chat=chat(rate_rps=60.0)), fleet({"p": (1, 1.0)}), requests=3000)
    assert not found.stable and found.missed
    assert all(row.simulated_s is None and row.decision == "missed" for row in found.slo)
    assert all(row.simulated_s is None for row in found.latency)
    assert found.buckets == () and found.fairness == ()
    assert any("grew" in text for text in found.assumptions)


def test_steps_take_their_band_at_p90() -> None:
    document = qm.load_scenario(SCENARIOS / "10-quickstart.yaml")
    plan = qm.plan(document)
    assert plan.fleet is not None
    slow = qm.simulate(document.with_(overrides={"policy.confidence": "p90"}), plan.fleet, requests=500)
    usual = qm.simulate(document, plan.fleet, requests=500)
    tpot = [
        next(row.simulated_s for row in found.slo if row.cls == "chat" and row.metric == "tpot")
        for found in (slow, usual)
    ]
    assert slow.confidence == "p90"
    assert tpot[0] is None or tpot[0] > 1.2 * (tpot[1] or 0.0)  # type: ignore[operator]


def test_replications_narrow_the_interval() -> None:
    wide, narrow = (
        qm.simulate(scenario(chat=chat()), fleet({"p": (2, 1.0)}), requests=1000, replications=n) for n in (1, 6)
    )
    widths = [row.ci_high_s - row.ci_low_s for found in (wide, narrow) for row in found.slo[1:2]]  # type: ignore[operator]
    assert widths[1] < widths[0]
    assert narrow.requests > 5 * wide.requests


def test_a_request_alone_takes_as_long_as_the_engine_says() -> None:
    engine = Replica(
        step=StepLaw.linear(alpha_s=0.01, beta_s=2e-4, gamma_s=1e-6, delta_s=1e-4),
        max_num_seqs=16,
        max_batched_tokens=512,
    )
    prompt, output = np.array([100, 1300, 512, 7]), np.array([21, 300, 1, 2])
    run = simulate_pool(table_from_arrays(np.arange(4) * 100.0, prompt=prompt, output=output), engine)
    assert alone_s(engine, prompt, output) == pytest.approx(run.log.completion_after_s)


def test_short_and_long_outputs_have_their_own_rows() -> None:
    found = qm.simulate(scenario(chat=chat(rate_rps=30.0)), fleet({"p": (2, 1.0)}), requests=3000)
    assert [row.bucket for row in found.buckets] == ["up to p50", "p50 to p90", "above p90"]
    assert [round(row.requests / found.requests, 1) for row in found.buckets] == [0.5, 0.4, 0.1]
    assert all(row.slowdown_mean >= 1.0 for row in found.buckets)
    (fair,) = found.fairness
    assert 0.0 < fair.jain <= 1.0 and fair.worst_over_best >= 1.0


def test_a_burst_in_a_trace_shows_where_a_poisson_stream_hides_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    calm, burst = np.sort(rng.random(1800)) * 300.0, 150.0 + np.sort(rng.random(1200)) * 20.0
    arrival_s = np.sort(np.concatenate([calm, burst]))
    trace = write_trace(tmp_path / "burst.csv", arrival_s, rng.integers(20, 120, arrival_s.size))
    replayed = qm.simulate(scenario(chat=chat(rate_rps=10.0)), fleet({"p": (1, 1.0)}), trace=trace)
    calmed = qm.simulate(
        scenario(chat=chat(rate_rps=10.0)), fleet({"p": (1, 1.0)}), trace=trace, arrivals="poisson", requests=2000
    )
    assert replayed.slo[0].simulated_s is not None and calmed.slo[0].simulated_s is not None
    assert replayed.slo[0].simulated_s > 3.0 * calmed.slo[0].simulated_s
    assert any("replayed" in text for text in replayed.assumptions)


def test_a_class_fed_by_a_trace_is_replayed_and_scaled(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "even.csv", np.arange(2000) * 0.1037, np.full(2000, 50))
    fed = {key: value for key, value in chat().items() if key in ("model", "slo")}
    fed["trace"] = {"file": str(trace), "rate_scale": 0.5}
    found = qm.simulate(scenario(chat=fed), fleet({"p": (1, 1.0)}))
    (note,) = [text for text in found.assumptions if "replayed" in text]
    assert note.endswith("its times divided by 0.5")
    assert not any("optimistic" in text for text in found.assumptions)
    ttft = next(row for row in found.latency if row.metric == "ttft" and row.stat == "p99")
    assert ttft.simulated_s == pytest.approx(0.03, abs=0.015)  # evenly spaced: nobody waits for more than a step


def test_stamps_of_a_coarse_clock_are_spread_over_its_steps(tmp_path: Path) -> None:
    stamps = np.repeat(np.arange(300) * 3.0, 10)
    trace = write_trace(tmp_path / "coarse.csv", stamps, np.full(3000, 50))
    found = qm.simulate(scenario(chat=chat(rate_rps=10.0 / 3.0)), fleet({"p": (1, 1.0)}), trace=trace)
    assert any("steps of about 3 s; spread at random" in text for text in found.assumptions)
    ttft = next(row for row in found.latency if row.metric == "ttft" and row.stat == "p50")
    assert ttft.simulated_s is not None and ttft.simulated_s < 0.06  # ten prompts at once would take 0.2 s


def test_a_recording_that_ends_in_a_burst_has_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    arrival_s = np.concatenate([np.sort(rng.random(1500)) * 280.0, 280.0 + np.sort(rng.random(1500)) * 20.0])
    trace = write_trace(tmp_path / "end.csv", arrival_s, np.full(3000, 100))
    found = qm.simulate(scenario(chat=chat(rate_rps=10.0)), fleet({"p": (1, 1.0)}), trace=trace)
    assert found.stable and all(row.simulated_s is not None for row in found.slo)


def test_every_request_of_a_split_trace_goes_to_one_pool(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "even.csv", np.arange(3000) * 0.1, np.full(3000, 5))
    found = qm.simulate(scenario(chat=chat(rate_rps=10.0)), fleet({"p": (1, 0.3), "q": (1, 0.7)}), trace=trace)
    shares = [row.requests / found.requests for row in found.pools]
    assert shares == pytest.approx([0.3, 0.7], abs=0.03)
    assert 2500 < found.requests <= 3000


def test_classes_of_a_trace_are_those_of_the_scenario(tmp_path: Path) -> None:
    names = ["chat", "other", "chat"] * 500
    trace = write_trace(tmp_path / "two.csv", np.arange(1500) * 0.1, np.full(1500, 5), names)
    classes = {"chat": chat(), "batch": chat()}
    found = qm.simulate(
        scenario(**classes), fleet({"p": (2, 1.0)}, classes=("chat", "batch")), trace=trace, requests=1000
    )
    assert any("500 requests of other are left out" in text for text in found.assumptions)
    assert any("no requests of batch" in text for text in found.assumptions)
    lonely = write_trace(tmp_path / "none.csv", np.arange(1500) * 0.1, np.full(1500, 5))
    with pytest.raises(qm.ScenarioError, match="names no classes"):
        qm.simulate(scenario(**classes), fleet({"p": (2, 1.0)}, classes=("chat", "batch")), trace=lonely)


def test_a_trace_without_classes_is_split_by_output_length(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "mixed.csv", np.arange(3000) * 0.1, np.tile([5, 40, 6], 1000))
    longer = chat()
    longer["output_tokens"] = {"mean": 400, "cv": 0.5}
    two = scenario(long=longer, short=chat())
    pools = fleet({"p": (2, 1.0)}, classes=("long", "short"))
    found = qm.simulate(two, pools, trace=trace, split=[20], requests=1000)
    assert any("up to 20 are short, above 20 are long" in text for text in found.assumptions)
    mean_s = {row.cls: row.simulated_s for row in found.latency if (row.metric, row.stat) == ("completion", "mean")}
    assert mean_s["long"] > 4.0 * mean_s["short"]
    for edges, words in (([20, 30], "1 lengths for 2 classes"), ([0], "rising")):
        with pytest.raises(qm.ScenarioError, match=words):
            qm.simulate(two, pools, trace=trace, split=edges)
    with pytest.raises(ValueError, match="split needs a trace"):
        qm.simulate(two, pools, split=[20])


@pytest.mark.parametrize(
    ("argument", "value"), [("seed", -1), ("requests", 5), ("replications", 0), ("arrivals", "uniform")]
)
def test_an_argument_out_of_range_is_named(argument: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{argument} must be"):
        qm.simulate(scenario(chat=chat()), fleet({"p": (1, 1.0)}), **{argument: value})  # type: ignore[arg-type]


def test_a_trace_cannot_be_replicated(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "even.csv", np.arange(2000) * 0.1037, np.full(2000, 50))
    with pytest.raises(qm.ScenarioError, match="replications"):
        qm.simulate(scenario(chat=chat()), fleet({"p": (1, 1.0)}), trace=trace, replications=2)


def test_tables_are_frames_too() -> None:
    found = qm.simulate(scenario(chat=chat()), fleet({"p": (2, 1.0)}), requests=500)
    assert list(found.to_frame("slo")["class"]) == ["chat", "chat"]
    assert not found.to_frame("course").empty
    with pytest.raises(ValueError, match="table must be one of"):
        found.to_frame("prices")


def test_pools_without_a_class_are_left_out() -> None:
    pools = fleet({"p": (2, 1.0)})
    spare = replace(pools, pools={**pools.pools, "idle": replace(pools.pools["p"], name="idle")})
    found = qm.simulate(scenario(chat=chat()), spare, requests=500)
    assert [row.pool for row in found.pools] == ["p"]


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "missed"), [(5, True), (6, True), (7, False)])
def test_long_reasoning_needs_seven_replicas(replicas: int, missed: bool) -> None:
    plan = qm.plan(SCENARIOS / "peers" / "p2.yaml")
    assert plan.fleet is not None
    pools = {name: replace(pool, replicas=replicas) for name, pool in plan.fleet.pools.items()}
    found = qm.simulate(SCENARIOS / "peers" / "p2.yaml", replace(plan.fleet, pools=pools))
    assert found.missed == missed


def stated(cls: dict[str, object], **arrivals: object) -> dict[str, object]:
    """The class with another shape of arrivals at the same rate."""
    others = {key: value for key, value in cls.items() if key != "rate_rps"}
    return {**others, "arrivals": {"rate_rps": cls["rate_rps"], **arrivals}}


def test_stated_arrivals_are_drawn_and_poisson_on_request() -> None:
    swings = {"peak_to_mean": 3, "mean_peak_s": 20, "mean_base_s": 80}
    bursty = scenario(chat=stated(chat(), mmpp=swings))
    waits = [
        next(row.simulated_s for row in found.latency if (row.metric, row.stat) == ("ttft", "p99"))
        for found in (
            qm.simulate(bursty, fleet({"p": (1, 1.0)}), requests=4000),
            qm.simulate(bursty, fleet({"p": (1, 1.0)}), requests=4000, arrivals="poisson"),
        )
    ]
    assert waits[0] is not None and waits[1] is not None and waits[0] > 1.2 * waits[1]


def test_replications_of_stated_arrivals_differ_and_pools_share_one_stream() -> None:
    instance = bind(qm.load_scenario(scenario(chat=stated(chat(), batch_size=4))))
    demand = Demand(
        classes=instance.classes,
        fleet=fleet({"p": (1, 0.25), "q": (1, 0.75)}),
        recorded={},
        replay=True,
        processes={"chat": Batches.geometric(4.0)},
    )

    def times(path: str, replication: int) -> np.ndarray:
        return table_of(demand, path, np.random.default_rng(7), 100.0, (1, 0, replication)).arrival_s

    parts = [times(path, 0) for path in ("p", "q")]
    whole = np.sort(np.concatenate(parts))
    assert np.intersect1d(*parts).size > 0  # batches are split request by request
    assert whole.size == pytest.approx(800, rel=0.3)
    assert not np.array_equal(parts[0], times("p", 1))
