"""Rows of results as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from qmodel.report.blocks import Column, TextTable
from qmodel.report.number_text import (
    NONE_TEXT,
    UNSTABLE_TEXT,
    decimal_text,
    metric_text,
    money_text,
    percent_text,
    seconds_text,
    slack_text,
)

if TYPE_CHECKING:
    from qmodel.evaluation.resource_worth import MarginalRow
    from qmodel.evaluation.results import CurveRow, LatencyRow, LeavingRow, QualityRow
    from qmodel.planning.period_plans import PeriodPlan
    from qmodel.planning.plans import Alternative, PriceRow, ServedRow
    from qmodel.types import ChangeRow, LinkRow, PoolRow, PurchaseRow, RouteRow, SloRow

__all__ = [
    "alternative_table",
    "change_table",
    "curve_table",
    "gpus_by_type",
    "gpus_text",
    "period_table",
    "latency_table",
    "leaving_table",
    "link_table",
    "layout_text",
    "marginal_table",
    "pool_table",
    "price_table",
    "purchase_table",
    "quality_table",
    "routing_table",
    "served_table",
    "slo_table",
    "target_text",
]

MEASURED_TEXT = "measured"  # instead of a prediction: the pool was measured to hold the target at this load
BEYOND_TEXT = "beyond measured"
STATED_TEXT = "stated"  # the scenario says of an API that it holds the target
BEYOND_STATED_TEXT = "beyond stated"
MOST_DIGITS = 6  # a missed target is printed with as many digits as it takes to see that it is missed


def pool_table(pools: Sequence[PoolRow]) -> TextTable:
    """One line per pool; role, price tier and settings only where they are not all the usual ones."""
    with_role = any(row.role != "unified" for row in pools)
    with_tier = any(row.price_tier != "on_demand" for row in pools)
    with_settings = any(_settings_text(row) for row in pools)
    columns = [Column(header="pool"), Column(header="model")]
    columns += [Column(header="role")] if with_role else []
    columns += [Column(header="GPU"), Column(header="layout")]
    columns += [Column(header="settings")] if with_settings else []
    columns += [Column(header="tier")] if with_tier else []
    numbers = ("replicas", "GPUs", "USD/h", "utilisation %", "KV fill %", "mean batch")
    columns += [Column(header=name, numeric=True) for name in numbers] + [Column(header="what binds")]
    rows = []
    for row in pools:
        cells = [row.pool, row.model]
        cells += [row.role] if with_role else []
        cells += [row.gpu, layout_text(row) if row.role != "api" else NONE_TEXT]
        cells += [_settings_text(row) or NONE_TEXT] if with_settings else []
        cells += [row.price_tier] if with_tier else []
        cells += [f"{row.replicas:,}", f"{row.gpus:,}", money_text(row.cost_usd_per_hour)]
        cells += [percent_text(row.utilisation), percent_text(row.kv_fill), decimal_text(row.mean_batch)]
        cells.append(row.binding if row.stable else UNSTABLE_TEXT)
        rows.append(tuple(cells))
    return TextTable(title="Pools", columns=tuple(columns), rows=tuple(rows))


def _settings_text(row: PoolRow) -> str:
    """Weight type and engine settings that are the pool's own."""
    weights = "" if row.precision == "auto" else f"weights {row.precision}"
    return ", ".join(part for part in (weights, row.settings) if part)


def routing_table(routing: Sequence[RouteRow]) -> TextTable | None:
    """Where each class goes; None where every class has one path and there is nothing to tell."""
    classes = [row.cls for row in routing]
    if len(set(classes)) == len(classes):
        return None
    columns = (
        Column(header="class"),
        Column(header="path"),
        Column(header="share %", numeric=True),
        Column(header="requests/s", numeric=True),
    )
    rows = tuple((row.cls, row.path, percent_text(row.share), decimal_text(row.rate_rps)) for row in routing)
    return TextTable(title="Routing", columns=columns, rows=rows)


