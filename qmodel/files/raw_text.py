"""Bytes of a file turned into text, or a problem a user can act on."""

from __future__ import annotations

import os
from pathlib import Path

from qmodel.errors import Problem, ScenarioError

__all__ = ["MAX_TEXT_BYTES", "read_raw"]

MAX_TEXT_BYTES = 16 * 1024 * 1024  # far above any hand-written file; the YAML reader takes about 1 s per MiB


def read_raw(path: str | os.PathLike[str], *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """The UTF-8 text of a file; a byte-order mark is dropped.

    Args:
        path: the file; messages name it as it is written here.
        max_bytes: larger files are refused before they are read.

    Raises:
        ScenarioError: the file is missing, a directory, unreadable, too large or not UTF-8 text.
    """
    name = os.fspath(path)
    if not name:
        raise _refusal("<input>", "no file name is given")
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except FileNotFoundError:
        raise _refusal(name, "no such file", _neighbours(Path(path))) from None
    except IsADirectoryError:
        raise _refusal(name, "is a directory, not a file") from None
    except PermissionError:
        raise _refusal(name, "cannot be read: permission denied") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL character inside the path
        raise _refusal(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > max_bytes:
        raise _refusal(name, f"is larger than {max_bytes} bytes", "a file of this kind is hand-sized")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise _refusal(name, "is UTF-16 text", "save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        what = f"is not UTF-8 text (byte 0x{content[error.start]:02x})"
        raise ScenarioError(
            [Problem(what=what, file=name, line=line, column=column, hint="save it as UTF-8")]
        ) from None


def _refusal(name: str, what: str, hint: str = "") -> ScenarioError:
    return ScenarioError([Problem(what=what, file=name, hint=hint)])


def _neighbours(path: Path) -> str:
    """Names in the same folder that are close to a name that does not exist."""
    import difflib

    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except (OSError, ValueError):
        return ""
    close = difflib.get_close_matches(path.name, names, n=2, cutoff=0.75)
    return "did you mean " + " or ".join(repr(str(path.parent / name)) for name in close) + "?" if close else ""
