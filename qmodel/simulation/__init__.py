"""A discrete-event simulator of serving pools, the check on the closed forms."""

from qmodel.simulation.availability import Availability, Outage, draw_outages
from qmodel.simulation.fleet_engine import simulate_pool
from qmodel.simulation.logs import Course, PoolRun, PoolTrack, RequestLog
from qmodel.simulation.policies import EnginePolicy, Speculation
from qmodel.simulation.request_tables import RequestTable, draw_requests, table_from_arrays
from qmodel.simulation.routing import SimRouter
from qmodel.simulation.tandem import KvLink, LinkTrack, Stage, TandemRun, simulate_tandem

__all__ = [
    "Availability",
    "Course",
    "EnginePolicy",
    "KvLink",
    "LinkTrack",
    "Outage",
    "PoolRun",
    "PoolTrack",
    "RequestLog",
    "RequestTable",
    "SimRouter",
    "Speculation",
    "Stage",
    "TandemRun",
    "draw_outages",
    "draw_requests",
    "simulate_pool",
    "simulate_tandem",
    "table_from_arrays",
]
