"""Filling gaps: by place in the file, exactly or approximately, in tables, arrays and anything with kernels."""

import json

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.cli import main
from unnoise.data import BadData, Reading, read
from unnoise.noise import NoiseSource
from unnoise.samplers.replacement import Replacement
from unnoise.training.drawing import conditioning, fill

F64 = torch.float64


# -- replacement ------------------------------------------------------------------------------------------------------


def off_by(rounds, steps=32, n=250):
    """Neighbours of correlation 0.9, two of six known: how far the others' mean and spread lie from the exact ones.

    The mean in the worst direction and in conditional standard deviations; the largest ratio of two deviations.
    """
    place = torch.arange(6, dtype=F64)
    covariance = 0.9 ** (place[:, None] - place).abs()
    oracle = un.oracles.normal(un.Gaussian((6,), un.schedules.Cosine()), torch.zeros(6, dtype=F64), covariance)
    known = place % 3 == 0
    values = torch.tensor([1.0, 0, 0, -1.0, 0, 0], dtype=F64)
    gain = covariance[~known][:, known] @ torch.linalg.inv(covariance[known][:, known])
    mean, rest = gain @ values[known], covariance[~known][:, ~known] - gain @ covariance[known][:, ~known]
    sampler = Replacement(values.expand(n, -1), known.expand(n, -1), rounds)
    start = oracle.process.prior(n, F64, torch.device("cpu")).draw(NoiseSource(0, n).at("prior"))
    x, info = un.sample(oracle, x=start, steps=steps, sampler=sampler, seed=0)
    assert info.calls == steps * rounds == sampler.calls(steps, oracle.process)
    torch.testing.assert_close(x[:, known], values[known].expand(n, -1), rtol=0, atol=1e-9)
    root = torch.linalg.cholesky(rest)
    white = torch.linalg.solve_triangular(root, (x[:, ~known] - mean).T, upper=False)
    spread = torch.linalg.eigvalsh(white.cov()).sqrt()
    return float(white.mean(1).norm()), float(torch.maximum(spread, 1 / spread).max())


def test_more_rounds_are_closer_to_the_exact_conditional():
    once, many = off_by(1), off_by(8)
    assert once[0] > 1.1 and many[0] < 0.6
    assert once[1] > 1.6 and many[1] < 1.45


def test_replacement_on_categories():
    """Under uniform noise, one of two letters that mostly agree is known: in total variation of the exact conditional."""
    probs = torch.tensor([[8.0, 1, 1], [1, 8, 1], [1, 1, 8]], dtype=F64).flatten() / 30
    oracle = un.oracles.table(un.Uniform(3, 2), probs)
    n, away = 1500, {}
    x, fixed = torch.tensor([[0, 2]]).expand(n, -1), torch.tensor([[False, True]]).expand(n, -1)
    for rounds in (1, 6):
        start = oracle.process.prior(n).draw(NoiseSource(1, n).at("prior"))
        drawn, _ = un.sample(oracle, x=start, steps=20, sampler=Replacement(x, fixed, rounds), seed=0)
        assert bool((drawn[:, 1] == 2).all())
        found = torch.bincount(drawn[:, 0], minlength=3) / n
        away[rounds] = float((found - torch.tensor([0.1, 0.1, 0.8])).abs().sum()) / 2
    assert away[6] < 0.5 * away[1] and away[6] < 0.12 < away[1]


# -- rows by their place ----------------------------------------------------------------------------------------------


