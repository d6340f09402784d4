"""Print how far the M/G/c formulas are from exact and simulated queues, against their targets, and what they cost.

Run from the checkout: ``python benchmarks/queueing_accuracy.py``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qmodel.queueing import Moments, PhaseType, StepLaw, closed_batch, closed_loop, erlang_c, mgc
from qmodel.queueing.servers.deterministic_service import solve_constant_service
from qmodel.queueing.servers.qbd import solve_phase_queue
from qmodel.queueing.servers.residuals import curve_of_atoms
from qmodel.types import Law, Lengths, Replica
from tests.queueing.reference_queues import reference_cells, relative_errors, simulated_cells, simulated_errors

_COLUMNS = ("p_wait", "mean_wait", "wait_p90", "wait_p95", "wait_p99")
_EXACT = ("constant", "erlang2", "exponential", "hyperexponential")
# |error| in per cent over the queues of constant, Erlang, exponential, hyperexponential and lognormal service
_TARGETS = {"mean_wait mean": 2.8, "mean_wait 95%": 9.0, "wait_p95 mean": 4.0, "wait_p99 mean": 4.5}
_PARETO_TARGET = 10.0


def main() -> None:
    """Print the tables."""
    sets = {
        "exact": exact_errors(),
        "simulated, development": simulated_errors(simulated_cells("development")),
        "simulated, set aside": simulated_errors(simulated_cells("set_aside", widest_ci=0.06)),
    }
    for title, found in sets.items():
        print(f"M/G/c, {title}: |error| in per cent, mean / 95 % / largest")
        print(by_law(found).to_string(index=False))
        print()
    print("constant, Erlang, exponential, hyperexponential and lognormal service together, in per cent")
    print(target_table(sets).to_string(index=False))
    print()
    print(speed_table().to_string(index=False))


def exact_errors() -> pd.DataFrame:
    """Errors of ``approx`` against queues whose wait is known exactly, 2 to 128 servers."""
    cells = reference_cells()
    known = cells[(cells["servers"] > 1) & cells["shape"].isin(_EXACT)]
    errors = relative_errors(known.reset_index(drop=True))
    errors["law"] = errors["shape"] + " " + errors["scv"].map("{:g}".format)
    return errors


def by_law(errors: pd.DataFrame) -> pd.DataFrame:
    """|relative error| in per cent by law of service: mean / 95 % / largest, and the share in the band."""
    rows = []
    for law, group in errors.groupby("law", sort=True):
        row: dict[str, object] = {"service": law, "queues": len(group)}
        row |= {column: _spread(group[column]) for column in _COLUMNS}
        row["in band"] = f"{100.0 * np.mean(group['mean_wait'].abs() <= group['band'] + 1e-9):.0f} %"
        rows.append(row)
    return pd.DataFrame(rows)


def _spread(errors: pd.Series) -> str:
    values = 100.0 * errors.dropna().abs()
    return f"{values.mean():.1f} / {values.quantile(0.95):.1f} / {values.max():.1f}" if len(values) else "-"


def target_table(parts: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Means and 95th percentiles of |error| in per cent, set by set, beside the targets."""
    rows = []
    for name, errors in parts.items():
        regular = errors[errors["law"].str.match("constant|erlang|exponential|hyper|lognormal")]
        pareto = errors[errors["law"].str.startswith("pareto")]
        row: dict[str, object] = {"set": name}
        for target in _TARGETS:
            column, statistic = target.split()
            values = 100.0 * regular[column].dropna().abs()
            row[target] = values.mean() if statistic == "mean" else values.quantile(0.95)
        row["bounded Pareto mean_wait mean"] = 100.0 * pareto["mean_wait"].abs().mean() if len(pareto) else np.nan
        row["in band"] = 100.0 * np.mean(errors["mean_wait"].abs() <= errors["band"] + 1e-6)
        inside = [(errors[c].abs() <= errors["percentile_band"] + 1e-6)[errors[c].notna()] for c in _COLUMNS[2:]]
        row["in percentile band"] = 100.0 * np.mean(pd.concat(inside))
        rows.append(row)
    rows.append({"set": "target, at most", **_TARGETS, "bounded Pareto mean_wait mean": _PARETO_TARGET})
    rows[-1] |= {"in band": 90.0, "in percentile band": 90.0}
    return pd.DataFrame(rows).round(1)


def speed_table() -> pd.DataFrame:
    """Wall-clock of single calls, ms, best of five."""
    law = StepLaw.linear(alpha_s=0.0131, beta_s=7.1e-5, gamma_s=3.06e-8, delta_s=7.1e-5)
    replica = Replica(step=law, max_num_seqs=256, kv_tokens=519_500.0)
    values = np.exp(np.linspace(-2.0, 2.0, 400))
    lengths = Lengths.independent(Law.constant(1000.0), Law.from_atoms(300.0 * values, np.exp(-(np.log(values) ** 2))))
    service = Moments(mean_s=1.0, scv=4.0)
    seconds = Law.from_atoms(values, np.exp(-(np.log(values) ** 2)))
    two = PhaseType.of_moments(1.0, 4.0)
    phases, constant = solve_phase_queue.__wrapped__, solve_constant_service.__wrapped__  # without their memory
    calls: dict[str, Callable[[], object]] = {
        "erlang_c, 100,000 servers": lambda: erlang_c(99_000.0, 100_000),
        "mgc, one queue": lambda: mgc(80.0, service, 100),
        "mgc, one queue, law of 400 atoms": lambda: mgc(80.0, seconds, 100),
        "the curve of such a law, once": lambda: curve_of_atoms(seconds.values, seconds.weights, seconds.moments),
        "mgc, 10,000 loads": lambda: mgc(np.linspace(1.0, 99.0, 10_000), service, 100),
        "mgc, 1,000 server counts": lambda: mgc(80.0, service, np.arange(100, 1100)),
        "mgc, 500 queues with moments of their own": lambda: mgc(
            80.0, Moments(mean_s=1.0, scv=np.linspace(1.5, 8.0, 500)), 100
        ),
        "M/H2/8 exact": lambda: phases(7.2, two, 8),
        "M/H2/32 exact": lambda: phases(28.8, two, 32),
        "M/H2/32 exact, one percentile": lambda: phases(28.8, two, 32).quantile(0.05),
        "M/H2/128 exact": lambda: phases(115.2, two, 128),
        "M/E4/8 exact": lambda: phases(7.2, PhaseType.erlang(4, 1.0), 8),
        "M/D/32 exact": lambda: constant(28.8, 1.0, 32),
        "M/D/1000 exact": lambda: constant(980.0, 1.0, 1000),
        "closed_loop, one": lambda: closed_loop(law, 64, 1000, 200),
        "closed_loop, 10,000 user counts": lambda: closed_loop(law, np.arange(1, 10_001), 1000, 200, 256),
        "closed_batch, 2,000 requests": lambda: closed_batch(replica, 2_000, lengths),
        "closed_batch, 100,000 requests": lambda: closed_batch(replica, 100_000, lengths),
    }
    return pd.DataFrame({"call": list(calls), "ms": [_best_ms(call) for call in calls.values()]})


def _best_ms(call: Callable[[], object]) -> float:
    call()
    best = np.inf
    for _ in range(5):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        if best > 1.0:
            break
    return round(1e3 * best, 3)


if __name__ == "__main__":
    main()
