"""Which GPU each rank of a layout takes, and which ranks form groups."""

from __future__ import annotations

from collections.abc import Sequence

from qmodel.types.layouts import Layout

__all__ = ["gpu_slots", "neighbour_stages", "stage_groups", "tensor_groups"]


def gpu_slots(layout: Layout, *, island_gpus: int) -> list[int]:
    """GPU number of every rank when GPUs are handed out in order, tensor ranks innermost, stages outermost.

    A stage that fits one island starts on the next one rather than straddle two. A larger stage spans
    islands, with its tensor-parallel groups kept whole where one fits an island.

    Args:
        layout: degrees of the replica.
        island_gpus: GPUs of one scale-up domain, at least 1.

    Returns:
        ``layout.gpus`` increasing numbers; GPU ``g`` lies in island ``g // island_gpus``.

    Example:
        >>> gpu_slots(Layout(tp=3, pp=2), island_gpus=4)
        [0, 1, 2, 4, 5, 6]
    """
    unit = 1
    if layout.stage_gpus <= island_gpus:
        unit = layout.stage_gpus
    elif layout.tp <= island_gpus:
        unit = layout.tp
    slots: list[int] = []
    free = 0
    for _ in range(layout.gpus // unit):
        left = island_gpus - free % island_gpus
        if unit > left:
            free += left
        slots.extend(range(free, free + unit))
        free += unit
    return slots


def tensor_groups(layout: Layout, ranks: Sequence[str]) -> list[list[str]]:
    """Tensor-parallel groups, as names taken from ``ranks``."""
    return _chunks(ranks, layout.tp)


def stage_groups(layout: Layout, ranks: Sequence[str]) -> list[list[str]]:
    """Pipeline stages, as names taken from ``ranks``."""
    return _chunks(ranks, layout.stage_gpus)


def neighbour_stages(layout: Layout, ranks: Sequence[str]) -> list[tuple[str, str]]:
    """Sender and receiver of every hand-over from one stage to the next."""
    step = layout.stage_gpus
    return list(zip(ranks[:-step], ranks[step:], strict=True))


def _chunks(ranks: Sequence[str], size: int) -> list[list[str]]:
    return [list(ranks[start : start + size]) for start in range(0, len(ranks), size)]
