"""The names under which entries are found: ids, short ids, Hugging Face ids and what other data calls them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["KINDS", "NameIndex", "index_names", "plural", "singular"]

KINDS = {
    "gpus": "gpu",
    "nodes": "node",
    "fabrics": "fabric",
    "topologies": "topology",
    "models": "model",
    "engines": "engine",
}
_SECTION = {"fabrics": "scale_out"}
_TELLING = 3  # letters from which a part of a name says which one is meant


@dataclass(frozen=True, slots=True, kw_only=True)
class NameIndex:
    """Names of one kind.

    Attributes:
        ids: id of the entry by name in lower case.
        shown: the name an entry goes by, by id.
        listed: ids in the order of the catalog, without variants.
    """

    ids: Mapping[str, str]
    shown: Mapping[str, str]
    listed: tuple[str, ...]

    def find(self, name: str) -> str | None:
        """Id of the entry that goes by ``name``, ignoring case."""
        return self.ids.get(name.strip().lower())

    def names_of(self, identity: str) -> list[str]:
        """All names of one entry, in lower case."""
        return [name for name, found in self.ids.items() if found == identity]

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """Names entries go by that look like ``name``, nearest first."""
        wanted = name.strip().lower()
        begun = [known for known in self.ids if known.startswith(wanted)] if len(wanted) >= _TELLING else []
        matches = begun + difflib.get_close_matches(wanted, self.ids, n=3 * count, cutoff=0.5)
        matches += [known for known in self.ids if wanted in known][:count] if len(wanted) >= _TELLING else []
        return list(dict.fromkeys(self.shown[self.ids[match]] for match in matches))[:count]


def singular(kind: str) -> str:
    """``gpu`` for ``gpus`` and ``gpu``.

    Raises:
        ValueError: the kind is not one of the catalog's.
    """
    if kind in KINDS.values():
        return kind
    if kind in KINDS:
        return KINDS[kind]
    raise ValueError(f"no kind {kind!r} in the catalog; kinds: {', '.join(KINDS)}")


def plural(kind: str) -> str:
    """``gpus`` for ``gpu``."""
    return next(many for many, one in KINDS.items() if one == kind)


def index_names(sections: Mapping[str, Any], variants: Iterable[str] = ()) -> dict[str, NameIndex]:
    """The names of every kind, by its singular.

    Args:
        sections: the catalog's sections.
        variants: Hugging Face ids of checkpoints that share the architecture of an entry.
    """
    aliases = sections["aliases"]
    return {
        kind: _index(
            sections[_SECTION.get(many, many)],
            aliases.get(many, {}),
            variants if many == "models" else (),
        )
        for many, kind in KINDS.items()
    }


def _index(entries: Mapping[str, Any], aliases: Mapping[str, Any], variants: Iterable[str]) -> NameIndex:
    ids: dict[str, str] = {}
    shown: dict[str, str] = {}
    for short, alias in aliases.items():
        identity = alias.get("catalog_id") or alias.get("hf_id")
        shown.setdefault(identity, short)
        for name in (short, *alias.get("also", ())):
            ids.setdefault(name.lower(), identity)
    for identity, entry in entries.items():
        if short := entry.get("short_id"):
            shown[identity] = short
            ids[short.lower()] = identity
        shown.setdefault(identity, identity)
        for name in (identity, *(entry.get("also") or ())):
            ids.setdefault(name.lower(), identity)
    for identity in variants:
        shown.setdefault(identity, identity)
        ids.setdefault(identity.lower(), identity)
    return NameIndex(ids=ids, shown=shown, listed=tuple(entries))
