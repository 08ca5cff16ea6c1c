"""Arrays of rotations, unit vectors, angles and compositions: there and back, through a model, and what is none."""

import json

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.cli import main as cli
from unnoise.data import Reading, read
from unnoise.data.arrays import Array
from unnoise.data.base import BadData
from unnoise.data.points import POINTS
from unnoise.model.plain import fitted

RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=(48, 4))
QUATERNIONS = NORMAL / np.linalg.norm(NORMAL, axis=1, keepdims=True)
TURNS = un.Rotations.from_quaternions(torch.as_tensor(QUATERNIONS)).numpy()
ANGLES = RNG.uniform(-np.pi, np.pi, (48, 2))
SHARES = RNG.dirichlet([2.0, 3.0, 4.0], 48)
CASES = {
    "quaternions": ("rotations", QUATERNIONS, un.RotationHeat),
    "matrices": ("rotations", TURNS.astype(np.float32), un.RotationHeat),
    "a circle": ("sphere", np.stack([np.cos(ANGLES[:, 0]), np.sin(ANGLES[:, 0])], 1), un.SphereHeat),
    "a globe": ("sphere", QUATERNIONS[:, :3] / np.linalg.norm(QUATERNIONS[:, :3], axis=1, keepdims=True), un.SphereHeat),
    "in four dimensions": ("sphere", QUATERNIONS.astype(np.float16), un.SphereHeat),
    "angles": ("angles", ANGLES.astype(np.float32), un.WrappedNormal),
    "angles from 0 on": ("angles", (ANGLES[:, 0] % (2 * np.pi)), un.WrappedNormal),
    "compositions": ("composition", SHARES, un.WrightFisher),
}
QUICK = {"preset": "tiny", "steps": 3, "batch_size": 16, "random_state": 0}


def same(space, a, b, atol):
    """As points: q and -q are one rotation."""
    sign = np.where((a * b).sum(-1, keepdims=True) < 0, -1, 1) if space == "rotations" and a.shape[-1] == 4 else 1
    np.testing.assert_allclose(a.astype(float), sign * b.astype(float), atol=atol)


@pytest.mark.parametrize("case", CASES)
def test_there_and_back(tmp_path, case):
    space, values, process = CASES[case]
    np.save(tmp_path / "a.npy", values)
    format, x = read(tmp_path / "a.npy", Reading(options={"space": space}))
    assert isinstance(format.process(), process) and x.dtype == torch.float32
    assert format.process().space.check(x).shape[1:] == format.process().space.shape
    again = Array.from_json(json.loads(json.dumps(format.to_json())))
    out = again.values(x)
    assert out.dtype == values.dtype and torch.equal(again.encode(tmp_path / "a.npy"), x)
    same(space, out, values, 1e-3 if values.dtype == np.float16 else 1e-6)
    if case == "quaternions":
        assert (out[:, 0] >= 0).all() and (values[:, 0] < 0).any()
    if case.startswith("angles"):
        assert (out.min() < -1) == (case == "angles") and (out.max() > 4) == (case == "angles from 0 on")
    assert space in format.lines()[0].kind and not (format.pictured or format.dear or format.vectors)


slow = pytest.mark.conformance


@pytest.mark.parametrize(
    "case",
    [
        "angles from 0 on",
        pytest.param("quaternions", marks=slow),
        pytest.param("a globe", marks=slow),
        pytest.param("compositions", marks=slow),
    ],
)
def test_what_a_user_does(tmp_path, case):
    space, values, _ = CASES[case]
    model = un.fit(values, options={"space": space}, **QUICK)
    x = model.sample(6, steps=6, seed=1)
    assert x.shape == (6, *values.shape[1:]) and x.dtype == values.dtype
    assert POINTS[space].wrong(x.astype(np.float64)) is None
    holes = values[:5].copy()
    holes[2] = np.nan
    whole = model.infill(holes, steps=4)
    known = np.arange(5) != 2
    assert np.array_equal(whole[known], values[:5][known]) and POINTS[space].wrong(whole.astype(np.float64)) is None
    assert np.isfinite(model.bound(values[:8])).all()
    assert np.isfinite(model.evaluate(values[:16], exact_rows=0)["bound"])
    again = un.load(model.save(tmp_path / "run"))
    assert np.array_equal(again.sample(6, steps=6, seed=1), x)