def period_table(periods: Sequence[PeriodPlan]) -> TextTable:
    """What the fleet is in each part of the day or scenario, and how full its pools are."""
    scenarios = any(item.scenario for item in periods)
    lengths = {pair for item in periods for pair in item.output_tokens.items()}
    longer = len(lengths) > len({name for name, _ in lengths})  # some class has other lengths in some period
    numbers = [*(["weight %"] if scenarios else []), "requests/s", *(["output tokens/s"] if longer else [])]
    numbers += ["USD/h", "GPUs"]
    columns = [Column(header="scenario" if scenarios else "hours")]
    columns += [Column(header=name, numeric=True) for name in numbers]
    columns += [Column(header="replicas at utilisation %")]
    rows = []
    for item in sorted(periods, key=lambda one: one.hours):
        pools = ", ".join(_used(row) for row in item.pools if row.role != "api" or row.cost_usd_per_hour > 0.0)
        gpus = sum(row.gpus for row in item.pools)
        named = (item.name, percent_text(item.weight)) if scenarios else (item.name,)
        load = [decimal_text(item.rate_rps), *([decimal_text(item.output_tokens_per_s)] if longer else [])]
        cells = (*named, *load, money_text(item.cost_usd_per_hour), f"{gpus:,}")
        rows.append((*cells, pools or NONE_TEXT))
    return TextTable(title="Scenarios" if scenarios else "Hours of the day", columns=tuple(columns), rows=tuple(rows))


def _used(row: PoolRow) -> str:
    """A pool of a period in a few words."""
    if row.role == "api":
        return f"{row.pool} for {money_text(row.cost_usd_per_hour)} USD/h"
    return f"{row.pool} {row.replicas} at {percent_text(row.utilisation)}"


def served_table(served: Sequence[ServedRow]) -> TextTable:
    """What is served of each class and what is dropped; the priority only where there are several."""
    with_priority = len({row.priority for row in served}) > 1
    columns = [Column(header="class")]
    columns += [Column(header="priority", numeric=True)] if with_priority else []
    columns += [Column(header=name, numeric=True) for name in ("asked requests/s", "served requests/s", "dropped %")]
    rows = []
    for row in served:
        numbers = (decimal_text(row.rate_rps), decimal_text(row.served_rps), percent_text(row.dropped_share))
        rows.append((row.cls, *([str(row.priority)] if with_priority else []), *numbers))
    return TextTable(title="Served", columns=tuple(columns), rows=tuple(rows))


def marginal_table(values: Sequence[MarginalRow]) -> TextTable:
    """What a little more of each figure moves and is worth."""
    columns = [
        Column(header="pool"),
        Column(header="figure"),
        Column(header="now", numeric=True),
        Column(header="unit"),
    ]
    columns += [Column(header=name, numeric=True) for name in ("load % per %", "USD/h per unit")]
    rows = tuple(
        (
            row.pools,
            row.figure,
            decimal_text(row.present),
            row.unit,
            decimal_text(row.elasticity),
            decimal_text(row.usd_per_hour_per_unit),
        )
        for row in values
    )
    return TextTable(title="Worth of a little more", columns=tuple(columns), rows=rows)


def change_table(changes: Sequence[ChangeRow]) -> TextTable | None:
    """What starts and stops; None where nothing ran before."""
    if not changes:
        return None
    columns = [Column(header="replica")]
    columns += [
        Column(header=name, numeric=True) for name in ("before", "after", "GPUs started", "GPUs stopped", "USD once")
    ]
    rows = tuple(
        (
            row.replica,
            f"{row.before:,}",
            f"{row.after:,}",
            f"{row.started_gpus:,}",
            f"{row.stopped_gpus:,}",
            money_text(row.usd),
        )
        for row in changes
    )
    return TextTable(title="Changes", columns=tuple(columns), rows=rows)


def slo_table(targets: Sequence[SloRow]) -> TextTable:
    """One line per target and path; the path only where a class has several."""
    paths: dict[str, set[str]] = {}
    for row in targets:
        paths.setdefault(row.cls, set()).add(row.path)
    with_path = any(len(names) > 1 for names in paths.values())
    columns = [Column(header="class")]
    columns += [Column(header="path")] if with_path else []
    columns += [Column(header=name) for name in ("target",)]
    columns += [Column(header=name, numeric=True) for name in ("predicted", "low", "high", "slack %")]
    columns += [Column(header="met"), Column(header="met at p90")]
    rows = []
    for row in targets:
        target, predicted = _told_apart(row)
        cells = [row.cls]
        cells += [row.path] if with_path else []
        cells += [f"{row.metric} {row.stat} <= {target}", predicted]
        no_high = UNSTABLE_TEXT if row.basis == "predicted" else NONE_TEXT
        cells += [metric_text(row.metric, row.low_s), metric_text(row.metric, row.high_s, missing=no_high)]
        cells += [slack_text(row.predicted_s, row.target_s), _yes(row.met), _yes(row.met_at_p90)]
        rows.append(tuple(cells))
    return TextTable(title="Targets", columns=tuple(columns), rows=tuple(rows))


