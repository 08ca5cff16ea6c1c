"""The loop: it learns, it stops when it should, and a bad update is never made."""

import json
import sys

import pytest
import small_run
import torch

import unnoise as un
from unnoise.networks.base import REGISTRY
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective
from unnoise.training import NonFinite, TrainConfig, metrics, train
from unnoise.training.data_order import Cursor, InMemory, batches
from unnoise.training.learner import Learner, objective_of, weighting_of
from unnoise.training.trainer import Trainer


def lines(run):
    return metrics.read_metrics(run.metrics)


def test_a_mixed_run_learns_writes_samples_and_reports(tmp_path):
    """Two numbers and three equal letters, all told by one letter: the bound falls far below that of independent ones."""
    run = small_run.make(
        tmp_path / "run", small_run.Pairs(2.0), dropout=0.0, steps=80, log_every=20, validate_every=40, save_every=40,
        panels=2, samples=8, sample_steps=4, ema=(0.9,), tensorboard=True, lr=0.03, predicts={"number": un.Clean}
    )  # fmt: skip
    outcome = train(run, small_run.pairs(300))
    start, first, last = (line["validation_bound"] for line in lines(run) if "validation_bound" in line)
    assert lines(run)[0]["step"] == 0 and start > first and lines(run)[-1]["training_rows"] == 64
    assert outcome.best == min(first, last)
    trained = [line for line in lines(run) if "loss" in line]
    assert [line["step"] for line in trained] == [20, 40, 60, 80]
    for line in trained:
        assert line["loss"] == pytest.approx(line["prior"] + line["diffusion"] + line["reconstruction"])
        assert line["examples_per_second"] > 0 and line["grad_norm"] > 0 and line["epoch"] == line["step"] // 8
    assert trained[-1]["lr"] < trained[1]["lr"] < trained[0]["lr"] <= 0.03
    untrained = float(un.bound(run.denoiser_of_config(), small_run.pairs(300), seed=0).total.detach().mean())
    assert last < untrained - 3
    for step in (40, 80):
        drawn = json.loads((run.samples / f"{step:09d}.json").read_text())
        assert len(drawn["letters"]) == 8 and max(map(max, drawn["letters"])) < small_run.SIZE
    assert list((run.folder / "tensorboard").glob("events*"))


def test_losses_are_those_of_the_objective_with_the_documented_noise(tmp_path):
    """Step 3 again by hand, from the weights after step 2: the data's order and the noise are as they are said to be."""
    run = small_run.make(tmp_path / "run", dropout=0.0, steps=2)
    train(run, small_run.rows())
    objective = Objective(run.denoiser(ema=False))
    run.change(steps=3)
    trainer = Trainer(run, small_run.rows())
    trainer.fit()
    stream = batches(InMemory(small_run.rows()), trainer.order, Cursor(0, 64), torch.device("cpu"))
    _, rows, x0 = next(stream)
    assert torch.equal(x0, small_run.rows()[rows])
    loss = objective(x0, NoiseSource(0, rows).at("epoch", 0, "batch", 64)).loss.mean()
    assert small_run.losses(run.folder)[3] == pytest.approx(loss.item(), rel=1e-6)


def test_no_epoch_repeats_the_noise_of_another(tmp_path, monkeypatch):
    """All rows are one batch in two parts, so that each is at the same place, or nearly, in every epoch."""
    run = small_run.make(tmp_path / "run", steps=3, batch_size=200, accumulate=2, validation=0.0, panels=0, save_every=100)
    seen = []

    def update(self, parts, count, step, lr):
        for _, noise in parts:
            seen.extend(zip(noise.rows.tolist(), noise.at("any").uniform().tolist(), strict=True))

    monkeypatch.setattr(Learner, "update", update)
    monkeypatch.setattr(Trainer, "_log", lambda self: None)
    Trainer(run, small_run.rows()).fit()
    assert sorted(row for row, _ in seen) == sorted([*range(200)] * 3)
    assert len({number for _, number in seen}) == 600


