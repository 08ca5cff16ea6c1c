"""Scores of sequences: known answers, a judge that repetition fools and an entropy that tells, and the command's figures."""

import json
import sys
from math import log, log2
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from unnoise.data import read
from unnoise.data.sequences import END, Sequences
from unnoise.evaluation import judge as judges
from unnoise.evaluation import molecules, sequences
from unnoise.evaluation.judge import Judge, judge_of, train_judge
from unnoise.evaluation.report import evaluate
from unnoise.evaluation.shown import shown
from unnoise.training import safe_files
from unnoise.training.data_order import split
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import train

FOUR = Sequences(form="fasta", symbols="characters", alphabet=list("ACGT"), length=16, padded=False)
LINES = Sequences(form="text", symbols="characters", alphabet=[*" ab", END], length=6, padded=True)


def sticky(rows: int, length: int, seed: int) -> torch.Tensor:
    """Letters that stay as they are with probability 0.7, else go anywhere."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(4, (rows, 1), generator=generator)
    for _ in range(length - 1):
        stay = torch.rand(rows, 1, generator=generator) < 0.7
        x = torch.cat([x, torch.where(stay, x[:, -1:], torch.randint(4, (rows, 1), generator=generator))], 1)
    return x


def test_distances_of_known_laws():
    x, y = torch.tensor([[0, 1, 0, 1, 0]]), torch.tensor([[0, 0, 0, 0, 2]])
    p, q = ({n: sequences.histogram(z, torch.ones_like(z, dtype=torch.bool), n, 4) for n in (1, 2)} for z in (x, y))
    assert p[2][0].tolist() == [1, 4] and p[2][1].tolist() == [0.5, 0.5]  # 01 and 10
    assert sequences.total_variation(p[1], q[1]) == pytest.approx(0.4)
    assert sequences.total_variation(p[2], q[2]) == 1.0 and sequences.total_variation(p[2], p[2]) == 0.0


def test_what_follows_the_end_does_not_count():
    a, b, end = 1, 2, 3
    clean = torch.tensor([[a, b, a, end, end, end]])
    dirty = torch.tensor([[a, b, a, end, b, b]])
    assert torch.equal(sequences.ended(LINES, dirty), clean)
    assert sequences.own_symbols(LINES, dirty).tolist() == [[True, True, True, True, False, False]]
    codes, law = sequences.histogram(clean, sequences.own_symbols(LINES, clean), 2, 4)
    assert codes.tolist() == [4 * a + b, 4 * a + end, 4 * b + a] and law.tolist() == [1 / 3] * 3  # ab, ba, a END alone
    scores = sequences.SequenceScores(LINES, clean)
    assert scores.score(dirty) == scores.score(clean) and scores.score(dirty)["copies"] == 1.0
    assert scores.score(clean)["entropy"] == pytest.approx(0.5 + 2 * 0.25 * log2(4))


def test_real_rows_are_nearer_than_independent_symbols():
    train, fresh = sticky(800, 16, 0), sticky(200, 16, 1)
    scores = sequences.SequenceScores(FOUR, train)
    real, loose = (scores.score(x) for x in (fresh, sequences.independent(FOUR, train, 200)))
    assert loose["ngram_distance_1"] < 0.05 and real["ngram_distance_1"] < 0.05
    for n in (2, 3, 4):
        assert loose[f"ngram_distance_{n}"] > 2 * real[f"ngram_distance_{n}"] > 0
    rows = torch.cat([train[:50], train[:50], fresh[:100]])
    known, mixed = set(map(tuple, train.tolist())), scores.score(rows)
    assert mixed["copies"] == sum(tuple(row) in known for row in rows.tolist()) / 200 >= 0.5
    assert mixed["unique"] == len(rows.unique(dim=0)) / 200 <= 0.75


def test_words_of_windows_and_of_lines():
    windows = Sequences(form="text", symbols="characters", alphabet=list(" abc"), length=8, padded=False)
    assert sequences.words(windows, ["ab abc c", "aab b"]) == {"abc"}  # those at the edges may be cut
    assert sequences.words(LINES, ["ab a", "b"]) == {"ab", "a", "b"}
    x = torch.tensor([[1, 2, 0, 1, 0, 3], [1, 1, 0, 2, 0, 3]])  # "ab a ", "aa b "
    scores = sequences.SequenceScores(LINES, x[:1])
    assert scores.score(x)["words_known"] == pytest.approx(2 / 4)


def test_repetition_fools_the_judge_and_its_entropy_tells():
    train, held = sticky(800, 16, 0), sticky(200, 16, 1)
    judge = train_judge(train, sticky(100, 16, 2), 4, "tiny", steps=120, batch=64, lr=3e-3)
    scores = sequences.SequenceScores(FOUR, train, judge)
    real, repeated = scores.score(held), scores.score(torch.arange(4).repeat(50).unsqueeze(1).expand(200, 16).contiguous())
    assert repeated["judge_perplexity"] < 0.75 * real["judge_perplexity"]
    assert repeated["entropy"] == 0.0 and real["entropy"] > 1.0
    p = torch.tensor([0.775, 0.075, 0.075, 0.075])
    rate = float(-(p * p.log2()).sum() * 15 + 2) / 16  # bits per letter of the law itself
    assert rate - 0.05 < real["judge_bits"] < rate + 0.2
    assert real["judge_perplexity"] == pytest.approx(2 ** real["judge_bits"])


def test_the_judge_does_not_count_what_follows_the_end():
    """Its likelihood of the rows cut after their first END, per symbol of these."""
    x = torch.tensor([[1, 2, 1, 3, 3, 3], [1, 3, 3, 3, 3, 3]])
    judge = train_judge(x, x, 4, "tiny", steps=5, windows=False)
    nats = -float(judge.log_prob(x[:1, :4]) + judge.log_prob(x[1:, :2])) / 6
    found = sequences.SequenceScores(LINES, x, judge).score(x)
    assert found["judge_bits"] == pytest.approx(nats / log(2), rel=1e-5)
    assert -float(judge.log_prob(x).sum()) / 6 > nats + 0.1  # what the fillers would add


def test_a_judge_is_kept_and_checked(tmp_path, monkeypatch):
    x, folder, trained = sticky(120, 16, 0), tmp_path / "judge", []

    def few_steps(*arguments, **options) -> Judge:
        trained.append(arguments)
        return train_judge(*arguments, **{**options, "steps": 3})

    monkeypatch.setattr(judges, "train_judge", few_steps)

    def judge(rows: torch.Tensor = x, seed: int = 0, minutes: float = 0.1) -> Judge:
        return judge_of(folder, rows, 4, True, "tiny", minutes, seed)

    first, second = judge(), judge()
    assert len(trained) == 1 and torch.equal(first.log_prob(x), second.log_prob(x))
    assert (first.steps, first.seconds, first.nats) == (second.steps, second.seconds, second.nats)
    seen, stopping = trained[0][:2]
    assert len(seen) == 114 and len(stopping) == 6  # what stops it is none of what it learns from
    assert {p.suffix for p in folder.iterdir()} == {".json", ".safetensors"}
    judge(x[1:])
    judge(x[1:], seed=1)
    judge(x[1:], seed=1, minutes=0.2)
    assert len(trained) == 4
    weights = folder / "judge.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    with pytest.warns(UserWarning, match="the judge is trained again"):
        judge(x[1:], seed=1, minutes=0.2)
    assert len(trained) == 5 and judge(x[1:], seed=1, minutes=0.2).steps == 3 and len(trained) == 5
    kept = weights.read_bytes()
    for n, change in enumerate((lambda said: [], lambda said: said | {"nats": "low"})):  # whole, but not what a judge says
        said = change(json.loads((folder / "judge.json").read_text()))

        def fill(target, said=said):
            (target / "judge.json").write_text(json.dumps(said))
            (target / "judge.safetensors").write_bytes(kept)

        safe_files.remove_folder(folder)
        safe_files.save_folder(folder, fill, {})
        with pytest.warns(UserWarning, match="the judge is trained again"):
            judge(x[1:], seed=1, minutes=0.2)
        assert len(trained) == 6 + n


@pytest.fixture
def chemistry(monkeypatch):
    """A chemistry in which a string is a molecule if it holds no X, and its letters' order means nothing."""
    rdkit = ModuleType("rdkit")
    rdkit.Chem = SimpleNamespace(  # type: ignore[attr-defined]
        MolFromSmiles=lambda text: None if "X" in text else sorted(text), MolToSmiles="".join
    )
    rdkit.RDLogger = SimpleNamespace(DisableLog=lambda name: None)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rdkit", rdkit)


