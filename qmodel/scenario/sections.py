"""What all sections of a scenario have in common: frozen, strict, no unknown keys, all complaints at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, LiteralString, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

__all__ = [
    "CROSS_CHECK",
    "LEAST_RPS",
    "MOST_RPS",
    "REFUSED",
    "BRANCHES",
    "PART_BRANCHES",
    "SHARE_BRANCHES",
    "Complaint",
    "Count",
    "Counts",
    "Degree",
    "Degrees",
    "KvType",
    "KvTypes",
    "Name",
    "NonNegative",
    "Positive",
    "Precisions",
    "Rate",
    "Section",
    "Stock",
    "Text",
    "TokenCounts",
    "Tokens",
    "as_tuple",
    "refusal",
]

CROSS_CHECK: Final = "qmodel_cross_check"  # error type: keys that contradict each other, or a choice not made
REFUSED: Final = "qmodel_refused"  # error type: one value is wrong, in words for the user
SHARE_BRANCHES: Final = ("\0number", "\0bounds")
PART_BRANCHES: Final = ("\0word", "\0section")
BRANCHES: Final = (  # of unions: pydantic adds them to an error's location
    "\0auto",
    "\0list",
    "\0one",
    *SHARE_BRANCHES,
    *PART_BRANCHES,
)

LEAST_RPS: Final = 1e-9  # of one class; less, or more than the most, is a mistake in the units
MOST_RPS: Final = 1e6

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_AUTO, _LIST, _ONE = BRANCHES[:3]


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something wrong with a section's keys taken together.

    Attributes:
        what: the problem.
        key: path below the section, empty for the section itself.
        hint: a way out.
        about: keys of the section that are at odds; the problem has the position of the one written last.
    """

    what: str
    key: tuple[str | int, ...] = ()
    hint: str = ""
    about: tuple[str, ...] = ()


class Section(BaseModel):
    """A mapping of the file with known keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def complaints(self) -> Iterator[Complaint]:
        """What is wrong although each key alone is right."""
        return iter(())

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        errors = [
            InitErrorDetails(
                type=refusal(found.what, found.hint, CROSS_CHECK, about=found.about), loc=found.key, input=None
            )
            for found in self.complaints()
        ]
        if errors:
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self


def refusal(
    what: str, hint: str = "", kind: LiteralString = REFUSED, *, about: tuple[str, ...] = ()
) -> PydanticCustomError:
    """An error for a validator to raise; its words reach the user as they are."""
    return PydanticCustomError(kind, "{what}", {"what": what, "hint": hint, "about": about})


def as_tuple(value: object) -> object:
    """A list as the tuple that a frozen record holds."""
    return tuple(value) if isinstance(value, list) else value


def _checked_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise refusal(f"{value!r} is not a name", "use letters, digits, '_' and '-', without dots or spaces")
    return value


def _checked_text(value: str) -> str:
    if not value.strip():
        raise refusal("is empty text")
    return value


def _auto_or_list(value: object) -> object:
    if value == "auto" or isinstance(value, list | tuple):
        return value
    hint = f"write [{value}]" if isinstance(value, str | int) and not isinstance(value, bool) else ""
    raise refusal(f"must be auto or a list (got {value!r})", hint)


def _plausible_rate(value: float) -> float:
    if not LEAST_RPS <= value <= MOST_RPS:
        raise refusal(f"must be from {LEAST_RPS:g} to {MOST_RPS:g} requests per second (got {value:g})")
    return value


def _whole(value: object) -> object:
    """A whole number written with a point or an exponent (``1e5``) as an int; YAML reads it as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _branch(value: object) -> str:
    return _AUTO if value == "auto" else _LIST


def _one_or_list(value: object) -> str:
    return _LIST if isinstance(value, list | tuple) else _ONE


def _one_list_or_auto(value: object) -> str:
    return _AUTO if value == "auto" else _one_or_list(value)


def _no_repeats(values: Sequence[object]) -> Sequence[object]:
    twice = [value for index, value in enumerate(values) if value in values[:index]]
    if twice:
        raise refusal(f"lists {twice[0]!r} twice")
    return values


Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_plausible_rate)]
Count = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_whole)]
Tokens = Annotated[int, Field(ge=1, le=100_000_000), BeforeValidator(_whole)]
Stock = Annotated[int, Field(ge=0, le=10_000_000), BeforeValidator(_whole)]
Degree = Annotated[int, Field(ge=1, le=4096), BeforeValidator(_whole)]
Name = Annotated[str, AfterValidator(_checked_name)]
Text = Annotated[str, AfterValidator(_checked_text)]

_DegreeList = Annotated[
    tuple[Degree, ...], Field(min_length=1), BeforeValidator(as_tuple), AfterValidator(_no_repeats), Tag(_LIST)
]
_PrecisionList = Annotated[
    tuple[Literal["auto", "bf16", "fp8", "fp4", "w4"], ...],
    Field(min_length=1),
    BeforeValidator(as_tuple),
    AfterValidator(_no_repeats),
    Tag(_LIST),
]
_AutoWord = Annotated[Literal["auto"], Tag(_AUTO)]
Degrees = Annotated[_AutoWord | _DegreeList, Discriminator(_branch), BeforeValidator(_auto_or_list)]
Precisions = Annotated[_AutoWord | _PrecisionList, Discriminator(_branch), BeforeValidator(_auto_or_list)]
_CountList = Annotated[
    tuple[Count, ...], Field(min_length=1), BeforeValidator(as_tuple), AfterValidator(_no_repeats), Tag(_LIST)
]
_TokenList = Annotated[
    tuple[Tokens, ...], Field(min_length=1), BeforeValidator(as_tuple), AfterValidator(_no_repeats), Tag(_LIST)
]
Counts = Annotated[_AutoWord | _CountList | Annotated[Count, Tag(_ONE)], Discriminator(_one_list_or_auto)]
TokenCounts = Annotated[_AutoWord | _TokenList | Annotated[Tokens, Tag(_ONE)], Discriminator(_one_list_or_auto)]
KvType = Literal["auto", "bf16", "fp8"]
_KvTypeList = Annotated[
    tuple[KvType, ...], Field(min_length=1), BeforeValidator(as_tuple), AfterValidator(_no_repeats), Tag(_LIST)
]
KvTypes = Annotated[_KvTypeList | Annotated[KvType, Tag(_ONE)], Discriminator(_one_or_list)]
