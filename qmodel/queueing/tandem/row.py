"""Pools in a row for one set of classes: prefill, decode, and where asked an answer pool of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from qmodel.queueing.replica.predictions import ClassPrediction
from qmodel.queueing.tandem.decode_stage import DecodePool, solve_decode
from qmodel.queueing.tandem.kv_transfer import Feed, KvTransfer, feed_of, solve_transfer
from qmodel.queueing.tandem.prefill_pool import PrefillPool, solve_prefill
from qmodel.queueing.tandem.row_laws import Hop, row_metrics
from qmodel.queueing.tandem.stage_parts import Leg, answer_leg, decode_leg
from qmodel.types import KvLink, Overload, Replica, RequestClass, Router, Stream

__all__ = ["AnswerStage", "DecodeStage", "PrefillStage", "StagesPrediction", "stages"]

_MOST_REPLICAS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefillStage:
    """The first pool of a row: it makes the first token of every request.

    Attributes:
        replica: what each of its replicas is.
        replicas: how many.
        router: ``random`` or ``jsq``.
    """

    replica: Replica
    replicas: int = 1
    router: Router = "jsq"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodeStage:
    """The second pool: the tokens after the first, thinking only where an answer pool follows.

    Attributes:
        replica, replicas, router: as for :class:`PrefillStage`.
        link: brings the KV here; None: at once.
    """

    replica: Replica
    replicas: int = 1
    router: Router = "jsq"
    link: KvLink | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnswerStage:
    """The third pool: the tokens after the thinking; attributes as for :class:`DecodeStage`."""

    replica: Replica
    replicas: int = 1
    router: Router = "jsq"
    link: KvLink | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StagesPrediction(Mapping[str, ClassPrediction]):
    """A row of pools under its load; a mapping from class names, empty where a pool or link is not stable.

    Attributes:
        pools: each pool in order.
        links: the link into each pool but the first.
        classes: predictions by class name.
    """

    pools: tuple[PrefillPool | DecodePool, ...]
    links: tuple[KvTransfer, ...]
    classes: Mapping[str, ClassPrediction]

    @property
    def overload(self) -> Overload | None:
        """The first overload on the way, None where all is stable."""
        found: list[PrefillPool | DecodePool | KvTransfer] = [self.pools[0]]
        for link, pool in zip(self.links, self.pools[1:], strict=True):
            found += [link, pool]
        return next((item.overload for item in found if item.overload is not None), None)

    @property
    def stable(self) -> bool:
        """Whether every pool and link carries its load."""
        return self.overload is None

    def __getitem__(self, name: str) -> ClassPrediction:
        if name not in self.classes:
            overload = self.overload
            reason = overload.reason if overload else f"classes are {', '.join(map(repr, self.classes))}"
            raise KeyError(f"no prediction for class {name!r}: {reason}")
        return self.classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.classes)

    def __len__(self) -> int:
        return len(self.classes)


def stages(
    row: Sequence[PrefillStage | DecodeStage | AnswerStage], classes: Sequence[Stream | RequestClass]
) -> StagesPrediction:
    """Predict TTFT, answer start, TPOT and completion of every class over pools in a row.

    All classes pass all pools, first come, first served; arrivals are Poisson. The first token is made by the prefill
    pool: TTFT ends before the KV is moved, TPOT has the moves and the waits of the later pools in it.

    Args:
        row: a prefill and a decode stage, and an answer stage where the thinking is to be done apart.
        classes: streams with their rates, requests/s.

    Returns:
        The prediction; where a load is too high it says why and holds no numbers.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.types import Law, Lengths, StepLaw
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=3e-5), max_num_seqs=64)
        >>> link = KvLink(bytes_per_s=50e9, bytes_per_token=131072.0, latency_s=1e-5)
        >>> chat = Stream(name="chat", rate_rps=4.0, lengths=Lengths.independent(Law.constant(500), Law.constant(200)))
        >>> found = stages([PrefillStage(replica=engine), DecodeStage(replica=engine, link=link)], [chat])
        >>> found.stable, round(found["chat"].tpot.mean, 4), found["chat"].ttft.quantile(0.95) < 0.06
        (True, 0.011, True)

    Source: own construction, see docs/theory/stages.md.
    """
    _check(row, classes)
    prefill, decode = row[0], row[1]
    assert isinstance(prefill, PrefillStage) and isinstance(decode, DecodeStage)
    streams = [_stream(item) for item in classes]
    first = solve_prefill(prefill.replica, streams, prefill.replicas, prefill.router)
    total_rps = sum(item.rate_rps for item in streams)
    answer = row[2] if len(row) == 3 else None
    legs = [leg for item in streams if (leg := decode_leg(item, "output" if answer is None else "thinking"))]
    links, pools = (
        [_link(decode, legs, first, total_rps)],
        [solve_decode(decode.replica, legs, decode.replicas, decode.router)],
    )
    if isinstance(answer, AnswerStage):
        last = [leg for item in streams if (leg := answer_leg(item))]
        feeds = [Feed(rate_rps=sum(leg.rate_rps for leg in last), replicas=decode.replicas)]
        links.append(solve_transfer(answer.link, last, feeds))
        pools.append(solve_decode(answer.replica, last, answer.replicas, answer.router))
    found = StagesPrediction(pools=(first, *pools), links=tuple(links), classes={})
    if not found.stable:
        return found
    predictions = {}
    for item in streams:
        hops = [Hop(transfer=link.delay[item.name], pool=pool) for link, pool in zip(links, pools, strict=True)]
        predictions[item.name] = row_metrics(first.first_s[item.name], hops, item.lengths, first.utilisation)
    return StagesPrediction(pools=found.pools, links=found.links, classes=predictions)


def _link(stage: DecodeStage, legs: Sequence[Leg], first: PrefillPool, total_rps: float) -> KvTransfer:
    rate_rps = sum(leg.rate_rps for leg in legs)
    feed = Feed(rate_rps=rate_rps) if first.overload is not None else feed_of(first, rate_rps, total_rps)
    return solve_transfer(stage.link, legs, [feed])


def _stream(item: Stream | RequestClass) -> Stream:
    return item if isinstance(item, Stream) else item.stream()


def _check(row: Sequence[object], classes: Sequence[Stream | RequestClass]) -> None:
    kinds = [type(stage) for stage in row]
    if kinds not in ([PrefillStage, DecodeStage], [PrefillStage, DecodeStage, AnswerStage]):
        raise ValueError(
            "row must be a PrefillStage and a DecodeStage, then perhaps an AnswerStage"
            f" (got {', '.join(kind.__name__ for kind in kinds) or 'nothing'})"
        )
    for stage in row:
        assert isinstance(stage, PrefillStage | DecodeStage | AnswerStage)
        name = type(stage).__name__
        if isinstance(stage.replicas, bool) or not isinstance(stage.replicas, int):
            raise ValueError(f"{name}.replicas must be a whole number (got {stage.replicas!r})")
        if not 1 <= stage.replicas <= _MOST_REPLICAS:
            raise ValueError(f"{name}.replicas must lie in 1 to {_MOST_REPLICAS:,} (got {stage.replicas})")
        if stage.router not in ("random", "jsq"):
            raise ValueError(f"{name}.router must be 'random' or 'jsq' (got {stage.router!r})")
    if not classes:
        raise ValueError("classes must have at least one stream")
    names = [item.name for item in classes]
    if len(set(names)) < len(names):
        raise ValueError(f"class names must differ (got {names})")
    for item in classes:
        if not 0.0 < item.rate_rps < float("inf"):
            raise ValueError(f"rate_rps of class {item.name!r} must be positive and finite (got {item.rate_rps!r})")
        if decode_leg(_stream(item)) is None:
            raise ValueError(f"class {item.name!r} has outputs of one token only; a prefill pool alone serves it")
        if len(row) == 3 and decode_leg(_stream(item), "thinking") is None:
            what = "has no thinking tokens, so an AnswerStage has no part of its own; leave it out"
            raise ValueError(f"class {item.name!r} {what}")
