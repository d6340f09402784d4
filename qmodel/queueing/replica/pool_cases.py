"""Arguments of pools: checked, broadcast to cases, and taken apart; and the overload of a case."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from qmodel.queueing.replica.kv_limited import MemoryLimit
from qmodel.queueing.replica.work import Work
from qmodel.types import METRICS, FloatArray, Metric, Overload, Patience, Replica, RequestClass, Stream

__all__ = [
    "Wanted",
    "broadcast_cases",
    "cases_of",
    "check_pool",
    "check_wanted",
    "overload_at",
    "patience_of",
    "rows_by_replica",
]

Wanted = tuple[str, Metric, float | None]


def overload_at(
    replica: Replica,
    work: Work,
    limit: MemoryLimit | None,
    used: float,
    replicas: float,
    capacity: float,
    by_memory: bool,
) -> Overload | None:
    """The overload of a pool at ``used`` of its capacity, None below 1."""
    if used < 1.0:
        return None
    enough = int(np.floor(work.rate_rps / capacity)) + 1
    what = f"{work.rate_rps:.4g} requests/s arrive, {replicas:.0f} replicas carry less than {replicas * capacity:.4g}"
    if by_memory and limit is not None:
        cause = f"their KV memory holds {limit.fits:.1f} sequences each"
    else:
        cause = f"at {replica.max_num_seqs} sequences each"
    return Overload(
        kind="kv" if by_memory else "steps",
        value=work.rate_rps,
        limit=replicas * capacity,
        reason=f"{what} ({cause}); at least {enough} are needed",
    )


def check_pool(replica: Replica, router: str) -> None:
    """Raise ValueError for a replica or router that no model describes, naming the argument."""
    if router not in ("random", "round_robin", "jsq"):
        raise ValueError(f"router must be 'random', 'round_robin' or 'jsq' (got {router!r})")
    if replica.max_num_seqs < 1:
        raise ValueError(f"max_num_seqs must be at least 1 (got {replica.max_num_seqs})")
    if replica.max_batched_tokens <= replica.max_num_seqs:
        raise ValueError(
            f"max_batched_tokens must exceed max_num_seqs, else full batches leave no room for prompts "
            f"(got {replica.max_batched_tokens} and {replica.max_num_seqs})"
        )
    if not 0.0 <= replica.watermark < 1.0:
        raise ValueError(f"watermark must lie in [0, 1) (got {replica.watermark!r})")
    if replica.admission == "first_chunk" and replica.kv_tokens is not None and replica.recompute_factor is None:
        raise ValueError(
            "recompute_factor must be given with admission 'first_chunk', whose evictions no formula predicts: "
            "simulate the replica in overload and divide its recomputed tokens per request by the mean output"
        )
    for name in ("recompute_factor", "swap_out_s_per_token", "swap_in_s_per_token"):
        value = getattr(replica, name)
        if value is not None and not 0.0 <= value < np.inf:
            raise ValueError(f"{name} must be at least 0 and finite (got {value!r})")
    if replica.kv_tokens is not None and not replica.kv_tokens > 0.0:
        raise ValueError(f"kv_tokens must be positive, or None for no limit (got {replica.kv_tokens!r})")


def check_wanted(streams: Sequence[Stream | RequestClass], wanted: Sequence[Wanted]) -> None:
    """Raise ValueError for a class, metric or level that is not there."""
    names = {item.name for item in streams}
    for name, metric, p in wanted:
        if name not in names:
            raise ValueError(f"wanted names class {name!r}; the streams are {sorted(names)}")
        if metric == "abandoned" and p is None and patience_of(streams) is not None:
            continue
        if metric not in METRICS:
            raise ValueError(f"wanted names metric {metric!r}; metrics are {', '.join(METRICS)}")
        if p is not None and not 0.0 < p < 1.0:
            raise ValueError(f"a level p in wanted must lie strictly between 0 and 1 (got {p!r})")


def patience_of(streams: Sequence[Stream | RequestClass]) -> Patience | None:
    """The patience of all requests of a pool, None where they wait as long as it takes.

    Raises:
        ValueError: where classes differ in it, come in bursts or differ in priority beside it: no model describes that.
    """
    if all(item.patience is None for item in streams):
        return None
    names = ", ".join(item.name for item in streams)
    if len({item.patience for item in streams}) > 1:
        raise ValueError(f"classes of one pool must have the same patience ({names} differ)")
    if any(item.burst is not None for item in streams):
        raise ValueError(f"arrivals of classes with patience must be Poisson ({names})")
    if len({item.priority for item in streams}) > 1:
        raise ValueError(f"classes of one pool with patience must have the same priority ({names} differ)")
    return streams[0].patience


def cases_of(counts: npt.ArrayLike, loads: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Replicas and load factor of each case, shape (C,); ValueError where they are out of range."""
    sizes, factors = np.atleast_1d(np.asarray(counts, dtype=float)), np.atleast_1d(np.asarray(loads, dtype=float))
    if sizes.shape != factors.shape:
        sizes, factors = np.broadcast_arrays(sizes, factors)
    if not np.all((sizes >= 1.0) & (sizes == np.floor(sizes)) & np.isfinite(sizes)):
        raise ValueError(f"counts (replicas) must be whole numbers of at least 1 (got {counts!r})")
    if not np.all((factors > 0.0) & np.isfinite(factors)):
        raise ValueError(f"loads must be positive and finite (got {loads!r})")
    return sizes, factors


def broadcast_cases(
    replicas: Sequence[Replica] | Replica, counts: npt.ArrayLike, loads: npt.ArrayLike
) -> tuple[Sequence[Replica], FloatArray, FloatArray]:
    """The replica, the count and the load factor of each case."""
    sizes, factors = cases_of(counts, loads)
    engines = [replicas] if isinstance(replicas, Replica) else list(replicas)
    if len(engines) == 1:
        engines = engines * sizes.size
    if sizes.size == 1 and len(engines) > 1:
        sizes, factors = np.repeat(sizes, len(engines)), np.repeat(factors, len(engines))
    if len(engines) != sizes.size:
        raise ValueError(f"replicas must be one or as many as cases (got {len(engines)} for {sizes.size} cases)")
    return engines, sizes, factors


def rows_by_replica(engines: Sequence[Replica]) -> list[tuple[Replica, npt.NDArray[np.intp]]]:
    """Each distinct replica with the rows that use it."""
    rows: dict[int, list[int]] = {}
    for row, engine in enumerate(engines):
        rows.setdefault(id(engine), []).append(row)
    return [(engines[mine[0]], np.array(mine)) for mine in rows.values()]