@slow
def test_by_commands(tmp_path, monkeypatch, capsys):
    def main(words):
        with pytest.raises(SystemExit) as ended:
            cli(words)
        return ended.value.code

    monkeypatch.chdir(tmp_path)
    np.save("poses.npy", QUATERNIONS.astype(np.float32))
    asked = ["--option", "space=rotations", "--preset", "tiny", "--batch-size", "16"]
    assert main(["train", "poses.npy", *asked, "--steps", "3"]) == 0
    assert "rotations  quaternions, the real part first  RotationHeat" in capsys.readouterr().out
    assert main(["train", "--resume", "run", "--steps", "5"]) == 0
    assert main(["sample", "run", "-n", "5", "--steps", "6", "--out", "drawn.npy"]) == 0
    drawn = np.load("drawn.npy")
    assert drawn.shape == (5, 4) and drawn.dtype == np.float32 and (drawn[:, 0] >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1, atol=1e-6)
    holes = QUATERNIONS.astype(np.float32)
    holes[1] = np.nan
    np.save("gaps.npy", holes)
    capsys.readouterr()
    assert main(["infill", "run", "gaps.npy", "--out", "full.npy", "--steps", "4"]) == 0
    full, others = np.load("full.npy"), np.arange(48) != 1
    assert np.array_equal(full[others], holes[others]) and np.isfinite(full).all()


def changed(values, place, value):
    out = values.copy()
    out[place] = value
    return out


BAD = {
    "not unit": ("rotations", 2 * QUATERNIONS, "row 0 has the length 2, .*unit quaternion: pass x / np.linalg.norm"),
    "a reflection": ("rotations", changed(TURNS, 3, -TURNS[3]), "row 3 is a reflection, of determinant -1: exchange"),
    "sheared": ("rotations", changed(TURNS, (5, 0, 0), 2.0), r"row 5 is no rotation, as x\^T x differs from 1 by .*project"),
    "Euler angles": ("rotations", ANGLES, r"shape \(48, 2\), and rotations are quaternions \[rows, 4\] or matrices"),
    "a gap": ("sphere", changed(QUATERNIONS, (7, 1), np.nan), r"the entry \[7, 1\] is nan: drop or impute it"),
    "long": (
        "sphere",
        changed(QUATERNIONS, 4, 0.0),
        "row 4 has the length 0, and this is a unit vector.*drop rows that are 0",
    ),
    "in eleven dimensions": ("sphere", np.eye(11), r"shape \(11, 11\), .*unit vectors \[rows, 2 to 10\]"),
    "degrees": ("angles", np.degrees(ANGLES), r"the entry \[0, \d\] is -?\d+.*radians in .*np.radians\(x\) of degrees"),
    "whole degrees": ("angles", np.arange(0, 360, 10), r"the entry \[1\] is 10, .*np.radians\(x\) of degrees"),
    "both ranges": ("angles", np.array([-3.0, 5.0, 1.0, 2.0]), r"from -3 to 5 lie neither in .*pass x % \(2 \* np.pi\)"),
    "percent": ("composition", 100 * SHARES, "row 0 sums to 100, .*pass x / x.sum"),
    "a share of zero": ("composition", np.eye(3), r"the entry \[0, 1\] is 0, .*above 0: pass 0.997 \* x \+ 0.001"),
    "a negative share": ("composition", SHARES - 0.5, r"is -0.\d+, .*drop or mend the row"),
    "whole numbers": ("sphere", np.eye(3, dtype=np.int64), r"holds int64, .*pass .astype\(np.float32\)"),
    "no space": ("globe", QUATERNIONS, "space=globe: choose from rotations, sphere, angles, composition"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_none_is_refused(case):
    space, values, words = BAD[case]
    with pytest.raises(BadData, match=words):
        Array.of_array(values, space=space)


def test_what_does_not_go_with_a_space():
    with pytest.raises(BadData, match="--categories: says nothing of rotations"):
        Array.of_array(QUATERNIONS, categories=True, space="rotations")
    with pytest.raises(BadData, match="axis: says nothing of angles"):
        un.fit(ANGLES, options={"space": "angles", "axis": "series"}, **QUICK)
    format, _ = Array.of_array(QUATERNIONS, space="rotations")
    with pytest.raises(BadData, match="row 2 has gaps in 1 of 4 entries, .*as a whole"):
        format.gaps_of_array(changed(QUATERNIONS, (2, 3), np.nan))
    with pytest.raises(BadData, match="trained on"):
        format.encode_array(TURNS)


def test_an_array_in_memory_is_read_with_the_axis_that_was_said():
    """`axis` was taken and not heard."""
    walks = RNG.normal(size=(30, 20))
    assert fitted(walks, Reading(options={"axis": "series"}), None)[0].series == "as told"
    assert fitted(walks.cumsum(1), Reading(options={"axis": "columns"}), None)[0].series == ""
