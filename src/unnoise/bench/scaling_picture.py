"""The sweeps as a picture: time over number on logarithmic scales, with the fitted lines."""

from pathlib import Path
from typing import Any

import numpy as np

from unnoise.bench.scaling import Sweep


def canvas(panels: int) -> Any:
    """A figure for so many sweeps, before anything is measured: where matplotlib is missing, that is said at once."""
    try:
        from matplotlib.figure import Figure as Picture
    except ImportError:
        raise ValueError("the picture needs matplotlib: pip install 'unnoise[all]'") from None
    return Picture(figsize=(4.0 * panels, 3.6), layout="constrained")


def save(sweeps: list[Sweep], picture: Any, title: str, file: Path) -> None:
    names = list(dict.fromkeys(sweep.against for sweep in sweeps))
    axes = picture.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        for i, sweep in enumerate(one for one in sweeps if one.against == name):
            fit = sweep.growth
            label = f"{sweep.what}: exponent {fit.exponent:.2f}, R² {fit.r2:.3f}"
            axis.plot(sweep.numbers, [1e3 * time for time in sweep.times], "o", color=f"C{i}", label=label)
            line = np.geomspace(sweep.numbers[0], sweep.numbers[-1], 60)
            axis.plot(line, [1e3 * fit.at(float(n)) for n in line], "-", color=f"C{i}", linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel=name)
        axis.grid(alpha=0.25)
        axis.legend(fontsize=7, frameon=False)
    axes[0].set_ylabel("time, ms (lines: offset + slope × number)")
    picture.suptitle(title, fontsize=9)
    picture.savefig(file, dpi=80)
