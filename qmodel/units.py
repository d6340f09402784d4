"""Conversions between the units that data sheets print and those the models use."""

from __future__ import annotations

__all__ = ["BITS_PER_BYTE", "GB", "GIB", "HOURS_PER_MONTH", "MIB", "MICROSECOND", "MILLISECOND"]

GB = 1e9  # bytes
MIB = 2.0**20  # bytes
GIB = 2.0**30  # bytes
BITS_PER_BYTE = 8.0
MICROSECOND = 1e-6  # seconds
MILLISECOND = 1e-3  # seconds
HOURS_PER_MONTH = 730.0  # 8760 hours a year over 12 months, the constant cloud price sheets use
