"""Enumeration of pools, the frontier of what they carry, and the columns of the integer program."""

from qmodel.candidates.batch_columns import columns_for_group
from qmodel.candidates.batch_frontiers import least_batch_replicas
from qmodel.candidates.columns import ColumnSet, columns_for_model
from qmodel.candidates.enumeration import CandidateSet, RefusedCandidate, enumerate_candidates, priced_for
from qmodel.candidates.fleet_wide_columns import FleetWideColumns, columns_over_fleet
from qmodel.candidates.frontiers import (
    Frontier,
    carried_of,
    feasible_at,
    frontier,
    least_counts,
    optimistic_loads,
    unit_loads,
)
from qmodel.candidates.joint_rows import Level, joint_levels
from qmodel.candidates.load_curves import LoadCurve, curves_of
from qmodel.candidates.mix_columns import Column
from qmodel.candidates.mixed_pools import Blend, SharedPool
from qmodel.candidates.open_pools import OpenPool, open_pools_of
from qmodel.candidates.pool_kinds import ApiCandidate, Candidate, MeasuredCandidate, PoolKind
from qmodel.candidates.promising import few_of_each_kind
from qmodel.candidates.resources import resource_shares
from qmodel.candidates.stage_candidates import BUDGET_SHARES, Stage, StageCandidate, stage_part
from qmodel.candidates.stage_columns import NO_STAGES, Chain, StageColumns, columns_by_stage

__all__ = [
    "BUDGET_SHARES",
    "NO_STAGES",
    "ApiCandidate",
    "Blend",
    "Candidate",
    "CandidateSet",
    "Chain",
    "Column",
    "ColumnSet",
    "FleetWideColumns",
    "Frontier",
    "LoadCurve",
    "MeasuredCandidate",
    "OpenPool",
    "PoolKind",
    "RefusedCandidate",
    "SharedPool",
    "Stage",
    "StageCandidate",
    "StageColumns",
    "columns_for_group",
    "columns_for_model",
    "enumerate_candidates",
    "Level",
    "joint_levels",
    "carried_of",
    "feasible_at",
    "few_of_each_kind",
    "columns_over_fleet",
    "frontier",
    "least_batch_replicas",
    "least_counts",
    "curves_of",
    "open_pools_of",
    "optimistic_loads",
    "priced_for",
    "resource_shares",
    "columns_by_stage",
    "stage_part",
    "unit_loads",
]
