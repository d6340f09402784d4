"""One limit on all pools of a fleet together, and limits on several GPU types at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Cap", "LimitKind", "Quota"]

LimitKind = Literal["stock", "nodes", "offer", "gpus", "usd", "power", "pools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """One limit on all pools together.

    Attributes:
        name: what it limits, unique among limits of its kind: a GPU type, a GPU type and a term, a provider or a
            region; empty where there is one such limit only.
        key: the key of the scenario that states it.
        unit: of ``most``, for people.
        most: the limit.
        gpus: GPU types whose pools count; empty: all.
        term: of the offer that is limited; empty where none is.
    """

    kind: LimitKind
    name: str
    key: str
    unit: str
    most: float
    gpus: tuple[str, ...] = ()
    term: str = ""

    def concerns(self, gpu: str) -> bool:
        """Whether pools on a GPU type count."""
        return not self.gpus or gpu in self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What may be had of several GPU types together, those of a provider or in a region.

    Attributes:
        name: for people, e.g. ``provider aws``.
        key: key of the scenario that states it.
        gpus: the GPU types.
        max_gpus: GPUs of all of them; None: no limit.
        max_usd_per_hour: what all of them may cost; None: no limit.
    """

    name: str
    key: str
    gpus: tuple[str, ...]
    max_gpus: int | None = None
    max_usd_per_hour: float | None = None

    @property
    def caps(self) -> list[Cap]:
        """The limits it sets."""
        found: list[Cap] = []
        if self.max_gpus is not None:
            key, unit = f"{self.key}.max_gpus", f"GPUs of {self.name}"
            found.append(Cap(kind="gpus", name=self.name, key=key, unit=unit, most=self.max_gpus, gpus=self.gpus))
        if self.max_usd_per_hour is not None:
            key, unit, most = f"{self.key}.max_usd_per_hour", f"USD/h at {self.name}", self.max_usd_per_hour
            found.append(Cap(kind="usd", name=self.name, key=key, unit=unit, most=most, gpus=self.gpus))
        return found
