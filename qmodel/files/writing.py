"""Text written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from qmodel.errors import Problem, ScenarioError

__all__ = ["write_text"]


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text so that a reader sees the old content or the new, never a part.

    A temporary file in the same folder replaces the target in one step. A link keeps pointing where it
    points; a target that is not a regular file (``/dev/stdout``, a pipe) is written to directly.

    Args:
        path: the file to write; its folder must exist.
        text: the whole content.

    Raises:
        ScenarioError: the folder is missing or not writable, the path is a directory, or the disk is full.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8", newline="") as stream:
                stream.write(text)
            return
        _replace(target, text)
    except OSError as error:
        what = f"cannot be written: {_reason(error, target)}"
        raise ScenarioError([Problem(what=what, file=os.fspath(path))]) from error


def _replace(target: Path, text: str) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(_mode(target))
        os.replace(temporary, target)  # noqa: PTH105  (Path.replace is the same call; this one says "atomic" to readers)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _mode(target: Path) -> int:
    """Permissions of the file that is replaced, or what the process's umask gives a new file."""
    try:
        return target.stat().st_mode & 0o777
    except FileNotFoundError:
        umask = os.umask(0o022)
        os.umask(umask)
        return 0o666 & ~umask


def _reason(error: OSError, target: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no folder {str(target.parent)!r}"
    return (error.strerror or str(error)).lower()
