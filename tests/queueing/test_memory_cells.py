"""Predictions where KV memory binds, against stored simulations of random settings (those not kept aside)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qmodel.queueing import pool
from qmodel.simulation import draw_requests, simulate_pool
from tests.queueing.memory_cells import MemoryRun, memory_runs

# median |error| of mean TTFT, of mean TPOT and of mean completion
LIMITS = {
    ("full_prompt", "up to 0.85"): (0.08, 0.01, 0.01),
    ("full_prompt", "above 0.85"): (0.16, 0.035, 0.05),
    ("no_evict", "up to 0.85"): (0.10, 0.01, 0.01),
    ("no_evict", "above 0.85"): (0.35, 0.01, 0.06),
}


def development(admission: str, load: str) -> list[MemoryRun]:
    return [
        run
        for run in memory_runs()
        if not run.cell.aside
        and run.stable
        and run.cell.watermark > 0.0
        and run.cell.admission == admission
        and (run.cell.rho <= 0.85) == (load == "up to 0.85")
    ]


@pytest.mark.parametrize(("admission", "load"), LIMITS)
def test_predictions_match_the_simulated_cells(admission: str, load: str) -> None:
    errors = []
    for run in development(admission, load):
        found = pool(run.cell.replica, run.cell.streams, run.cell.replicas, run.cell.router)
        if found.stable:
            means = (found["a"].ttft.mean, found["a"].tpot.mean, found["a"].completion.mean)
            measured = [run.measured_s[f"{name}_mean"] for name in ("ttft", "tpot", "completion")]
            errors.append(np.abs(np.array(means) / measured - 1.0))
    assert len(errors) >= 8
    assert np.all(np.median(errors, axis=0) <= LIMITS[admission, load]), np.median(errors, axis=0)


def test_every_cell_below_its_capacity_is_predicted() -> None:
    refused = [
        run.cell
        for run in memory_runs()
        if run.cell.rho <= 0.85
        and run.cell.watermark > 0.0
        and not pool(run.cell.replica, run.cell.streams, run.cell.replicas, run.cell.router).stable
    ]
    assert not refused


def test_waits_rise_with_the_load_of_every_setting() -> None:
    for run in memory_runs():
        cell = run.cell
        if cell.rho <= 0.85 or cell.watermark == 0.0:
            continue
        waits = []
        for factor in (0.5, 0.8, 0.97):
            streams = [replace(item, rate_rps=item.rate_rps * factor) for item in cell.streams]
            found = pool(cell.replica, streams, cell.replicas, cell.router)
            if found.stable:
                waits.append((found.p_wait or 0.0, found["a"].ttft.mean))
        steps = np.diff(np.array(waits), axis=0)
        assert np.all(steps >= -1e-9), cell


@pytest.mark.slow
def test_a_stored_cell_comes_out_again() -> None:
    run = next(run for run in memory_runs() if run.cell.replicas == 1 and run.cell.rho <= 0.7)
    cell, values = run.cell, []
    for seed in range(2):
        rng = np.random.default_rng([20261202, cell.setting, round(100 * cell.rho), seed])
        table = draw_requests(cell.streams, rng=rng, count=60_000)
        log = simulate_pool(table, cell.replica, router=cell.router, rng=rng).log
        first_s, last_s = table.arrival_s[6000], table.arrival_s[58_200]
        values.append(log.ttft_s[(table.arrival_s >= first_s) & (table.arrival_s < last_s) & (table.cls == 0)])
    assert np.concatenate(values).mean() == pytest.approx(run.measured_s["ttft_mean"], rel=1e-5)
