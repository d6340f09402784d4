"""JSON and CSV for programs: fixed columns and order, no NaN, no infinity."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import PurePath

__all__ = ["TABLE_COLUMNS", "csv_text", "json_text", "plain"]


TABLE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "pools": (
        "pool",
        "model",
        "role",
        "gpu",
        "tp",
        "pp",
        "ep",
        "dp",
        "cp",
        "replicas",
        "gpus",
        "price_tier",
        "usd_per_gpu_hour",
        "cost_usd_per_hour",
        "utilisation",
        "kv_fill",
        "mean_batch",
        "binding",
        "stable",
        "overload",
        "max_num_seqs",
        "max_batched_tokens",
        "kv_dtype",
        "precision",
        "settings",
    ),
    "routing": ("class", "path", "share", "rate_rps"),
    "marginal": ("pools", "figure", "present", "unit", "elasticity", "usd_per_hour_per_unit"),
    "changes": ("replica", "before", "after", "started_gpus", "stopped_gpus", "usd"),
    "periods": (
        "period",
        "weight",
        "rate_rps",
        "output_tokens_per_s",
        "cost_usd_per_hour",
        "pool",
        "model",
        "gpu",
        "replicas",
        "gpus",
        "utilisation",
        "binding",
    ),
    "base": ("gpu", "provider", "region", "term", "gpus", "usd_per_gpu_hour", "cost_usd_per_hour"),
    "served": ("class", "priority", "rate_rps", "served_rps", "dropped_share"),
    "slo": (
        "class",
        "path",
        "metric",
        "stat",
        "target_s",
        "predicted_s",
        "low_s",
        "high_s",
        "met",
        "met_at_p90",
        "basis",
    ),
    "latency": ("class", "path", "metric", "mean_s", "p50_s", "p90_s", "p95_s", "p99_s"),
    "links": (
        "pool",
        "sources",
        "bandwidth_gbps",
        "lanes",
        "latency_s",
        "kv_bytes_per_token",
        "utilisation",
        "moved_gbps",
        "wait_mean_s",
        "delay_mean_s",
        "overload",
    ),
    "purchases": ("gpu", "provider", "region", "term", "gpus", "usd_per_gpu_hour", "cost_usd_per_hour"),
    "quality": ("class", "model", "quality", "share", "least", "most", "average", "min_quality", "met"),
    "leaving": (
        "class",
        "path",
        "patience_s",
        "retries",
        "rate_rps",
        "goodput_rps",
        "abandoned_share",
        "attempts",
        "attempt_rps",
        "lost_mean_s",
    ),
    "prices": ("limit", "usd_per_hour_per_unit"),
    "curve": ("factor", "rate_rps", "utilisation", "goodput_rps", "worst_slo", "worst_ratio", "met"),
}


def csv_text(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Rows as CSV with a header line; None and values that are not finite are empty.

    Args:
        rows: one mapping per line.
        columns: names and order of the columns; a row without one of them has it empty.

    Example:
        >>> print(csv_text([{"class": "chat", "mean_s": 0.25}, {"class": "a,b", "mean_s": None}],
        ...                ["class", "mean_s"]), end="")
        class,mean_s
        chat,0.25
        "a,b",
    """
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(plain(row.get(column))) for column in columns])
    return buffer.getvalue()


def json_text(data: object) -> str:
    """Plain data as JSON that ends with a newline; values that are not finite become null.

    Example:
        >>> print(json_text({"cost": float("inf"), "pools": ()}), end="")
        {
         "cost": null,
         "pools": []
        }
    """
    return json.dumps(plain(data), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def plain(data: object) -> object:
    """The same data in the types of JSON; numbers that are not finite become None.

    Raises:
        TypeError: for an object that has no plain form.

    Example:
        >>> plain({"a": (1, float("nan"))})
        {'a': [1, None]}
    """
    if data is None or isinstance(data, (bool, str)):
        return data
    if isinstance(data, int):
        return int(data)
    if isinstance(data, float):
        return float(data) if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, PurePath):
        return str(data)
    if isinstance(data, (list, tuple, set, frozenset)):
        return [plain(item) for item in (sorted(data, key=str) if isinstance(data, (set, frozenset)) else data)]
    tolist = getattr(data, "tolist", None)
    if callable(tolist):  # numpy scalars and arrays
        return plain(tolist())
    raise TypeError(f"no plain form of {type(data).__name__}")


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value
