"""Which GPUs of a partly occupied wiring are interchangeable.

Colour refinement (Weisfeiler and Leman, 1968): devices start with the colour of their kind and take the colours of
their neighbours until nothing changes. GPUs of unlike colour are never interchangeable; on trees and on full meshes
GPUs of one colour always are. Colours are 64-bit sums, so that unlike ones are told apart but for one chance in 2^64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from qmodel.topology.wiring import Wiring

__all__ = ["Colouring"]

_Words = npt.NDArray[np.uint64]
_MEMBER, _WITHIN, _OF_NODE, _OF_ISLAND = 1, 2, 3, 4  # labels of edges that are no links; links follow


class Colouring:
    """Colours the GPUs of one wiring for any partial placement of groups in stages.

    Args:
        wiring: devices and links.
        busy: GPUs that are not to be used; they differ from those that are free.
    """

    def __init__(self, wiring: Wiring, busy: Iterable[str] = ()) -> None:
        names = list(wiring.vertices)
        self._number = {name: index for index, name in enumerate(names)}
        taken = set(busy)
        palette: dict[object, int] = {}
        start = []
        for name in names:
            vertex = wiring.vertices[name]
            start.append(palette.setdefault((vertex.kind, vertex.launch, name in taken), len(palette)))
        labels: dict[object, int] = {}
        edges: list[tuple[int, int, int]] = []
        for name in names:
            for other, link in wiring.links[name].items():
                label = labels.setdefault(link, _OF_ISLAND + 1 + len(labels))
                edges.append((self._number[name], self._number[other], label))
        # Membership of an island and of a node matters to the cost and is no link.
        for label, of in ((_OF_ISLAND, "island"), (_OF_NODE, "node")):
            members: dict[int, list[int]] = {}
            for name in wiring.gpus():
                members.setdefault(getattr(wiring.vertices[name], of), []).append(self._number[name])
            for found in members.values():
                edges += _both([(len(start), member, label) for member in found])
                start.append(len(palette) + label)
        self._start = np.array(start, dtype=np.uint64)
        self._edges = _array(edges)
        self._kinds = len(palette) + _OF_ISLAND + 1

    def colours(self, groups: Sequence[Sequence[str]], groups_per_stage: int) -> tuple[dict[str, int], bytes]:
        """Colour of each GPU, and what tells this placement from unlike ones.

        Args:
            groups: GPUs placed so far, by group; the last one may be incomplete.
            groups_per_stage: groups of one stage.
        """
        added: list[int] = []
        edges: list[tuple[int, int, int]] = []
        first = len(self._start)
        for index, group in enumerate(groups):
            if index % groups_per_stage == 0:
                stage = first + len(added)
                added.append(self._kinds + 1 + index // groups_per_stage)
            vertex = first + len(added)
            edges.append((stage, vertex, _WITHIN))
            edges += [(vertex, self._number[name], _MEMBER) for name in group]
            added.append(self._kinds)
        start = np.concatenate([self._start, np.array(added, dtype=np.uint64)])
        colours = _refine(start, np.hstack([self._edges, _array(_both(edges))]))
        by_number = colours.tolist()
        return {name: by_number[index] for name, index in self._number.items()}, np.sort(colours).tobytes()


def _both(edges: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return edges + [(other, one, label) for one, other, label in edges]


def _array(edges: list[tuple[int, int, int]]) -> npt.NDArray[np.int64]:
    return np.array(edges, dtype=np.int64).reshape(-1, 3).T


def _refine(start: _Words, edges: npt.NDArray[np.int64]) -> _Words:
    colours = _mix(start)
    one, other, label = edges
    labels = _mix(label.astype(np.uint64))
    number = len(np.unique(colours))
    while True:
        near = np.zeros_like(colours)
        np.add.at(near, one, _mix(colours[other] ^ labels))
        colours = _mix(colours + _mix(near))
        refined = len(np.unique(colours))
        if refined == number:
            return colours
        number = refined


def _mix(words: _Words) -> _Words:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that spreads every bit."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
