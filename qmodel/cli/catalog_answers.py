"""The catalog as answers: its kinds, the entries of one kind, one entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import TYPE_CHECKING

from qmodel.cli.output import Answer
from qmodel.errors import CatalogError

if TYPE_CHECKING:
    from qmodel.catalog import Catalog
    from qmodel.report import Block

__all__ = ["entry_answer", "kinds_answer", "list_answer"]

KINDS = ("gpus", "nodes", "fabrics", "topologies", "models", "engines", "prices")
SOURCE_WORDS = ("source", "as_of", "confidence")  # printed last: what the numbers rest on

Row = Mapping[str, object]


def kinds_answer(catalog: Catalog) -> Answer:
    """How many entries there are of each kind."""
    rows: list[Row] = [{"kind": kind, "entries": len(catalog.entries(kind))} for kind in KINDS]
    return Answer(
        data=lambda: {"digest": catalog.digest, "kinds": rows},
        page=lambda: (_table("Catalog", rows),),
        tables={"kinds": lambda: (rows, ("kind", "entries"))},
    )


def list_answer(catalog: Catalog, kind: str) -> Answer:
    """The entries of one kind; their sources where there is room for them, in JSON and CSV.

    Raises:
        CatalogError: if there is no such kind.
    """
    plural = _plural(kind)
    short = catalog.entries(plural)
    full = [{**row, "source": _source(catalog, plural, row)} for row in short]
    columns = tuple(full[0]) if full else ()
    return Answer(
        data=lambda: {plural: full},
        page=lambda: (_table(plural.capitalize(), short),),
        tables={plural: lambda: (full, columns)},
    )


def entry_answer(catalog: Catalog, kind: str, name: str) -> Answer:
    """Everything known about one entry; for prices, the rows that the usual rule rests on.

    Raises:
        CatalogError: if there is no such kind or entry.
    """
    plural = _plural(kind)
    if plural == "prices":
        return _price_answer(catalog, name)
    entry = catalog.entry(plural, name)
    facts = _facts(entry, "")
    ordered = [row for row in facts if row[0] not in SOURCE_WORDS] + [row for row in facts if row[0] in SOURCE_WORDS]
    return Answer(
        data=lambda: entry,
        page=lambda: _entry_page(f"{plural}: {name}", ordered),
        tables={"entry": lambda: ([{"key": key, "value": text} for key, text in ordered], ("key", "value"))},
    )


def _price_answer(catalog: Catalog, name: str) -> Answer:
    choice = catalog.price(name)
    rows: list[Row] = [asdict(row) for row in choice.rows]
    columns = tuple(rows[0])
    data = {"gpu": name, "usd_per_gpu_hour": choice.usd_per_gpu_hour, "rule": choice.rule, "rows": rows}
    title = f"{name}: {choice.usd_per_gpu_hour} USD per GPU-hour ({choice.rule})"
    return Answer(
        data=lambda: data,
        page=lambda: (_table(title, rows),),
        tables={"prices": lambda: (rows, columns)},
    )


def _plural(kind: str) -> str:
    """The kind as the catalog names it; ``gpu`` and ``GPUS`` are understood.

    Raises:
        CatalogError: if there is no such kind.
    """
    word = kind.lower()
    for plural in KINDS:
        if word in (plural, plural.removesuffix("s"), plural.removesuffix("ies") + "y"):
            return plural
    near = get_close_matches(word, KINDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"kinds: {', '.join(KINDS)}"
    raise CatalogError(f"no kind {kind!r} in the catalog; {hint}")


def _source(catalog: Catalog, plural: str, row: Row) -> str:
    name = str(next(iter(row.values())))
    if plural == "prices":
        return catalog.price(name).rule
    return _cell(catalog.entry(plural, name).get("source", ""))


def _table(title: str, rows: Sequence[Row]) -> Block:
    from qmodel.report import Column, TextTable

    names = list(rows[0]) if rows else []
    numeric = {name: any(_is_number(row[name]) for row in rows) for name in names}
    return TextTable(
        title=title,
        columns=tuple(Column(header=name, numeric=numeric[name]) for name in names),
        rows=tuple(tuple(_cell(row[name]) for name in names) for row in rows),
    )


def _entry_page(title: str, facts: Sequence[tuple[str, str]]) -> tuple[Block, ...]:
    from qmodel.report import Facts, Heading

    return (Heading(text=title), Facts(rows=tuple(facts)))


def _facts(entry: Mapping[str, object], above: str) -> list[tuple[str, str]]:
    facts = []
    for key, value in entry.items():
        path = f"{above}.{key}" if above else str(key)
        if isinstance(value, Mapping):
            facts += _facts(value, path)
        else:
            facts.append((path, _cell(value)))
    return facts


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return "; ".join(map(_cell, value))
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)
