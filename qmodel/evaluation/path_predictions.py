"""Predictions for every path of a fleet: each pool and each link solved once, then put together path by path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from qmodel.problem import Price, at_confidence
from qmodel.queueing import ClassPrediction, PoolPrediction, predict_pool
from qmodel.queueing.tandem.decode_stage import DecodePool, solve_decode
from qmodel.queueing.tandem.delays import no_delay
from qmodel.queueing.tandem.kv_transfer import Feed, KvTransfer, feed_of, solve_transfer
from qmodel.queueing.tandem.prefill_pool import PrefillPool, solve_prefill
from qmodel.queueing.tandem.row_laws import Hop, row_metrics
from qmodel.queueing.tandem.stage_parts import Leg, Until, answer_leg, decode_leg
from qmodel.types import Fleet, KvLink, Path, Pool, Replica, RequestClass, Router, Stream

__all__ = ["FleetPredictions", "PoolCase", "PoolSettings", "Solution", "predict_paths", "streams_of"]

Solution = PoolPrediction | PrefillPool | DecodePool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Engine settings of a pool that a table shows.

    Attributes:
        max_num_seqs: most sequences of an attention rank.
        max_batched_tokens: token budget of a step.
        kv_dtype: ``auto``, ``bf16`` or ``fp8``.
    """

    max_num_seqs: int
    max_batched_tokens: int
    kv_dtype: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolCase:
    """One pool with what the queue needs to know of it.

    Attributes:
        replica: at nominal step times.
        router: how requests are spread over the replicas.
        price: per GPU and hour.
        link: brings KV here from the pools before; None for a first pool.
        spare: replicas that predictions take as lost.
        settings: what tables show of its engine; None: not known.
    """

    pool: Pool
    replica: Replica
    router: Router
    price: Price
    link: KvLink | None = None
    spare: int = 0
    settings: PoolSettings | None = None

    @property
    def serving(self) -> int:
        """Replicas that serve."""
        return self.pool.replicas - self.spare


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetPredictions:
    """Every pool, link and path of a fleet at one level of step times.

    Attributes:
        pools: solved pools by name; pools without requests are left out.
        links: solved links by the pool they lead to.
        paths: metrics by class and pools of a path; None where a pool or link on it is not stable.
    """

    pools: Mapping[str, Solution] = field(default_factory=dict)
    links: Mapping[str, KvTransfer] = field(default_factory=dict)
    paths: Mapping[tuple[str, tuple[str, ...]], ClassPrediction | None] = field(default_factory=dict)

    @property
    def stable(self) -> bool:
        """Whether every pool and link carries its load."""
        return all(item.overload is None for item in (*self.pools.values(), *self.links.values()))

    def parts(self, cls: str, paths: Sequence[Path]) -> list[tuple[float, ClassPrediction | None]]:
        """The share of a class on each of its paths, and what it meets there."""
        return [(path.share, self.paths[cls, path.pools]) for path in paths]


def streams_of(pool_name: str, classes: Mapping[str, RequestClass], fleet: Fleet) -> list[Stream]:
    """The part of every class that passes a pool."""
    streams = []
    for name, item in classes.items():
        share = sum(path.share for path in fleet.routing.get(name, ()) if pool_name in path.pools)
        if share > 0:
            streams.append(item.under(fleet.pools[pool_name].model).stream(share))
    return streams


