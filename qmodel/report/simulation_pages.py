"""A simulation as a page for people, and the columns of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from qmodel.report.blocks import Block, Bullets, Column, Facts, Heading, TextTable
from qmodel.report.machine_text import TABLE_COLUMNS
from qmodel.report.number_text import (
    NONE_TEXT,
    UNSTABLE_TEXT,
    decimal_text,
    metric_text,
    month_text,
    percent_text,
    seconds_text,
    usd_text,
)
from qmodel.report.row_tables import routing_table, target_text

if TYPE_CHECKING:
    from qmodel.planning import PlanCheck
    from qmodel.simulation import (
        BucketRow,
        FairnessRow,
        SimulatedLatencyRow,
        SimulatedPoolRow,
        SimulatedSloRow,
        Simulation,
        TransferRow,
    )

__all__ = ["check_blocks", "simulation_columns", "simulation_page"]


def simulation_columns(table: str) -> tuple[str, ...]:
    """Names and order of the columns of one table of a simulation."""
    from qmodel.simulation import (
        BucketRow,
        CourseRow,
        FairnessRow,
        SimulatedLatencyRow,
        SimulatedPoolRow,
        SimulatedSloRow,
        TransferRow,
    )

    records = {
        "slo": SimulatedSloRow,
        "pools": SimulatedPoolRow,
        "latency": SimulatedLatencyRow,
        "buckets": BucketRow,
        "fairness": FairnessRow,
        "course": CourseRow,
        "transfers": TransferRow,
    }
    if table not in records:
        return TABLE_COLUMNS[table]
    return tuple("class" if item.name == "cls" else item.name for item in fields(records[table]))


def simulation_page(found: Simulation, *, title: str = "Simulation of a fleet") -> tuple[Block, ...]:
    """What happened to simulated requests, beside what was predicted."""
    routing = routing_table(found.routing)
    facts = (
        ("Verdict", _verdict(found)),
        ("Measured", f"{found.requests:,} requests, seed {found.seed}, steps at {found.confidence} confidence"),
        ("Cost", f"{usd_text(found.cost_usd_per_hour)} = {month_text(found.cost_usd_per_hour)}"),
    )
    return (
        Heading(text=title),
        Facts(rows=facts),
        _targets(found.slo),
        _pools(found.pools),
        *([_transfers(found.transfers)] if found.transfers else []),
        *([routing] if routing else []),
        _latency(found.latency),
        _buckets(found.buckets),
        _fairness(found.fairness),
        Bullets(title="Assumptions", items=found.assumptions),
    )


def check_blocks(check: PlanCheck) -> tuple[Block, ...]:
    """What a simulation says of a plan, to stand below the plan."""
    return (
        _targets(check.simulation.slo, title=f"Simulated: {check.verdict}"),
        _pools(check.simulation.pools, title="Pools, simulated"),
        Bullets(title="Check", items=check.sentences),
    )


def _verdict(found: Simulation) -> str:
    counts = {name: sum(row.decision == name for row in found.slo) for name in ("met", "missed", "not decided")}
    if not found.stable:
        return "overloaded: the queue of at least one pool grew to the end"
    if counts["missed"]:
        return f"misses {counts['missed']} of {len(found.slo)} targets"
    if counts["not decided"]:
        return f"misses no target; {counts['not decided']} of {len(found.slo)} need more requests to be decided"
    return "meets every target"


def _targets(rows: Sequence[SimulatedSloRow], *, title: str = "Targets") -> TextTable:
    with_path = _several_paths(rows)
    columns = _heads(with_path, ("target",), ("predicted", "simulated", "95 % interval"), ("decision",))
    cells = []
    for row in rows:
        cells.append(
            (
                row.cls,
                *([row.path] if with_path else []),
                f"{row.metric} {row.stat} <= {target_text(row.metric, row.target_s)}",
                metric_text(row.metric, row.predicted_s, missing=UNSTABLE_TEXT),
                metric_text(row.metric, row.simulated_s, missing=UNSTABLE_TEXT),
                _interval(row),
                row.decision,
            )
        )
    return TextTable(title=title, columns=columns, rows=tuple(cells))


def _latency(rows: Sequence[SimulatedLatencyRow]) -> TextTable:
    """One line per metric; the interval of the mean and of p95 beside them."""
    with_path = _several_paths(rows)
    columns = _heads(with_path, ("metric", "stat"), ("predicted", "simulated", "95 % interval"), ())
    cells = [
        (
            row.cls,
            *([row.path] if with_path else []),
            row.metric,
            row.stat,
            seconds_text(row.predicted_s, missing=UNSTABLE_TEXT),
            seconds_text(row.simulated_s, missing=UNSTABLE_TEXT),
            _interval(row),
        )
        for row in rows
        if row.stat in ("mean", "p95")
    ]
    return TextTable(title="Latency", columns=columns, rows=tuple(cells))


def _pools(rows: Sequence[SimulatedPoolRow], *, title: str = "Pools") -> TextTable:
    names = ("replicas", "mean batch (predicted)", "busy %", "KV fill % (predicted)", "block waste %")
    columns = (
        Column(header="pool"),
        *(Column(header=name, numeric=True) for name in names),
        Column(header="preemptions per request", numeric=True),
        Column(header="recomputed tokens per request", numeric=True),
    )
    cells = tuple(
        (
            row.pool,
            f"{row.replicas:,}",
            f"{decimal_text(row.mean_batch)} ({decimal_text(row.predicted_batch)})",
            percent_text(row.busy_share),
            NONE_TEXT
            if row.kv_fill is None
            else f"{percent_text(row.kv_fill)} ({percent_text(row.predicted_kv_fill)})",
            percent_text(row.kv_waste),
            decimal_text(row.preemptions_per_request),
            decimal_text(row.recomputed_tokens_per_request),
        )
        for row in rows
    )
    return TextTable(title=title, columns=columns, rows=cells)


def _transfers(rows: Sequence[TransferRow]) -> TextTable:
    numbers = ("sequences", "tokens", "GiB", "GiB/s", "busy %", "predicted %", "mean wait", "predicted")
    columns = (
        Column(header="KV moved"),
        Column(header="pool"),
        Column(header="from"),
        *(Column(header=name, numeric=True) for name in numbers),
    )
    cells = tuple(
        (
            row.tier,
            row.pool,
            row.sources,
            NONE_TEXT if row.sequences is None else f"{row.sequences:,}",
            f"{row.tokens:,}",
            decimal_text(row.gib),
            decimal_text(row.gib_per_s),
            percent_text(row.utilisation),
            percent_text(row.predicted_utilisation),
            seconds_text(row.wait_mean_s),
            seconds_text(row.predicted_wait_mean_s),
        )
        for row in rows
    )
    return TextTable(title="KV moved", columns=columns, rows=cells)


def _buckets(rows: Sequence[BucketRow]) -> TextTable:
    times = ("ttft", "tpot", "completion", "predicted", "p95", "predicted p95", "slowdown", "predicted")
    numbers = ("tokens", "requests", *times)
    columns = (
        Column(header="class"),
        Column(header="output"),
        *(Column(header=name, numeric=True) for name in numbers),
    )
    cells = tuple(
        (
            row.cls,
            row.bucket,
            f"{row.from_tokens:,} to {row.to_tokens:,}",
            f"{row.requests:,}",
            seconds_text(row.ttft_mean_s),
            seconds_text(row.tpot_mean_s),
            seconds_text(row.completion_mean_s),
            seconds_text(row.predicted_completion_mean_s),
            seconds_text(row.completion_p95_s),
            seconds_text(row.predicted_completion_p95_s),
            decimal_text(row.slowdown_mean),
            decimal_text(row.predicted_slowdown_mean),
        )
        for row in rows
    )
    return TextTable(title="By output length (means; slowdown: against the request alone)", columns=columns, rows=cells)


def _fairness(rows: Sequence[FairnessRow]) -> TextTable:
    columns = (
        Column(header="class"),
        Column(header="slowdown", numeric=True),
        Column(header="Jain index", numeric=True),
        Column(header="worst over best range", numeric=True),
        Column(header="worst range"),
    )
    cells = tuple(
        (
            row.cls,
            decimal_text(row.slowdown_mean),
            decimal_text(row.jain),
            decimal_text(row.worst_over_best),
            row.worst_bucket,
        )
        for row in rows
    )
    return TextTable(title="Fairness", columns=columns, rows=cells)


def _heads(with_path: bool, texts: Sequence[str], numbers: Sequence[str], last: Sequence[str]) -> tuple[Column, ...]:
    return (
        Column(header="class"),
        *([Column(header="path")] if with_path else []),
        *(Column(header=name) for name in texts),
        *(Column(header=name, numeric=True) for name in numbers),
        *(Column(header=name) for name in last),
    )


def _several_paths(rows: Sequence[SimulatedSloRow] | Sequence[SimulatedLatencyRow]) -> bool:
    paths: dict[str, set[str]] = {}
    for row in rows:
        paths.setdefault(row.cls, set()).add(row.path)
    return any(len(names) > 1 for names in paths.values())


def _interval(row: SimulatedSloRow | SimulatedLatencyRow) -> str:
    if row.simulated_s is None:
        return NONE_TEXT
    low, high = (metric_text(row.metric, value, missing="?") for value in (row.ci_low_s, row.ci_high_s))
    return f"{low} to {high}"
