"""Bands of pool predictions: monotone tables, the same from every entry, and wide enough for simulated pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.bursty_pools import cells, simulated
from benchmarks.queueing_bands import Row, covered, fitted, measured_rows, older_rows, shipped
from qmodel.queueing import (
    ErrorBand,
    Prediction,
    Replica,
    StepLaw,
    least_band,
    pool,
    pool_bands,
    pool_metrics,
    queueing_band,
    utilisation,
)
from qmodel.queueing.replica.error_bands import KNOTS, bands_by_metric, interpolated
from qmodel.types import METRICS, Burst, Law, Lengths, Metric, Stream
from tests.queueing.bursty_pools import bursty_runs

ENGINE = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, gamma_s=3e-8, delta_s=4e-5), max_num_seqs=64)
CHAT = Stream(name="chat", rate_rps=3.0, lengths=Lengths.independent(Law.constant(800), Law.constant(250)))
LEVELS = st.one_of(st.none(), st.floats(0.01, 0.999))
BURST = Burst(excess=(3.0,), decay_per_s=(0.1,))


@given(used=st.floats(0.0, 1.2), memory=st.booleans(), bursty=st.booleans(), ranked=st.booleans(), p=LEVELS)
def test_bands_of_all_metrics_are_those_of_each(
    used: float, memory: bool, bursty: bool, ranked: bool, p: float | None
) -> None:
    found = bands_by_metric(used, memory, bursty=bursty, ranked=ranked)
    for metric in METRICS:
        one = queueing_band(metric, p, used, memory, bursty=bursty, ranked=ranked)
        assert found[metric].at(p) == pytest.approx(float(one), rel=1e-12)


@given(
    metric=st.sampled_from(METRICS),
    p=LEVELS,
    used=st.floats(0.0, 1.2),
    more=st.floats(0.0, 1.0),
    memory=st.booleans(),
    bursty=st.booleans(),
    ranked=st.booleans(),
)
def test_a_fuller_pool_never_has_a_narrower_band(
    metric: Metric, p: float | None, used: float, more: float, memory: bool, bursty: bool, ranked: bool
) -> None:
    low, high = queueing_band(metric, p, [used, used + more], memory, bursty=bursty, ranked=ranked)
    assert 0.0 < low <= high


@given(metric=st.sampled_from(METRICS), p=LEVELS, used=st.floats(0.0, 1.0), memory=st.booleans())
def test_bursts_and_priorities_never_narrow_a_band(metric: Metric, p: float | None, used: float, memory: bool) -> None:
    plain = float(queueing_band(metric, p, used, memory))
    for bursty, ranked in ((True, False), (False, True), (True, True)):
        assert float(queueing_band(metric, p, used, memory, bursty=bursty, ranked=ranked)) >= plain


@given(p=st.floats(0.5, 0.999), used=st.floats(0.0, 1.0), memory=st.booleans(), bursty=st.booleans())
def test_an_upper_percentile_of_tpot_is_no_better_known_than_its_mean(
    p: float, used: float, memory: bool, bursty: bool
) -> None:
    mean = float(queueing_band("tpot", None, used, memory, bursty=bursty))
    assert float(queueing_band("tpot", p, used, memory, bursty=bursty)) >= mean >= least_band("tpot")


def test_between_knots_and_levels_bands_are_interpolated_and_the_last_slope_goes_on() -> None:
    at_knots = [float(queueing_band("ttft", 0.95, knot)) for knot in KNOTS]
    assert float(queueing_band("ttft", 0.95, (KNOTS[0] + KNOTS[1]) / 2)) == pytest.approx(np.mean(at_knots[:2]))
    assert float(queueing_band("ttft", 0.95, 0.0)) == at_knots[0]
    slope = (at_knots[3] - at_knots[2]) / (KNOTS[3] - KNOTS[2])
    assert float(queueing_band("ttft", 0.95, 1.0)) == pytest.approx(at_knots[3] + slope * (1.0 - KNOTS[3]))
    assert float(queueing_band("ttft", 0.97, 0.7)) == pytest.approx(
        np.mean([float(queueing_band("ttft", p, 0.7)) for p in (0.95, 0.99)])
    )
    assert float(queueing_band("ttft", 0.3, 0.7)) == float(queueing_band("ttft", None, 0.7))


def test_bands_broadcast_over_loads_and_limits() -> None:
    table = queueing_band("completion", 0.95, np.array([0.5, 0.9])[:, None], np.array([False, True]))
    assert table.shape == (2, 2)
    for row, used in enumerate((0.5, 0.9)):
        for column, memory in enumerate((False, True)):
            assert table[row, column] == float(queueing_band("completion", 0.95, used, memory))


@pytest.mark.parametrize("kv_tokens", [None, 20_000.0])
@pytest.mark.parametrize(("burst", "priorities"), [(None, (0, 0)), (BURST, (0, 0)), (None, (1, 0)), (BURST, (1, 0))])
def test_one_pool_and_many_cases_have_the_same_bands(
    kv_tokens: float | None, burst: Burst | None, priorities: tuple[int, int]
) -> None:
    replica = replace(ENGINE, kv_tokens=kv_tokens, watermark=0.05)
    thinking = Lengths.independent(Law.constant(400), Law.constant(500), Law.constant(300))
    streams = [
        replace(CHAT, burst=burst, priority=priorities[0]),
        Stream(name="think", rate_rps=0.5, lengths=thinking, priority=priorities[1]),
    ]
    wanted: list[tuple[str, Metric, float | None]] = [
        (name, metric, p) for name in ("chat", "think") for metric in METRICS for p in (None, 0.5, 0.9, 0.95, 0.99)
    ]
    loads = np.array([0.3, 0.6, 0.85]) / float(utilisation(replica, streams, 1, 1.0)[0])
    table = pool_bands(replica, streams, 1, loads, wanted)
    for row, load in enumerate(loads):
        scaled = [replace(item, rate_rps=item.rate_rps * load) for item in streams]
        found = pool(replica, scaled, 1)
        alone = [found[name].metric(metric).band(p) for name, metric, p in wanted]
        np.testing.assert_allclose(table[row], alone, rtol=1e-9)
    kind = {"bursty": burst is not None, "ranked": priorities[0] != priorities[1]}
    memory = kv_tokens is not None
    expected = queueing_band("ttft", 0.95, loads * float(utilisation(replica, streams, 1, 1.0)[0]), memory, **kind)
    np.testing.assert_allclose(table[:, wanted.index(("chat", "ttft", 0.95))], expected)


def test_an_answer_without_thinking_has_the_band_of_its_first_token() -> None:
    found = pool(ENGINE, [CHAT], 1)["chat"]
    assert found.answer_start.error == found.ttft.error != found.completion.error


def test_pools_in_a_row_take_the_busiest_of_them() -> None:
    from qmodel.queueing import DecodeStage, PrefillStage, stages

    found = stages([PrefillStage(replica=ENGINE), DecodeStage(replica=ENGINE)], [CHAT])
    busiest = max(item.utilisation for item in found.pools)
    assert found["chat"].completion.band() == float(queueing_band("completion", None, busiest))
    assert found["chat"].ttft.band(0.95) == float(queueing_band("ttft", 0.95, found.pools[0].utilisation))


def test_an_overloaded_case_has_the_band_of_a_full_pool() -> None:
    wanted: list[tuple[str, Metric, float | None]] = [("chat", "ttft", 0.95)]
    full = float(queueing_band("ttft", 0.95, 1.0))
    assert np.isinf(pool_metrics(ENGINE, [CHAT], [1], [99.0], "random", wanted)[0, 0])
    assert pool_bands(ENGINE, [CHAT], [1], [99.0], wanted)[0, 0] == full


def test_a_band_is_asked_for_a_level_between_zero_and_one() -> None:
    prediction = Prediction(mean=1.0, error=ErrorBand(mean=0.1, p95=0.2, p99=0.3))
    assert prediction.to_dict([0.95])["p95_band"] == 0.2
    with pytest.raises(ValueError, match=r"p must lie strictly between 0 and 1, e\.g\. 0\.95, or be None \(got 95\)"):
        prediction.band(95)


def grouped(rows: Sequence[Row]) -> dict[tuple[str, str, str], list[Row]]:
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.table, row.metric, row.stat), []).append(row)
    return found


def test_the_shipped_table_covers_most_of_the_cells_it_is_made_of() -> None:
    for (table, metric, stat), rows in grouped(measured_rows()).items():
        within, below = covered(rows, shipped(rows))
        least = 0.75 if table.endswith(("ranked", "bursty")) else 0.82  # few cells
        assert within >= least and below >= 0.85, (table, metric, stat, within, below)


def test_the_shipped_table_is_no_wider_than_the_cells_ask_for() -> None:
    """Where slots or memory limit Poisson pools, at most one cell in twenty more than asked for lies within."""
    for table in ("slots", "kv"):
        rows = [row for row in measured_rows() if row.table == table]
        within, _ = covered(rows, shipped(rows))
        assert 0.85 <= within <= 0.95, (table, within)


def test_tables_of_two_thirds_of_the_settings_cover_the_third() -> None:
    for table in ("slots", "kv"):
        hits = []
        for rows in grouped([row for row in measured_rows() if row.table == table]).values():
            for fold in range(3):
                rest, part = [row for row in rows if row.fold != fold], [row for row in rows if row.fold == fold]
                bands = interpolated(fitted(rest), [row.utilisation for row in part])
                hits += [row.within(band) for row, band in zip(part, bands.tolist(), strict=True)]
        assert 0.83 <= np.mean(hits) <= 0.95, (table, np.mean(hits))


def test_runs_that_no_table_is_made_of_lie_within_the_shipped_one() -> None:
    """Levels between the tabulated ones too: p50 and p90."""
    for (table, metric, stat), rows in grouped(older_rows()).items():
        within, _ = covered(rows, shipped(rows))
        assert within >= 0.8, (table, metric, stat, within)


def test_a_stored_bursty_cell_is_what_the_simulator_gives() -> None:
    run = next(item for item in bursty_runs() if item.cell.process.startswith("batches"))
    drawn = next(cell for cell in cells() if (cell.setting, cell.rho) == (run.cell.setting, run.cell.rho))
    assert drawn == run.cell
    again = simulated(drawn)
    for name, value in run.measured_s.items():
        assert again[f"{name}_s"] == pytest.approx(value, rel=1e-5), name


def test_deciles_that_would_fall_with_the_load_are_pooled() -> None:
    def row(used: float, error: float) -> Row:
        return Row(
            kind="slots",
            setting="s",
            aside=False,
            utilisation=used,
            metric="ttft",
            stat="mean",
            predicted_s=1.0,
            measured_s=1.0 + error,
        )

    falling = [row(0.3, 0.4), row(0.6, 0.1), row(0.8, 0.5), row(0.9, 0.6)]
    first, second, third, last = fitted(falling)
    assert first == second == pytest.approx(0.1 + 0.9 * 0.3) and (third, last) == (
        pytest.approx(0.5),
        pytest.approx(0.6),
    )