def predict_paths(
    classes: Mapping[str, RequestClass],
    cases: Mapping[str, PoolCase],
    fleet: Fleet,
    *,
    level: str = "nominal",
    known: FleetPredictions | None = None,
    changed: Sequence[str] = (),
) -> FleetPredictions:
    """Solve a fleet.

    Pools in a row are taken to see Poisson streams of the rates that reach them, and the times that a request spends
    in them to be independent.

    Args:
        classes: request classes by name.
        cases: pools at nominal step times; paths through others are left out.
        fleet: pools and routing.
        level: ``nominal``, ``p90`` or ``low`` step times.
        known: an earlier solution of the same demand, from which pools are taken over, except
        changed: those that are not what they were.
    """
    pools: dict[str, Solution] = {}
    links: dict[str, KvTransfer] = {}
    kept = FleetPredictions() if known is None else known
    legs = {name: _legs(name, classes, fleet) for name in cases if fleet.pools[name].role in ("decode", "answer")}
    for name in sorted(cases, key=lambda item: _ORDER[fleet.pools[item].role]):
        case, streams = cases[name], streams_of(name, classes, fleet)
        if not streams:
            continue
        if name in kept.pools and name not in changed:
            pools[name] = kept.pools[name]
        else:
            pools[name] = _solved(case, level, streams, [leg for _, leg in legs.get(name, ())])
        if name in legs:
            links[name] = _linked(name, case, legs[name], classes, fleet, pools)
    solved = FleetPredictions(pools=pools, links=links)
    return replace(
        solved,
        paths={
            (name, path.pools): _metrics(item.under(fleet.model_on(path)), number, path, solved)
            for name, item in classes.items()
            for number, path in enumerate(fleet.routing.get(name, ()))
            if path.pools[0] in cases
        },
    )


_ORDER = {"unified": 0, "prefill": 0, "decode": 1, "answer": 2}
Legs = list[tuple[Path, Leg]]


def _solved(case: PoolCase, level: str, streams: Sequence[Stream], legs: Sequence[Leg]) -> Solution:
    replica, count = at_confidence(case.replica, level), case.serving
    if case.pool.role == "unified":
        return predict_pool(replica, streams, count, case.router)
    router: Router = "jsq" if case.router == "jsq" else "random"
    if case.pool.role == "prefill":
        return solve_prefill(replica, streams, count, router)
    return solve_decode(replica, legs, count, router)


def _legs(name: str, classes: Mapping[str, RequestClass], fleet: Fleet) -> Legs:
    """The parts of all classes that come to a decode or answer pool, path by path."""
    found: Legs = []
    for cls, item in classes.items():
        for number, path in enumerate(fleet.routing.get(cls, ())):
            if name in path.pools[1:]:
                stream = replace(item.under(fleet.model_on(path)).stream(path.share), name=_leg_name(cls, number))
                until: Until = "output" if len(path.pools) == 2 else "thinking"
                last_of_three = len(path.pools) == 3 and name == path.pools[-1]
                leg = answer_leg(stream) if last_of_three else decode_leg(stream, until)
                if leg is not None:
                    found.append((path, leg))
    return found


def _leg_name(cls: str, number: int) -> str:
    """A class on one of its paths, which may bring different parts of it to one pool."""
    return f"{cls} {number}"


def _linked(
    name: str,
    case: PoolCase,
    legs: Legs,
    classes: Mapping[str, RequestClass],
    fleet: Fleet,
    pools: Mapping[str, Solution],
) -> KvTransfer:
    rates: dict[str, float] = {}
    for path, leg in legs:
        source = path.pools[path.pools.index(name) - 1]
        rates[source] = rates.get(source, 0.0) + leg.rate_rps
    feeds = []
    for source, rate_rps in rates.items():
        before = pools[source]
        if isinstance(before, PrefillPool) and before.overload is None:
            total_rps = sum(item.rate_rps for item in streams_of(source, classes, fleet))
            feeds.append(feed_of(before, rate_rps, total_rps))
        else:
            feeds.append(Feed(rate_rps=rate_rps, replicas=fleet.pools[source].replicas))
    return solve_transfer(case.link, [leg for _, leg in legs], feeds)


def _metrics(item: RequestClass, number: int, path: Path, solved: FleetPredictions) -> ClassPrediction | None:
    """The metrics of a class on a path; None where something on it is not stable."""
    on_path: list[Solution | KvTransfer] = [solved.pools[name] for name in path.pools]
    on_path += [solved.links[name] for name in path.pools[1:]]
    if any(part.overload is not None for part in on_path):
        return None
    first = solved.pools[path.pools[0]]
    if isinstance(first, PoolPrediction):
        return first[item.name]
    assert isinstance(first, PrefillPool)
    hops = []
    for name in path.pools[1:]:
        decode = solved.pools[name]
        assert isinstance(decode, DecodePool)
        hops.append(Hop(transfer=solved.links[name].delay.get(_leg_name(item.name, number), no_delay()), pool=decode))
    return row_metrics(first.first_s[item.name], hops, item.lengths, first.utilisation)
