"""Pictures of tables: what they show is what the frames hold, and they need nothing from elsewhere."""

import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from unnoise.evaluation import pictures
from unnoise.evaluation.curves import Course, chart


def frame(n, seed, slope=0.9):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    table = pd.DataFrame({"x": x, "y <&> z": slope * x + 0.4 * rng.normal(size=n), "k": rng.choice(["a", "b'<", "c"], n)})
    table["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), unit="D")
    table.loc[::10, "x"] = np.nan
    table.loc[::7, "k"] = None
    return table


REAL, DRAWN = frame(500, 0), frame(300, 1, slope=0.0)


def svgs(text):
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.S)]


@pytest.mark.parametrize("picture", [pictures.marginals, pictures.pairs, pictures.correlations])
def test_pictures_are_whole_and_need_nothing_from_elsewhere(picture):
    text = picture(REAL, DRAWN)
    assert svgs(text) and "y &lt;&amp;&gt; z" in text and "<&>" not in text
    assert not re.search(r"<script|https?:|url\(|<img|<link", text)
    assert all("viewBox" in svg.attrib and "width" not in svg.attrib for svg in svgs(text))  # as wide as there is room
    assert not re.search(r"(nan|inf)['\" ,]", text)


def test_a_histogram_has_the_shares_of_its_column():
    """Heights of bars: of equal numbers one bar has all; half missing halves them."""
    real = pd.DataFrame({"v": np.repeat([0.0, 1.0], 50)})
    (svg,) = svgs(pictures.marginals(real, real.assign(v=real.v.where(real.index % 2 == 0))))
    heights = np.array([float(rect.attrib["height"]) for rect in svg.iter("rect")])
    assert (heights > 0).sum() == 2 and heights[0] == heights[-1] == 94
    text = "".join(node.text or "" for node in svg.iter("text"))
    assert "missing 0% | 50%" in text
    line = svg.find("polyline").attrib["points"].split()
    assert float(line[0].split(",")[1]) == pytest.approx(100 - 47)  # half as high


def test_bars_have_the_shares_of_labels():
    real, drawn = (pd.DataFrame({"k": list("aaab")}), pd.DataFrame({"k": list("abbb")}))
    (svg,) = svgs(pictures.marginals(real, drawn))
    widths = [float(rect.attrib["width"]) for rect in svg.iter("rect")]
    assert widths[0] == widths[3] == pytest.approx(3 * widths[1], abs=0.3) and widths[1] == widths[2]
    many = pd.DataFrame({"k": [f"label number {i}" for i in range(100)]})
    assert "94 others" in pictures.marginals(many, many)


def test_associations():
    found = pictures.association(REAL)
    x, y, k = 0, 1, 2
    assert found[x, y] == pytest.approx(REAL["x"].corr(REAL["y <&> z"])) and abs(found[x, k]) < 0.15
    told = pd.DataFrame({"a": list("ppqq") * 50, "b": list("uuvv") * 50, "c": list("pqpq") * 50})
    assert pictures.association(told)[0, 1] > 0.99 and pictures.association(told)[0, 2] == 0
    gap = abs(found - pictures.association(DRAWN, REAL))[np.triu_indices(4, 1)].mean()
    assert f"mean gap {gap:.3f}" in pictures.correlations(REAL, DRAWN)


def test_pairs_that_hang_together_come_first():
    (first, *_) = re.findall(r"<figcaption[^>]*>(.*?)</figcaption>", pictures.pairs(REAL, DRAWN))
    assert first == "y &lt;&amp;&gt; z (up) and x (across)"
    for picture in (pictures.pairs, pictures.correlations):
        assert "one column" in picture(REAL[["x"]], DRAWN[["x"]])


def test_wide_empty_and_constant_columns():
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 40)), columns=[f"c{i}" for i in range(40)])
    assert "and 16 columns more" in pictures.marginals(wide, wide) and len(svgs(pictures.correlations(wide, wide))) == 2
    odd = pd.DataFrame({"none": [np.nan] * 9, "same": [3.0] * 9, "label": ["u"] * 9})
    for picture in (pictures.marginals, pictures.pairs, pictures.correlations):
        assert svgs(picture(odd, odd))


def test_a_chart_leaves_out_the_fall_of_the_start():
    falling = [(0, 1000.0), *((s, 10 - s / 100) for s in range(100, 600, 50))]
    (svg,) = svgs(chart("bound", [Course("held-out", falling, "red"), Course("one point", [(0, 1.0)], "blue")]))
    labels = [node.text for node in svg.iter("text")]
    assert float(labels[0]) < 12 and float(labels[2]) == 4.5 and len(list(svg.iter("polyline"))) == 1
    assert "nothing to draw yet" in chart("bound", [])
