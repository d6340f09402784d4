"""Print how far G/G/c and the model of changing demand are from simulated queues and from replays of recorded traffic.

Run from the checkout: ``python benchmarks/bursty_accuracy.py [TRACE ...]``. Traces given are replayed besides the
shipped ones; they need arrival times and lengths. Replays hold a slot for 20 ms per generated token and 0.1 ms per
prompt token, first come, first served, and leave out the first five mean holding times.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qmodel.queueing import Moments, ggc, measured_burst, mgc, recorded_demand, time_varying
from qmodel.trace import read_trace
from qmodel.workload.arrival_processes import TwoRates
from tests.queueing.bursty_cells import bursty_cells, relative_errors
from tests.queueing.exact_bursty import modulated_wait
from tests.queueing.slot_engine import slot_waits

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("azure_2023_conv.csv.gz", "mooncake_fast25_conversation.csv.gz", "azure_2023_code.csv.gz")
UTILISATIONS = (0.6, 0.7, 0.775, 0.85, 0.92)
COLUMNS = ("p_wait", "mean_wait", "p90", "p95", "p99")


def cell_tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """|relative error| in per cent by kind of arrivals (mean / nine in ten / largest), and the same over all kinds."""
    cells = bursty_cells()
    errors = relative_errors(cells)
    blind = relative_errors(cells, with_skew=False)
    by_kind = [
        {"set": kept, "group": group, "arrivals": arrivals, "queues": len(rows)}
        | {column: _summary(rows[column]) for column in COLUMNS}
        for (kept, group, arrivals), rows in errors.groupby(["set", "group", "arrivals"], sort=True)
    ]
    overall = [
        {"set": kept, "group": group, "skewness": name, "queues": len(rows)}
        | {column: _summary(rows[column]) for column in COLUMNS}
        for name, table in (("known", errors), ("not given", blind))
        for (kept, group), rows in table.groupby(["set", "group"], sort=True)
    ]
    return pd.DataFrame(by_kind), pd.DataFrame(overall)


def target_table() -> pd.DataFrame:
    """Queues of the usual range: 4 to 64 servers, utilisation 0.7 to 0.95, excess up to 3, no rare pauses."""
    errors = relative_errors(bursty_cells())
    usual = errors["arrivals"].isin(["gamma", "h2", "geom", "cbatch", "mmpp"]) & (errors["group"] == "moderate")
    rows = errors[usual & (errors["servers"] >= 3) & (errors["utilisation"] >= 0.7)]
    return pd.DataFrame(
        [
            {"set": kept, "queues": len(part)} | {column: _summary(part[column]) for column in COLUMNS}
            for kept, part in rows.groupby("set")
        ]
    )


def one_server_table() -> pd.DataFrame:
    """Mean wait at one server behind gamma and hyperexponential gaps, beside two classical formulas, per cent."""
    cells = bursty_cells()
    cells = cells[(cells["servers"] == 1) & cells["arrivals"].isin(["gamma", "h2"]) & (cells["mean_wait"] > 1e-6)]
    found = relative_errors(cells)["mean_wait"]
    rho, arrivals, service = (cells[name].to_numpy() for name in ("utilisation", "a", "scv"))
    allen_cunneen = rho / (1.0 - rho) * (arrivals + service) / 2.0
    smooth = np.exp(-2.0 * (1.0 - rho) * (1.0 - arrivals) ** 2 / (3.0 * rho * np.maximum(arrivals + service, 1e-9)))
    bursty = np.exp(-(1.0 - rho) * (arrivals - 1.0) / (arrivals + 4.0 * service))
    langenbach = allen_cunneen * np.where(arrivals <= 1.0, smooth, bursty)
    exact = cells["mean_wait"].to_numpy()
    return pd.DataFrame(
        {
            "formula": ["ggc", "Allen-Cunneen", "Kraemer-Langenbach-Belz"],
            "mean / nine in ten / largest": [
                _summary(pd.Series(error)) for error in (found, allen_cunneen / exact - 1.0, langenbach / exact - 1.0)
            ],
        }
    )


def two_rates_table() -> pd.DataFrame:
    """Two rates held for equal mean times at exponential servers, against the exact solution, per cent."""
    rows = []
    for servers in (4, 16, 64):
        for swing, stay in ((0.2, 2.0), (0.4, 0.5), (0.15, 10.0), (0.3, 4.0)):
            for utilisation in (0.7, 0.85, 0.95):
                low, high = (servers * utilisation * (1.0 + sign * swing) for sign in (-1.0, 1.0))
                p_wait, mean_wait = modulated_wait((low, high), (1.0 / stay, 1.0 / stay), servers)
                rate = servers * utilisation
                burst = TwoRates(rates=(low, high), mean_stay_s=(stay, stay)).burst(rate)
                queue = ggc(rate, Moments(mean_s=1.0, scv=1.0), servers, burst=burst)
                rows.append(
                    {
                        "servers": servers,
                        "swing": swing,
                        "stay": stay,
                        "utilisation": utilisation,
                        "P exact": round(p_wait, 4),
                        "P error": round(100.0 * (float(queue.p_wait) / p_wait - 1.0)),
                        "mean error": round(100.0 * (float(queue.mean_wait_s) / mean_wait - 1.0)),
                    }
                )
    return pd.DataFrame(rows)


def trace_table(path: Path) -> pd.DataFrame:
    """Replays of a trace beside what the windows, the measured burst and Poisson arrivals predict."""
    trace = read_trace(path, spread=True)
    assert trace.arrival_s is not None
    arrivals = trace.arrival_s
    holds = 0.02 * trace.output_tokens + 1e-4 * trace.prompt_tokens
    kept = arrivals > 5.0 * holds.mean()
    offered = float(holds.sum() / arrivals[-1])
    demand, burst = recorded_demand(arrivals, holds), measured_burst(arrivals, sizes=holds)
    rows = []
    for servers in sorted({max(round(offered / utilisation), int(offered) + 1) for utilisation in UTILISATIONS}):
        waits = slot_waits(arrivals, holds, servers)[kept]
        windows = time_varying(
            demand.rates_rps,
            demand.window_s,
            demand.service,
            servers,
            mean_service_s=demand.mean_service_s,
            peakedness=demand.peakedness,
            totals="recorded",
        )
        rate = offered / demand.service.mean
        settled, poisson = ggc(rate, demand.service, servers, burst=burst), mgc(rate, demand.service, servers)
        rows.append(
            {
                "servers": servers,
                "utilisation": round(offered / servers, 2),
                "P": (waits > 1e-9).mean(),
                "P windows": windows.overall_p_wait,
                "P burst": float(settled.p_wait),
                "P Poisson": float(poisson.p_wait),
                "mean s": waits.mean(),
                "mean windows": windows.overall_mean_wait_s,
                "mean burst": float(settled.mean_wait_s),
                "mean Poisson": float(poisson.mean_wait_s),
                "p95 s": np.quantile(waits, 0.95),
                "p95 windows": windows.wait_quantile_s(0.95),
            }
        )
    return pd.DataFrame(rows)


def speed_table() -> pd.DataFrame:
    """Wall-clock of single calls, ms, best of five; mgc for comparison."""
    service, servers = Moments(mean_s=1.0, scv=2.0), np.arange(4, 1004)
    day = 20.0 + 10.0 * np.sin(np.arange(24) / 24.0 * 2.0 * np.pi)
    law = recorded_demand(np.arange(1000.0), np.full(1000, 1.0)).service
    calls = {
        "mgc, 1,000 queues": lambda: mgc(3.0, service, servers),
        "ggc, 1,000 queues, arrival_scv": lambda: ggc(3.0, service, servers, arrival_scv=3.0),
        "ggc, one queue": lambda: ggc(30.0, service, 40, arrival_scv=3.0),
        "time_varying, 24 hours": lambda: time_varying(day, 3600.0, law, 32, start="repeat"),
    }
    rows = []
    for name, call in calls.items():
        call()
        best = np.inf
        for _ in range(5):
            start = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - start)
        rows.append({"call": name, "ms": round(1e3 * best, 2)})
    return pd.DataFrame(rows)


def _summary(errors: pd.Series) -> str:
    values = 100.0 * errors.dropna().abs()
    return f"{values.mean():.1f} / {values.quantile(0.9):.1f} / {values.max():.1f}" if len(values) else "-"


def main() -> None:
    by_kind, overall = cell_tables()
    print("|relative error| of ggc against simulation, per cent: mean / nine in ten / largest\n")
    print(by_kind.to_string(index=False), "\n")
    print(overall.to_string(index=False), "\n")
    print("3 to 64 servers, utilisation 0.7 to 0.95, excess up to 5, without rare pauses\n")
    print(target_table().to_string(index=False), "\n")
    print("One server, mean wait\n")
    print(one_server_table().to_string(index=False), "\n")
    print("Two rates, exponential service, exact, per cent\n")
    print(two_rates_table().to_string(index=False), "\n")
    for path in (*(ROOT / "scenarios" / "data" / name for name in SHIPPED), *map(Path, sys.argv[1:])):
        print(f"{path.name}\n")
        print(trace_table(path).to_string(index=False, float_format="{:.3g}".format), "\n")
    print(speed_table().to_string(index=False))


if __name__ == "__main__":
    main()
