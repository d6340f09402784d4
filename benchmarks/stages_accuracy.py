"""Closed forms of pools in a row against simulations: chat, documents and thinking, fast and slow links.

Also short prompts, decode pools short of KV memory, and links of several lanes.

    python benchmarks/stages_accuracy.py             the cells that were looked at while the formulas were made
    python benchmarks/stages_accuracy.py --aside     the others, a third of all
    python benchmarks/stages_accuracy.py --cells     also every cell by itself

Each cell simulates 30,000 requests (8,000 with thinking) after a warm-up, with one seed of its own. Errors are mean
absolute relative errors in per cent; the last column is the mean half width of the simulations' own 95 % interval of
the mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from qmodel.queueing import AnswerStage, DecodeStage, PrefillStage, stages
from qmodel.simulation import Stage, batched, draw_requests, mean_estimate, simulate_network
from qmodel.types import METRICS, KvLink, Lengths, Replica, Router, StepLaw, Stream
from qmodel.workload import combine_reasoning, lognormal_law

STEP = StepLaw.linear(alpha_s=0.012, beta_s=1e-4, gamma_s=3e-8, delta_s=6e-5)
ENGINE = Replica(step=STEP, max_num_seqs=256, max_batched_tokens=8192)
TOKEN_BYTES = 131072.0
FAST = KvLink(bytes_per_s=50e9, bytes_per_token=TOKEN_BYTES, latency_s=2e-5)
STATS = ("mean", "p95", "p99")
ASIDE = 3  # every third cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One row of pools and its load: that of the busiest pool."""

    kind: str
    replicas: tuple[int, ...]
    load: float
    link_load: float | None = None
    lanes: int = 1
    router: Router = "jsq"
    decode: Replica = ENGINE
    prefill: Replica = ENGINE


def cells() -> list[Cell]:
    """All cells; which are set aside follows from their place."""
    found = []
    for load in (0.4, 0.6, 0.75, 0.9):
        found += [
            Cell(kind="chat", replicas=(1, 1), load=load),
            Cell(kind="chat", replicas=(4, 8), load=load),
            Cell(kind="chat", replicas=(2, 3), load=load, link_load=0.7),
            Cell(kind="chat", replicas=(3, 2), load=load, router="random"),
            Cell(kind="rag", replicas=(4, 1), load=load),
            Cell(kind="rag", replicas=(8, 2), load=load, link_load=0.6),
            Cell(kind="rag", replicas=(2, 1), load=load, prefill=replace(ENGINE, max_batched_tokens=2048)),
            Cell(kind="thinking", replicas=(1, 4), load=load),
            Cell(kind="thinking", replicas=(1, 3, 1), load=load),
            Cell(kind="thinking", replicas=(1, 6, 2), load=load, link_load=0.5),
            Cell(kind="chat", replicas=(4, 2), load=load, decode=replace(ENGINE, max_num_seqs=48)),
        ]
    small = replace(ENGINE, kv_tokens=60_000.0)
    for load in (0.4, 0.6, 0.75):
        found += [
            Cell(kind="short", replicas=(2, 4), load=load),
            Cell(kind="short", replicas=(8, 12), load=load),
            Cell(kind="memory", replicas=(4, 2), load=load, decode=small),
            Cell(kind="memory", replicas=(6, 4), load=load, decode=small, router="random"),
            Cell(kind="lanes", replicas=(4, 4), load=load, link_load=0.7, lanes=2),
            Cell(kind="lanes", replicas=(6, 8), load=load, link_load=0.7, lanes=4),
        ]
    return found


def lengths_of(kind: str) -> Lengths:
    """The lengths of a request."""
    if kind in ("chat", "memory", "lanes"):
        return Lengths.independent(lognormal_law(1200, 1.1), lognormal_law(300, 0.9))
    if kind == "short":
        return Lengths.independent(lognormal_law(250, 1.0), lognormal_law(150, 0.8))
    if kind == "rag":
        return Lengths.independent(lognormal_law(6000, 0.6), lognormal_law(60, 0.8))
    output, thought = combine_reasoning(lognormal_law(1500, 0.9), lognormal_law(400, 0.6))
    return Lengths.independent(lognormal_law(400, 1.2), output, thought)


