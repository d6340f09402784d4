"""Files of others opened as text, with a plain word on what cannot be read."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO, cast

from qmodel.errors import Problem, ScenarioError

__all__ = ["file_error", "opened"]

_GZIP = b"\x1f\x8b"
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"PAR1", "is a Parquet file; write it as CSV first (pandas.read_parquet(...).to_csv(...))"),
    (b"ARROW1", "is an Arrow file; write it as CSV first (pandas.read_feather(...).to_csv(...))"),
    (b"PK\x03\x04", "is a zip archive or a spreadsheet; unpack it, or save it as CSV"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it, or use gzip"),
    (b"BZh", "is compressed with bzip2; unpack it, or use gzip"),
    (b"\xfd7zXZ", "is compressed with xz; unpack it, or use gzip"),
    (b"SQLite format 3", "is an SQLite database; export the table as CSV"),
    (b"\xff\xfe", "is UTF-16 text or binary; save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text or binary; save it as UTF-8"),
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself; fetch it with git lfs pull"),
)


@contextmanager
def opened(file: Path) -> Iterator[TextIO]:
    """A text stream of a plain or gzipped UTF-8 file; what fails while it is read becomes a :class:`ScenarioError`.

    Raises:
        ScenarioError: the file is missing, a folder, empty, compressed or encoded otherwise, cut off or binary.
    """
    if file.is_dir():
        raise file_error(file, "is a folder; name a file")
    if not file.exists():
        raise file_error(file, "no such file")
    try:
        with _plain(file) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            yield text
    except EOFError as cause:
        raise file_error(file, "cannot be read: the gzip data ends early, the file is cut off") from cause
    except UnicodeDecodeError as cause:
        what = f"cannot be read: is not UTF-8 text (byte 0x{cause.object[cause.start]:02x}); save it as UTF-8"
        raise file_error(file, what) from cause
    except (OSError, zlib.error, csv.Error) as cause:
        raise file_error(file, f"cannot be read: {cause}") from cause
    except RecursionError as cause:
        raise file_error(file, "cannot be read: JSON nested too deeply") from cause


def file_error(file: Path, what: str, hint: str = "") -> ScenarioError:
    """One problem with a whole file."""
    return ScenarioError([Problem(what=what, file=str(file), hint=hint)])


@contextmanager
def _plain(file: Path) -> Iterator[IO[bytes]]:
    """Bytes of the file after unpacking; refuses what is empty or clearly no text."""
    with file.open("rb") as raw:
        packed = raw.peek(2)[:2] == _GZIP
        if packed or file.name.lower().endswith(".gz"):
            with gzip.open(raw, "rb") as unpacked:
                _check_start(file, unpacked.peek(4096)[:4096])
                yield cast("IO[bytes]", unpacked)
        else:
            _check_start(file, raw.peek(4096)[:4096])
            yield raw


def _check_start(file: Path, start: bytes) -> None:
    if not start.strip():
        raise file_error(file, "is empty")
    for magic, what in _MAGIC:
        if start.startswith(magic):
            raise file_error(file, f"cannot be read: {what}")
    if b"\x00" in start:
        raise file_error(file, "cannot be read: is binary, not text")
