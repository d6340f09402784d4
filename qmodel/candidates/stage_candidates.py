"""Pools that serve one stage of requests, and the part of a class that a stage has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeGuard

from qmodel.candidates.pool_kinds import Candidate
from qmodel.evaluation import own_link
from qmodel.problem import Instance
from qmodel.types import KvLink, Pool, RequestClass, Role, Slo

__all__ = [
    "BUDGET_SHARES",
    "STAGES",
    "THINKING_STAGES",
    "Stage",
    "StageCandidate",
    "on_stages",
    "part_name",
    "part_of",
    "serves_prefill",
    "splits",
    "staged_candidates",
    "stage_part",
    "thinks",
]

Stage = Literal["prefill", "decode", "think", "answer"]
STAGES: tuple[Stage, ...] = ("prefill", "decode")
THINKING_STAGES: tuple[Stage, ...] = ("prefill", "think", "answer")
BUDGET_SHARES = (0.03, 0.15, 0.5)  # of a target over both stages, for the prefill stage


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageCandidate(Candidate):
    """A pool without its count that serves one stage.

    Attributes:
        role: ``think`` is a decode pool that hands over to an answer pool.
        link: a lane to or from a pool whose port is no slower than its own.
        crossings: loads found to be carried and not to be, by the classes with their rates and the count; grows.
    """

    role: Stage
    link: KvLink
    crossings: dict[tuple[object, ...], tuple[float, float]] = field(default_factory=dict, repr=False)

    @property
    def pool_role(self) -> Role:
        """Role of its pools in a fleet."""
        return "decode" if self.role == "think" else self.role

    @property
    def label(self) -> str:
        """Name for people, e.g. ``prefill h100-sxm tp4``."""
        return f"{self.role} {self.gpu} {self.layout} {self.variant}".rstrip()


def on_stages(candidates: Sequence[Candidate]) -> TypeGuard[Sequence[StageCandidate]]:
    """Whether pools serve one stage each; those of one group of columns all do or none does."""
    return bool(candidates) and isinstance(candidates[0], StageCandidate)


def serves_prefill(candidate: Candidate) -> bool:
    """Whether a pool does nothing but prefill."""
    return isinstance(candidate, StageCandidate) and candidate.role == "prefill"


def staged_candidates(
    instance: Instance, candidates: Sequence[Candidate], role: Stage
) -> tuple[list[StageCandidate], list[str]]:
    """The same pools as prefill or decode pools, and why some cannot be.

    Args:
        instance: the bound problem.
        candidates: unified pools.
        role: the stage.

    Returns:
        Candidates, and a sentence for each GPU type and model whose link is not known.
    """
    found, notes = [], []
    for item in candidates:
        pool = Pool(
            name="",
            model=item.model,
            gpu=item.gpu,
            layout=item.layout,
            replicas=item.pool_replicas(1),
            engine=item.settings,
            precision=item.precision,
        )
        link = own_link(instance, pool)
        if isinstance(link, str):
            notes.append(f"no prefill and decode pools of {item.model} on {item.gpu} were tried: {link}")
            continue
        known = {part.name: getattr(item, part.name) for part in fields(item)}
        router = "jsq" if item.router == "jsq" else "random"  # as pools in a row are predicted
        found.append(StageCandidate(**{**known, "router": router, "role": role, "link": link}))
    return found, list(dict.fromkeys(notes))


def splits(classes: Sequence[RequestClass]) -> tuple[float | None, ...]:
    """Shares of a target over both stages to try; only None where no class has such a target."""
    return BUDGET_SHARES if any(_over_both(item, slo) for item in classes for slo in item.slos) else (None,)


def stage_part(item: RequestClass, role: Stage, split: float | None, kept: str = "") -> RequestClass:
    """A class as one stage sees it: the same requests, and what its targets leave to the stage.

    The time to the first token is the prefill stage's alone, the time per token after it the decode stage's. A target
    over both is split: a mean by a share, a percentile by a share and with half of the requests that may miss it for
    each stage, so that both together are sufficient. Without a split each stage gets the whole target, which is
    necessary. Where thinking and answer are apart there is no split: each gets the whole of all targets that it has a
    part in.

    Args:
        item: the class.
        role: the stage.
        split: share of a target over both stages for the prefill stage.
        kept: weight and KV type, which all pools of a path have; tells parts apart where there are several.

    Example:
        >>> from qmodel.types import Law, Lengths
        >>> lengths = Lengths.independent(Law.constant(100), Law.constant(10))
        >>> slos = (Slo(metric="ttft", p=0.95, target_s=1.0), Slo(metric="completion", p=0.9, target_s=10.0))
        >>> chat = RequestClass(name="chat", model="m", rate_rps=1.0, lengths=lengths, slos=slos)
        >>> [(slo.key, slo.target_s) for slo in stage_part(chat, "prefill", 0.2).slos]
        [('ttft_p95_s', 1.0), ('completion_p95_s', 2.0)]
        >>> [(slo.key, slo.target_s) for slo in stage_part(chat, "decode", 0.2).slos]
        [('completion_p95_s', 8.0)]
    """
    slos = []
    for slo in item.slos:
        if _over_both(item, slo):
            share, p = 1.0, slo.p
            if split is not None:
                share = split if role == "prefill" else 1.0 - split
                p = None if slo.p is None else (1.0 + slo.p) / 2.0
            slos.append(Slo(metric=slo.metric, p=p, target_s=slo.target_s * share))
        elif slo.metric == "tpot" and role != "prefill":
            slos.append(slo)
        elif slo.metric in ("ttft", "answer_start") and role == "prefill":
            slos.append(replace(slo, metric="ttft"))
    alone = replace(item, alternatives=(), min_quality=None)  # a part is one model's
    return replace(alone, name=part_name(part_of(item), role, split, kept), slos=tuple(slos))


def part_of(item: RequestClass) -> str:
    """What the parts of a class are named by: the class, and its model where several may serve it."""
    return f"{item.name} by {item.model}" if len(item.models) > 1 else item.name


def thinks(item: RequestClass) -> bool:
    """Whether the thinking of a class has a part of its own."""
    return item.lengths.reasoning is not None and item.lengths.reasoning.maximum >= 2.0


def part_name(cls: str, role: Stage, split: float | None, kept: str = "") -> str:
    """Name of the part of a class that a stage has."""
    return f"{cls} > {role}" + ("" if split is None else f" {split:g}") + (f" {kept}" if kept else "")


def _over_both(item: RequestClass, slo: Slo) -> bool:
    """Whether a target is on a time to which both stages add."""
    return slo.metric == "completion" or (slo.metric == "answer_start" and item.lengths.reasoning is not None)
