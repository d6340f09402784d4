"""Readers of recorded requests: arrival times and token counts from CSV files."""

from qmodel.trace.records import Trace
from qmodel.trace.tables import read_trace

__all__ = ["Trace", "read_trace"]
