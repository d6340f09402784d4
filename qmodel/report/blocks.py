"""Pages of headings, lines and tables, laid out for a terminal or for a pipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Block", "Bullets", "Column", "Facts", "Heading", "Lines", "TextTable", "render_text"]

INDENT = "  "
GAP = "  "
STYLES = {"bold": "1", "dim": "2", "green": "32", "red": "1;31"}  # ECMA-48 select graphic rendition
CELL_STYLES = {"yes": "green", "no": "red", "unstable": "red", "infeasible": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A line that stands out."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Sentences, one a line, printed as they are."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """Sentences under a heading, each with a dash."""

    title: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names with one value each, values aligned."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; numbers are right-aligned and never wrapped. The unit belongs in the header."""

    header: str
    numeric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A titled table of cells that are text already."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | Lines | Bullets | Facts | TextTable


def render_text(blocks: Sequence[Block], *, width: int | None = None, color: bool = False) -> str:
    """Lay out a page as text that ends with one newline.

    Args:
        blocks: what to print, in order; an empty line goes between two of them.
        width: columns of the terminal; None for a pipe, where no line is wrapped.
        color: use terminal colours.

    Returns:
        The page. Words wrap, numbers and names are never cut: a table that stays wider than ``width`` is
        printed as one small list per row.

    Example:
        >>> table = TextTable(title="Pools", columns=(Column(header="pool"), Column(header="GPUs", numeric=True)),
        ...                   rows=(("chat", "8"), ("nightly", "16")))
        >>> print(render_text([Heading(text="A plan"), table]), end="")
        A plan
        <BLANKLINE>
        Pools
          pool     GPUs
          chat        8
          nightly    16
    """
    page = _Page(width=width, color=color)
    parts = [page.lines(_clean(block)) for block in blocks]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """A sheet of a given width: turns each kind of block into lines."""

    width: int | None
    color: bool

    def lines(self, block: Block) -> list[str]:
        match block:
            case Heading():
                return [self.styled(line, "bold") for line in self.wrapped(block.text, 0)]
            case Lines():
                return [line for text in block.lines for line in self.hanging(text)]
            case Bullets():
                items = [line for item in block.items for line in self.facts((("-", item),), INDENT)]
                return [self.styled(block.title, "bold"), *items] if items else []
            case Facts():
                return self.facts(block.rows, "")
            case TextTable():
                return [self.styled(block.title, "bold"), *self.table(block)] if block.rows else []

    def hanging(self, text: str) -> list[str]:
        """A line that, where it wraps, continues under its own start."""
        indent = text[: len(text) - len(text.lstrip())]
        return [indent + line for line in self.wrapped(text.lstrip(), len(indent))]

    def facts(self, rows: Sequence[tuple[str, str]], indent: str) -> list[str]:
        """Names and values in two columns; a value wraps under itself."""
        name_width = max((cell_width(name) for name, _ in rows), default=0)
        lines = []
        for name, value in rows:
            start = indent + _padded(name, name_width) + " "
            for line in self.wrapped(value, len(indent) + name_width + 1):
                lines.append((start + line).rstrip())
                start = " " * (len(indent) + name_width + 1)
        return lines

    def table(self, block: TextTable) -> list[str]:
        widths = self.fitting_widths(block)
        if widths is None:
            headers = [column.header for column in block.columns]
            records = [self.facts(list(zip(headers, row, strict=True)), INDENT) for row in block.rows]
            return [line for record in records for line in (*record, "")][:-1]
        headers = _row_lines(block.columns, [column.header for column in block.columns], widths, None)
        lines = [self.styled(line, "dim") for line in headers]
        for row in block.rows:
            lines += _row_lines(block.columns, row, widths, self.styled if self.color else None)
        return lines

    def fitting_widths(self, block: TextTable) -> list[int] | None:
        """Width of each column: as wide as its cells where there is room, else words wrap; None if nothing helps."""
        natural, least = [], []
        for index, column in enumerate(block.columns):
            cells = [row[index] for row in block.rows]
            natural.append(max(map(cell_width, [column.header, *cells])))
            words = [word for text in [column.header, *([] if column.numeric else cells)] for word in text.split()]
            least.append(max(map(cell_width, [*words, *(cells if column.numeric else [])]), default=1))
        if self.width is None:
            return natural
        excess = len(INDENT) + sum(natural) + len(GAP) * (len(natural) - 1) - self.width
        while excess > 0:
            spare = [wide - narrow for wide, narrow in zip(natural, least, strict=True)]
            widest = spare.index(max(spare))
            if spare[widest] == 0:
                return None
            natural[widest] -= 1
            excess -= 1
        return natural

    def wrapped(self, text: str, used: int) -> list[str]:
        return [text] if self.width is None else _wrapped(text, max(self.width - used, 20))

    def styled(self, text: str, style: str) -> str:
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.color else text


def cell_width(text: str) -> int:
    """Terminal columns a text takes; wide East Asian letters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _row_lines(
    columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], styled: Callable[[str, str], str] | None
) -> list[str]:
    """One table row; as many lines as its longest cell needs."""
    stacks = [_wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for level in range(max(map(len, stacks))):
        parts = []
        for column, cell, stack, width in zip(columns, cells, stacks, widths, strict=True):
            part = _padded(stack[level] if level < len(stack) else "", width, right=column.numeric)
            parts.append(styled(part, CELL_STYLES[cell]) if styled and cell in CELL_STYLES else part)
        lines.append((INDENT + GAP.join(parts)).rstrip())
    return lines


def _clean(block: Block) -> Block:
    """The same block without letters that steer a terminal; texts come from files of others."""
    match block:
        case Heading():
            return Heading(text=_printable(block.text))
        case Lines():
            return Lines(lines=tuple(map(_printable, block.lines)))
        case Bullets():
            return Bullets(title=_printable(block.title), items=tuple(map(_printable, block.items)))
        case Facts():
            return Facts(rows=tuple((_printable(name), _printable(value)) for name, value in block.rows))
        case TextTable():
            columns = tuple(Column(header=_printable(item.header), numeric=item.numeric) for item in block.columns)
            rows = tuple(tuple(map(_printable, row)) for row in block.rows)
            return TextTable(title=_printable(block.title), columns=columns, rows=rows)


def _printable(text: str) -> str:
    """Without letters that would move the cursor or recolour the terminal; a break of lines becomes a space."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of whole words, each at most ``width`` columns unless one word is wider."""
    if cell_width(text) <= width:
        return [text]
    lines: list[str] = []
    for word in text.split():
        if lines and cell_width(lines[-1]) + 1 + cell_width(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines or [""]


def _padded(text: str, width: int, *, right: bool = False) -> str:
    space = " " * max(width - cell_width(text), 0)
    return space + text if right else text + space
