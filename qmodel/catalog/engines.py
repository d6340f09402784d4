"""Engine entries as the settings a pool starts with on one GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from qmodel.types import Engine, Gpu

__all__ = ["engine_record", "nearest_version", "version_matches"]

_WATERMARK = 0.03  # of the KV pool, kept free at admission; a planning margin, engines default to none
_MIB_PER_GIB = 1024.0


def engine_record(
    entry: Mapping[str, Any], *, name: str, constants: str, gpu: Gpu, version: str | None = None
) -> Engine:
    """Default settings of an engine on one GPU.

    Args:
        entry: a checked entry of the ``engines`` section.
        name: the engine's short name.
        constants: family of step-time constants.
        gpu: the GPU; defaults depend on its memory.
        version: release that was asked for; None: the entry's own.
    """
    defaults = entry["defaults"]
    utilization = defaults.get("gpu_memory_utilization")
    if utilization is None:
        total_mib = gpu.hbm_gib * _MIB_PER_GIB
        utilization = round(1.0 - _by_memory(defaults["reserved_mib"], gpu) / total_mib, 4)
    stated = entry["version"]
    described = version is None or version_matches(stated, version)
    ranged = " to " in stated or not described
    return Engine(
        name=name,
        version=version if version is not None and ranged else stated,
        defaults_of="" if described else stated,
        constants=constants,
        max_num_seqs=int(_by_memory(defaults["max_num_seqs"], gpu)),
        max_batched_tokens=int(_by_memory(defaults["max_batched_tokens"], gpu)),
        gpu_memory_utilization=utilization,
        watermark=_WATERMARK,
        admission=defaults["admission"],
        block_tokens=defaults["block_tokens"],
    )


def version_matches(stated: str, wanted: str) -> bool:
    """Whether an entry for version ``stated`` describes version ``wanted``.

    Example:
        >>> [version_matches("0.8 to 0.11", v) for v in ("0.8.5", "0.11.0", "0.12")]
        [True, True, False]
        >>> version_matches("1.x (PyTorch backend)", "1.2"), version_matches("0.33.0", "0.33")
        (True, True)
    """
    if stated == wanted:
        return True
    asked = _numbers(wanted)
    bounds = [_numbers(part) for part in stated.split(" to ")]
    if not asked or not all(bounds):
        return False
    low, high = bounds[0], bounds[-1]
    if len(bounds) == 1:
        shared = min(len(low), len(asked))
        return asked[:shared] == low[:shared]
    return low <= asked and asked[: len(high)] <= high


def nearest_version(stated: Sequence[str], wanted: str) -> str | None:
    """The newest of the entries that begin no later than ``wanted``, else the oldest; None if it has no number.

    Example:
        >>> known = ["0.8 to 0.11", "0.33.0"]
        >>> [nearest_version(known, version) for version in ("0.14.1", "0.40", "0.6", "nightly")]
        ['0.8 to 0.11', '0.33.0', '0.8 to 0.11', None]
    """
    asked = _numbers(wanted)
    starts = sorted((low, text) for text in stated if (low := _numbers(text.split(" to ")[0])))
    if not asked or not starts:
        return None
    older = [text for low, text in starts if low <= asked]
    return older[-1] if older else starts[0][1]


def _by_memory(rows: Sequence[Mapping[str, Any]], gpu: Gpu) -> float:
    """The value of the first row that a GPU satisfies, else of the last."""
    for row in rows:
        if gpu.hbm_gib >= row.get("min_gib", 0) and row.get("except_architecture") != gpu.architecture:
            return float(row["value"])
    return float(rows[-1]["value"])


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    return tuple(int(part) for part in match[1].split(".")) if match else ()