def latency_table(latency: Sequence[LatencyRow]) -> TextTable:
    """Mean and percentiles of every metric."""
    classes: dict[str, set[str]] = {}
    for row in latency:
        classes.setdefault(row.cls, set()).add(row.path)
    with_path = any(len(names) > 1 for names in classes.values())
    columns = [Column(header="class")]
    columns += [Column(header="path")] if with_path else []
    columns += [Column(header="metric")]
    columns += [Column(header=name, numeric=True) for name in ("mean", "p50", "p90", "p95", "p99")]
    rows = []
    for row in latency:
        values = (row.mean_s, row.p50_s, row.p90_s, row.p95_s, row.p99_s)
        path = [row.path] if with_path else []
        rows.append((row.cls, *path, row.metric, *(seconds_text(value) for value in values)))
    return TextTable(title="Latency", columns=tuple(columns), rows=tuple(rows))


def link_table(links: Sequence[LinkRow]) -> TextTable | None:
    """One line per link between pools; None where every path is one pool."""
    if not links:
        return None
    numbers = ("lanes", "GB/s per lane", "utilisation %", "GB/s moved", "mean wait", "mean delay")
    columns = (Column(header="into"), Column(header="from"), *(Column(header=name, numeric=True) for name in numbers))
    rows = tuple(
        (
            row.pool,
            row.sources,
            f"{row.lanes:,}",
            decimal_text(row.bandwidth_gbps),
            percent_text(row.utilisation) if not row.overload else UNSTABLE_TEXT,
            decimal_text(row.moved_gbps),
            seconds_text(row.wait_mean_s),
            seconds_text(row.delay_mean_s),
        )
        for row in links
    )
    return TextTable(title="Links", columns=columns, rows=rows)


def purchase_table(purchases: Sequence[PurchaseRow]) -> TextTable | None:
    """One line per GPU type and price; None where every type has one price and nobody is named who sells it."""
    kinds = [row.gpu for row in purchases]
    named = any(row.provider or row.region for row in purchases)
    if len(set(kinds)) == len(kinds) and not named:
        return None
    columns = [Column(header="GPU")]
    columns += [Column(header="provider"), Column(header="region")] if named else []
    columns += [Column(header="term")]
    columns += [Column(header=name, numeric=True) for name in ("GPUs", "USD per GPU-hour", "USD/h")]
    rows = []
    for row in purchases:
        source = [row.provider or NONE_TEXT, row.region or NONE_TEXT] if named else []
        each = [f"{row.gpus:,}", money_text(row.usd_per_gpu_hour)] if row.gpus else [NONE_TEXT] * 2  # an API has none
        cells = [*each, money_text(row.cost_usd_per_hour)]
        rows.append((row.gpu, *source, row.term, *cells))
    return TextTable(title="Purchases", columns=tuple(columns), rows=tuple(rows))


def quality_table(quality: Sequence[QualityRow]) -> TextTable | None:
    """The share of each model in the classes that several may serve, and their averages; None where there are none."""
    if not quality:
        return None
    bound = any(row.least > 0.0 or row.most < 1.0 for row in quality)
    scored = any(row.quality is not None for row in quality)
    names = (*(("quality",) * scored), "share %", *(("allowed %",) * bound), *(("average", "at least") * scored))
    columns = [Column(header="class"), Column(header="model")]
    columns += [Column(header=name, numeric=True) for name in names]
    rows = []
    for row in quality:
        cells = [row.cls, row.model]
        cells += [NONE_TEXT if row.quality is None else f"{row.quality:g}"] * scored
        cells.append(percent_text(row.share))
        cells += [_allowed(row)] * bound
        if scored:
            cells.append(NONE_TEXT if row.average is None else f"{row.average:.{MOST_DIGITS}g}")
            cells.append(NONE_TEXT if row.min_quality is None else f"{row.min_quality:g}")
        rows.append(tuple(cells))
    return TextTable(title="Quality" if scored else "Models", columns=tuple(columns), rows=tuple(rows))


def _allowed(row: QualityRow) -> str:
    least, most = percent_text(row.least), percent_text(row.most)
    return least if least == most else f"{least} to {most}"


def leaving_table(leaving: Sequence[LeavingRow]) -> TextTable | None:
    """What comes of requests that leave; None where all wait."""
    if not leaving:
        return None
    columns = [Column(header="class"), Column(header="path")]
    names = ("leave after", "retries", "requests/s", "served/s", "leave for good", "attempts", "time lost")
    columns += [Column(header=name, numeric=True) for name in names]
    rows = tuple(
        (
            row.cls,
            row.path,
            seconds_text(row.patience_s),
            str(row.retries),
            decimal_text(row.rate_rps),
            UNSTABLE_TEXT if row.goodput_rps is None else decimal_text(row.goodput_rps),
            metric_text("abandoned", row.abandoned_share),
            NONE_TEXT if row.attempts is None else f"{row.attempts:.3f}",
            seconds_text(_told_loss(row.lost_mean_s)),
        )
        for row in leaving
    )
    return TextTable(title="Requests that leave", columns=tuple(columns), rows=rows)


