"""Print how far closed batches, output ranges, dealt requests, single slots and impatience lie from simulation.

Run from a checkout: ``python benchmarks/population_accuracy.py [section ...]``; sections are batches, shared, ranges,
round_robin, exclusive, patience. All of them take about ten minutes on one core.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from qmodel.queueing import Replica, StepLaw, batch_with_online, closed_batch, impatient_pool, pool, utilisation
from qmodel.queueing.replica.output_ranges import alone_s
from qmodel.simulation import EnginePolicy, RequestLog, draw_requests, simulate_pool, table_from_arrays
from qmodel.types import FloatArray, Law, Lengths, Router, Stream
from qmodel.workload import lognormal_law

DENSE = StepLaw.linear(alpha_s=0.0131, beta_s=7.1e-5, gamma_s=3.06e-8, delta_s=7.1e-5)
EXPERTS = StepLaw.table(
    batch=[0, 8, 32, 128, 512], step_s=[0.010, 0.016, 0.022, 0.030, 0.050], gamma_s=2e-8, delta_s=5e-5
)
CHAT = Lengths.independent(lognormal_law(1000, 1.0), lognormal_law(300, 0.9))
DOCUMENTS = Lengths.independent(lognormal_law(4000, 0.6), lognormal_law(200, 0.8))
LONG = Lengths.independent(lognormal_law(200, 0.5), lognormal_law(2000, 0.8))
OFFLINE = Lengths.independent(lognormal_law(500, 0.5), lognormal_law(1000, 0.8))
DRAWS = 60


def off(predicted: float, simulated: float) -> str:
    return f"{100.0 * (predicted / simulated - 1.0):+6.1f}"


def drawn(law: Law, count: int, rng: np.random.Generator) -> FloatArray:
    return np.maximum(np.floor(rng.choice(law.values, count, p=law.weights) + rng.random(count)), 1.0)


def steady(log: RequestLog) -> np.ndarray:
    rows = np.zeros(len(log), dtype=bool)
    rows[len(log) // 8 : -len(log) // 20] = True
    return rows & log.done


def stream(lengths: Lengths, replica: Replica, load: float, replicas: int = 1) -> Stream:
    one = Stream(name="a", rate_rps=1.0, lengths=lengths)
    return replace(one, rate_rps=load / float(utilisation(replica, [one], [replicas], [1.0])[0]))


def batches() -> None:
    capped = Lengths.independent(lognormal_law(400, 1.0), lognormal_law(600, 0.9, maximum=8000))
    short = Lengths.independent(lognormal_law(2000, 1.5), lognormal_law(20, 0.9))
    cells = {
        "300, 64 slots": (Replica(step=DENSE, max_num_seqs=64), 300, 1, CHAT),
        "4 x 75, longest": (Replica(step=EXPERTS, max_num_seqs=128), 300, 4, CHAT),
        "memory binds": (Replica(step=DENSE, max_num_seqs=64, kv_tokens=40_000.0), 300, 1, capped),
        "400 on 3, memory": (Replica(step=DENSE, kv_tokens=60_000.0, watermark=0.05), 400, 3, capped),
        "400 on 4, prefill": (Replica(step=EXPERTS, max_num_seqs=100), 400, 4, short),
        "80 on 16": (Replica(step=DENSE, max_num_seqs=64), 80, 16, OFFLINE),
    }
    print("batch               mean   p95 completion | makespan mean   p90   sd predicted / simulated, % of the mean")
    for name, (replica, requests, replicas, lengths) in cells.items():
        logs = []
        for seed in range(DRAWS):
            rng = np.random.default_rng(seed)
            prompt, output = drawn(lengths.prompt, requests, rng), drawn(lengths.output, requests, rng)
            table = table_from_arrays(np.zeros(requests), prompt=prompt, output=output)
            logs.append(simulate_pool(table, replica, replicas=replicas, router="round_robin").log.completion_s)
        ends, times = np.array([log.max() for log in logs]), np.concatenate(logs)
        found = closed_batch(replica, requests, lengths, replicas)
        print(
            f"{name:18s}{off(found.mean_completion_s, times.mean())}"
            f"{off(found.completion_quantile_s(0.95), np.quantile(times, 0.95))}            |"
            f" {off(found.makespan_s, ends.mean())}       {off(found.makespan_quantile_s(0.9), np.quantile(ends, 0.9))}"
            f"   {100 * found.makespan_sd_s / found.makespan_s:.1f} / {100 * ends.std() / ends.mean():.1f}"
        )


def shared() -> None:
    cells = {
        "chat, 0.3": (Replica(step=DENSE, max_num_seqs=64), CHAT, 0.3),
        "chat, 0.6": (Replica(step=DENSE, max_num_seqs=64), CHAT, 0.6),
        "documents, 0.4": (Replica(step=DENSE, max_num_seqs=64), DOCUMENTS, 0.4),
        "memory, 0.4": (Replica(step=DENSE, max_num_seqs=128, kv_tokens=80_000.0), CHAT, 0.4),
    }
    print("online beside 500   makespan   TTFT mean   TPOT mean   completion mean")
    for name, (replica, lengths, load) in cells.items():
        online = stream(lengths, replica, load)
        found = batch_with_online(replica, 500, OFFLINE, [online])
        assert found.batch is not None
        ends, rows = [], []
        for seed in range(DRAWS // 5):
            rng = np.random.default_rng(seed)
            span = 80.0 + 1.5 * found.affected_s
            others = rng.poisson(online.rate_rps * span)
            table = table_from_arrays(
                np.concatenate([np.full(500, 80.0), rng.random(others) * span]),
                prompt=np.concatenate([drawn(OFFLINE.prompt, 500, rng), drawn(lengths.prompt, others, rng)]),
                output=np.concatenate([drawn(OFFLINE.output, 500, rng), drawn(lengths.output, others, rng)]),
                priority=np.concatenate([np.zeros(500), np.ones(others)]),
            )
            log = simulate_pool(table, replica, policy=EnginePolicy(order="priority")).log
            batch = log.table.priority == 0
            last = log.admitted_s[batch].max()
            ends.append(log.completion_s[batch].max() - 80.0)
            during = (
                ~batch & log.done & (log.table.arrival_s > 80.0 + 0.2 * (last - 80.0)) & (log.table.arrival_s < last)
            )
            rows.append(np.stack([log.ttft_s[during], log.tpot_s[during], log.completion_after_s[during]]))
        ttft, tpot, completion = np.nanmean(np.concatenate(rows, axis=1), axis=1)
        one = found.during["a"]
        print(
            f"{name:18s}{off(found.batch.makespan_s, np.mean(ends))}     {off(one.ttft.mean, ttft)}"
            f"      {off(one.tpot.mean, tpot)}      {off(one.completion.mean, completion)}"
        )


def ranges() -> None:
    print("outputs of a class   share predicted / simulated   TTFT   TPOT p95   completion mean   p95   slowdown")
    for step, lengths, load in ((DENSE, CHAT, 0.4), (DENSE, CHAT, 0.8), (EXPERTS, LONG, 0.8)):
        replica = Replica(step=step, max_num_seqs=64)
        offered = stream(lengths, replica, load, 2)
        log = simulate_pool(
            draw_requests([offered], rng=np.random.default_rng(1), count=30_000), replica, replicas=2
        ).log
        found, rows = pool(replica, [offered], 2)["a"], steady(log)
        slowdown = log.completion_after_s / alone_s(replica, log.table.prompt, log.table.output)
        edges = [0.0, lengths.output.quantile(0.5), lengths.output.quantile(0.9), np.inf]
        for low, high in pairwise(edges):
            mine = rows & (log.table.output > low) & (log.table.output <= high)
            part, time = found.bucket(low, high), log.completion_after_s[mine]
            print(
                f"{low:6.0f} to {high:6.0f}, {load}   {part.share:.3f} / {mine.sum() / rows.sum():.3f}"
                f"           {off(part.ttft.mean, log.ttft_s[mine].mean())}"
                f" {off(part.tpot.quantile(0.95), np.nanquantile(log.tpot_s[mine], 0.95))}"
                f"      {off(part.completion.mean, time.mean())}"
                f"       {off(part.completion.quantile(0.95), np.quantile(time, 0.95))}"
                f" {off(part.slowdown_mean, slowdown[mine].mean())}"
            )


def _routed(replica: Replica, lengths: Lengths, load: float, replicas: int, router: Router, count: int) -> None:
    offered = stream(lengths, replica, load, replicas)
    table = draw_requests([offered], rng=np.random.default_rng(1), count=count)
    log = simulate_pool(table, replica, replicas=replicas, router=router).log
    rows, found = steady(log), pool(replica, [offered], replicas, router)["a"]
    values = []
    for metric in ("ttft", "tpot", "completion"):
        simulated = log.metric(metric)[rows]
        one = found.metric(metric)  # type: ignore[arg-type]
        values.append(
            f"{off(one.mean, np.nanmean(simulated))}{off(one.quantile(0.95), np.nanquantile(simulated, 0.95))}"
        )
    print(f"{replica.max_num_seqs:4d} slots x {replicas:2d}, {router:11s} {load}   " + "   ".join(values))


def round_robin() -> None:
    print("                                   TTFT mean, p95   TPOT mean, p95   completion mean, p95")
    for step, lengths, slots in ((DENSE, CHAT, 64), (DENSE, DOCUMENTS, 64), (EXPERTS, CHAT, 128), (DENSE, CHAT, 8)):
        for replicas in (2, 8, 32):
            for load in (0.5, 0.8, 0.92):
                replica = Replica(step=step, max_num_seqs=slots)
                _routed(replica, lengths, load, replicas, "round_robin", 20_000 if replicas < 8 else 40_000)


def exclusive() -> None:
    print("                                   TTFT mean, p95   TPOT mean, p95   completion mean, p95")
    routers: tuple[Router, ...] = ("random", "jsq", "round_robin")
    for lengths in (CHAT, DOCUMENTS):
        for router in routers:
            for load in (0.3, 0.7, 0.9):
                _routed(Replica(step=DENSE, max_num_seqs=1), lengths, load, 4, router, 60_000)


def patience() -> None:
    cells: tuple[tuple[str, Replica, int, Router, Lengths], ...] = (
        ("chat", Replica(step=DENSE, max_num_seqs=32), 1, "random", CHAT),
        ("chat, jsq 4", Replica(step=DENSE, max_num_seqs=16), 4, "jsq", CHAT),
        ("documents", Replica(step=EXPERTS, max_num_seqs=48), 2, "random", DOCUMENTS),
        ("long outputs", Replica(step=EXPERTS, max_num_seqs=40), 1, "random", LONG),
    )
    print(
        "                 load  patience  retries   lost predicted / simulated   attempts   TTFT mean, first attempts"
    )
    for name, replica, replicas, router, lengths in cells:
        for load in (0.95, 1.1, 1.4):
            for time_s, retries in ((1.0, 0), (5.0, 2), (20.0, 1)):
                offered = stream(lengths, replica, load, replicas)
                table = draw_requests([offered], rng=np.random.default_rng(3), count=20_000)
                policy = EnginePolicy(patience_s=time_s, retries=retries, backoff_s=2.0)
                log = simulate_pool(table, replica, replicas=replicas, router=router, policy=policy).log
                rows = np.zeros(len(log), dtype=bool)
                rows[2_500:-1_000] = True
                found = impatient_pool(
                    replica, [offered], replicas, patience_s=time_s, retries=retries, backoff_s=2.0, router=router
                )
                first = rows & log.done & (log.retries == 0)
                lost, attempts = 1.0 - log.done[rows].mean(), 1.0 + log.retries[rows].mean()
                print(
                    f"{name:15s} {load:5.2f} {time_s:6.0f} s {retries:6d}      {found.abandoned:.4f} / "
                    f"{lost:.4f}            {off(found.attempts, attempts)}"
                    f"     {off(found['a'].ttft.mean, log.ttft_s[first].mean())}"
                )


SECTIONS: dict[str, Callable[[], None]] = {
    "batches": batches,
    "shared": shared,
    "ranges": ranges,
    "round_robin": round_robin,
    "exclusive": exclusive,
    "patience": patience,
}

if __name__ == "__main__":
    for section in sys.argv[1:] or list(SECTIONS):
        print(f"\n{section}: errors in per cent")
        SECTIONS[section]()
