"""How a model shows itself: a short table in a terminal, a page with pictures in a notebook."""

import sys
import types

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import unnoise as un
from unnoise.model import display, fitting

QUICK = {"steps": 3, "progress": False, "device": "cpu", "panels": 0}


@pytest.fixture(scope="module")
def model():
    frame = pd.DataFrame({"x": np.arange(60) / 7, "<b>": ["tea", "cake"] * 30})
    return un.fit(frame, **QUICK)


def test_in_a_terminal(model):
    text = repr(model)
    assert text.splitlines()[0] == "Model(steps=3, device='cpu', progress=False, panels=0)"
    assert "number" in text and "category" in text and "nats on held-out rows" in text


def test_many_columns_are_cut(monkeypatch, model):
    monkeypatch.setattr(display, "MOST", 1)
    assert "and 1 more" in repr(model) and "tea" not in repr(model)


def test_in_a_notebook(model, monkeypatch):
    """Marginals of real rows beside as many drawn ones, which are drawn once."""
    seen = []

    def marginals(real, drawn):
        seen.append((real, drawn))
        return "<svg>marginals</svg>"

    fake = types.ModuleType("unnoise.evaluation.pictures")
    fake.marginals, fake.__spec__ = marginals, types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "unnoise.evaluation.pictures", fake)
    monkeypatch.setattr(display, "SEEN", 20)
    page = model._repr_html_()
    assert "<svg>marginals</svg>" in page and "&lt;b&gt;" in page and "<b>" not in page
    assert model._repr_html_() == page
    (real, drawn), (_, again) = seen
    assert len(real) == len(drawn) == 20 and drawn.equals(again) and list(real) == list(drawn) == ["x", "<b>"]
    assert set(real["x"]) <= set(np.arange(60) / 7)


def test_images_and_texts_in_a_notebook(monkeypatch, tmp_path):
    monkeypatch.setattr(display, "IMAGES", 4)
    images = un.fit(np.random.default_rng(0).integers(0, 4, (20, 5, 5), dtype=np.uint8), **QUICK)
    assert "data:image/png;base64," in images._repr_html_()
    for i, image in enumerate(np.random.default_rng(0).integers(0, 256, (20, 5, 5), dtype=np.uint8)):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    assert "data:image/png;base64," in un.fit(tmp_path, **QUICK)._repr_html_()
    vectors = un.fit(np.random.default_rng(0).normal(size=(20, 5)), **QUICK)
    assert "<pre>[[" in vectors._repr_html_()
    texts = un.fit(["<a>", "b"] * 10, **QUICK)
    assert "<pre>" in texts._repr_html_() and "<a>" not in texts._repr_html_()


def test_a_bar_is_shown_where_somebody_looks(monkeypatch):
    assert fitting.shows(True) and not fitting.shows(False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert not fitting.shows(None)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    assert fitting.shows(None)


def test_the_bar(capfd):
    un.fit(np.arange(40) % 4, steps=2, progress=True, device="cpu")
    assert "training" in capfd.readouterr().err
    un.fit(np.arange(40) % 4, steps=2, progress=False, device="cpu")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("best", "error", "words"),
    [
        (238.7966, 4.3121, "238.8 ± 4.3 nats"),
        (0.2289, 25.2, "0 ± 25 nats"),
        (1.23456, 0.00234, "1.2346 ± 0.0023 nats"),
        (1.23456, None, "1.2346 nats"),
    ],
)
def test_a_bound_has_the_digits_of_its_error(best, error, words):
    said = display.trained({"step": 5, "seconds": 1.0, "reason": "steps", "best": best, "best_se": error})
    assert said == f"5 steps, 1 s, ended by steps; bound {words} on held-out rows"
