"""Runs that are drawn in halves: the samples of the whole."""

import pytest
import torch

import unnoise as un
from unnoise.samplers import DDIM, AdaptiveODE, Ancestral, FirstHitting, Gillespie, Reveal, TauLeaping, sample
from unnoise.samplers.replacement import Replacement

NUMBERS = un.oracles.normal(un.Gaussian((2,)), torch.tensor([0.7, -0.3]), torch.diag(torch.tensor([0.5, 0.3])))
LETTERS = un.oracles.table(un.Masking(3, (2,)), torch.arange(1.0, 10.0) / 45)
UNIFORM = un.oracles.table(un.Uniform(3, (2,)), torch.arange(1.0, 10.0) / 45)


class Narrow(un.AnyDenoiser):
    """A denoiser with no memory for more than so many rows."""

    def __init__(self, inner, most):
        super().__init__()
        self.inner, self.process, self.most, self.asked = inner, inner.process, most, []

    def forward(self, x, t, /, **condition):
        self.asked.append(len(x))
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.inner(x, t, **condition)


X = torch.tensor([[0, 3], [3, 3], [3, 1], [2, 3], [3, 0], [1, 3], [3, 3]])
CASES = {
    "ddim": (NUMBERS, {"n": 7, "sampler": DDIM(1.0), "steps": 4}),
    "adaptive": (NUMBERS, {"n": 7, "sampler": AdaptiveODE()}),
    "ancestral": (LETTERS, {"n": 7, "sampler": Ancestral(), "steps": 4}),
    "reveal": (LETTERS, {"n": 7, "sampler": Reveal(), "steps": 4, "first": 5}),
    "first hitting": (LETTERS, {"x": X, "sampler": FirstHitting(), "rows": torch.arange(7) * 3}),
    "thinning": (UNIFORM, {"n": 7, "sampler": Gillespie()}),
    "tau": (UNIFORM, {"n": 7, "sampler": TauLeaping(), "steps": 4}),
    "held": (LETTERS, {"x": X, "sampler": Replacement(X.clamp_max(2), X < 3, 2), "steps": 4}),
    "starts": (NUMBERS, {"x": torch.ones(7, 2).double(), "start": torch.linspace(0.3, 1, 7).double(), "steps": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_halves_are_the_samples_of_the_whole(name):
    oracle, options = CASES[name]
    whole, info = sample(oracle, seed=3, **options)
    narrow = Narrow(oracle, 2)
    if name == "starts":  # rows of other starts are asked for one by one: nothing runs out
        parts, told = sample(narrow, seed=3, **options)
    else:
        with pytest.warns(UserWarning, match="memory ran out with 7 rows at a time: going on with [13]") as said:
            parts, told = sample(narrow, seed=3, **options)
        assert len(said) == 1
    assert torch.equal(whole, parts)
    assert told.rows == info.rows and told.seed == info.seed == 3
    assert (told.jumps is None) == (info.jumps is None)
    assert info.jumps is None or torch.equal(info.jumps, told.jumps)


def test_conditions_are_cut_with_their_rows():
    class Shifted(un.AnyDenoiser):
        process = NUMBERS.process

        def forward(self, x, t, /, label):
            if len(x) > 4:
                raise MemoryError
            return un.Clean(label.unsqueeze(1).expand_as(x), self.process, x, t)

    label = torch.arange(6.0).double()
    with pytest.warns(UserWarning, match="with 6 rows at a time: going on with 3"):
        x, info = sample(Shifted(), 6, 5, DDIM(), seed=0, condition={"label": label})
    torch.testing.assert_close(x, label.unsqueeze(1).expand(6, 2))
    assert info.calls == 10  # five for each half; those of the attempt that failed are not counted


def test_a_run_that_is_watched_or_differentiated_is_not_cut():
    for watched in ({"callback": lambda i, t, state: None}, {"trajectory": True}, {"grad": True}):
        with pytest.raises(torch.OutOfMemoryError):
            sample(Narrow(NUMBERS, 2), 7, 4, DDIM(), seed=0, **watched)


def test_one_row_without_room_is_an_error():
    with pytest.raises(torch.OutOfMemoryError):
        sample(Narrow(NUMBERS, 0), 7, 4, DDIM(), seed=0)
