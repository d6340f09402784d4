"""Classes found in a trace: by the column that names them, or by the length of the output."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from qmodel.trace.records import Trace

__all__ = ["select_requests", "split_by_class", "split_by_output"]


def select_requests(
    trace: Trace, *, cls: str | None = None, above_output_tokens: int = 0, up_to_output_tokens: int | None = None
) -> Trace:
    """The requests of one class, or of one range of output tokens; the span, and so the rate, is that of the file.

    Args:
        trace: any.
        cls: name of the class; None: all.
        above_output_tokens: only longer outputs, tokens.
        up_to_output_tokens: no longer outputs; None: no limit.

    Raises:
        ValueError: if nothing is left; the text begins with what was asked for.

    Example:
        >>> trace = Trace(arrival_s=None, prompt_tokens=np.ones(3, dtype=int), source="three",
        ...               output_tokens=np.array([10, 5000, 9000]))
        >>> len(select_requests(trace, above_output_tokens=10, up_to_output_tokens=5000))
        1
    """
    found = trace if cls is None else trace.only(cls)
    most = np.inf if up_to_output_tokens is None else up_to_output_tokens
    rows = (found.output_tokens > above_output_tokens) & (found.output_tokens <= most)
    if not rows.any():
        limit = "" if up_to_output_tokens is None else f" and up to {up_to_output_tokens:,}"
        raise ValueError(
            f"output tokens: {trace.source} has no request above {above_output_tokens:,}{limit} (its outputs are from "
            f"{found.output_tokens.min():,} to {found.output_tokens.max():,})"
        )
    return found if rows.all() else found.where(rows)


def split_by_class(trace: Trace) -> dict[str, Trace]:
    """One trace for each class, most requests first; spans, and so rates, are those of the whole file.

    Raises:
        ValueError: if the trace has no classes.

    Example:
        >>> trace = Trace(arrival_s=None, prompt_tokens=np.array([1, 2, 3]), output_tokens=np.array([5, 5, 5]),
        ...               cls=np.array(["b", "a", "a"]), source="three")
        >>> {name: len(part) for name, part in split_by_class(trace).items()}
        {'a': 2, 'b': 1}
    """
    if trace.cls is None:
        raise ValueError(f"class: {trace.source} names no classes; name the column that holds them")
    names, codes, counts = np.unique(trace.cls, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(names[code]): trace.where(codes == code) for code in order}


def split_by_output(trace: Trace, edges: Sequence[int]) -> dict[str, Trace]:
    """One trace for each range of output tokens; ranges without a request are left out.

    Args:
        trace: any.
        edges: the largest output of each range but the last, tokens, rising.

    Raises:
        ValueError: if there is no edge, or they are below 1 or do not rise.

    Example:
        >>> trace = Trace(arrival_s=None, prompt_tokens=np.ones(4, dtype=int), source="four",
        ...               output_tokens=np.array([10, 5000, 5001, 9000]))
        >>> {name: len(part) for name, part in split_by_output(trace, [5000]).items()}
        {'up-to-5000': 2, 'above-5000': 2}
    """
    if not edges or edges[0] < 1 or any(high <= low for low, high in pairwise(edges)):
        raise ValueError(f"edges: must be whole, at least 1 and rising (got {list(edges)})")
    which = np.searchsorted(np.asarray(edges), trace.output_tokens, side="left")
    names = [
        f"up-to-{edges[0]}",
        *(f"{low + 1}-to-{high}" for low, high in pairwise(edges)),
        f"above-{edges[-1]}",
    ]
    return {name: trace.where(which == index) for index, name in enumerate(names) if np.any(which == index)}
