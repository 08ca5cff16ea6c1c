"""Within a step a tensor is looked at once; nothing is kept beyond it, and nothing is taken for another."""

import threading

import pytest
import torch

import unnoise as un
from unnoise.checks import MOST_REMEMBERED, as_times, memory, remembering, unread, within

F64 = torch.float64


def test_values_are_kept_for_the_length_of_a_step():
    schedule, t = un.schedules.Cosine(), torch.rand(4, dtype=F64)
    assert schedule.alpha(t) is not schedule.alpha(t) and memory() is None
    with remembering():
        first = schedule.alpha(t)
        assert schedule.alpha(t) is first and schedule.sigma(t) is not first
        assert schedule.alpha(t.clone()) is not first and un.schedules.Cosine().alpha(t) is not first
        with remembering():
            assert schedule.alpha(t) is first
        assert schedule.alpha(t) is first
    assert memory() is None and torch.equal(schedule.alpha(t), first)


def test_what_is_learned_is_not_kept():
    schedule, t = un.schedules.Learned(hidden=3), torch.rand(4, dtype=F64)
    with remembering():
        assert schedule.alpha(t) is not schedule.alpha(t)
        moving = t.clone().requires_grad_()
        cosine = un.schedules.Cosine()
        assert cosine.alpha(moving) is not cosine.alpha(moving)


def test_the_memory_is_small_and_of_one_thread():
    schedule, seen = un.schedules.Linear(), []
    with remembering():
        for i in range(3 * MOST_REMEMBERED):
            t = torch.full((2,), i / 1000, dtype=F64)
            assert schedule.alpha(t).tolist() == pytest.approx([1 - i / 1000] * 2)
            assert len(memory()) <= MOST_REMEMBERED
        thread = threading.Thread(target=lambda: seen.append(memory()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_a_tensor_is_read_once_by_each_reader():
    x, reader, other = torch.ones(3), un.Euclidean((1,)), un.Euclidean((1,))
    assert unread(x, reader) and unread(x, reader)
    with remembering():
        assert unread(x, reader) and not unread(x, reader) and unread(x, other) and unread(x.clone(), reader)
        for _ in range(2):  # a bad one is refused each time that it comes anew
            with pytest.raises(ValueError, match="t = 2 lies outside"):
                as_times(torch.tensor([0.5, 2.0], dtype=F64), 2, torch.device("cpu"))


def test_within():
    assert within(torch.tensor([0.0, 1.0]), 0.0, 1.0) and not within(torch.tensor([0.0, 1.1]), 0.0, 1.0)
    assert not within(torch.tensor([0.5, float("nan")]), 0.0, 1.0)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, F64):
        for bad in (float("inf"), -float("inf"), float("nan")):
            x = torch.tensor([[1.0], [bad]], dtype=dtype)
            with pytest.raises(ValueError, match="drop or impute non-finite"):
                un.Euclidean((1,)).check(x)
        un.Euclidean((1,)).check(torch.tensor([[torch.finfo(dtype).max]], dtype=dtype))


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)], ids=str)
def test_few_numbers_are_the_same_by_numpy(monkeypatch, shape):
    source = un.NoiseSource(7, torch.tensor([0, 5, -3, 2**62])).at("some", 3)
    few = source.uniform(shape)
    monkeypatch.setattr(un.noise, "_FEW", 0)
    assert torch.equal(few, source.uniform(shape)) and few.shape == (4, *shape)


@pytest.mark.parametrize(
    "schedule", [un.schedules.Cosine(), un.schedules.LinearBeta(), un.schedules.VE()], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("covariance", [None, torch.tensor([[1.0, 0.4], [0.4, 0.8]])], ids=["independent", "correlated"])
@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
def test_the_prior_term_of_numbers_is_that_of_its_laws(schedule, covariance, dtype):
    process, x0 = un.Gaussian((2,), schedule, covariance), un.NoiseSource(0, 5).normal((2,), dtype)
    assert torch.equal(process.prior_kl(x0), process.marginal(x0, 1.0).kl(process.prior(5, dtype)))

    class Narrow(un.Gaussian):
        def prior(self, rows, dtype=None, device=None):
            law = super().prior(rows, dtype, device)
            law.std = 0.5 * law.std
            return law

    narrow = Narrow((2,), schedule, covariance)
    assert torch.equal(narrow.prior_kl(x0), narrow.marginal(x0, 1.0).kl(narrow.prior(5, dtype)))
    assert float(narrow.prior_kl(x0).min()) > float(process.prior_kl(x0).min())
