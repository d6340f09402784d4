"""Weight types of checkpoints: their family, the bits they take, and how configurations spell them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the build step reads this module before numpy, which the records need, is there
    from qmodel.types import WeightFamily

__all__ = ["WeightFormat", "weight_format"]

_INT4 = re.compile(r"int4-g(\d+)")
_FP8_BLOCK = re.compile(r"fp8-block(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """What a weight type means for memory and kernels.

    Attributes:
        family: ``bf16``, ``fp8`` or ``fp4`` (any 4-bit type; which kernels run it depends on the GPU).
        bits: per quantised weight, scales included.
        fp8_block: edge of the blocks that share a scale, 0 where scales are per tensor or channel.
    """

    family: WeightFamily
    bits: float
    fp8_block: int = 0


def weight_format(dtype: str) -> WeightFormat:
    """The format of a catalog weight type.

    Args:
        dtype: ``bf16``, ``fp8``, ``fp8-block128``, ``mxfp4``, ``nvfp4``, ``int4-g32``, ...

    Raises:
        ValueError: the type is not known.

    Example:
        >>> weight_format("mxfp4").bits, weight_format("nvfp4").bits, weight_format("int4-g32").bits
        (4.25, 4.5, 4.5)

    Reference: OCP Microscaling Formats 1.0 (one 8-bit scale per 32); NVIDIA NVFP4 (one FP8 scale per 16);
    integer groups carry one 16-bit scale.
    """
    if dtype == "bf16":
        return WeightFormat(family="bf16", bits=16.0)
    if dtype == "fp8":
        return WeightFormat(family="fp8", bits=8.0)
    if dtype == "mxfp4":
        return WeightFormat(family="fp4", bits=4.0 + 8.0 / 32.0)
    if dtype == "nvfp4":
        return WeightFormat(family="fp4", bits=4.0 + 8.0 / 16.0)
    if match := _FP8_BLOCK.fullmatch(dtype):
        return WeightFormat(family="fp8", bits=8.0, fp8_block=int(match[1]))
    if (match := _INT4.fullmatch(dtype)) and int(match[1]) > 0:
        return WeightFormat(family="fp4", bits=4.0 + 16.0 / int(match[1]))
    known = "bf16, fp8, fp8-block128, mxfp4, nvfp4, int4-g32"
    raise ValueError(
        f"weight type {dtype!r} is not known; use one of {known} (int4 and FP8 blocks take other sizes too)"
    )
