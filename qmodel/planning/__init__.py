"""Plans: make, verify, explain, save and load them."""

from qmodel.planning.planner import plan_instance
from qmodel.planning.plans import Alternative, Plan, PriceRow, Why
from qmodel.planning.progress import Cancel, OnProgress, Progress
from qmodel.planning.storage import is_saved_plan, load_plan
from qmodel.planning.verification import Check, Verification, verify

__all__ = [
    "Alternative",
    "Cancel",
    "Check",
    "OnProgress",
    "Plan",
    "PriceRow",
    "Progress",
    "Verification",
    "Why",
    "is_saved_plan",
    "load_plan",
    "plan_instance",
    "verify",
]
