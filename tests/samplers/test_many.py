"""Many samples: the same ones in any batch and by any way of launching them; which way is chosen, and why."""

from contextlib import contextmanager

import pytest
import torch

import unnoise as un
from unnoise.batch_sizes import GIB, HostMemory, Need
from unnoise.samplers import DDIM, Ancestral, CapturedRun, FirstHitting, Leaves, many, sample
from unnoise.samplers.many import HOST_BOUND, NETWORK, RUN, Batches, first_calls, from_prior, sample_many, way_of
from unnoise.tree import leaves, rows

MIXED = un.Product(x=un.Gaussian((2,)), c=un.Masking(3, (4,)))
METHOD = Leaves(x=DDIM(), c=Ancestral())


class Network(torch.nn.Module):
    """Some numbers and letters, by sums that do not depend on how many rows there are."""

    def __init__(self):
        super().__init__()
        self.weight, self.sizes = torch.nn.Parameter(torch.randn(6, 14)), []

    def forward(self, x, t):
        self.sizes.append(len(t))
        seen = torch.cat([x["x"], x["c"].to(x["x"])], 1)
        h = (seen.unsqueeze(2) * self.weight).sum(1) * torch.cos(t).unsqueeze(1)
        return {"x": h[:, :2], "c": h[:, 2:].reshape(-1, 4, 3)}


@pytest.fixture
def denoiser():
    return un.Denoiser(Network(), MIXED, {"x": un.Clean, "c": un.Posterior})


OPTIONS = {"sampler": METHOD, "steps": 20, "seed": 4}


def same(x, y) -> bool:
    return all(torch.equal(a, b) for a, b in zip(leaves(x), leaves(y), strict=True))


class OnHost(CapturedRun):
    recorded_on = ("cpu",)
    made = 0

    @staticmethod
    def record(work):
        OnHost.made += 1
        work()
        return work


@pytest.fixture
def recording(monkeypatch):
    """As if runs could be recorded here."""
    OnHost.made = 0
    monkeypatch.setattr(many, "RECORDED_ON", ("cpu",))
    monkeypatch.setattr(many, "CapturedRun", OnHost)


@pytest.mark.parametrize("batch", [None, 1, 7, 40, 100])
def test_a_sample_is_the_same_in_any_batch(denoiser, batch):
    whole, _ = sample(denoiser, 40, 20, METHOD, seed=4)
    x, info = sample_many(denoiser, 40, batch, **OPTIONS)
    assert same(whole, x) and info.seed == 4 and info.way == "plain"
    assert info.batch == min(batch or 40, 40) and info.rows == 40 * 20


def test_rows_are_as_many_as_there_is_room_for(denoiser, monkeypatch):
    class Small(HostMemory):
        busy = 20_000

    monkeypatch.setattr(many, "memory_of", lambda device: Small())
    whole, _ = sample(denoiser, 100, 20, METHOD, seed=4)
    denoiser.network.sizes.clear()
    x, info = sample_many(denoiser, 100, **OPTIONS)
    assert same(whole, x) and info.batch == max(denoiser.network.sizes[9:]) < 100
    assert denoiser.network.sizes[:9] == [8] * 6 + [32] * 3  # what was measured: the first three calls of small runs
    peak = Small().peak(lambda _: sample(denoiser, info.batch, 20, METHOD, seed=4))
    assert 0.3 * Small.busy < peak < 1.3 * Small.busy


def test_memory_that_runs_out_is_met_by_smaller_batches(denoiser):
    forward = denoiser.network.forward

    def narrow(x, t):
        if len(t) > 12:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(x, t)

    whole, _ = sample(denoiser, 40, 20, METHOD, seed=4)
    denoiser.network.forward = narrow
    with pytest.warns(UserWarning, match="memory ran out with 40 rows at a time: going on with 10") as told:
        x, info = sample_many(denoiser, 40, 40, **OPTIONS)
    assert same(whole, x) and info.batch == 10 and len(told) == 1
    assert info.calls == 4 * 20  # of what was drawn, not of what was tried


def begun(first, count):
    prior = MIXED.prior(count, torch.float32).draw(un.NoiseSource(1, torch.arange(first, first + count)))
    return {"x": prior, "first": first}


@pytest.mark.parametrize("begin", [from_prior, begun])
def test_a_recorded_run_draws_the_same_samples(denoiser, recording, begin):
    plain = [sample(denoiser, **OPTIONS, **begin(first, 10))[0] for first in range(0, 40, 10)]
    x, info = sample_many(denoiser, 35, 10, begin, **OPTIONS)
    assert info.way == RUN and OnHost.made == 1
    assert same(x, rows(un.tree.join(plain), slice(35)))  # the last batch is filled up, and cut
    assert info.calls == 4 * 20


