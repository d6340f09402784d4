"""Names in a scenario that neither the catalog nor the profiles know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from qmodel.catalog import Catalog
from qmodel.errors import CatalogError, Problem
from qmodel.files import join_key

__all__ = ["unknown_names"]

PlaceProblem = Callable[[str, str, str], Problem]
_GPU_PARTS = ("node", "fabric", "topology")


def unknown_names(tree: Mapping[str, Any], catalog: Catalog, place: PlaceProblem) -> list[Problem]:
    """Problems for unknown models, GPUs, nodes, fabrics, topologies and engines.

    The tree may break the schema elsewhere: what is not a name in its place is left to the schema.

    Args:
        tree: merged scenario as plain data.
        catalog: what is known.
        place: makes a problem of key, text and hint, with its position.
    """
    return [
        place(key, what, hint)
        for key, error in _unknown(tree, catalog)
        for what, _, hint in [str(error).partition("; ")]
    ]


def _unknown(tree: Mapping[str, Any], catalog: Catalog) -> Iterator[tuple[str, CatalogError]]:
    profiles = [item for item in _items(tree.get("profiles")) if isinstance(item, Mapping)]
    models = {item.get("model") for item in profiles}
    gpus = {item.get("gpu") for item in profiles}
    fleet = tree.get("fleet")
    for _, section in _sections(fleet.get("apis") if isinstance(fleet, Mapping) else None):
        models |= {name for name, _ in _sections(section.get("models"))}
    for name, section in _sections(tree.get("classes")):
        key, model = join_key("classes", name), section.get("model")
        stated = [(join_key(key, "model"), model)] if isinstance(model, str) else []
        stated += [(join_key(join_key(key, "models"), one), one) for one, _ in _sections(section.get("models"))]
        for place, one in stated:
            if one not in models and not one.lower().endswith(".json"):
                yield from _looked_up(place, catalog.model, one)
    for name, section in _sections(fleet.get("gpus") if isinstance(fleet, Mapping) else None):
        key = join_key("fleet.gpus", name)
        named = section.get("gpu")
        if isinstance(named, str):
            if named not in gpus and name not in gpus:
                yield from _looked_up(join_key(key, "gpu"), catalog.gpu, named)
        elif name not in gpus:
            yield from _looked_up(key, catalog.gpu, name)
        for part in _GPU_PARTS:
            if isinstance(section.get(part), str):
                yield from _looked_up(join_key(key, part), getattr(catalog, part), section[part])
    engine = tree.get("engine")
    if isinstance(engine, Mapping) and isinstance(engine.get("name"), str):
        yield from _looked_up("engine.name", _engine_of(catalog), engine["name"])


def _engine_of(catalog: Catalog) -> Callable[[str], object]:
    return lambda name: catalog.engine(name, catalog.gpu(catalog.gpu_names()[0]))


def _looked_up(key: str, find: Callable[[str], object], name: str) -> Iterator[tuple[str, CatalogError]]:
    try:
        find(name)
    except CatalogError as error:
        yield key, error


def _sections(part: object) -> list[tuple[str, Mapping[str, Any]]]:
    """Named sections; an empty one counts as a mapping without keys."""
    if not isinstance(part, Mapping):
        return []
    return [(str(name), value if isinstance(value, Mapping) else {}) for name, value in part.items()]


def _items(part: object) -> list[Any]:
    return list(part) if isinstance(part, list | tuple) else []
