"""Columns of prefill and decode pools, and the chains of them that carry a class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qmodel.candidates.columns import ColumnSet, columns_for_model
from qmodel.candidates.frontiers import optimistic_loads
from qmodel.candidates.pool_kinds import Candidate
from qmodel.candidates.stage_candidates import (
    STAGES,
    THINKING_STAGES,
    Stage,
    StageCandidate,
    part_name,
    part_of,
    splits,
    stage_part,
    staged_candidates,
    thinks,
)
from qmodel.problem import Instance
from qmodel.types import FloatArray, RequestClass

__all__ = ["NO_STAGES", "Chain", "StageColumns", "columns_by_stage"]

_ROLES: tuple[Stage, ...] = tuple(dict.fromkeys((*STAGES, *THINKING_STAGES)))
_BATCHES = np.geomspace(1.0, 4096.0, 25)  # at which step laws are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A class that may be carried by pools in a row, each of which carries its part.

    Attributes:
        model: of all of the pools.
        parts: names of its parts, from the first stage to the last.
    """

    cls: str
    model: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageColumns:
    """What separate pools could carry.

    Attributes:
        sets: columns by a name for model, stage, precision and split.
        classes: parts of classes by the same name.
        chains: what the master may choose, sufficient for every target.
        bounding: the same for the relaxation, necessary for every target.
        chosen_only, bounding_only: names of sets that only the one or the other program knows.
        least_usd: of each class carried whole by separate pools, in fractions of replicas, USD/h.
        notes: sentences a reader must know.
    """

    sets: Mapping[str, ColumnSet] = field(default_factory=dict)
    classes: Mapping[str, tuple[RequestClass, ...]] = field(default_factory=dict)
    chains: tuple[Chain, ...] = ()
    bounding: tuple[Chain, ...] = ()
    chosen_only: frozenset[str] = frozenset()
    bounding_only: frozenset[str] = frozenset()
    least_usd: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def hopeful(self) -> list[StageColumns]:
        """The same for masters that give each stage the whole of its targets, with all chains and with those of two."""
        kept = {name: item for name, item in self.sets.items() if name not in self.chosen_only}
        short = tuple(chain for chain in self.bounding if len(chain.parts) == len(STAGES))
        found = []
        for chains in dict.fromkeys((self.bounding, short)):
            used = {part for chain in chains for part in chain.parts}
            left = (name for name in kept if not any(item.name in used for item in self.classes[name]))
            found.append(
                replace(
                    self,
                    sets=kept,
                    classes={name: self.classes[name] for name in kept},
                    chains=chains,
                    chosen_only=frozenset(),
                    bounding_only=frozenset(left),
                )
            )
        return [item for item in found if item.chains != self.chains]

    def serves(self, name: str, model: str) -> bool:
        """Whether every part of a class is carried by some pool of a model."""
        return any(
            (chain.cls, chain.model) == (name, model)
            and all(any(found.serves(part) for found in self.sets.values()) for part in chain.parts)
            for chain in (*self.chains, *self.bounding)
        )


NO_STAGES = StageColumns()


def columns_by_stage(
    instance: Instance,
    candidates: Sequence[Candidate],
    groups: Mapping[str, Sequence[RequestClass]],
    *,
    every_count: bool = False,
    keep_all: bool = False,
) -> StageColumns:
    """Prefill and decode pools for every group of classes that may share pools.

    A target over both stages is split between them, the same way for all classes of a group; the splits of
    ``BUDGET_SHARES`` are tried. Classes that think may also have their answers made in a third pool; no split is tried
    there, so those chains are only among the ``bounding`` ones. All pools of a path run the same weight and KV type.
    Classes that come in bursts, and groups whose classes differ in priority, are left to unified pools: pools in a row
    are predicted without either.

    Args:
        instance: the bound problem.
        candidates: unified pools of all models.
        groups: classes by group.
        every_count, keep_all: as for :func:`columns_for_model`.
    """
    made = _Made(every_count=every_count, keep_all=keep_all)
    for group, members in groups.items():
        able, told = _able(members)
        made.notes += told
        pools = [item for item in candidates if able and item.model == able[0].model and item.takes([able[0].name])]
        for kind in dict.fromkeys(map(_kept, pools)):
            staged: dict[Stage, list[StageCandidate]] = {}
            for role in _ROLES:
                same = [item for item in pools if _kept(item) == kind]
                found, told = staged_candidates(instance, same, role)
                made.notes += told
                staged[role] = found if keep_all else _undominated(found, able)
            if all(staged.values()):
                made.add(group, " ".join(filter(None, kind)), staged, able)
    return StageColumns(
        sets=made.sets,
        classes=made.classes,
        chains=tuple(dict.fromkeys(made.chains)),
        bounding=tuple(dict.fromkeys(made.bounding)),
        chosen_only=frozenset(made.sets) - made.in_bound,
        bounding_only=frozenset(made.sets) - made.in_master,
        least_usd=made.least_usd,
        notes=tuple(dict.fromkeys(made.notes)),
    )


