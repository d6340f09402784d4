"""Plans side by side: the inputs that differ, then what became of them."""

from qmodel.comparison.comparisons import Comparison, InputRow, MetricRow, compare
from qmodel.comparison.text_page import comparison_page

__all__ = ["Comparison", "InputRow", "MetricRow", "compare", "comparison_page"]