def test_molecules_are_counted_by_their_canonical_strings(chemistry):
    found = molecules.MoleculeScores(["CO", "CN"]).score(["OC", "CO", "CX", "", "CCN", "NCC", "CCO", "X"])
    none = molecules.MoleculeScores(["CO"]).score(["X"])
    assert none == {"validity": 0.0, "uniqueness": None, "novelty": None}
    # valid: OC CO CCN NCC CCO; different: CO CCN CCO; new: CCN CCO
    assert found == {"validity": 5 / 8, "uniqueness": 3 / 5, "novelty": 2 / 3}


def test_strings_alone_where_there_is_no_chemistry(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    found = molecules.MoleculeScores(["CO", "CN"]).score(["OC", "CO", "CO", "CX"])
    assert found == {"validity": None, "uniqueness": 3 / 4, "novelty": 2 / 3}


def test_real_chemistry():
    pytest.importorskip("rdkit")
    found = molecules.MoleculeScores(["CCO", "c1ccccc1"]).score(
        ["OCC", "C1=CC=CC=C1", "CCN", "NCC", "C1CC", "C(C)(C)(C)(C)C"]
    )
    assert found == {"validity": 4 / 6, "uniqueness": 3 / 4, "novelty": 1 / 3}


def trained(path: Path, folder: Path, steps: int = 6) -> Run:
    form, x0 = read(path)
    run = Run.create(folder, recipe(form, len(x0), "tiny", steps=steps))
    (folder / "data.json").write_text(json.dumps({"path": str(path)}) + "\n")
    train(run, x0)
    return run


def test_every_figure_of_molecules_twice(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    rng = torch.Generator().manual_seed(0)
    strings = ["C" + "".join("CNO"[i] for i in torch.randint(3, (2 + k % 6,), generator=rng)) for k in range(120)]
    (tmp_path / "m.csv").write_text("smiles\n" + "\n".join(strings) + "\n")
    run = trained(tmp_path / "m.csv", tmp_path / "run")
    first = evaluate(run, draws=2, samples=50, judge_minutes=0.01, device="cpu")
    second = evaluate(run, draws=2, samples=50, judge_minutes=0.01, device="cpu")
    assert first == second and json.loads(json.dumps(first)) == first
    assert first["sampled"] == 12 == first["examples"]  # no more samples than unseen rows to compare with
    form, x0 = run.format(), run.format().encode(tmp_path / "m.csv")
    assert isinstance(form, Sequences)
    nats = first["bits_per_symbol"] * log(2)
    assert first["perplexity"] == pytest.approx(torch.tensor(nats).exp().item(), rel=1e-5)
    assert first["bits_per_symbol"] > first["bits_per_dim"]  # fillers are no symbols
    assert first["exact"] is None and "4096" in first["exact_why"] and "pip install rdkit" in first["validity_why"]
    assert first["samples"]["validity"] is None and 0 <= first["samples"]["novelty"] <= 1
    known = set(strings)
    assert first["control_unseen_rows"]["copies"] < 1 and form.texts(x0) == strings and len(known) > 60
    told = shown(first)
    assert "control" not in told and "exact why" in told
    head = next(line for line in told.splitlines() if "independent symbols" in line)
    assert head.split() == ["samples", "unseen", "rows", "independent", "symbols"]
    row = next(line for line in told.splitlines() if line.startswith("judge perplexity"))
    assert row.split()[2] == f"{first['samples']['judge_perplexity']:.5g}"
    bare = evaluate(run, draws=1, samples=10, judge_minutes=0.0, exact_rows=0, device="cpu")
    assert "judge" not in bare and "judge_bits" not in bare["samples"] and bare["exact_why"] == "--exact-rows 0"
    none = evaluate(run, draws=1, samples=0, device="cpu")
    assert "samples" not in none and none["perplexity"] > 1


def test_the_judge_never_sees_held_out_rows(tmp_path, monkeypatch):
    """It is given the training rows of the run's own split, those and no others."""
    (tmp_path / "a.txt").write_text("the cat sat on the mat. a dog ran to the hen. " * 40)
    run = trained(tmp_path / "a.txt", tmp_path / "run", steps=2)
    given = {}

    def spy(folder, rows, *arguments, **options):
        given["rows"] = rows
        return judge_of(folder, rows, *arguments, **options)

    monkeypatch.setattr("unnoise.evaluation.file_scores.judge_of", spy)
    result = evaluate(run, draws=1, samples=4, judge_minutes=0.001, device="cpu")
    x0 = run.format().encode(tmp_path / "a.txt")
    kept, held = split(len(x0), run.config.train.validation, run.config.train.seed)
    assert torch.equal(given["rows"], x0[kept]) and len(held) == result["examples"]
    assert {"words_known", "judge_bits"} <= set(result["samples"]) and (run.folder / "judge" / "manifest.json").exists()