@dataclass(slots=True, kw_only=True)
class _Made:
    """Columns and chains as they are made.

    Attributes:
        every_count, keep_all: as for :func:`columns_for_model`.
        in_master, in_bound: names of sets that either program knows.
    """

    every_count: bool
    keep_all: bool
    sets: dict[str, ColumnSet] = field(default_factory=dict)
    classes: dict[str, tuple[RequestClass, ...]] = field(default_factory=dict)
    chains: list[Chain] = field(default_factory=list)
    bounding: list[Chain] = field(default_factory=list)
    in_master: set[str] = field(default_factory=set)
    in_bound: set[str] = field(default_factory=set)
    least_usd: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(
        self,
        group: str,
        kept: str,
        staged: Mapping[Stage, Sequence[StageCandidate]],
        classes: Sequence[RequestClass],
    ) -> None:
        """Pools of one model, weight and KV type: the splits of a chain of two, and whole targets for all chains."""
        thinking = [item for item in classes if thinks(item)]
        tried = splits(classes)
        for split in dict.fromkeys((*tried, None)):
            for roles, members in ((STAGES, classes), (THINKING_STAGES, thinking if split is None else ())):
                if not members:
                    continue
                names = [self._set(group, kept, role, split, staged[role], members) for role in roles]
                links = [
                    Chain(
                        cls=item.name,
                        model=item.model,
                        parts=tuple(part_name(part_of(item), role, split, kept) for role in roles),
                    )
                    for item in members
                ]
                if split is None:
                    self.bounding += links
                    self.in_bound |= set(names)
                if split in tried and roles == STAGES:
                    self.chains += links
                    self.in_master |= set(names)
        for item in classes:
            ways = (STAGES, THINKING_STAGES) if item in thinking else (STAGES,)
            usd = min(sum(_least_usd(staged[role], stage_part(item, role, None)) for role in roles) for roles in ways)
            self.least_usd[item.name] = min(usd, self.least_usd.get(item.name, np.inf))

    def _set(
        self,
        group: str,
        kept: str,
        role: Stage,
        split: float | None,
        candidates: Sequence[StageCandidate],
        classes: Sequence[RequestClass],
    ) -> str:
        """The name of the columns of one stage, which are made where they are not there yet."""
        key = f"{group} {part_name('', role, split, kept)}"
        if key not in self.sets:
            parts = tuple(stage_part(item, role, split, kept) for item in classes)
            nothing = {item.name: 0.0 for item in parts}  # the rest may be in unified pools
            self.classes[key] = parts
            self.sets[key] = columns_for_model(
                candidates, parts, every_count=self.every_count, keep_all=self.keep_all, elsewhere_usd=nothing
            )
        return key


def _able(members: Sequence[RequestClass]) -> tuple[list[RequestClass], list[str]]:
    """Classes of a group that pools in a row can be predicted for, and why the others are left out."""
    if len({item.priority for item in members}) > 1:
        names = ", ".join(item.name for item in members)
        return [], [f"no separate prefill and decode pools were tried for {names}: their priorities differ"]
    able, notes = [], []
    for item in members:
        if item.burst is not None:
            notes.append(f"no separate prefill and decode pools were tried for {item.name}: it comes in bursts")
        elif item.patience is not None:
            notes.append(f"no separate prefill and decode pools were tried for {item.name}: its requests leave")
        elif item.batch is not None:
            notes.append(f"no separate prefill and decode pools were tried for {item.name}: it comes as a batch")
        elif item.lengths.output.maximum <= 1.0:
            notes.append(f"no separate prefill and decode pools were tried for {item.name}: it makes one token only")
        else:
            able.append(item)
    return able, notes


def _kept(item: Candidate) -> tuple[str, str]:
    """Weight and KV type, which a request keeps on its way."""
    return item.precision or "", str(item.settings.get("kv_dtype", ""))


def _least_usd(candidates: Sequence[StageCandidate], part: RequestClass) -> float:
    """A part's least cost in fractions of replicas, USD/h."""
    cost = np.array([candidate.cost_usd_per_hour for candidate in candidates])
    return float(np.min(cost * optimistic_loads(candidates, [part])))


def _undominated(candidates: Sequence[StageCandidate], classes: Sequence[RequestClass]) -> list[StageCandidate]:
    """Without pools that another of the same GPU type outdoes: no dearer, no larger, no slower, with no less room."""
    if not candidates:
        return []
    facts = np.array([_facts(item, classes) for item in candidates])  # smaller is better
    kinds = np.array([item.gpu for item in candidates])
    better = (kinds[:, None] == kinds) & np.all(facts[:, None, :] <= facts[None, :, :], axis=2)
    same = better & better.T
    outdone = (better & ~same).any(axis=0) | np.triu(same, 1).any(axis=0)
    return [item for item, lost in zip(candidates, outdone.tolist(), strict=True) if not lost]


def _facts(item: StageCandidate, classes: Sequence[RequestClass]) -> FloatArray:
    """What one pool is compared with another by."""
    replica = item.replica
    whole = [item.cost_usd_per_hour, item.taken_gpus, item.spare, -item.max_replicas]
    room = np.inf if replica.kv_tokens is None else (1.0 - replica.watermark) * replica.kv_tokens
    if item.role != "prefill":
        slots = float(replica.max_num_seqs)
        tau = replica.step.tau_s(np.minimum(_BATCHES, slots), 0.0)
        held = [replica.kv_slope, replica.kv_fixed_tokens, replica.step.gamma_s]
        held += [item.link.s_per_token, item.link.latency_s]
        return np.array([*whole, *held, -room, -slots, *tau])
    # prompts are the only thing held: room beyond the longest one and the largest step makes no difference
    longest = max(one.lengths.prompt.maximum for one in classes)
    tokens = (room - replica.kv_fixed_tokens) / max(replica.kv_slope, 1e-12)
    useful = min(tokens, max(longest, float(replica.max_batched_tokens)))
    step = [float(replica.step.tau_s(0.0, 0.0)), replica.step.delta_s]
    step.append(max(item.link.s_per_token, replica.step.delta_s))  # a link faster than prefill never limits it
    return np.array([*whole, *step, -useful, -replica.max_batched_tokens, -replica.max_num_seqs])
