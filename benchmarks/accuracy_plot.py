"""Draw docs/accuracy-tpot.svg: predicted against measured time per output token of the closed-loop rows.

Run from the checkout, with matplotlib installed beside qmodel: ``python benchmarks/accuracy_plot.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from accuracy import predict, read_rows

TARGET = Path(__file__).parents[1] / "docs" / "accuracy-tpot.svg"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
OFF = 0.25  # the dashed lines: predictions a quarter too high or too low


def main() -> None:
    """Write the picture; same input, same bytes."""
    mpl.rcParams.update({"svg.hashsalt": "qmodel", "svg.fonttype": "none", "font.size": 9})
    rows = predict(read_rows())
    figure, axes = plt.subplots(figsize=(6.4, 6.0))
    for marker, (model, part) in zip(MARKERS, rows.groupby("model"), strict=False):
        label = f"{model} ({len(part)})"
        axes.scatter(part["tpot_ms_mean"], part["predicted_ms"], s=14, alpha=0.6, marker=marker, label=label)
    ends = [0.8 * rows["tpot_ms_mean"].min(), 1.25 * rows["tpot_ms_mean"].max()]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    for factor in (1.0 - OFF, 1.0 + OFF):
        axes.plot(ends, [factor * end for end in ends], color="black", linewidth=0.6, linestyle="--")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured mean TPOT, ms")
    axes.set_ylabel("predicted mean TPOT, ms (constants as shipped, in sample)")
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(TARGET, metadata={"Date": None})


if __name__ == "__main__":
    main()