def test_a_recorded_network_draws_the_same_samples(denoiser, recording):
    whole, _ = sample(denoiser, 15, 20, METHOD, seed=4)
    denoiser.network.sizes.clear()
    x, info = sample_many(denoiser, 15, 10, **OPTIONS)
    assert info.way == NETWORK and same(whole, x) and OnHost.made == 0
    assert denoiser.network.sizes[9:] == [10] * 40  # one form of input, whatever is left for the last batch


@pytest.mark.parametrize("words", ["operation not permitted when stream is capturing", "CUDA out of memory"])
def test_what_cannot_be_recorded_is_launched_plainly(denoiser, recording, monkeypatch, words):
    def refused(work):
        raise RuntimeError(words + "\nand a long tale of where")

    monkeypatch.setattr(OnHost, "record", staticmethod(refused))
    whole, _ = sample(denoiser, 35, 20, METHOD, seed=4)
    x, info = sample_many(denoiser, 35, 10, **OPTIONS)
    assert same(whole, x) and info.way == f"plain: {words}"


def test_an_error_of_the_network_itself_is_raised(denoiser, recording):
    def wrong(x, t):
        raise RuntimeError("shapes cannot be multiplied")

    denoiser.network.forward = wrong
    with pytest.raises(RuntimeError, match="shapes cannot"):
        sample_many(denoiser, 35, 10, **OPTIONS)


def test_a_way_is_chosen_by_counting(denoiser):
    """Where the device waits for the host: the run from three batches on, else the network, if it is called often."""
    small, large = Need(0.0, 1000.0), Need(0.0, HOST_BOUND / 5)

    def way(sampler=METHOD, of=denoiser, need=small, size=10, batches=1, calls=64):
        return way_of(sampler, of, need, size, batches, calls)

    assert way() == NETWORK and way(batches=2) == NETWORK and way(batches=3) == RUN
    assert way(calls=8, batches=2) == NETWORK and way(calls=8) == "plain: too few calls to record one"
    assert way(need=large, batches=9) == "plain: a batch keeps the device busy"
    assert way(FirstHitting(), batches=9) == "plain: FirstHitting asks the device what to do next"
    oracle = un.oracles.normal(un.Gaussian((2,)), torch.zeros(2), torch.eye(2))
    assert way(DDIM(), oracle).startswith("plain: a ") and way(DDIM(), oracle, batches=3) == RUN


def test_methods_that_belong_to_a_batch_are_not_recorded_for_another(denoiser, recording):
    def own(first, count):
        return {**begun(first, count), "sampler": Leaves(x=DDIM(), c=Ancestral())}

    x, info = sample_many(denoiser, 35, 10, own, steps=20, seed=4)
    assert info.way == NETWORK and OnHost.made == 0
    assert same(x, sample_many(denoiser, 35, 35, begun, **OPTIONS)[0])


def test_measuring_stops_after_a_few_calls_and_leaves_nothing_behind(denoiser):
    began = []
    first_calls(
        denoiser, lambda: sample(denoiser, 5, 20, METHOD, seed=0), 3, lambda: began.append(len(denoiser.network.sizes))
    )
    assert denoiser.network.sizes == [5] * 3 and began == [0] and not denoiser._forward_pre_hooks
    first_calls(denoiser, lambda: sample(denoiser, 5, 2, METHOD, seed=0), 3, lambda: None)  # a run that ends sooner
    assert len(denoiser.network.sizes) == 5
    batches = Batches(denoiser, 20, None, from_prior, OPTIONS)
    assert batches.size == 20 and len(denoiser.network.sizes) == 5  # so few rows fit anywhere


def test_long_draws_are_made_with_a_compiled_network(denoiser, recording, monkeypatch):
    """In batches of one size: another would be compiled anew."""
    within = []

    @contextmanager
    def compiled():
        within.append(len(denoiser.network.sizes))
        yield
        within.append(len(denoiser.network.sizes))

    whole, _ = sample(denoiser, 39, 20, METHOD, seed=4)
    monkeypatch.setattr(many, "HOST_BOUND", 0)  # as of batches that keep the device busy
    sample_many(denoiser, 39, 20, compiled=compiled, **OPTIONS)
    assert not within
    monkeypatch.setattr(many, "COMPILED_FROM", 39 * 20 * 10)
    denoiser.network.sizes.clear()
    x, info = sample_many(denoiser, 39, 20, compiled=compiled, **OPTIONS)
    assert same(whole, x) and within == [9, 49] and denoiser.network.sizes[9:] == [20] * 40


def test_an_accelerator_is_kept_busy_with_four_gigabytes():
    from unnoise.batch_sizes import CudaMemory

    assert CudaMemory.busy == 4 * GIB > 8 * HOST_BOUND  # a batch that was cut to size is never launch-bound
