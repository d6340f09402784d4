"""What pools carry of several classes at once: the frontier along rays, refined where a search looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates.fans import Fan, corners
from qmodel.candidates.frontiers import frontier, frontier_between
from qmodel.candidates.pool_kinds import Candidate, CountedPool
from qmodel.candidates.stage_candidates import serves_prefill
from qmodel.types import FloatArray, IntArray, RequestClass

__all__ = ["Blend", "SharedPool", "shared_pools"]

_ALL_COUNTS = 12  # up to here every count is looked at; beyond, a spread of counts
_STEPS = (0.25, 0.5, 0.75)  # between the two rays of a cell of two classes
_MANY = 4  # classes; with more, cells and counts are too many: one count then stands for all, and only in the bound
_CORNERS_OF_MANY = 60  # of one pool that more classes share
_THIN = 0.02  # of the largest share of a mix: a class with no more is next to absent
_LITTLE = 0.15  # of the largest share of a mix: what a pool does not carry without that class settles more
_JUMP = 0.9  # of what lies between neighbours: a mix that carries less is where the frontier may jump


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blend(CountedPool):
    """A pool with its count, and points between which any mix may be chosen.

    Attributes:
        points: share of each class's demand that the pool carries, one point a row, shape (P, K).
        names: of the classes.
    """

    points: FloatArray
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedPool:
    """A pool that several classes share, with its count.

    Attributes:
        replicas: its count; with random routing always 1, since pools add up.
        classes: of one model, shape (K,).
        fan: mixes looked at.
        low, high: multiples of each ray that are carried, and that are not, shape (R,).
        stands_for_all: whether, in the relaxation, replicas that carry what each carries here stand for pools of every
            count.
        offered: whether it may be chosen; else it is there for the bound.
    """

    candidate: Candidate
    replicas: int
    classes: tuple[RequestClass, ...]
    fan: Fan
    low: FloatArray
    high: FloatArray
    stands_for_all: bool
    offered: bool = True

    def blends(self) -> Iterator[Blend]:
        """One for each cell; a cell with fewer than two rays that are carried is left out.

        Where a class that is next to absent makes a pool carry less than without it, nothing lies in between: the
        rays with and without that class are blended apart.
        """
        if not self.offered:
            return
        points = self.low[:, None] * self.fan.rays
        names = tuple(item.name for item in self.classes)
        for cell in self.fan.cells.tolist():
            for part in self._without_jump([place for place in cell if self.low[place] > 0.0]):
                if len(part) > 1:
                    yield Blend(candidate=self.candidate, replicas=self.replicas, points=points[part], names=names)

    def _without_jump(self, places: Sequence[int]) -> list[list[int]]:
        """Rays of a cell, parted where a class that comes in thinly takes the others down."""
        points = self.low[:, None] * self.fan.rays
        for cls in range(len(self.classes)):
            absent = [place for place in places if self.fan.rays[place, cls] == 0.0]
            present = [place for place in places if self.fan.rays[place, cls] > 0.0]
            if not absent or not present or self.fan.rays[present, cls].max() > _THIN:
                continue
            others = np.delete(points, cls, axis=1).sum(axis=1)
            if others[present].max() < _JUMP * others[absent].max():
                return [*self._without_jump(absent), *self._without_jump(present)]
        return [list(places)]

    def outside(self) -> FloatArray:
        """Corners of what the pool may carry at most, shape (Q, K)."""
        size = len(self.classes)
        points = self.high[:, None] * self.fan.rays
        most = {} if size <= _MANY else {"most": _CORNERS_OF_MANY}
        found = corners(points[size:], points[:size].diagonal(), **most)
        return found / self.replicas if self.stands_for_all else found

    def refined(self, mixes: Sequence[FloatArray]) -> SharedPool:
        """The same with the frontier along more rays; itself where they are known.

        A cell in which a mix lies is cut there and at even steps, so that few looks settle what the cell can carry.

        Args:
            mixes: class shares, each of shape (K,).
        """
        pool = self
        for mix in mixes:
            ends = pool.high[pool.fan.holding(mix), None] * pool.fan.rays[pool.fan.holding(mix)]
            for face in _faces(mix):
                pool = pool._looked_at(face)
            # a look at a prefill pool takes twenty times as long as one at another
            beside = len(self.classes) == 2 and not serves_prefill(self.candidate)
            for step in _STEPS if beside else ():
                pool = pool._looked_at((1.0 - step) * ends[0] + step * ends[1])
        return pool

    def _looked_at(self, mix: FloatArray) -> SharedPool:
        """The same with one ray more, and where the frontier jumps with rays at its edge; itself where all is known."""
        cell = self.fan.holding(mix)
        known = self.fan.near(mix)
        if known is not None:
            here, pool = [known], self
        else:
            pool = self._with_ray(mix)
            ends = self.low[cell, None] * self.fan.rays[cell]
            parts = np.linalg.solve(ends.T, pool.fan.rays[-1]) if np.all(self.low[cell] > 0.0) else np.zeros(1)
            here = cell.tolist() if pool.low[-1] * parts.sum() < _JUMP else []
        for place in here:
            missing = (self.fan.rays[place] == 0.0) & (np.asarray(mix) > 0.0)
            edge = np.where(missing, _THIN, self.fan.rays[place])
            if missing.any() and pool.fan.near(edge) is None:
                pool = pool._with_ray(edge)
        return pool

    def _with_ray(self, mix: FloatArray) -> SharedPool:
        """The same with one ray that is new; what its neighbours carry says where to look."""
        fan = self.fan.split(mix)
        ray = fan.rays[-1]
        cell = self.fan.holding(ray)
        ends = self.low[cell, None] * self.fan.rays[cell]
        chord = 1.0 / np.linalg.solve(ends.T, ray).sum() if np.all(self.low[cell] > 0.0) else 0.0
        points = self.high[:, None] * self.fan.rays
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.where(points > 0.0, points / ray, 0.0).max(axis=1).min()
        mix_classes = [item.part(part) for item, part in zip(self.classes, ray.tolist(), strict=True) if part > 0.0]
        if chord > 0.0:
            carried = self.low[:, None] * self.fan.rays[:, ray > 0.0] / ray[ray > 0.0]
            surely = float(carried.min(axis=1).max())  # below a point that is carried
            low, high = frontier_between(
                self.candidate, mix_classes, self.replicas, min(surely, 0.99 * chord), chord, float(beyond)
            )
        else:
            low, high = (float(x[0]) for x in _along(ray, [self.candidate], self.classes, np.array([self.replicas])))
        return replace(self, fan=fan, low=np.append(self.low, low), high=np.append(self.high, high))


def _faces(mix: FloatArray) -> list[FloatArray]:
    """A mix, and the same without the classes that have little of it, where two at least are left.

    What a pool does not carry of some classes it does not carry with others, whatever their shares.
    """
    face = np.where(mix > _LITTLE * mix.max(), mix, 0.0)
    return [mix, face] if 1 < np.count_nonzero(face) < np.count_nonzero(mix) else [mix]


def shared_pools(
    candidates: Sequence[Candidate],
    classes: Sequence[RequestClass],
    positions: Sequence[int],
    budget_usd_per_hour: float,
) -> dict[int, tuple[SharedPool, ...]]:
    """Shared pools of some candidates, by position, with each class alone and all in proportion to demand.

    More than four classes have one pool of each candidate, the largest: no smaller one carries more per replica.

    Args:
        candidates: of one model.
        classes: of that model, at least two.
        positions: which candidates.
        budget_usd_per_hour: no pool that costs more is worth having.
    """
    fan = Fan.start(len(classes))
    able = [candidates[position] for position in positions]
    if not able:
        return {}
    single = _table(fan, able, classes, np.ones(len(able), dtype=int))
    whole = single[0][:, -1]  # carried of all classes together by one replica
    found = {}
    for row, (position, item) in enumerate(zip(positions, able, strict=True)):
        most = _most(item, budget_usd_per_hour)
        if whole[row] > 0.0:
            most = min(most, int(np.ceil(1.0 / whole[row])))
        many = len(classes) > _MANY
        counts, complete = (np.array([most]), False) if many and item.router != "random" else _counts(item, most)
        low, high = single[0][row : row + 1], single[1][row : row + 1]
        others = counts[counts > 1]
        if others.size:
            more = _table(fan, [item] * others.size, classes, others)
            ones = counts.size - others.size  # 0 where only the largest is looked at
            low, high = np.vstack([low[:ones], more[0]]), np.vstack([high[:ones], more[1]])
        found[position] = tuple(
            SharedPool(
                candidate=item,
                replicas=count,
                classes=tuple(classes),
                fan=fan,
                low=low[place],
                high=high[place],
                stands_for_all=not complete and place == counts.size - 1,
                offered=not many,
            )
            for place, count in enumerate(counts.tolist())
        )
    return found


def _table(
    fan: Fan, candidates: Sequence[Candidate], classes: Sequence[RequestClass], counts: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Carried and not carried multiples of every ray, shapes (C, R)."""
    columns = [_along(ray, candidates, classes, counts) for ray in fan.rays]
    return np.column_stack([low for low, _ in columns]), np.column_stack([high for _, high in columns])


def _along(
    ray: FloatArray, candidates: Sequence[Candidate], classes: Sequence[RequestClass], counts: IntArray
) -> tuple[FloatArray, FloatArray]:
    """The frontier along one ray, shapes (C,)."""
    mix = [item.part(part) for item, part in zip(classes, ray.tolist(), strict=True) if part > 0.0]
    found = frontier(candidates, mix, counts)
    return found.low, found.high


def _most(item: Candidate, budget_usd_per_hour: float) -> int:
    paid = budget_usd_per_hour / item.cost_usd_per_hour * (1.0 + 1e-9)
    return max(min(item.max_replicas, int(paid) if np.isfinite(paid) else item.max_replicas), 1)


def _counts(item: Candidate, most: int) -> tuple[IntArray, bool]:
    """Counts to look at, and whether they are all that matter."""
    if item.adds_up:
        return np.array([1]), True
    if most <= _ALL_COUNTS:
        return np.arange(1, most + 1), True
    spread = np.round(np.geomspace(_ALL_COUNTS, most, 5)).astype(int)
    return np.unique(np.concatenate([[1, 2, 3, 4, 6, 8, 10], spread])), False