def test_accumulated_parts_make_one_update_of_their_mean(tmp_path):
    run = small_run.make(tmp_path / "run", dropout=0.0, steps=1, accumulate=4, ema=(), clip=None, weight_decay=0.0, warmup=0)
    trainer = Trainer(run, small_run.rows())
    stream = batches(trainer.source, trainer.order, Cursor(), torch.device("cpu"))
    objective, total = Objective(run.denoiser_of_config()), 0.0
    for _ in range(4):
        cursor, rows, x0 = next(stream)
        assert len(rows) == 8
        total = total + objective(x0, NoiseSource(0, rows).at("epoch", 0, "batch", cursor.position)).loss.mean() / 4
    total.backward()
    norm = torch.stack([p.grad.norm() for p in objective.parameters()]).norm()
    trainer.fit()
    (line,) = (line for line in lines(run) if "loss" in line)
    assert line["loss"] == pytest.approx(total.item(), rel=1e-6)
    assert line["grad_norm"] == pytest.approx(float(norm), rel=1e-5)


class Breaks(small_run.Small):
    """Returns what is not finite when it is called for the `at`-th time."""

    at, value = 0, float("nan")
    calls = 0

    def forward(self, x, t):
        type(self).calls += 1
        return super().forward(x, t) * (self.value if self.calls == self.at else 1.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_non_finite_loss_stops_before_the_update(tmp_path, monkeypatch, value):
    options = {"steps": 30, "log_every": 10, "save_every": 20, "validation": 0.0, "dropout": 0.0, "panels": 0}
    whole = small_run.make(
        tmp_path / "whole", **{**options, "log_every": 1, "save_every": 16, "steps": 16, "decay": "constant"}
    )
    train(whole, small_run.rows())
    monkeypatch.setitem(REGISTRY, "Small", (small_run.Options, Breaks))
    monkeypatch.setattr(Breaks, "at", 17)
    monkeypatch.setattr(Breaks, "calls", 0)
    monkeypatch.setattr(Breaks, "value", value)
    run = small_run.make(tmp_path / "run", **options, decay="constant")
    with pytest.raises(NonFinite, match="step 17.*lower lr.*clip.*precision") as error:
        train(run, small_run.rows())
    assert "\n" not in str(error.value)
    assert Breaks.calls == 20  # noticed when the log was due; the updates between were void
    state, numbers, parts = run.load()
    assert (state.step, numbers["epoch"], numbers["position"]) == (16, 2, 4 * 32)
    for ema in (False, 0.9, 0.99):
        assert small_run.same(small_run.weights(run, ema), small_run.weights(whole, ema))
    ours, theirs = parts["optimizer"], whole.load()[2]["optimizer"]
    assert small_run.same(ours, theirs) and float(ours["step:network.body.0.bias"]) == 16
    told = json.loads((run.folder / "nonfinite.json").read_text())
    assert (told["step"], told["epoch"], told["position"]) == (17, 2, 128)
    assert told["examples"] == Trainer(run, small_run.rows()).order.at(Cursor(2, 128), 32).tolist()
    assert train(run, small_run.rows()).step == 30  # the network no longer breaks: it goes on from step 16


def test_training_stops_when_the_bound_no_longer_falls(tmp_path):
    run = small_run.make(tmp_path / "run", lr=1e-9, weight_decay=0.0, validate_every=2, patience=3, steps=100, ema=())
    outcome = train(run, small_run.rows())
    bounds = [line["validation_bound"] for line in lines(run) if "validation_bound" in line and line["step"]]
    assert outcome.reason == "patience" and outcome.best == min(bounds)
    assert len(bounds) - 1 - bounds.index(min(bounds)) == 3 and outcome.step == 2 * len(bounds) < 100
    assert run.best().step == 2 * (1 + bounds.index(min(bounds)))
    assert train(small_run.opened(run.folder), small_run.rows()).step == outcome.step


def test_time_and_epochs_end_training_too(tmp_path):
    outcome = train(small_run.make(tmp_path / "a", steps=None, minutes=1.0 / 60, decay="linear"), small_run.rows())
    assert outcome.reason == "minutes" and 1 <= outcome.seconds < 10
    rates = [line["lr"] for line in lines(small_run.opened(tmp_path / "a")) if "lr" in line]
    assert rates[-1] < 0.5 * max(rates)  # it falls with the time that is left
    outcome = train(small_run.make(tmp_path / "b", steps=None, epochs=2), small_run.rows())
    assert (outcome.reason, outcome.step, outcome.epoch) == ("epochs", 10, 2)


def test_bfloat16_stays_near_full_precision(tmp_path):
    for name in ("no", "bf16"):
        train(small_run.make(tmp_path / name, precision=name, steps=6, dropout=0.0), small_run.rows())
    exact, rounded = small_run.losses(tmp_path / "no"), small_run.losses(tmp_path / "bf16")
    assert exact != rounded
    assert all(rounded[step] == pytest.approx(exact[step], rel=0.03) for step in exact)


def test_a_weighting_is_trained_on_and_the_bound_is_still_measured(tmp_path):
    run = small_run.make(tmp_path / "run", weighting="cross_entropy", steps=2)
    train(run, small_run.rows())
    for line in lines(run):
        if "loss" in line:
            assert line["loss"] != pytest.approx(line["diffusion"]) and line["diffusion"] > 0


def test_metrics_that_a_kill_cut_short_are_mended(tmp_path):
    run = small_run.make(tmp_path / "run", steps=10, save_every=5)
    train(run, small_run.rows())
    with open(run.metrics, "a") as file:
        file.write('{"step": 11, "loss": 1.0}\n{"step": 12, "lo')
    run.change(steps=12)
    train(run, small_run.rows())
    assert list(small_run.losses(run.folder)) == list(range(1, 13)) and small_run.losses(run.folder)[11] != 1.0


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ImportError, match="pip install 'unnoise\\[all\\]'"):
        train(small_run.make(tmp_path / "run"), small_run.rows())


