"""Rules and rewards by the words of a command, on a run that is hardly trained."""

import json
import re

import pytest
import torch

import unnoise as un
from unnoise.cli import main
from unnoise.data import Reading, read
from unnoise.guidance.steering import CutShort, Steering, drawn, named
from unnoise.training import Run, Trainer
from unnoise.training.recipes import recipe

WORDS = "ax\nbxay\nazaz\nbybzax\nayby\nbx\n"


def command(capsys, *arguments, status=0):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in arguments])
    captured = capsys.readouterr()
    assert stop.value.code == status, captured.err
    return captured.err if status == 2 else captured.out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("steering")
    (folder / "words.txt").write_text(WORDS * 20)
    for name, noise in (("run", "masking"), ("uniform", "uniform")):
        form, x0 = read(folder / "words.txt", Reading(padded=True, noise=noise))
        run = Run.create(folder / name, recipe(form, 100, "tiny", steps=2, batch_size=16, panels=0, validate_every=1000))
        Trainer(run, x0).fit()
    (folder / "my_rewards.py").write_text(
        "def many(texts):\n    return [float(t.count('a')) for t in texts]\n"
        "def blank(texts):\n    return [float('nan')] * len(texts)\n"
        "def stops(texts):\n    raise KeyError('no')\n"
        "calls = 0\n"
        "def later(texts):\n    global calls\n    calls += 1\n"
        "    return [float('nan') if calls > 10 else float(t.count('a')) for t in texts]\n"
    )
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return folder


def test_a_regular_expression(here, capsys):
    out = here / "matched.txt"
    told = json.loads(
        command(capsys, "sample", "run", "-n", 30, "--regex", "a[xy].*", "--particles", 4, "--out", out, "--json")
    )
    texts = out.read_text().splitlines()
    assert told["n"] == len(texts) == 30 and all(re.fullmatch("a[xy].*", text) for text in texts)
    assert told["particles"] == 4 and told["acceptance"] == 1 and 1 <= told["effective"] <= 4
    assert told["log_normaliser"] < 0 and told["rows"] == told["calls"] * 30 * 4
    shown = command(capsys, "sample", "run", "-n", 5, "--regex", "a[xy].*", "--particles", 4, "--out", out)
    assert "log of the normaliser" in shown and out.read_text().splitlines() == texts[:5]


def test_the_probability_of_a_rule_is_that_of_the_model(here):
    """log of the normaliser against the share of plain draws that match: 4 standard errors, 1 in 16,000."""
    run = Run.open(here / "run")
    form, model = run.format(), run.denoiser(which="best")
    _, info = drawn(model, form, 200, Steering(regex="a.*", particles=8), seed=0)
    plain, _ = drawn(model, form, 1500, Steering(), sampler=un.samplers.FirstHitting(), seed=1)
    share = sum(text.startswith("a") for text in form.texts(plain)) / 1500
    log_z, error = info.particles.estimate()
    assert abs(log_z - torch.tensor(share).log()) < 4 * (error**2 + (1 - share) / share / 1500) ** 0.5


def test_a_grammar(here, capsys):
    (here / "pairs.lark").write_text('start: pair+\npair: ("a"|"b") start? ("x"|"y"|"z")\n')
    out = here / "derived.txt"
    command(capsys, "sample", "run", "-n", 20, "--grammar", "pairs.lark", "--out", out, "--particles", 2)

    def open_(text):
        depth = 0
        for letter in text:
            depth += 1 if letter in "ab" else -1
            if depth < 0:
                return -1
        return depth

    texts = out.read_text().splitlines()
    assert len(texts) == 20 and all(text and open_(text) == 0 for text in texts)


def test_a_reward_is_worth_its_strength(here, capsys):
    """log E exp(r) of independent draws of the model, against the particles' own: 4 standard errors, 1 in 16,000."""
    out = here / "rewarded.txt"
    told = json.loads(
        command(capsys, "sample", "run", "-n", 200, "--reward", "my_rewards:many", "--particles", 4, "--out", out, "--json")
    )
    run = Run.open(here / "run")
    plain, _ = drawn(run.denoiser(which="best"), run.format(), 3000, Steering(), sampler=un.samplers.FirstHitting(), seed=1)
    weights = torch.tensor([float(text.count("a")) for text in run.format().texts(plain)]).double().exp()
    error = (weights.var() / 3000) ** 0.5 / weights.mean()
    assert (
        abs(told["log_normaliser"] - float(weights.mean().log())) < 4 * (error**2 + told["log_normaliser_error"] ** 2) ** 0.5
    )
    assert out.read_text().count("a") / 200 > 1.1 * sum(text.count("a") for text in run.format().texts(plain)) / 3000


