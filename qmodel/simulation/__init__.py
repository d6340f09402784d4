"""A discrete-event simulator of serving pools, the check on the closed forms."""

from qmodel.simulation.availability import Availability, Outage, draw_outages
from qmodel.simulation.bound_fleets import Arrivals, FleetSimulator
from qmodel.simulation.fleet_engine import simulate_pool
from qmodel.simulation.fleet_simulation import FleetRuns, tabulate
from qmodel.simulation.logs import Course, PoolRun, PoolTrack, RequestLog
from qmodel.simulation.policies import EnginePolicy, Speculation
from qmodel.simulation.request_tables import RequestTable, draw_requests, table_from_arrays
from qmodel.simulation.results import (
    SIMULATION_TABLES,
    BucketRow,
    CourseRow,
    Decision,
    FairnessRow,
    SimulatedLatencyRow,
    SimulatedPoolRow,
    SimulatedSloRow,
    Simulation,
    TransferRow,
)
from qmodel.simulation.routing import SimRouter
from qmodel.simulation.statistics import Estimate, Sample, batched, mean_estimate, quantile_estimate
from qmodel.simulation.tandem import (
    KvLink,
    LinkTrack,
    NetworkRun,
    Stage,
    TandemRun,
    simulate_network,
    simulate_tandem,
)

__all__ = [
    "SIMULATION_TABLES",
    "Arrivals",
    "Availability",
    "BucketRow",
    "Course",
    "CourseRow",
    "Decision",
    "EnginePolicy",
    "Estimate",
    "FairnessRow",
    "FleetRuns",
    "FleetSimulator",
    "KvLink",
    "LinkTrack",
    "NetworkRun",
    "Outage",
    "PoolRun",
    "PoolTrack",
    "RequestLog",
    "RequestTable",
    "Sample",
    "SimRouter",
    "SimulatedLatencyRow",
    "SimulatedPoolRow",
    "SimulatedSloRow",
    "Simulation",
    "Speculation",
    "Stage",
    "TandemRun",
    "TransferRow",
    "batched",
    "draw_outages",
    "draw_requests",
    "mean_estimate",
    "quantile_estimate",
    "simulate_network",
    "simulate_pool",
    "simulate_tandem",
    "table_from_arrays",
    "tabulate",
]
