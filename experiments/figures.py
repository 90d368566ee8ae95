# SPDX-License-Identifier: BSD-3-Clause
"""How plots of experiments look."""

import statistics

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = ["#0b4f8a", "#d8871f", "#5ab4ac", "#8a3b8f", "#b03a2e", "#7a7a7a"]

plt.rcParams.update(
    {
        "svg.fonttype": "none",  # text stays text: small files
        "svg.hashsalt": "experiment",  # the same bytes for the same figures
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#ececec",
        "legend.frameon": False,
        "lines.linewidth": 1.6,
    }
)


def save(figure, path):
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def mean_and_spread(values):
    """The mean, and the standard deviation of a sample (0 of a single value)."""
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0
