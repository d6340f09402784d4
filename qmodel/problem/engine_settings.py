"""Engine settings with several values: what a plan may choose from, and which of it a given pool has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from qmodel.errors import Problem
from qmodel.problem.instances import Instance, Profile
from qmodel.types import Engine, Fleet, Layout, Model, Pool, Speculation, settings_text

__all__ = [
    "ListedSettings",
    "difference",
    "engine_of",
    "fully_stated",
    "listed_settings",
    "profile_for",
    "settings_of",
    "with_engine",
]

_AUTO_PARTS = (16, 4, 1)  # of the engine's usual number, for ``auto``
_KV_ORDER = ("auto", "bf16", "fp8")
_OF_RECORD = {"speculative": "speculation"}  # names of keys in the record
_NOT_BY_POOL = ("name", "version")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSettings:
    """Stated settings, those with one value apart from those with several.

    Attributes:
        single: value by key.
        listed: at least two values by key, ascending; keys in alphabetical order.
    """

    single: Mapping[str, Any]
    listed: Mapping[str, tuple[Any, ...]]

    def combinations(self) -> tuple[dict[str, Any], ...]:
        """Every choice from the lists, in an order that does not depend on how they are written."""
        return tuple(dict(zip(self.listed, values, strict=True)) for values in product(*self.listed.values()))

    @property
    def roomiest(self) -> dict[str, Any]:
        """The choice in which full batches leave most of a step to prompts."""
        return {name: values[-1] if name == "max_batched_tokens" else values[0] for name, values in self.listed.items()}


def listed_settings(stated: Mapping[str, Any], usual: Engine) -> ListedSettings:
    """Settings as an engine section states them; a list of one value is that value.

    Args:
        stated: keys of the section, a list of values as a tuple.
        usual: the engine with what the catalog says, of which ``auto`` is a part.

    Example:
        >>> found = listed_settings({"max_num_seqs": (256, 64), "max_batched_tokens": "auto"}, Engine())
        >>> found.listed
        {'max_batched_tokens': (512, 2048, 8192), 'max_num_seqs': (64, 256)}
    """
    single: dict[str, Any] = {}
    listed: dict[str, tuple[Any, ...]] = {}
    for name in sorted(stated):
        value = stated[name]
        if value == "auto" and name != "kv_dtype":
            most = int(getattr(usual, name))
            value = tuple(max(most // part, 1) for part in _AUTO_PARTS)
        if not isinstance(value, tuple):
            single[name] = value
            continue
        values = tuple(sorted(set(value), key=_KV_ORDER.index if name == "kv_dtype" else None))
        if len(values) == 1:
            single[name] = values[0]
        else:
            listed[name] = values
    return ListedSettings(single=single, listed=listed)


def with_engine(engine: Engine, settings: Mapping[str, Any], drafts: Mapping[str, Model] | None = None) -> Engine:
    """The engine with some settings replaced.

    Args:
        engine: settings that hold otherwise.
        settings: by key of an engine section, one value each; ``speculative`` is a mapping.
        drafts: records of drafts that are models, by name; a draft that is not there is the catalog's.
    """
    if not settings:
        return engine
    plain = dict(settings)
    drafting = plain.pop("speculative", None)
    if drafting is not None:
        plain["speculation"] = Speculation(
            draft=str(drafting["draft"]),
            tokens=int(drafting["tokens"]),
            acceptance=float(drafting["acceptance"]),
            draft_model=(drafts or {}).get(str(drafting["draft"])),
        )
    return replace(engine, **plain)


def difference(engine: Engine, other: Engine, settings: Mapping[str, Any], always: Sequence[str]) -> dict[str, Any]:
    """Those of some settings in which an engine differs from another, and those of them that are always told.

    Args:
        engine: with the settings.
        other: what it is held against.
        settings: by key, one value each.
        always: keys that are told whether they differ or not.
    """
    told = {}
    for name in sorted(settings):
        part = _OF_RECORD.get(name, name)
        if name not in _NOT_BY_POOL and (name in always or getattr(engine, part) != getattr(other, part)):
            told[name] = settings[name]
    return told


def settings_of(
    instance: Instance, cls: str, gpu: str, profile: Profile | None = None
) -> tuple[Mapping[str, object], ...]:
    """Settings that pools of a class on a GPU type may have, over those of the GPU; at least one.

    Args:
        instance: the bound problem.
        cls: class.
        gpu: GPU type.
        profile: of the pool, where it has one: the number of sequences that it was measured with holds.
    """
    found = instance.settings.get((cls, gpu), ({},))
    if profile is None or profile.max_num_seqs is None:
        return found
    kept = [{name: value for name, value in item.items() if name != "max_num_seqs"} for item in found]
    return tuple(item for place, item in enumerate(kept) if item not in kept[:place])


def engine_of(instance: Instance, pool: Pool) -> Engine:
    """Engine settings of a pool: its own over those of its GPU type."""
    return with_engine(instance.gpus[pool.gpu].engine, pool.engine, instance.drafts)


def fully_stated(instance: Instance, fleet: Fleet) -> tuple[Fleet, list[Problem]]:
    """The fleet with the settings of every pool stated that its classes decide, and what leaves them open.

    What a pool states itself holds. Else it has what its classes ask for; where that is several values, or where
    classes ask for different ones, the pool must say which it has.

    Args:
        instance: the bound problem.
        fleet: pools and routing.
    """
    if not instance.settings:
        return fleet, []
    pools, problems = {}, []
    for name, pool in fleet.pools.items():
        pools[name] = pool
        if pool.role == "api" or pool.gpu not in instance.gpus:
            continue
        profile = profile_for(instance, pool.model, pool.gpu, pool.layout)
        left: list[Mapping[str, object]] = []
        for cls in instance.classes:
            if any(name in path.pools for path in fleet.routing.get(cls, ())):
                for item in settings_of(instance, cls, pool.gpu, profile):
                    rest = {key: value for key, value in item.items() if key not in pool.engine}
                    left += [rest] if rest not in left else []
        if len(left) > 1:
            problems.append(_open_problem(name, left))
        elif left:
            pools[name] = replace(pool, engine={**left[0], **pool.engine})
    return replace(fleet, pools=pools), problems


def profile_for(instance: Instance, model: str, gpu: str, layout: Layout) -> Profile | None:
    """The profile that speaks for a pool."""
    found = instance.profiles.get((model, gpu), ())
    return next((item for item in found if item.layout == layout), None)


def _open_problem(name: str, left: Sequence[Mapping[str, object]]) -> Problem:
    """Settings of a pool that its classes leave open."""
    keys = sorted({key for item in left for key in item})
    open_keys = [key for key in keys if len({str(item.get(key, "")) for item in left}) > 1]
    told = " or ".join(dict.fromkeys(settings_text({k: v for k, v in item.items() if k in open_keys}) for item in left))
    told = told or "different settings"
    what = f"the classes it serves leave open which engine settings it has: {told}"
    hint = f"state {', '.join(open_keys)} under pools.{name}.engine"
    return Problem(key=f"pools.{name}.engine", what=what, hint=hint)
