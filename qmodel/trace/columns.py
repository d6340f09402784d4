"""Columns of a part of a file as arrays: counts, times, class names and cached prefixes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from qmodel.trace.formats import TimeUnit, plain_name
from qmodel.types import FloatArray, IntArray

__all__ = ["MISSING", "ClassCodes", "CsvPart", "JsonPart", "Part", "PrefixCache", "TimeColumn", "numbers"]

MISSING = float("-inf")  # a cell that states nothing; NaN is a cell that states no number
_LONGEST_NAME = 200
_DENSE_IDS = 1 << 26
_SCALES = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))  # seconds since 1970 stay below 1e11 until the year 5138
_DAY, _TIME = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?"
_PLAIN_DATE = re.compile(rf"(?:{_DAY}(?:[T ]{_TIME})?)?")
_DATE = re.compile(rf"({_DAY.replace('-', '[-/]')}(?:[T ]{_TIME})?) ?(?:UTC|([+-])(\d\d):?(\d\d)?)?")
_UNITS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "ns": 1e-9}


class CsvPart:
    """Some rows of a CSV file."""

    def __init__(self, rows: Sequence[Sequence[str]], header: Mapping[str, int]) -> None:
        self._rows, self._header = rows, header

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def names(self) -> dict[str, str]:
        """Names of the columns by their plain names."""
        return {name: name for name in self._header}

    def column(self, names: Iterable[str]) -> list[object] | None:
        """Cells of the first of these columns that is there; None if there is none."""
        index = next((self._header[name] for name in map(plain_name, names) if name in self._header), None)
        return None if index is None else [row[index].strip() for row in self._rows]


class JsonPart:
    """Some rows of a JSON file."""

    def __init__(self, rows: Sequence[Mapping[str, object]]) -> None:
        self._rows = rows
        self._paths: dict[str, list[tuple[str, ...]]] = {}
        for path in dict.fromkeys(path for row in rows for path in _paths(row)):
            known = self._paths.setdefault("/".join(map(_plain_key, path)), [])
            known.append(path)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def names(self) -> dict[str, str]:
        """Paths by their plain names."""
        return {plain: "/".join(paths[0]) for plain, paths in self._paths.items()}

    def column(self, names: Iterable[str]) -> list[object] | None:
        """For each row the first of these paths that holds something; None if no row has any."""
        paths = [path for name in names for path in self._paths.get(plain_name(name), ())]
        return [_first(row, paths) for row in self._rows] if paths else None


Part = CsvPart | JsonPart


class TimeColumn:
    """Arrivals in seconds from numbers or dates; how to read them is settled by the first rows."""

    def __init__(self, name: str, unit: TimeUnit) -> None:
        self._name, self._unit = plain_name(name).rpartition("/")[2], unit
        self._dates: bool | None = None
        self._scale = 1.0
        self._base: np.datetime64 | None = None

    def seconds(self, values: Sequence[object]) -> FloatArray:
        """Seconds, counted from any instant but always the same; NaN where a value is no time."""
        if self._dates:
            return self._from_dates(values)
        found = numbers(values)
        stated = found[found != MISSING]
        found[~np.isfinite(found)] = np.nan
        if self._dates is None and stated.size:
            self._dates = bool(np.isnan(stated).mean() >= 0.5)
            if self._dates:
                return self._from_dates(values)
            self._scale = self._scale_of(float(np.nanmax(np.abs(found))))
        return found if self._scale == 1.0 else found * self._scale

    def _scale_of(self, largest: float) -> float:
        if self._unit != "auto":
            return _UNITS[self._unit]
        for ending, unit in (("ms", "ms"), ("ns", "ns"), ("unixnano", "ns")):
            if self._name.endswith(ending):
                return _UNITS[unit]
        return next((scale for limit, scale in _SCALES if largest >= limit), 1.0)

    def _from_dates(self, values: Sequence[object]) -> FloatArray:
        texts = [value.strip().removesuffix("Z") if isinstance(value, str) else "" for value in values]
        try:
            plain = all(map(_PLAIN_DATE.fullmatch, texts))
            stamps = np.array(texts, dtype="datetime64[ns]") if plain else _each(texts)
        except ValueError:
            stamps = _each(texts)
        known = ~np.isnat(stamps)
        seconds = np.full(stamps.size, np.nan)
        if known.any():
            if self._base is None:
                self._base = stamps[known].min()
            seconds[known] = (stamps[known] - self._base).astype(np.int64) * 1e-9
        return seconds


class ClassCodes:
    """Class names as numbers, so that a name is held once."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def codes(self, values: Sequence[object]) -> IntArray:
        """A code for each name; -1 where a name is too long to be one."""
        known = self._codes
        found = np.empty(len(values), dtype=np.int64)
        for index, value in enumerate(values):
            name = "" if value is None else str(value)
            found[index] = known.setdefault(name, len(known)) if len(name) <= _LONGEST_NAME else -1
        return found

    def names(self, codes: IntArray) -> npt.NDArray[np.str_] | None:
        """The names behind codes; None where no row has a name."""
        return np.array(list(self._codes))[codes] if any(self._codes) else None


