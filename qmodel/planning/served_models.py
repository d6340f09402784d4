"""Which of a class's models can serve it at all, and whether those may have all of it and reach its average quality."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from qmodel.candidates import NO_STAGES, CandidateSet, ColumnSet, StageColumns
from qmodel.files import join_key
from qmodel.optimize import Diagnosis, SolverOptions, diagnose
from qmodel.planning.plans import Why
from qmodel.types import Limits, ModelTier, RequestClass, best_average

__all__ = ["able_groups", "alone_with_its_model", "left_out_notes", "out_of_reach", "share_of_none"]

_ROUNDING = 1e-9  # relative, of an average

Explain = Callable[[str, RequestClass], Diagnosis]
Groups = Mapping[str, tuple[RequestClass, ...]]


def able_groups(
    sets: Mapping[str, ColumnSet], classes: Groups, stages: StageColumns = NO_STAGES
) -> dict[str, tuple[RequestClass, ...]]:
    """Groups without the classes that pools of another model serve and theirs cannot; without groups that are empty.

    Args:
        sets: columns by group of classes that may share pools.
        classes: the classes of each group.
        stages: what separate prefill and decode pools could carry.
    """

    def able(group: str, item: RequestClass) -> bool:
        return sets[group].serves(item.name) or stages.serves(item.name, item.model)

    served = {item.name for group, members in classes.items() for item in members if able(group, item)}
    found = {
        group: tuple(item for item in members if item.name not in served or able(group, item))
        for group, members in classes.items()
    }
    return {group: members for group, members in found.items() if members}


def left_out_notes(before: Groups, after: Groups) -> list[str]:
    """A sentence for each class and model that fell away."""
    kept = {(item.name, item.model) for members in after.values() for item in members}
    return [
        f"class {item.name}: {item.model} serves none of it: no pool of it meets the targets within the limits"
        for members in before.values()
        for item in members
        if (item.name, item.model) not in kept
    ]


def alone_with_its_model(
    candidates: CandidateSet,
    sets: Mapping[str, ColumnSet],
    limits: Limits,
    options: SolverOptions,
    stages: StageColumns,
) -> Explain:
    """Says why no pool of a class's model serves it, as if it had no other.

    Args:
        candidates: what was enumerated and what was refused.
        sets: columns by group of classes that may share pools.
        limits: of the fleet.
        options: solver and time limit.
        stages: what separate prefill and decode pools could carry.
    """

    def explain(group: str, item: RequestClass) -> Diagnosis:
        tiers = tuple(tier for tier in item.alternatives if tier.model == item.model)
        alone = replace(item, alternatives=tiers, min_quality=None)
        return diagnose(candidates, {group: sets[group]}, {group: (alone,)}, limits, options, stages)

    return explain


def share_of_none(before: Groups, after: Groups, explain: Explain) -> Why | None:
    """Why a model that must get a share of a class cannot serve it; None where all of them can.

    Args:
        before: the classes of each group.
        after: the same without the classes that the group's model cannot serve.
        explain: says for a group and a class why no pool of the group's model serves it.
    """
    kept = {(item.name, item.model) for members in after.values() for item in members}
    for group, members in before.items():
        for item in members:
            least = _least(item)
            if (item.name, item.model) in kept or least == 0.0:
                continue
            found = explain(group, item)
            share = join_key(f"classes.{item.name}.models", item.model) + ".share"
            return Why(
                text=f"{item.model} is to serve {least:.1%} of class '{item.name}' at least, and no pool of it can: "
                f"{found.text}",
                limit=found.limit,
                best=found.best,
                change=f"{found.change}, or lower {share}",
            )
    return None


def _least(item: RequestClass) -> float:
    return next((tier.least for tier in item.alternatives if tier.model == item.model), 0.0)


def out_of_reach(groups: Groups) -> Why | None:
    """Why the models that can serve a class cannot have all of it, or its average quality; None where they can."""
    able: dict[str, list[str]] = {}
    classes: dict[str, RequestClass] = {}
    for item in _all(groups):
        classes[item.name] = item
        able.setdefault(item.name, []).append(item.model)
    for name, models in able.items():
        item = classes[name]
        tiers = [tier for tier in item.alternatives if tier.model in models]
        missing = [tier for tier in item.alternatives if tier.model not in models]
        if not missing or not tiers:
            continue
        reached = best_average([tier.quality or 0.0 for tier in tiers], [(tier.least, tier.most) for tier in tiers])
        if reached is None:
            most = sum(tier.most for tier in tiers)
            return Why(
                text=f"class '{name}' cannot be served whole: no pool of {_either(missing)} meets its targets within "
                "the limits",
                limit=f"classes.{name}.models",
                best=f"{most:.4g} of it by {' and '.join(tier.model for tier in tiers)}",
                change=f"raise the share of {tiers[0].model}, or allow GPUs that serve {missing[0].model}",
            )
        if item.min_quality is not None and reached < item.min_quality * (1.0 - _ROUNDING):
            better = [tier for tier in missing if (tier.quality or 0.0) >= item.min_quality] or missing
            best = max(tiers, key=lambda tier: tier.quality or 0.0)
            return Why(
                text=f"class '{name}' cannot have an average quality of {item.min_quality:g}: no pool of "
                f"{_either(better)} meets its targets within the limits",
                limit=f"classes.{name}.min_quality",
                best=f"{reached:g} by {best.model}" if best.most >= 1.0 else f"{reached:.6g} by the others",
                change=f"lower classes.{name}.min_quality to {reached:g}, or allow GPUs that serve {better[0].model}",
            )
    return None


def _either(tiers: Sequence[ModelTier]) -> str:
    return " or ".join(tier.model for tier in tiers)


def _all(groups: Groups) -> Sequence[RequestClass]:
    return [item for members in groups.values() for item in members]
