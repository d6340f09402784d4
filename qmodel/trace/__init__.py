"""Recorded requests: arrival times and token counts from the files of others, and files of our own."""

from qmodel.trace.clock import clock_step, spread_clock
from qmodel.trace.formats import FORMATS, TraceFormat
from qmodel.trace.histograms import is_histogram_file, read_histograms
from qmodel.trace.reading import read_trace
from qmodel.trace.records import Trace
from qmodel.trace.splitting import select_requests, split_by_class, split_by_output
from qmodel.trace.writing import trace_csv, write_trace

__all__ = [
    "FORMATS",
    "Trace",
    "TraceFormat",
    "clock_step",
    "is_histogram_file",
    "read_histograms",
    "read_trace",
    "select_requests",
    "split_by_class",
    "split_by_output",
    "spread_clock",
    "trace_csv",
    "write_trace",
]