class PrefixCache:
    """Hits of a prefix cache that never forgets, from the hashes of the blocks of each prompt in the order of the file.

    An upper bound: a real cache evicts, and is not shared by all replicas.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._dense = np.zeros(1 << 16, dtype=np.bool_)
        self._sparse: set[object] = set()

    def hits(self, hashes: Sequence[object]) -> FloatArray:
        """Tokens of the leading blocks that an earlier request had, for each request."""
        return np.array([self._leading(item) for item in hashes], dtype=np.float64) * self._block_tokens

    def _leading(self, item: object) -> int:
        if not isinstance(item, list) or not item:
            return 0
        if not all(isinstance(block, int) for block in item) or min(item) < 0 or max(item) >= _DENSE_IDS:
            return self._leading_of_any(item)
        if max(item) >= self._dense.size:
            grown = np.zeros(max(2 * self._dense.size, max(item) + 1), dtype=np.bool_)
            grown[: self._dense.size] = self._dense
            self._dense = grown
        blocks = np.array(item, dtype=np.int64)
        known = self._dense[blocks]
        self._dense[blocks] = True
        return len(item) if known.all() else int(known.argmin())

    def _leading_of_any(self, item: list[object]) -> int:
        keys = [block if isinstance(block, (int, str)) else str(block) for block in item]
        leading = next((index for index, key in enumerate(keys) if key not in self._sparse), len(keys))
        self._sparse.update(keys)
        return leading


def numbers(values: Sequence[object]) -> FloatArray:
    """Numbers; NaN where a value is none, :data:`MISSING` where there is no value.

    Example:
        >>> numbers(["1.5", "x", "", None]).tolist()
        [1.5, nan, -inf, -inf]
    """
    if None not in values:
        try:
            return np.array(values, dtype=np.float64)
        except (ValueError, TypeError, OverflowError):
            pass
    return np.array([_number(value) for value in values], dtype=np.float64)


def _number(value: object) -> float:
    if value is None or value == "":
        return MISSING
    if isinstance(value, (int, float, str)):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return float("nan")
    return float("nan")


def _each(texts: Sequence[str]) -> npt.NDArray[np.datetime64]:
    """Dates one by one, in UTC; NaT where a text is none."""
    found = [_DATE.fullmatch(text) for text in texts]
    local = np.array([_local(match) for match in found], dtype="datetime64[ns]")
    ahead = np.array([_minutes_ahead(match) for match in found], dtype="timedelta64[m]")
    return np.asarray(local - ahead, dtype="datetime64[ns]")


def _local(match: re.Match[str] | None) -> np.datetime64:
    try:
        return np.datetime64("NaT" if match is None else match[1].replace("/", "-"), "ns")
    except ValueError:  # a 13th month
        return np.datetime64("NaT", "ns")


def _minutes_ahead(match: re.Match[str] | None) -> int:
    if match is None or match[2] is None:
        return 0
    minutes = int(match[3]) * 60 + int(match[4] or 0)
    return minutes if match[2] == "+" else -minutes


def _plain_key(key: str) -> str:
    return plain_name(key).replace("/", "")


def _paths(row: Mapping[str, object], above: tuple[str, ...] = ()) -> Iterable[tuple[str, ...]]:
    for key, value in row.items():
        if isinstance(value, dict) and len(above) < 6:
            yield from _paths(value, (*above, key))
        else:
            yield (*above, key)


def _first(row: Mapping[str, object], paths: Sequence[tuple[str, ...]]) -> object:
    for path in paths:
        value: object = row
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
            if value is None:
                break
        if value is not None and value != "":
            return value
    return None