class Plain(torch.nn.Module):
    """A network whose rows never meet, not even in the rounding of a matrix product."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([0.5, -0.3, 0.8]))

    def forward(self, x, t):
        told = t if isinstance(t, dict) else dict.fromkeys(x, t)
        seen = (x["c"].double() * 0.1).sum(1) + (x["a"] * self.scale[0]).sum(1) + (x["b"] * self.scale[1]).sum(1)
        logits = torch.sin(seen[:, None, None] + torch.arange(12).reshape(4, 3)) * self.scale[2] + told["c"][:, None, None]
        return {"c": logits, "a": x["a"] * 0.4 + seen[:, None] * 0.1, "b": x["b"] * 0.2 - seen[:, None] * 0.3}


def mixed(vector=1):
    process = un.Product(c=un.Masking(3, 4), a=un.Gaussian((1,)), b=un.Gaussian((vector,)))
    return un.Denoiser(Plain(), process, {"a": un.Clean, "b": un.Clean})


def gappy(rows, vector=1):
    x = {"c": torch.arange(rows * 4).reshape(rows, 4) % 3, "a": torch.linspace(-1, 1, rows).unsqueeze(1)}
    x["b"] = NoiseSource(9, rows).normal((vector,), torch.float32)
    coin = NoiseSource(3, rows).uniform((4 + 1 + vector,)) < 0.5
    fixed = {"c": coin[:, :4], "a": coin[:, 4:5], "b": coin[:, 5:] if vector > 1 else coin[:, 5:6]}
    return x, fixed


def test_a_row_is_filled_alike_whatever_the_others_are():
    x, fixed = gappy(24)
    whole, _ = fill(mixed(), x, fixed, steps=6, device="cpu", seed=0)
    small, _ = fill(mixed(), x, fixed, steps=6, device="cpu", seed=0, batch=3)
    cut, _ = fill(mixed(), *({k: v[:10] for k, v in tree.items()} for tree in (x, fixed)), steps=6, device="cpu", seed=0)
    other = {name: leaf.clone() for name, leaf in fixed.items()}
    for leaf in other.values():
        leaf[::2] = ~leaf[::2]
    changed, _ = fill(mixed(), x, other, steps=6, device="cpu", seed=0)
    moved, _ = fill(
        mixed(), *({k: v.roll(1, 0) for k, v in tree.items()} for tree in (x, fixed)), steps=6, device="cpu", seed=0
    )
    for name, leaf in whole.items():
        assert torch.equal(leaf, small[name]) and torch.equal(leaf[:10], cut[name])
        assert torch.equal(leaf[1::2], changed[name][1::2])
        assert torch.equal(leaf[fixed[name]], x[name][fixed[name]])  # and what is known stays
        assert not torch.equal(leaf, moved[name].roll(-1, 0))  # another place draws other numbers


def test_without_a_seed_a_fill_is_fresh_and_can_be_repeated():
    x, fixed = gappy(24)
    first, info = fill(mixed(), x, fixed, steps=4, device="cpu")
    second, _ = fill(mixed(), x, fixed, steps=4, device="cpu")
    again, _ = fill(mixed(), x, fixed, steps=4, device="cpu", seed=info.seed)
    assert not torch.equal(first["b"], second["b"]) and all(torch.equal(first[name], again[name]) for name in first)


def test_samples_are_keyed_by_the_rows_given():
    denoiser = mixed()
    all_, _ = un.sample(denoiser, n=9, steps=4, seed=2)
    some, _ = un.sample(denoiser, n=3, steps=4, seed=2, rows=torch.tensor([7, 0, 4]))
    for name in all_:
        assert torch.equal(all_[name][[7, 0, 4]], some[name])
    with pytest.raises(ValueError, match="one number for each of 3"):
        un.sample(denoiser, n=3, steps=4, rows=torch.arange(2), seed=0)


# -- what is exact ----------------------------------------------------------------------------------------------------


def test_what_is_exact_and_what_is_not():
    x, fixed = gappy(24)
    assert conditioning(mixed().process, fixed) == dict.fromkeys("cab", "exact")
    x, fixed = gappy(24, vector=3)
    fixed["a"] = torch.ones_like(fixed["a"])
    labels = conditioning(mixed(3).process, fixed, rounds=2)
    assert labels == dict.fromkeys("cb", "approximate: replacement, 2 rounds a step")
    filled, info = fill(mixed(3), x, fixed, steps=4, device="cpu", seed=0, rounds=2)
    # two patterns by replacement, and one whose numbers are known: a call for its gap
    assert info.calls == 2 * 8 + 1 and all(torch.equal(filled[n][fixed[n]], x[n][fixed[n]]) for n in x)
    assert bool((filled["c"] < 3).all()) and not torch.equal(filled["b"], x["b"])
    whole = {"x": torch.ones(3, 2) > 0}
    assert conditioning(un.Product(x=un.Gaussian((2,))), whole) == {}
    assert conditioning(un.Masking(3, 2), torch.zeros(3, 2) > 0) == {"": "exact"}
    assert conditioning(un.Gaussian((2,)), torch.zeros(3, 2) > 0) == {"": "exact"}  # nothing is known
    half = torch.tensor([[True, False]])
    assert conditioning(un.Gaussian((2,)), half, 1) == {"": "approximate: 1 particle"}
    assert conditioning(un.Uniform(3, 2), half, 4) == {"": "approximate: replacement, 4 rounds a step"}
    many = torch.tensor([[True] * 17 + [False]])
    assert conditioning(un.Gaussian((18,)), many, 4) == {"": "approximate: replacement, 4 rounds a step"}
    both = torch.cat([many, torch.tensor([[False] + [True] * 16 + [False]])])  # each row as if it were alone
    assert conditioning(un.Gaussian((18,)), both[1:], 4) == {"": "approximate: 4 particles"}


# -- arrays -----------------------------------------------------------------------------------------------------------


def test_gaps_of_arrays(tmp_path):
    rng = np.random.default_rng(0)
    floats, levels = rng.normal(size=(40, 3)) * [1, 5, 0.1], rng.integers(0, 9, (40, 4, 4, 3)).astype(np.uint8)
    np.save(tmp_path / "f.npy", floats)
    np.save(tmp_path / "i.npy", levels)
    form, states = read(tmp_path / "f.npy")
    holes = floats.copy()
    holes[3, 1] = holes[5, 0] = np.nan
    np.save(tmp_path / "holes.npy", holes)
    x, fixed = form.gaps(tmp_path / "holes.npy")
    assert (~fixed).nonzero().tolist() == [[3, 1], [5, 0]] and torch.equal(x[fixed], states[fixed])
    assert bool(x.isfinite().all())
    with pytest.raises(BadData, match="marked by a number"):
        form.gaps(tmp_path / "holes.npy", "x")
    for categories in (False, True):
        form, states = read(tmp_path / "i.npy", Reading(categories=categories))
        marked = levels.copy()
        marked[2, 1, 3, 0] = marked[7, 0, 0, 2] = 255
        np.save(tmp_path / "marked.npy", marked)
        x, fixed = form.gaps(tmp_path / "marked.npy", "255")
        assert (~fixed).nonzero().tolist() == [[2, 0, 1, 3], [7, 2, 0, 0]]  # channels come first in states
        assert torch.equal(x[fixed], states[fixed])
        with pytest.raises(BadData, match="--mark 255"):
            form.gaps(tmp_path / "marked.npy")
        with pytest.raises(BadData, match="outside 0 ... 8"):
            form.gaps(tmp_path / "marked.npy", "254")
        as_floats = np.where(marked == 255, np.nan, marked)
        np.save(tmp_path / "nan.npy", as_floats)
        again, same = form.gaps(tmp_path / "nan.npy")
        assert torch.equal(again[fixed], x[fixed]) and torch.equal(same, fixed)
        np.save(tmp_path / "half.npy", np.minimum(as_floats + 0.5, 7.5))
        with pytest.raises(BadData, match="whole"):
            form.gaps(tmp_path / "half.npy")


def command(capsys, *arguments, status=0):
    with pytest.raises(SystemExit) as done:
        main([str(argument) for argument in arguments])
    told = capsys.readouterr()
    assert done.value.code == status, told.err
    return told.out if status == 0 else told.err


def test_the_command_says_how_it_conditioned(tmp_path, capsys):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 3)).astype(np.float32)
    np.save(tmp_path / "points.npy", points)
    command(capsys, "train", tmp_path / "points.npy", "--out", tmp_path / "p", "--steps", 5, "--device", "cpu", "--json")
    holes = points[:6].copy()
    holes[::2, 1] = np.nan
    np.save(tmp_path / "holes.npy", holes)
    arguments = ("infill", tmp_path / "p", tmp_path / "holes.npy", "--out", tmp_path / "full.npy", "--steps", 8)
    told = json.loads(command(capsys, *arguments, "--rounds", 3, "--json"))
    assert told["conditioning"] == told["parts"]["array"] == "approximate: 3 particles"
    assert told["filled"] == 3 and told["calls"] == 8
    full = np.load(tmp_path / "full.npy")
    known = ~np.isnan(holes)
    assert np.isfinite(full).all() and np.allclose(full[known], holes[known], rtol=1e-5, atol=1e-6)
    assert "approximate" in command(capsys, *arguments)
    line = command(capsys, "sample", tmp_path / "p", "--given", "x=1", "--out", tmp_path / "n.npy", status=2)
    assert "--given" in line and "table" in line and len(line.strip().splitlines()) == 1
    assert not (tmp_path / "n.npy").exists()


# -- what is known stays ----------------------------------------------------------------------------------------------


def quick(path, folder, how=None, steps=2):
    from unnoise.training import Run, Trainer
    from unnoise.training.recipes import recipe

    form, x0 = read(path, how or Reading())
    run = Run.create(folder, recipe(form, 100, "tiny", steps=steps, batch_size=16, panels=0, validate_every=1000))
    Trainer(run, x0).fit()
    return form, run


def test_known_numbers_of_a_table_stay_to_the_last_digit(tmp_path, capsys):
    """Scores are float32, and nine digits are more than they hold."""
    rng = np.random.default_rng(0)
    table = np.char.mod("%d", rng.integers(10**8, 10**9, 400)), np.array(["a", "b"])[rng.integers(0, 2, 400)]
    rows = [f"{n},{k}" for n, k in zip(*table, strict=True)]
    (tmp_path / "t.csv").write_text("amount,kind\n" + "\n".join(rows) + "\n")
    form, run = quick(tmp_path / "t.csv", tmp_path / "run")
    fresh = np.sort(rng.integers(2 * 10**8, 9 * 10**8, 60)).astype(str).tolist()
    (tmp_path / "fresh.csv").write_text("amount,kind\n" + "".join(f"{n},a\n" for n in fresh))
    assert form.frame(form.encode(tmp_path / "fresh.csv"))["amount"].astype(str).tolist() != fresh  # scores are too coarse
    (tmp_path / "gaps.csv").write_text(
        "amount,kind\n" + "".join(f"{n},{'a' if i % 2 else ''}\n" for i, n in enumerate(fresh))
    )
    command(capsys, "infill", run.folder, tmp_path / "gaps.csv", "--steps", 4, "--out", tmp_path / "full.csv")
    full = [line.split(",") for line in (tmp_path / "full.csv").read_text().splitlines()[1:]]
    assert [line[0] for line in full] == fresh and {line[1] for line in full} == {"a", "b"}
    number = fresh[7]
    given = ("--given", f"amount={number}", "--steps", 4)
    command(capsys, "sample", run.folder, "-n", 3, *given, "--out", tmp_path / "s.parquet")
    import pandas as pd

    assert pd.read_parquet(tmp_path / "s.parquet")["amount"].tolist() == [int(number)] * 3
    told = command(capsys, "sample", run.folder, "-n", 3, "--given", f"amount={number}.5", status=2)
    assert "amount" in told and "whole numbers" in told


def test_no_sequence_ends_before_a_symbol_that_is_known(tmp_path, capsys):
    """Hardly trained, a network draws END anywhere; what is known stays, and so does the length up to it."""
    (tmp_path / "t.txt").write_text("\n".join(["the cat sat", "a dog", "the cow ate hay"] * 40))
    form, run = quick(tmp_path / "t.txt", tmp_path / "run", Reading(padded=True))
    lines = ["the c_t s_t", "____________d", "a _og", "_o_", "the cow"] * 12
    (tmp_path / "gaps.txt").write_text("\n".join(lines) + "\n")
    command(capsys, "infill", run.folder, tmp_path / "gaps.txt", "--out", tmp_path / "full.txt")
    full = (tmp_path / "full.txt").read_text().splitlines()
    assert len(full) == len(lines)
    for line, gappy in zip(full, lines, strict=True):
        last = max(i for i, c in enumerate(gappy) if c != "_")
        assert len(line) >= last + 1 and all(c in ("_", d) for c, d in zip(gappy, line, strict=False))


def test_end_is_barred_exactly_where_a_symbol_comes_later():
    from unnoise.data.end_symbol import EndBarred

    class Flat(torch.nn.Module):
        def forward(self, x, t):
            return torch.zeros(*x.shape, 4)

    network = EndBarred(Flat(), end=3, mask=4)
    found = network(torch.tensor([[4, 0, 4, 2, 4, 3], [4, 4, 3, 3, 3, 3]]), torch.ones(2))
    barred = torch.zeros(2, 6, 4, dtype=torch.bool)
    barred[0, [0, 2], 3] = True
    assert torch.equal(found < -1e30, barred) and (found[~barred] == 0).all()


def test_gaps_come_out_as_values(tmp_path, capsys):
    """Half of a column is missing, and an empty cell is a gap: rows are drawn until it holds a value, the right one."""
    rng = np.random.default_rng(0)
    kinds, there = rng.integers(0, 2, 400), rng.random(400) < 0.5
    cells = [f"{'ab'[k]},{'xy'[k] if on else ''}" for k, on in zip(kinds, there, strict=True)]
    (tmp_path / "t.csv").write_text("kind,word\n" + "\n".join(cells) + "\n")
    form, run = quick(tmp_path / "t.csv", tmp_path / "run", steps=400)
    (tmp_path / "gaps.csv").write_text("kind,word\n" + "a,\nb,\n" * 40)
    told = json.loads(
        command(capsys, "infill", run.folder, tmp_path / "gaps.csv", "--steps", 2, "--out", tmp_path / "f.csv", "--json")
    )
    full = (tmp_path / "f.csv").read_text().splitlines()[1:]
    assert told["filled"] == 80 and "missing" not in told
    right = sum(line in ("a,x", "b,y") for line in full)  # 74 to 77 in three runs; by chance 64 or more once in 10^7
    assert right >= 64 and all(line[-1] != "," for line in full)
    command(capsys, "infill", run.folder, tmp_path / "gaps.csv", "--steps", 2, "--out", tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "f.csv").read_text()
    (tmp_path / "gaps.csv").write_text("kind,word\n" + "a,x\nb,\n" * 40)  # a row's draw is its own
    command(capsys, "infill", run.folder, tmp_path / "gaps.csv", "--steps", 2, "--out", tmp_path / "g.csv")
    assert (tmp_path / "g.csv").read_text().splitlines()[2::2] == full[1::2]


def test_a_filled_table_is_the_file_but_for_its_gaps(tmp_path, capsys):
    """Dropped columns, order, line ends and spellings stay; the run's own missing word is a gap."""
    rng = np.random.default_rng(0)
    ages, words = rng.integers(20, 40, 60), np.array(["0.5", "1.5", "NA"])[rng.integers(0, 3, 60)]
    rows = [f"C{i},{age},{'true' if age % 2 else 'false'},{w}" for i, (age, w) in enumerate(zip(ages, words, strict=True))]
    (tmp_path / "t.csv").write_text("id,age,member,w\n" + "\n".join(rows) + "\n")
    (tmp_path / "k.yaml").write_text("id: drop\nw: {missing: [NA]}\n")
    form, run = quick(tmp_path / "t.csv", tmp_path / "run", Reading(columns=tmp_path / "k.yaml"))
    gaps = "w,id,age,member\r\n0.50,C900,30.0,TRUE\r\n1.5,C901,{},TRUE\r\n{},C902,30,TRUE\r\n"
    (tmp_path / "g.csv").write_text(gaps.format("", "NA"), newline="")
    told = command(capsys, "infill", run.folder, tmp_path / "g.csv", "--steps", 2, "--out", tmp_path / "f.csv", "--json")
    full = (tmp_path / "f.csv").read_bytes().decode()
    cells = [line.split(",") for line in full.split("\r\n")]
    assert json.loads(told)["filled"] == 2 and full == gaps.format(cells[2][2], cells[3][0])
    assert cells[2][2] in set(ages.astype(str)) and cells[3][0] in ("0.5", "1.5")
