"""Numbers as people read them: three significant digits, the unit beside the number, nothing cut off."""

from __future__ import annotations

import math

from qmodel.units import HOURS_PER_MONTH

__all__ = [
    "decimal_text",
    "money_text",
    "month_text",
    "percent_text",
    "seconds_text",
    "slack_text",
    "usd_text",
    "metric_text",
]

NONE_TEXT = "-"
UNSTABLE_TEXT = "unstable"


_LEAST_SHARE = 1e-7  # told as a share of the requests; less is none


def seconds_text(seconds: float | None, *, digits: int = 3, missing: str = NONE_TEXT) -> str:
    """A duration: milliseconds below one second, seconds from there on, never fewer than all integer digits.

    Args:
        seconds: duration, s; None where there is none.
        digits: significant digits, at least 1.
        missing: what stands for None and for values that are not finite.

    Returns:
        Text with its unit.

    Example:
        >>> seconds_text(0.0317), seconds_text(0.9996), seconds_text(482.4), seconds_text(None)
        ('31.7 ms', '1.00 s', '482 s', '-')
    """
    if seconds is None or not math.isfinite(seconds):
        return missing
    if abs(_rounded(seconds, digits)) >= 1.0 or seconds == 0.0:
        return f"{_significant(seconds, digits)} s"
    return f"{_significant(seconds * 1e3, digits)} ms"


def slack_text(predicted_s: float | None, target_s: float) -> str:
    """Room below a target, as a percentage of the target; negative where it is missed.

    Example:
        >>> slack_text(0.4, 0.5), slack_text(0.6, 0.5), slack_text(None, 0.5)
        ('20.0', '-20.0', '-')
    """
    if predicted_s is None or not math.isfinite(predicted_s):
        return NONE_TEXT
    return percent_text(1.0 - predicted_s / target_s)


def percent_text(fraction: float | None) -> str:
    """A fraction as a percentage without the sign: one decimal, two significant digits below one percent.

    Example:
        >>> percent_text(0.8312), percent_text(0.0004), percent_text(0.0), percent_text(None)
        ('83.1', '0.040', '0.0', '-')
    """
    if fraction is None or not math.isfinite(fraction):
        return NONE_TEXT
    percent = 100.0 * fraction
    if 5e-4 <= abs(percent) < 0.95:
        return _significant(percent, 2)
    return f"{percent + 0.0:.1f}" if abs(percent) >= 0.05 else "0.0"


def decimal_text(value: float | None, *, digits: int = 3) -> str:
    """A plain number with ``digits`` significant digits.

    Example:
        >>> decimal_text(12.345), decimal_text(1234.5), decimal_text(0.00123), decimal_text(None)
        ('12.3', '1,234', '0.00123', '-')
    """
    if value is None or not math.isfinite(value):
        return NONE_TEXT
    return _significant(value, digits)


def money_text(usd: float | None) -> str:
    """An amount in USD to the cent; three significant digits below ten cents.

    Example:
        >>> money_text(112.56), money_text(0.00123), money_text(12345.678), money_text(None)
        ('112.56', '0.00123', '12,345.68', '-')
    """
    if usd is None or not math.isfinite(usd):
        return NONE_TEXT
    if 0.0 < abs(usd) < 0.1:
        return _significant(usd, 3)
    return f"{usd:,.2f}"


def usd_text(usd_per_hour: float | None) -> str:
    """A price with its unit.

    Example:
        >>> usd_text(112.56)
        '112.56 USD/h'
    """
    text = money_text(usd_per_hour)
    return text if text == NONE_TEXT else f"{text} USD/h"


def month_text(usd_per_hour: float) -> str:
    """The same price over a month of 730 hours.

    Example:
        >>> month_text(112.56)
        '82,169 USD/month'
    """
    return f"{usd_per_hour * HOURS_PER_MONTH:,.0f} USD/month"


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _significant(value: float, digits: int) -> str:
    """``value`` to ``digits`` significant digits, but with all digits before the decimal point."""
    if value == 0.0:
        return "0"
    exponent = math.floor(math.log10(abs(_rounded(value, digits))))
    return f"{value:,.{max(digits - 1 - exponent, 0)}f}"


def metric_text(metric: str, value: float | None, *, digits: int = 3, missing: str = NONE_TEXT) -> str:
    """The value of a metric: seconds, or the share of the requests that leave.

    Example:
        >>> metric_text("ttft", 0.25), metric_text("abandoned", 0.0125), metric_text("abandoned", None)
        ('250 ms', '1.25 %', '-')
    """
    if metric != "abandoned":
        return seconds_text(value, digits=digits, missing=missing)
    if value is None:
        return missing
    return f"{100.0 * value:.{digits}g} %" if value >= _LEAST_SHARE else "0 %"
