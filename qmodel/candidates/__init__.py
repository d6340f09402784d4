"""Enumeration of pools, the frontier of what they carry, and the columns of the integer program."""

from qmodel.candidates.columns import Column, ColumnSet, columns_for_model
from qmodel.candidates.enumeration import (
    Candidate,
    CandidateSet,
    MeasuredCandidate,
    PoolKind,
    RefusedCandidate,
    enumerate_candidates,
)
from qmodel.candidates.frontiers import (
    Frontier,
    feasible_at,
    frontier,
    least_counts,
    optimistic_loads,
    unit_loads,
)
from qmodel.candidates.mixed_pools import Blend, SharedPool
from qmodel.candidates.open_pools import OpenPool, open_pools_of
from qmodel.candidates.resources import resource_shares

__all__ = [
    "Blend",
    "Candidate",
    "CandidateSet",
    "Column",
    "ColumnSet",
    "Frontier",
    "MeasuredCandidate",
    "OpenPool",
    "PoolKind",
    "RefusedCandidate",
    "SharedPool",
    "columns_for_model",
    "enumerate_candidates",
    "feasible_at",
    "frontier",
    "least_counts",
    "open_pools_of",
    "optimistic_loads",
    "resource_shares",
    "unit_loads",
]
