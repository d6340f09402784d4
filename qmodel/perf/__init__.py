"""Layouts and their legality, memory, and step time of one replica.

Numbers and records in, numbers and records out. Models, GPUs, nodes and engines may be
given as records, or as names that the catalog knows.
"""

from qmodel.perf.kv_cache import held_context, kv_bytes_per_token
from qmodel.perf.law_tables import batch_knots, step_law, step_laws
from qmodel.perf.legality import LayoutSet, layouts
from qmodel.perf.memory_model import MemoryPlan, memory, tokens_in_room
from qmodel.perf.memory_rules import MemoryRule, memory_rule
from qmodel.perf.precision import quant_family
from qmodel.perf.replica_steps import LawPoint
from qmodel.perf.speculation import accepted_spread, prompt_budget, tokens_per_step
from qmodel.perf.step_constants import StepConstants, resolve_constants
from qmodel.perf.step_time import decode_step_s, prefill_s, step_components

__all__ = [
    "LawPoint",
    "LayoutSet",
    "MemoryPlan",
    "MemoryRule",
    "StepConstants",
    "accepted_spread",
    "batch_knots",
    "decode_step_s",
    "held_context",
    "kv_bytes_per_token",
    "layouts",
    "memory",
    "memory_rule",
    "prefill_s",
    "prompt_budget",
    "quant_family",
    "resolve_constants",
    "step_components",
    "step_law",
    "step_laws",
    "tokens_in_room",
    "tokens_per_step",
]
