"""Kinds of prediction by name: those of the library, and one's own once registered."""

import pytest
import torch

import unnoise as un
from unnoise.predictions.registry import KINDS, kind_named, name_of_kind, register_kind
from unnoise.training.config import kind_names, kinds_of


class Halved(un.predictions.ContinuousPrediction):
    """x_0/2."""

    @staticmethod
    def target_coefficients(schedule, t):
        half = torch.full_like(schedule.alpha(t), 0.5)
        return half, 0 * half


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr("unnoise.predictions.registry.KINDS", dict(KINDS))  # as it was, afterwards
    return register_kind(Halved)


def test_the_names_of_saved_runs_stay():
    names = "Clean Noise Score Velocity Flow Posterior RawPosterior Ratio Rates Remaining Intensity CountRatio Energy"
    assert list(KINDS)[:13] == names.split()
    assert all(KINDS[name] is getattr(un.predictions, name) for name in names.split())


def test_one_of_ones_own_is_saved_once_registered(registered):
    names = kind_names({"a": Halved, "b": un.Posterior})
    assert names == {"a": "Halved", "b": "Posterior"} and kinds_of(names) == {"a": Halved, "b": un.Posterior}


def test_what_is_not_registered_is_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"predicts = Halved cannot be saved .*@un\.predictions\.register_kind"):
        name_of_kind(Halved)
    with pytest.raises(ValueError, match=r"no prediction type 'Halved': choose from .*--load MODULE"):
        kind_named("Halved")


def test_a_name_has_one_meaning(registered):
    assert register_kind(Halved) is Halved
    other = type("Halved", (un.Clean,), {"__module__": "elsewhere"})
    with pytest.raises(ValueError, match="there is a prediction kind 'Halved' already"):
        register_kind(other)
    with pytest.raises(ValueError, match="predicts = Halved cannot be saved"):
        name_of_kind(other)  # of the same name, and another
    with pytest.raises(TypeError, match="is no kind of prediction"):
        register_kind(int)