def test_uniform_noise_is_weighed_at_the_end(here, capsys):
    """Nothing leads there: groups without a survivor are left out, and said."""
    out = here / "uniform.txt"
    told = command(capsys, "sample", "uniform", "-n", 20, "--regex", "a.*", "--particles", 2, "--out", out, status=1)
    texts = out.read_text().splitlines()
    assert 0 < len(texts) < 20 and all(text.startswith("a") for text in texts)
    assert f"wrote {len(texts)} samples" in told and f"of {20 - len(texts)} more all particles had weight 0" in told


def test_what_was_drawn_before_a_reward_fails_is_kept(here, capsys):
    """A batch asks 7 times, so the eleventh answer falls into the second: the samples of the first are those of any run."""
    import my_rewards

    out, words = here / "kept.txt", ("sample", "run", "-n", 9, "--batch", 3, "--particles", 2, "--reward")
    command(capsys, *words, "my_rewards:many", "--out", out)
    whole = out.read_text().splitlines()
    my_rewards.calls = 0
    told = json.loads(command(capsys, *words, "my_rewards:later", "--out", out, "--json", status=1))
    assert out.read_text().splitlines() == whole[:3] and told["n"] == 3 and told["acceptance"] == 1
    assert told["stopped"].startswith("the reward of row 0 is nan")
    my_rewards.calls = 0
    shown = command(capsys, *words, "my_rewards:later", "--out", out, status=1)
    assert "wrote 3 samples" in shown and "then it stopped: the reward of row 0 is nan" in shown
    my_rewards.calls = 10
    assert "nan" in command(capsys, *words, "my_rewards:later", "--out", out, status=2)


def test_what_cannot_be_is_said(here, capsys):
    def told(*words):
        return command(capsys, "sample", "run", "-n", 3, *words, status=2)

    assert "the reward of row 0 is nan" in told("--reward", "my_rewards:blank")
    assert "the reward stopped with KeyError: 'no'" in told("--reward", "my_rewards:stops")
    assert "my_rewards has no function 'none'" in told("--reward", "my_rewards:none")
    assert "No module named 'nowhere'" in told("--reward", "nowhere:f")
    assert "write it as module:function" in told("--reward", "length")
    assert "'(a' cannot be read" in told("--regex", "(a")
    assert "accepts no sequence of length 6" in told("--regex", "a{40}")
    assert "name one (regex, grammar, reward, guide)" in told("--particles", 4)
    assert "is that of a reward" in told("--strength", 3)
    assert "there is no such file" in told("--grammar", "none.lark")
    assert "does not say the density of its steps" in told("--regex", "a.*", "--sampler", "ThetaRK2")
    assert "does not go with --prompt" in told("--regex", "a.*", "--prompt", "a")
    with pytest.raises(ValueError, match="particles = 0"):
        Steering(regex="a", particles=0).check()
    assert named("math:exp")(0) == 1


def test_a_model_in_memory():
    model = un.fit((WORDS * 20).split(), steps=2, preset="tiny", progress=False)
    texts = model.sample(10, regex="b.*z.*", particles=4, seed=0)
    assert len(texts) == 10 and all(re.fullmatch("b.*z.*", text) for text in texts)
    calls = []

    def stops(texts):
        calls.append(1)
        if len(calls) > 10:
            raise KeyError("no")
        return [0.0] * len(texts)

    with pytest.raises(CutShort, match="KeyError: 'no'; 3 of 9 samples were drawn before") as stopped:
        model.sample(9, reward=stops, particles=2, seed=0, batch=3)
    assert len(stopped.value.samples) == 3
    texts = model.sample(20, reward=lambda texts: [-len(text) for text in texts], strength=5.0, particles=8, seed=0)
    assert sum(map(len, texts)) < 0.7 * sum(map(len, model.sample(20, seed=0)))