def _told_loss(seconds: float | None) -> float | None:
    """A time below a microsecond is none."""
    return 0.0 if seconds is not None and seconds < 1e-6 else seconds


def price_table(prices: Sequence[PriceRow]) -> TextTable:
    """What one more unit of each limit is worth; limits that cost nothing are left out."""
    columns = (Column(header="limit"), Column(header="USD/h per unit", numeric=True))
    rows = tuple(
        (row.limit, money_text(row.usd_per_hour_per_unit)) for row in prices if abs(row.usd_per_hour_per_unit) > 5e-4
    )
    return TextTable(title="Prices of limits", columns=columns, rows=rows)


def alternative_table(alternatives: Sequence[Alternative], *, most: int | None = None) -> TextTable:
    """The nearest pools that were not chosen, at most ``most`` of them."""
    columns = (
        Column(header="class"),
        Column(header="candidate"),
        Column(header="USD/h alone", numeric=True),
        Column(header="why not"),
    )
    rows = tuple((row.cls, row.candidate, money_text(row.cost_usd_per_hour), row.limit) for row in alternatives[:most])
    return TextTable(title="Not chosen", columns=columns, rows=rows)


def curve_table(curve: Sequence[CurveRow]) -> TextTable:
    """The service curve, one line per multiple of the demand."""
    columns = (
        Column(header="demand x", numeric=True),
        Column(header="requests/s", numeric=True),
        Column(header="utilisation %", numeric=True),
        Column(header="served/s", numeric=True),
        Column(header="tightest target"),
        Column(header="predicted / target", numeric=True),
        Column(header="met"),
    )
    rows = tuple(
        (
            f"{row.factor:.3f}",
            decimal_text(row.rate_rps),
            percent_text(row.utilisation) if row.utilisation is not None else UNSTABLE_TEXT,
            decimal_text(row.goodput_rps) if row.goodput_rps is not None else UNSTABLE_TEXT,
            row.worst_slo or NONE_TEXT,
            f"{row.worst_ratio:.3f}" if row.worst_ratio is not None else UNSTABLE_TEXT,
            _yes(row.met),
        )
        for row in curve
    )
    return TextTable(title="Service curve", columns=columns, rows=rows)


def layout_text(row: PoolRow) -> str:
    """``tp8-ep8`` and the like."""
    from qmodel.types import Layout

    return str(Layout(tp=row.tp, pp=row.pp, ep=row.ep, dp=row.dp, cp=row.cp))


def gpus_by_type(pools: Iterable[PoolRow]) -> dict[str, int]:
    """GPUs of all pools by type, sorted by name."""
    total: dict[str, int] = {}
    for row in pools:
        if row.role == "api":
            continue
        total[row.gpu] = total.get(row.gpu, 0) + row.gpus
    return dict(sorted(total.items()))


def gpus_text(pools: Sequence[PoolRow]) -> str:
    """``28: 24 h100-sxm, 4 h200-sxm``."""
    by_type = gpus_by_type(pools)
    kinds = ", ".join(f"{count:,} {gpu}" for gpu, count in by_type.items())
    return kinds or NONE_TEXT if len(by_type) < 2 else f"{sum(by_type.values()):,}: {kinds}"


def _told_apart(row: SloRow) -> tuple[str, str]:
    """Target and prediction, with more digits where a missed target would otherwise look met."""
    told = {"predicted": UNSTABLE_TEXT, "stated": STATED_TEXT if row.met else BEYOND_STATED_TEXT}
    missing = told.get(row.basis, MEASURED_TEXT if row.met else BEYOND_TEXT)
    for digits in range(3, MOST_DIGITS + 1):
        target = target_text(row.metric, row.target_s, digits)
        predicted = metric_text(row.metric, row.predicted_s, digits=digits, missing=missing)
        if row.met or predicted != metric_text(row.metric, row.target_s, digits=digits):
            break
    return target, predicted


def target_text(metric: str, target_s: float, digits: int = 3) -> str:
    """A target without padding: ``500 ms``, ``5 s``, ``1 %``."""
    if metric == "abandoned":
        return f"{100.0 * target_s:.{digits}g} %"
    text, unit = metric_text(metric, target_s, digits=digits).rsplit(" ", 1)
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text} {unit}"


def _yes(met: bool) -> str:
    return "yes" if met else "no"
