"""Which of a class's models can serve it at all, and whether those reach its average quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qmodel.candidates import ColumnSet
from qmodel.planning.plans import Why
from qmodel.types import RequestClass

__all__ = ["able_groups", "left_out_notes", "quality_out_of_reach"]

Groups = Mapping[str, tuple[RequestClass, ...]]


def able_groups(sets: Mapping[str, ColumnSet], classes: Groups) -> dict[str, tuple[RequestClass, ...]]:
    """Groups without the classes that pools of another model serve and theirs cannot; without groups that are empty.

    Args:
        sets: columns by group of classes that may share pools.
        classes: the classes of each group.
    """
    served = {item.name for group, members in classes.items() for item in members if sets[group].serves(item.name)}
    found = {
        group: tuple(item for item in members if item.name not in served or sets[group].serves(item.name))
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


def quality_out_of_reach(groups: Groups) -> Why | None:
    """Why no fleet has the average quality that a class asks for; None where the models that can serve it reach it."""
    able: dict[str, dict[str, float]] = {}
    classes: dict[str, RequestClass] = {}
    for item in _all(groups):
        classes[item.name] = item
        able.setdefault(item.name, {})[item.model] = dict(item.alternatives).get(item.model, 0.0)
    for name, qualities in able.items():
        asked = classes[name].min_quality
        best = max(qualities, key=lambda model: qualities[model])
        if asked is not None and qualities[best] < asked:
            better = [model for model, quality in classes[name].alternatives if quality >= asked]
            return Why(
                text=f"class '{name}' cannot have an average quality of {asked:g}: no pool of {' or '.join(better)} "
                "meets its targets within the limits",
                limit=f"classes.{name}.min_quality",
                best=f"{qualities[best]:g} by {best}",
                change=f"lower classes.{name}.min_quality to {qualities[best]:g}, or allow GPUs that serve {better[0]}",
            )
    return None


def _all(groups: Groups) -> Sequence[RequestClass]:
    return [item for members in groups.values() for item in members]
