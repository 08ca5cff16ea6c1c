"""What training asks of a leaf, of processes from the library and from outside."""

import pytest
import torch

import unnoise as un
from unnoise.schedules import Cosine, Linear
from unnoise.training.leaf_kinds import has, leaf_kind, leaf_processes, named_leaves
from unnoise.training.learner import weighting_of
from unnoise.training.schedules import scheduled, takes_schedule, with_schedule

MIXED = un.Product(a=un.Gaussian((2,)), b=un.Product(c=un.Masking(3, (2,)), d=un.Thinning((1,))))


class Wind(un.Gaussian):
    """A process of one's own that takes no schedule but its own."""


with_schedule.register(Wind)(lambda process, exchange: Wind(process.space.shape, exchange(process.schedule, 0.5)))


class Odd(un.Process):
    """One that registers nothing."""

    prior = marginal = transition = posterior = local = reverse = noiseless = movable = support = push = inverse = None

    def __init__(self):
        super().__init__()
        self.space = self.state_space = un.Euclidean((1,))


def test_leaves_to_any_depth():
    assert [leaf_kind(leaf) for leaf in leaf_processes(MIXED)] == ["number", "category", "count"]
    assert [leaf_kind(leaf) for leaf in leaf_processes(un.Chain(MIXED, 4))] == ["number", "category", "count"]
    assert list(named_leaves(MIXED)) == ["a", "b"] and list(named_leaves(un.Gaussian((1,)))) == [""]
    assert has(MIXED, "category") and not has(un.Gaussian((1,)), "category")


def test_a_process_that_registers_nothing_is_trained_by_the_bound():
    assert leaf_kind(Odd()) == "other" and not takes_schedule(Odd())
    weighting_of("bound", Odd(), {})
    with pytest.raises(ValueError, match="weighting = 'simple' is for numbers, and this data has none"):
        weighting_of("simple", Odd(), {})
    with pytest.raises(ValueError, match="schedule = 'linear': this data has no numbers"):
        scheduled(Odd(), "linear", {})


def test_schedules_are_exchanged_where_a_process_says_how():
    process, options = scheduled(MIXED, "linear", {})
    assert isinstance(process.leaves["a"].schedule, Linear) and options == {}
    assert process.leaves["b"].leaves["d"] is MIXED.leaves["b"].leaves["d"]
    made, options = scheduled(Wind((2,), Cosine()), "linear", {"cutoff": 0.3})
    assert type(made) is Wind and isinstance(made.schedule, Linear)
    same = (Cosine().log_snr(torch.tensor(0.3)), Linear().log_snr(torch.tensor(options["cutoff"])))
    assert float(same[0]) == pytest.approx(float(same[1]), abs=1e-6)
    with pytest.raises(ValueError, match="a chain has its schedule in its steps"):
        scheduled(un.Chain(un.Gaussian((1,)), 4), "linear", {})
