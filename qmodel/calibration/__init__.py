"""Constants of the step-time model from measurements: step times, benchmark summaries, recorded requests."""

from qmodel.calibration.calibrating import calibrate
from qmodel.calibration.measurements import LeftOut, Measurements, ServingPoint, SourceFile, StepTime
from qmodel.calibration.reading import read_measurements
from qmodel.calibration.requests import points_of_requests
from qmodel.calibration.results import Calibration, ErrorRow, ParameterRow, PointRow

__all__ = [
    "Calibration",
    "ErrorRow",
    "LeftOut",
    "Measurements",
    "ParameterRow",
    "PointRow",
    "ServingPoint",
    "SourceFile",
    "StepTime",
    "calibrate",
    "points_of_requests",
    "read_measurements",
]