def test_epochs_end_and_anneal_alike_after_another_batch_size(tmp_path):
    """190 rows are trained on: 10 epochs, the first 5 in batches of 32, the others of 64."""
    run = small_run.make(tmp_path / "run", steps=None, epochs=5, decay="linear", warmup=0)
    train(run, small_run.rows())
    run.change(epochs=10, batch_size=64)
    outcome = train(small_run.opened(run.folder), small_run.rows())
    rates = [line["lr"] for line in lines(run) if "lr" in line][25:]
    assert outcome.epoch == 10 and len(rates) == 5 * 2
    assert rates == pytest.approx([0.01 * (0.5 - i / 20) for i in range(10)])


@pytest.mark.parametrize(
    ("form", "weighting", "words"),
    [("letters", "min_snr", "is for numbers"), ("numbers", "cross_entropy", "is for categories"), ("pairs", "edm", None)],
)
def test_a_weighting_that_concerns_nothing_is_refused(form, weighting, words):
    letters, numbers = un.Masking(4, (3,)), un.Gaussian((2,))
    process = {"letters": letters, "numbers": numbers, "pairs": un.Product(n=numbers, c=letters)}[form]
    if words is None:
        assert weighting_of(weighting, process, {}).data_std == 1
        assert weighting_of(weighting, process, {"decoder": None}).data_std == 0.5
    else:
        with pytest.raises(ValueError, match=words):
            weighting_of(weighting, process, {})


def test_times_are_even_only_where_no_number_wants_others():
    """The bound's integrand of numbers is large at small times, whatever weighs the categories."""
    process = un.Product(n=un.Gaussian((2,)), c=un.Uniform(3, (2,)))
    config = TrainConfig(steps=1, weighting="cross_entropy", observed=0.0)
    denoiser = un.Denoiser(torch.nn.Identity(), process)
    assert not isinstance(objective_of(denoiser, config, {}).times, un.Stratified)
    alone = un.Denoiser(torch.nn.Identity(), process.leaves["c"])
    assert isinstance(objective_of(alone, config, {}).times, un.Stratified)


def test_what_a_network_predicts_unless_told():
    config = small_run.config(small_run.Pairs())
    assert config.predicts == {"number": "Velocity", "letters": "Posterior"}


def test_no_panel_is_worth_a_training(tmp_path, monkeypatch):
    """An error of the device, or a format that cannot write, is none of the training's."""

    def fail(*_):
        raise NotImplementedError("not yet")

    monkeypatch.setattr(small_run.Letters, "write", fail)
    run = small_run.make(tmp_path / "run", steps=4, panels=2)
    with pytest.warns(UserWarning, match="no panel of samples at step .: not yet"):
        assert train(run, small_run.rows()).step == 4
    assert run.load()[1]["step"] == 4
