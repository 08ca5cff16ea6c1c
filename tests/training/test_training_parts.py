"""Averaged copies, the order of the data, the learning rate, and the bound on held-out rows."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.training import RunError, TrainConfig, split
from unnoise.training.data_order import Cursor, InMemory, Order, batches
from unnoise.training.ema import EMA
from unnoise.training.optimiser import Optimiser
from unnoise.training.validation import validate

CPU = torch.device("cpu")


def test_averaged_copies_follow_the_formula_and_are_swapped_in():
    model = nn.Linear(2, 1, bias=False)
    ema, expected = EMA(model, (0.5, 0.9)), {0.5: model.weight.detach().clone(), 0.9: model.weight.detach().clone()}
    flag = torch.zeros(())
    for step in range(1, 30):
        with torch.no_grad():
            model.weight.add_(step)
        ema.update(ema.weights(step), flag if step % 2 else None)
        for rate, value in expected.items():
            weight = 1 - min(rate, (1 + step) / (10 + step))
            expected[rate] = value + weight * (model.weight.detach() - value)
    own = model.weight.detach().clone()
    for rate, value in expected.items():
        assert torch.allclose(ema.state_dict(rate)["weight"], value, rtol=1e-5)
        with pytest.raises(KeyError), ema.applied(model, rate):
            assert torch.allclose(model.weight, value, rtol=1e-5)
            raise KeyError  # the parameters come back whatever happens
        assert torch.equal(model.weight, own)
    kept = ema.state_dict(0.5)["weight"].clone()
    ema.update(ema.weights(30), torch.ones(()))
    assert torch.equal(ema.state_dict(0.5)["weight"], kept)
    with pytest.raises(ValueError, match="no averaged copy"), ema.applied(model, 0.3):
        pass


def test_epochs_visit_every_row_once_in_orders_of_their_own():
    train, held = split(103, 0.2, seed=1)
    assert len(held) == 21 and sorted([*train.tolist(), *held.tolist()]) == list(range(103))
    assert not torch.equal(split(103, 0.2, seed=2)[1], held)
    order = Order(train, 20, seed=1, parts=2)
    cursors = [cursor for cursor, _ in zip(order.cursors(Cursor()), range(16), strict=False)]
    assert cursors[7:9] == [Cursor(0, 70), Cursor(1, 0)]  # 82 rows are 4 batches of 2 parts
    first = torch.cat([order.piece(cursor, 0) for cursor in cursors[:8]])
    second = torch.cat([order.piece(cursor, 0) for cursor in cursors[8:]])
    assert len(set(first.tolist())) == 80 and set(first.tolist()) <= set(train.tolist())
    assert not torch.equal(first, second)
    two = Order(train, 20, seed=1, parts=2, world=2)
    assert torch.equal(torch.cat([two.piece(cursors[3], rank) for rank in (0, 1)]), order.piece(cursors[3], 0))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_go_on_from_any_cursor(workers):
    source, order = InMemory({"a": torch.arange(50), "b": torch.rand(50, 2)}), Order(torch.arange(50), 12, seed=3)
    whole = batches(source, order, Cursor(), CPU)
    for _ in range(6):
        next(whole)
    part = batches(source, order, Cursor(1, 24), CPU, workers=workers)  # 4 batches an epoch: number 6
    for _ in range(4):
        (one, rows, x0), (other, rows_, x0_) = next(whole), next(part)
        assert one == other and torch.equal(rows, rows_) and torch.equal(x0["a"], rows) and torch.equal(x0["b"], x0_["b"])


def test_batches_that_cannot_be_cut_are_refused():
    with pytest.raises(ValueError, match="batch_size = 10 does not divide into accumulate = 2 parts x 2 processes"):
        Order(torch.arange(100), 10, seed=0, parts=2, world=2)
    with pytest.raises(ValueError, match="3 rows are fewer"):
        Order(torch.arange(3), 8, seed=0, parts=2, world=2)
    assert Order(torch.arange(7), 8, seed=0, parts=2).batch == 6  # small data: all of it that divides
    with pytest.raises(ValueError, match="1 rows, too few"):
        split(1, 0.1, 0)


def test_the_learning_rate_rises_and_falls():
    config = TrainConfig(steps=100, lr=2.0, warmup=10, decay="linear")
    assert config.lr_at(4, 0.04) == pytest.approx(2 * 0.5 * 0.96)
    assert config.lr_at(50, 0.5) == pytest.approx(1.0)
    assert TrainConfig(steps=100, lr=2.0, warmup=0).lr_at(25, 0.25) == pytest.approx(1 + 0.5**0.5)
    assert TrainConfig(steps=1, lr=2.0, warmup=0, decay="constant").lr_at(99, 1.0) == 2.0
    with pytest.raises(ValueError, match="decay = 'steep': choose from cosine"):
        TrainConfig(steps=1, decay="steep")


class Law(nn.Module):
    """Three letters, each with a law of its own: exact, so the bound is the entropy."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x, t):
        return self.logits.expand(len(x), *self.logits.shape)


