"""How much of a mix of classes n replicas of each candidate carry with every target met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates.batch_frontiers import batch_least_counts, batch_ratios
from qmodel.candidates.crossings import TIGHT, BoolArray, Bracket, Look, narrowed, wide
from qmodel.candidates.pool_kinds import Candidate
from qmodel.candidates.resources import least_served, resource_shares, tpot_limit_s
from qmodel.candidates.stage_candidates import on_stages
from qmodel.candidates.stage_frontiers import stage_between, stage_crossings, stage_loads, stage_ratios
from qmodel.evaluation import slo_ratios
from qmodel.queueing import least_tpot, utilisation
from qmodel.types import FloatArray, IntArray, RequestClass, Stream

__all__ = [
    "Frontier",
    "carried_of",
    "feasible_at",
    "frontier",
    "frontier_between",
    "least_counts",
    "optimistic_loads",
    "unit_loads",
]

_COARSE = (1e-4, 0.5, 0.85)  # of the largest stable load; the first is zero load: prefill alone may miss
_NO_LOAD = 1e-6  # share of the demand at which only the hardware speaks
_PARTS = (0.5, 0.75, 0.9, 0.97, 1.0)  # of a load, looked at together to say how much of it a pool carries
_BESIDE = 0.9 * TIGHT * np.array([-1.0, 0.0, 1.0])  # looks at a load near which the crossing is likely


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frontier:
    """Largest loads along one direction.

    Attributes:
        low: largest multiple of the classes' rates found feasible, shape (C,); 0 where none is.
        high: smallest multiple found infeasible, shape (C,).
    """

    low: FloatArray
    high: FloatArray


def unit_loads(candidates: Sequence[Candidate], classes: Sequence[RequestClass]) -> FloatArray:
    """Utilisation of one replica by the demand of the classes that must be served, shape (J,).

    All of it is, but the share that may leave; infinite where a replica can never serve.
    """
    if on_stages(candidates):
        return stage_loads(candidates, classes)
    streams = [item.stream() for item in classes]
    ones = np.ones(len(candidates))
    found = utilisation([item.replica for item in candidates], streams, ones.astype(int), ones)
    return np.asarray(found, dtype=float) * max(least_served(item) for item in classes)


def optimistic_loads(candidates: Sequence[Candidate], classes: Sequence[RequestClass]) -> FloatArray:
    """Replicas that the whole demand of the classes takes at the very least, shape (J,); infinite: none can serve.

    The larger of the utilisation of one replica and the classes' least shares of step time.
    """
    shares = np.sum([resource_shares(candidates, item) for item in classes], axis=0)
    return np.asarray(np.maximum(unit_loads(candidates, classes), shares))


def feasible_at(
    candidates: Sequence[Candidate], classes: Sequence[RequestClass], counts: IntArray, loads: FloatArray
) -> FloatArray:
    """Worst prediction over target of each case, shape (C,); at most 1 where every target is met."""
    if classes[0].batch is not None:
        return batch_ratios(candidates, classes[0], counts, loads)
    if on_stages(candidates):
        return stage_ratios(candidates, classes, counts, loads)
    worst = _screened(candidates, classes, counts, loads)
    left = np.flatnonzero(worst <= 1.0)
    if left.size:
        worst[left] = _reached(_take(candidates, left), classes, counts[left], loads[left])
    return worst


def _reached(
    candidates: Sequence[Candidate], classes: Sequence[RequestClass], counts: IntArray, loads: FloatArray
) -> FloatArray:
    """As :func:`feasible_at` without the screen, which settles little near the crossing."""
    if on_stages(candidates):
        return stage_ratios(candidates, classes, counts, loads)
    return np.asarray(_target_ratios(candidates, classes, counts, loads).max(axis=1))


def _target_ratios(
    candidates: Sequence[Candidate],
    classes: Sequence[RequestClass],
    counts: IntArray,
    loads: FloatArray,
    targets: BoolArray | None = None,
) -> FloatArray:
    """Prediction over target of each case and each of the chosen targets, shape (C, W)."""
    chosen = np.ones(_targets(classes), dtype=bool) if targets is None else targets
    ratios = np.empty((len(candidates), int(chosen.sum())))
    for rows in _alike(candidates):
        some = _take(candidates, rows)
        ratios[rows] = slo_ratios(
            [item.replica for item in some],
            classes,
            [1.0] * len(classes),
            counts[rows],
            loads[rows],
            some[0].router,
            confidence=some[0].confidence,
            targets=chosen,
        )
    return ratios


def _screened(
    candidates: Sequence[Candidate], classes: Sequence[RequestClass], counts: IntArray, loads: FloatArray
) -> FloatArray:
    """The least that mean TPOT can be over what the targets allow it, shape (C,)."""
    if any(item.patience is not None for item in classes):  # what leaves takes no time, so load says little
        return np.zeros(len(candidates))
    worst = np.empty(len(candidates))
    for rows in _alike(candidates):
        worst[rows] = _least_tpot_ratios(_take(candidates, rows), classes, counts[rows], loads[rows])
    return worst


def _alike(candidates: Sequence[Candidate]) -> list[IntArray]:
    """Rows of the candidates with one router and one confidence."""
    kinds = [(item.router, item.confidence) for item in candidates]
    return [np.flatnonzero([kind == one for kind in kinds]) for one in sorted(set(kinds))]


def _least_tpot_ratios(
    candidates: Sequence[Candidate], classes: Sequence[RequestClass], counts: IntArray, loads: FloatArray
) -> FloatArray:
    """A lower bound of mean TPOT over what targets allow, shape (C,); takes microseconds and settles most that miss.

    The candidates have one router and one confidence.
    Bursts are left out of this screen: under them nothing is served faster than under Poisson arrivals.
    """
    replicas, router = [item.replica for item in candidates], candidates[0].router
    limits = {item.name: tpot_limit_s(item, candidates[0].confidence) for item in classes}
    names = [name for name, limit_s in limits.items() if np.isfinite(limit_s)]
    if not names:
        return np.zeros(len(replicas))
    least = least_tpot(replicas, [_unburst(item) for item in classes], counts, loads, router, names)
    return np.asarray((least / np.array([limits[name] for name in names])).max(axis=1))


def _unburst(item: RequestClass) -> Stream:
    """The stream of a class with Poisson arrivals, unless its own are smoother."""
    stream = item.stream()
    smoother = stream.burst is not None and min(stream.burst.excess, default=0.0) < 0.0
    return stream if smoother else replace(stream, burst=None)


def frontier(
    candidates: Sequence[Candidate],
    classes: Sequence[RequestClass],
    counts: IntArray,
    known: dict[tuple[int, int], tuple[float, float]] | None = None,
    *,
    best_settings: bool = False,
) -> Frontier:
    """The largest multiple of the classes' demand that ``counts`` replicas of each candidate carry.

    All cases are narrowed together. Predictions are made monotone over the loads of a
    round before the crossing is read off.

    Args:
        candidates: one per case, shape (C,).
        classes: the direction: every class brings its whole rate at load 1.
        counts: replicas of each case, shape (C,).
        known: crossings of this direction found before, by candidate and size; new ones are added.
        best_settings: of pools that differ in their engine settings only, look closely at the one that carries most;
            of the others it is enough that they carry no more.
    """
    found = {} if known is None else known
    # a random split gives every replica its own independent share: n replicas carry n times the load of one
    alone = np.array([item.router == "random" for item in candidates], dtype=bool)
    sizes = np.where(alone, 1, counts)
    keys = [(id(item), int(size)) for item, size in zip(candidates, sizes, strict=True)]
    new = {key: position for position, key in enumerate(keys) if key not in found}
    if new:
        rows = np.array(list(new.values()))
        some = _take(candidates, rows)
        rivals = _rivals(some, sizes[rows]) if best_settings else None
        crossings = _crossings(some, classes, sizes[rows], rivals)
        ends = dict(zip(new, zip(crossings.low.tolist(), crossings.high.tolist(), strict=True), strict=True))
        if known is not None and rivals is not None:  # another search may want what was left wide
            loose = ((crossings.low > 0.0) & wide(crossings.low, crossings.high)).tolist()
            known.update({key: interval for (key, interval), left in zip(ends.items(), loose, strict=True) if not left})
            found = {**known, **ends}
        else:
            found.update(ends)
    scale = np.where(alone, counts, 1)
    return Frontier(
        low=np.array([found[key][0] for key in keys]) * scale, high=np.array([found[key][1] for key in keys]) * scale
    )


def carried_of(candidate: Candidate, classes: Sequence[RequestClass], replicas: int) -> tuple[float, float]:
    """How much of a load one pool carries, from a few looks at parts of it: what surely, and what likely; at most 1.

    Args:
        candidate: the pool without its count.
        classes: the load.
        replicas: its count.
    """
    loads = np.array(_PARTS)
    found = _reached([candidate] * loads.size, classes, np.full(loads.size, replicas), loads)
    sides = _log(np.maximum.accumulate(found))
    met = int((sides <= 0.0).sum())
    if met in (0, loads.size):
        return (1.0, 1.0) if met else (0.0, 0.0)
    low, high = loads[met - 1], loads[met]
    rise = sides[met] - sides[met - 1]
    part = -sides[met - 1] / rise if np.isfinite(rise) and rise > 0.0 else 0.5
    return float(low), float(low + part * (high - low))


def frontier_between(
    candidate: Candidate, classes: Sequence[RequestClass], replicas: int, surely: float, low: float, high: float
) -> tuple[float, float]:
    """The frontier of one pool where its neighbourhood is known: largest load carried, smallest that is not.

    Args:
        candidate: the pool without its count.
        classes: the direction: every class brings its whole rate at load 1.
        replicas: its count.
        surely: a load that is below another that is carried.
        low: a load near which the crossing is likely.
        high: a load that is not.
    """
    one, sizes = [candidate], np.array([replicas])
    if on_stages(one):
        return stage_between(one[0], classes, replicas, surely, low, high)
    look, row = _look(one, classes, sizes), np.zeros(1, dtype=int)
    looks = np.minimum(low * (1.0 + _BESIDE), 0.5 * (low + high))
    found = np.maximum.accumulate(look(row, looks[None, :], np.ones(_targets(classes), dtype=bool))[0], axis=0)
    spread, known = looks[-1] - looks[0], np.isfinite(found[0])
    slope = np.zeros(found.shape[1])
    if spread > 0.0:  # else the neighbours leave no room
        slope[known] = (found[-1, known] - found[0, known]) / spread
    before = np.minimum(found[0] + slope * (surely - looks[0]), 0.0)
    behind = np.maximum(found[-1] + slope * (high - looks[-1]), 0.0)
    ends = Bracket(
        loads=np.array([[surely, surely, high, high]]), sides=np.stack([before, before, behind, behind])[None, :]
    )
    cut = narrowed(look, ends.with_looks(row, looks[None, :], found[None, :]))
    if cut.low[0] == surely and _reached(one, classes, sizes, cut.low)[0] > 1.0:
        whole = frontier(one, classes, sizes)
        return float(whole.low[0]), float(whole.high[0])
    return float(cut.low[0]), float(cut.high[0])


def _log(ratios: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):  # requests of one token have no time per token
        return np.asarray(np.log(ratios))


def _targets(classes: Sequence[RequestClass]) -> int:
    return sum(len(item.slos) for item in classes)


def _look(candidates: Sequence[Candidate], classes: Sequence[RequestClass], sizes: IntArray) -> Look:
    """Looks at some of these cases, P loads each."""

    def look(rows: IntArray, loads: FloatArray, targets: BoolArray) -> FloatArray:
        cases = np.repeat(rows, loads.shape[1])
        ratios = _target_ratios(_take(candidates, cases), classes, sizes[cases], loads.ravel(), targets)
        return _log(ratios).reshape(*loads.shape, int(targets.sum()))  # also of no cases at all

    return look


def _rivals(candidates: Sequence[Candidate], sizes: IntArray) -> IntArray:
    """Number of the group of pools that differ in their engine settings only, shape (C,)."""
    numbers: dict[tuple[object, ...], int] = {}
    kinds = [
        (item.gpu, item.layout, item.precision, size) for item, size in zip(candidates, sizes.tolist(), strict=True)
    ]
    return np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds])


def _crossings(
    candidates: Sequence[Candidate], classes: Sequence[RequestClass], sizes: IntArray, rivals: IntArray | None = None
) -> Frontier:
    """Narrow all cases together: a coarse grid made monotone, then looks near the crossing."""
    if on_stages(candidates):
        carried, missed = stage_crossings(candidates, classes, sizes)
        return Frontier(low=carried, high=missed)
    capacity = sizes / unit_loads(candidates, classes)
    live = np.flatnonzero(capacity > 0)
    many, size = _take(candidates, live), sizes[live]
    grid = capacity[live, None] * np.array(_COARSE)[None, :]
    sides = np.maximum.accumulate(_coarse_sides(many, classes, size, grid), axis=1)
    nothing, full = np.full((live.size, 1, sides.shape[2]), -np.inf), np.full((live.size, 1, sides.shape[2]), np.inf)
    none = np.zeros((live.size, 1))
    edges = np.concatenate([none, none, grid, capacity[live, None], capacity[live, None]], axis=1)
    known = np.concatenate([nothing, nothing, sides, full, full], axis=1)
    good = (sides.max(axis=2) <= 0.0).sum(axis=1)
    take = good[:, None] + np.arange(4)
    ends = Bracket(
        loads=np.take_along_axis(edges, take, axis=1), sides=np.take_along_axis(known, take[..., None], axis=1)
    )
    some = np.flatnonzero(good > 0)
    cut = narrowed(
        _look(_take(many, some), classes, size[some]),
        Bracket(loads=ends.loads[some], sides=ends.sides[some]),
        None if rivals is None else rivals[live][some],
    )
    low, high = np.zeros(capacity.size), np.zeros(capacity.size)
    high[live] = ends.high
    low[live[some]], high[live[some]] = cut.low, cut.high
    return Frontier(low=low, high=high)


def _coarse_sides(
    candidates: Sequence[Candidate], classes: Sequence[RequestClass], sizes: IntArray, loads: FloatArray
) -> FloatArray:
    """Log of prediction over target at P loads of each case, shape (C, P, W).

    Under bursts a prediction takes so long that loads which miss in mean TPOT are screened first; their sides are
    infinite.
    """
    rows = np.arange(len(candidates))
    every = np.ones(_targets(classes), dtype=bool)
    if all(item.stream().burst is None for item in classes):
        return _look(candidates, classes, sizes)(rows, loads, every)
    cases = np.repeat(rows, loads.shape[1])
    many, size, flat = _take(candidates, cases), sizes[cases], loads.ravel()
    sides = np.full((flat.size, every.size), np.inf)
    left = np.flatnonzero(_screened(many, classes, size, flat) <= 1.0)
    if left.size:
        sides[left] = _log(_target_ratios(_take(many, left), classes, size[left], flat[left]))
    return sides.reshape(*loads.shape, -1)


def least_counts(
    candidates: Sequence[Candidate],
    classes: Sequence[RequestClass],
    known: dict[tuple[int, int], tuple[float, float]] | None = None,
) -> IntArray:
    """The least number of replicas of each candidate that carries the whole demand, shape (J,); 0 where none does.

    Args:
        candidates: shape (J,).
        classes: the direction.
        known: as for :func:`frontier`.
    """
    if classes[0].batch is not None:
        return batch_least_counts(candidates, classes[0])
    found = {} if known is None else known
    load = optimistic_loads(candidates, classes)
    limit = np.array([item.max_replicas for item in candidates])
    counts = np.zeros(len(candidates), dtype=int)
    random = np.array([item.router == "random" for item in candidates], dtype=bool)
    usable = np.isfinite(load) & (np.ceil(load) <= limit)
    if (random & usable).any():
        rows = np.flatnonzero(random & usable)
        single = frontier(_take(candidates, rows), classes, np.ones(rows.size, dtype=int), found)
        needed = np.where(single.low > 0, np.ceil(1.0 / np.maximum(single.low, 1e-12) - 1e-9), 0)
        # the interval of the crossing leaves one count open: try it
        unsure = np.flatnonzero((needed > 1) & (np.ceil(1.0 / np.maximum(single.high, 1e-12) - 1e-9) < needed))
        if unsure.size:
            fewer = needed[unsure].astype(int) - 1
            met = _reached(_take(candidates, rows[unsure]), classes, fewer, np.ones(unsure.size)) <= 1.0
            needed[unsure] -= met
            for position, count, good in zip(rows[unsure].tolist(), fewer.tolist(), met.tolist(), strict=True):
                low, high = found[id(candidates[position]), 1]
                edge = 1.0 / count  # of the whole demand, on one replica
                found[id(candidates[position]), 1] = (max(low, edge), high) if good else (low, min(high, edge))
        counts[rows] = np.where(needed <= limit[rows], needed, 0)
    rows = np.flatnonzero(~random & usable)
    if rows.size:
        counts[rows] = _search_counts(_take(candidates, rows), classes, load[rows], limit[rows])
    return counts


def _search_counts(
    candidates: Sequence[Candidate], classes: Sequence[RequestClass], load: FloatArray, limit: IntArray
) -> IntArray:
    """Grow the count until every target holds, then halve the interval; all candidates together."""
    low = np.maximum(np.ceil(load * (1.0 - 1e-9)).astype(int) - 1, 0)  # too few by the optimistic load
    high = np.minimum(np.maximum(low + 1, 1), limit)
    ones = np.ones(len(candidates))
    found = np.zeros(len(candidates), dtype=bool)
    active = np.ones(len(candidates), dtype=bool)
    stride = 1
    while active.any():
        rows = np.flatnonzero(active)
        ratios = feasible_at(_take(candidates, rows), classes, high[rows], ones[rows])
        good = ratios <= 1.0
        found[rows[good]] = True
        active[rows[good | (high[rows] >= limit[rows])]] = False
        missed = np.flatnonzero(active)
        if stride == 1 and missed.size:  # targets missed at next to no load: more replicas never help
            idle = feasible_at(_take(candidates, missed), classes, high[missed], np.full(missed.size, _NO_LOAD))
            active[missed[idle > 1.0]] = False
            missed = np.flatnonzero(active)
        low[missed] = high[missed]
        stride *= 2
        high[missed] = np.minimum(high[missed] + stride, limit[missed])
    return np.where(found, _narrow(candidates, classes, low, high, found), 0)


def _narrow(
    candidates: Sequence[Candidate],
    classes: Sequence[RequestClass],
    low: IntArray,
    high: IntArray,
    found: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> IntArray:
    low, high = low.copy(), high.copy()
    while (open_rows := np.flatnonzero(found & (high - low > 1))).size:
        middle = (low[open_rows] + high[open_rows]) // 2
        ratios = feasible_at(_take(candidates, open_rows), classes, middle, np.ones(open_rows.size))
        good = ratios <= 1.0
        high[open_rows[good]] = middle[good]
        low[open_rows[~good]] = middle[~good]
    return high


def _take(candidates: Sequence[Candidate], rows: IntArray) -> list[Candidate]:
    return [candidates[row] for row in rows.tolist()]
