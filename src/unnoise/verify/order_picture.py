"""Error over steps in logarithms, a line for each method: the slope is the order."""

from typing import Any

from unnoise.verify.orders import FITTED, Case, slope

Measured = list[tuple[Case, list[tuple[int, float]]]]
PANELS = {
    "flow": "probability flow: error of trajectories",
    "law, numbers": "numbers: error of mean and covariance",
    "law, categories": "categories: total variation",
    "law, products": "products: error of moments",
}
TINTS = {  # of each order, so that lines of one slope are of one colour
    1: ("#0b3c6f", "#1f6fb4", "#4f9bd9", "#7fbce8", "#00838f"),
    2: ("#1b5e20", "#2e8b57", "#66a61e", "#a3b600"),
    3: ("#8c1c2f", "#d1495b", "#ee8290"),
    5: ("#7a4fa3",),
}
MARKERS, GREY = "osD^vP*X<>", "#cfcfcf"


def draw(measured: Measured, figure: Any) -> None:
    """Onto a figure of matplotlib: a panel for each kind, and beside it its methods with their fitted orders."""
    kinds = {name: [line for line in measured if line[0].setting.panel == name] for name in PANELS}
    panels = {name: lines for name, lines in kinds.items() if lines}
    heights = [max(12, len(merged(lines))) for lines in panels.values()]  # as many lines as its legend has
    ratios = {"width_ratios": [1, 1], "height_ratios": heights}
    axes = figure.subplots(len(panels), 2, squeeze=False, gridspec_kw=ratios)
    for (axis, side), (name, lines) in zip(axes, panels.items(), strict=True):
        guides(axis, lines)
        handles, seen = [], dict.fromkeys(TINTS, 0)
        names = list[str]()
        for order, text, points in merged(lines):
            k, seen[order] = seen[order], seen[order] + 1
            style = {"color": TINTS[order][k % len(TINTS[order])], "marker": MARKERS[k % len(MARKERS)]}
            handles += axis.plot(*zip(*points, strict=True), lw=1.0, ms=4, mew=0, **style)
            names.append(f"{slope(points[-FITTED:]):.2f}  {text}")
        look: dict[str, Any] = {"frameon": False, "borderaxespad": 0, "labelspacing": 0.25, "handlelength": 1.5}
        side.legend(handles, names, loc="center left", fontsize=7, **look).set_in_layout(False)
        side.axis("off")
        axis.set(xscale="log", yscale="log", ylabel="error")
        axis.set_title(PANELS[name], loc="left")
        axis.set_xticks(ticks := sorted({n for _, points in lines for n, _ in points}), [f"{n}" for n in ticks])
        axis.minorticks_off()
        axis.set_xlabel("steps")


def merged(lines: Measured) -> list[tuple[int, str, list[tuple[int, float]]]]:
    """Stated order, names and points of each line; methods whose errors are the same share one."""
    several = len({case.setting.process.split("(")[0].split("/")[0] for case, _ in lines}) > 1
    found = dict[tuple, tuple[int, list[str], list[tuple[int, float]]]]()
    for case, points in sorted(lines, key=lambda line: line[0].stated):
        key = (case.setting.process, case.stated, *(f"{error:.5e}" for _, error in points))
        place = f"  {case.setting.process.split('/')[0]}" if several else ""
        _, names, _ = found.setdefault(key, (case.stated, [], points))
        names[:] = [name.removesuffix(place) for name in names] + [case.label + place]
    return [(order, " = ".join(names), points) for order, names, points in found.values()]


def guides(axis: Any, lines: Measured) -> None:
    """Faint lines of slope 1, 2, 3 from the upper left."""
    steps, errors = ([point[k] for _, points in lines for point in points] for k in (0, 1))
    first, last, top, bottom = min(steps), max(steps), 2 * max(errors), min(errors)
    for order in (1, 2, 3):
        end = min(last, first * (top / bottom) ** (1 / order))
        end = first * (end / first) ** 0.97  # room for the number
        axis.plot([first, end], [top, top * (first / end) ** order], color=GREY, lw=1.6, zorder=0)
        text = {"xytext": (2, 0), "textcoords": "offset points", "color": "#999999", "fontsize": 8, "va": "center"}
        axis.annotate(f"{order}", (end, top * (first / end) ** order), **text)