def test_the_standard_errors_of_the_bound_mean_what_they_say():
    """Over repeated data and noise, the bound lies around the true value with the spread that `se` names."""
    logits = torch.tensor([[2.0, 0.0, 0.0, -1.0]]).repeat(3, 1)
    probs = logits.softmax(-1)
    entropy = float(-(probs * probs.log()).sum())
    denoiser = un.Denoiser(Law(logits), un.Masking(size=4, shape=(3,)))
    alone = SimpleNamespace(device=CPU, num_processes=1, process_index=0, gather=lambda x: x)
    scores, spread = [], []
    for seed in range(60):
        x0 = torch.multinomial(probs, 50, True, generator=torch.Generator().manual_seed(seed)).T.contiguous()
        result = validate(un.Objective(denoiser), InMemory(x0), torch.arange(50), alone, 16, 2, seed)
        assert result.rows == 50
        assert result.bound == pytest.approx(result.prior + result.diffusion + result.reconstruction)
        scores.append((result.bound - entropy) / result.se)
        spread.append(result.draw_se)
    scores = torch.tensor(scores)
    assert abs(float(scores.mean())) < 4 / 60**0.5  # unbiased
    assert 0.7 < float(scores.std()) < 1.35  # of 60: one alarm in 2000
    assert 0.05 < sum(spread) / 60 < 0.3  # of two draws of 50 rows
    again = validate(un.Objective(denoiser), InMemory(x0), torch.arange(50), alone, 16, 2, seed)
    assert again == result  # a fixed noise
    assert validate(un.Objective(denoiser), InMemory(x0), torch.arange(50), alone, 16, 2, seed + 1) != result


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_moments_that_were_saved_lie_as_the_weights_do(optimiser):
    """Convolutions keep their channels last; an update by moments in another order in memory would be another one."""
    config, data = TrainConfig(steps=1, optimiser=optimiser), torch.randn(4, 3, 6, 6)
    never = torch.zeros(())

    def updated(module, by, times):
        for _ in range(times):
            module(data).square().sum().backward()
            by.update(1e-2, never)

    def made():
        torch.manual_seed(0)
        layers = torch.nn.Conv2d(3, 5, 3), torch.nn.Conv2d(5, 2, 3), torch.nn.Conv2d(2, 2, 1)
        return torch.nn.Sequential(*layers).to(memory_format=torch.channels_last)

    whole, first, second = made(), made(), made()
    updated(whole, Optimiser(whole, config), 4)
    before = Optimiser(first, config)
    updated(first, before, 2)
    second.load_state_dict(first.state_dict())
    after = Optimiser(second, config)
    saved = {name: value.clone(memory_format=torch.contiguous_format) for name, value in before.state_dict().items()}
    after.load_state_dict(saved)
    updated(second, after, 2)
    for a, b in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    for name, value in after.state_dict().items():
        if value.ndim == 4:
            assert value.stride() == after.named[name.split(":", 1)[1]].stride()


WRONG = {
    "short": (lambda value: torch.full((1,) if value.ndim else (2,), 5.0), "is torch.float32 of shape"),
    "longer": (lambda value: torch.full((2, *value.shape), 5.0), "is torch.float32 of shape"),
    "whole numbers": (lambda value: torch.full(value.shape, 5), "is torch.int64 of shape"),
    "missing": (None, "is missing"),
}


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("slot", ["step", "exp_avg", "exp_avg_sq", "momentum", "copy"])
def test_tensors_of_another_shape_are_refused(slot, how):
    """The fused update would write beyond the end of a short moment, and a copy of one number would be spread out."""
    if (slot, how) == ("step", "missing"):
        return  # of a parameter that never had a gradient
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    by = Optimiser(module, TrainConfig(steps=1, optimiser="muon" if slot == "momentum" else "adamw"))
    module(torch.ones(2, 3)).sum().backward()
    by.update(1e-2, torch.zeros(()))
    ema = EMA(module, (0.9,))
    saved = ema.state_dict(0.9) if slot == "copy" else by.state_dict()
    saved = {name: value.clone() for name, value in saved.items()}
    key, (made, match) = "0.weight" if slot == "copy" else f"{slot}:0.weight", WRONG[how]
    value = saved.pop(key)
    if made is not None:
        saved[key] = made(value)
    with pytest.raises(RunError, match=f"{key} {match}"):
        ema.load_state_dict(0.9, saved) if slot == "copy" else by.load_state_dict(saved)
    assert torch.equal((ema.state_dict(0.9) if slot == "copy" else by.state_dict())[key], value)  # as it was
