"""`unnoise distill` from end to end: the new run is sampled, evaluated, filled and resumed as any other."""

import json

import pytest

from unnoise.cli import main


def said(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distill")
    lines = [f"{(7 * i) % 31 / 10},{(7 * i) % 31 / 10 + (i % 5) / 20}" for i in range(120)]
    (folder / "numbers.csv").write_text("\n".join(["a,b", *lines]) + "\n")
    (folder / "gaps.csv").write_text("a,b\n1.0,\n,2.0\n")
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "train",
                str(folder / "numbers.csv"),
                "--out",
                str(folder / "run"),
                "--steps",
                "10",
                "--set",
                "panels=0",
                "--json",
            ]
        )
    assert ended.value.code == 0
    return folder


@pytest.mark.parametrize("method", ["consistency", pytest.param("progressive", marks=pytest.mark.conformance)])
def test_distill(teacher, tmp_path, capsys, method):
    out = tmp_path / "few"
    options = ["--updates", 4, "--set-method", "rounds=2", "--set", "panels=0", "--many", 16, "--samples", 60]
    code, told, error = said(
        capsys, "distill", teacher / "run", "--out", out, "--method", method, "--steps", 2, *options, "--json"
    )
    assert code == 0, error
    result = json.loads(told)
    assert result["method"] == method and result["many"] == 16
    calls = [result[name]["calls"] for name in ("teacher_in_many_steps", "teacher_in_few_steps", "student")]
    assert calls == [16, 2, 2] and all("two_sample" in result[name] for name in ("teacher_in_many_steps", "student"))
    assert "In few steps" in (out / "report.html").read_text()
    code, told, _ = said(capsys, "sample", out, "-n", 5, "--out", tmp_path / "new.csv", "--json")
    assert code == 0 and json.loads(told)["calls"] == 2
    code, told, error = said(capsys, "evaluate", out, "--samples", 0, "--exact-rows", 0, "--json")
    figures = json.loads(told)
    assert code == 0, error
    if method == "consistency":
        assert figures["bound"] is None and "no denoiser" in figures["bound_why"]
    else:
        assert figures["bound"] > 0 and result["bound_why"] is None and "infinitely many" in result["bound_is"]
    assert said(capsys, "infill", out, teacher / "gaps.csv", "--out", tmp_path / "full.csv")[0] == 0
    assert "," in (tmp_path / "full.csv").read_text().splitlines()[1].removesuffix(",")
    code, told, error = said(capsys, "train", "--resume", out, "--steps", 6, "--json")
    assert code == 0 and json.loads(told)["step"] == 6, error