def row_of(cell: Cell, lengths: Lengths) -> tuple[list[PrefillStage | DecodeStage | AnswerStage], float]:
    """The stages of a cell and its rate, requests/s."""

    def row(link: KvLink) -> list[PrefillStage | DecodeStage | AnswerStage]:
        first, second, *third = cell.replicas
        found: list[PrefillStage | DecodeStage | AnswerStage] = [
            PrefillStage(replica=cell.prefill, replicas=first, router=cell.router),
            DecodeStage(replica=cell.decode, replicas=second, router=cell.router, link=link),
        ]
        return found + [AnswerStage(replica=cell.decode, replicas=n, router=cell.router, link=FAST) for n in third]

    little = stages(row(FAST), [Stream(name="a", rate_rps=1e-3, lengths=lengths)])
    rate_rps = 1e-3 * cell.load / max(pool.utilisation for pool in little.pools)
    if cell.link_load is None:
        return row(FAST), rate_rps
    used = little.links[0].utilisation * rate_rps / 1e-3
    lane_bps = FAST.bytes_per_s * used / cell.link_load / cell.lanes
    return row(replace(FAST, bytes_per_s=lane_bps, lanes=cell.lanes)), rate_rps


def errors(cell: Cell, seed: int) -> Iterator[tuple[str, str, float, float]]:
    """Metric, statistic, relative error and half width of the mean's interval over the mean."""
    lengths = lengths_of(cell.kind)
    row, rate_rps = row_of(cell, lengths)
    stream = Stream(name="a", rate_rps=rate_rps, lengths=lengths)
    predicted = stages(row, [stream])["a"]
    rng = np.random.default_rng(seed)
    requests = 8000 if cell.kind == "thinking" else 30000
    stay_s = predicted.completion.mean
    warm_s = max(0.1 * requests / rate_rps, 3.0 * stay_s)
    stop_s = warm_s + requests / rate_rps
    table = draw_requests([stream], rng=rng, horizon_s=stop_s + predicted.completion.quantile(0.99))
    pools = {
        str(place): Stage(
            serves="output",
            replica=stage.replica,
            replicas=stage.replicas,
            router=stage.router,
            link=None if isinstance(stage, PrefillStage) else stage.link,
        )
        for place, stage in enumerate(row)
    }
    log = simulate_network(table, np.zeros(len(table), dtype=np.int64), [list(pools)], pools, rng=rng).log
    measured = (table.arrival_s >= warm_s) & (table.arrival_s < stop_s)
    for metric in METRICS:
        if metric == "answer_start" and lengths.reasoning is None:
            continue
        values = log.metric(metric)[measured]
        values = values[~np.isnan(values)]
        found = mean_estimate([(1.0, batched(values, 20))])
        known = predicted.metric(metric)
        half = (found.high - found.low) / 2.0 / found.value
        yield metric, "mean", known.mean / found.value - 1.0, half
        for stat, p in (("p95", 0.95), ("p99", 0.99)):
            yield metric, stat, known.quantile(p) / float(np.quantile(values, p)) - 1.0, half


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--aside", action="store_true", help="the cells that were set aside")
    options.add_argument("--cells", action="store_true", help="every cell by itself")
    options.add_argument("--kind", help="one kind alone")
    asked = options.parse_args()
    rows: dict[tuple[str, str], list[dict[tuple[str, str], float]]] = {}
    for number, cell in enumerate(cells()):
        if (number % ASIDE == ASIDE - 1) != asked.aside or asked.kind not in (None, cell.kind):
            continue
        found = {}
        for metric, stat, error, half in errors(cell, 100 + number):
            found[metric, stat] = 100.0 * error
            found[metric, "interval"] = 100.0 * half
        rows.setdefault((cell.kind, "to 0.75" if cell.load < 0.8 else "0.9"), []).append(found)
        if asked.cells:
            told = " ".join(f"{metric} {stat} {value:+.1f}" for (metric, stat), value in found.items())
            print(f"{cell.kind} {cell.replicas} {cell.load} link {cell.link_load} {cell.router}: {told}", flush=True)
    print("kind, load | cells | " + " | ".join(f"{m} {s}" for m in METRICS for s in (*STATS, "interval")))
    for (kind, load), group in rows.items():
        values = []
        for metric in METRICS:
            for stat in (*STATS, "interval"):
                known = [abs(item[metric, stat]) for item in group if (metric, stat) in item]
                values.append(f"{np.mean(known):.1f}" if known else "")
        print(f"{kind}, {load} | {len(group)} | " + " | ".join(values))


if __name__ == "__main__":
    main()
