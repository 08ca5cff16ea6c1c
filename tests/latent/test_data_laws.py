"""Laws of data given states: masses that sum to one, networks of every shape of data, and what is refused."""

import pytest
import torch

import unnoise as un
from unnoise.latent import CountsLaw, LevelsLaw, NormalCode, NumbersLaw, QuantisedCode, likelihood_of
from unnoise.noise import NoiseSource
from unnoise.objectives.decoders import DiscretisedGaussian
from unnoise.predictions import Clean
from unnoise.spaces.product import ProductSpace
from unnoise.tree import map_leaves


def numbers(count, rows=1, seed=0):
    return torch.randn(rows, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    "space", [un.Finite(3, (2,)), un.Finite([2, 3]), ProductSpace(a=un.Finite(2, (1,)), b=un.Finite(3, (1,)))]
)
def test_masses_of_categories_sum_to_one(space):
    data = likelihood_of(space)
    x = space.states()
    law = data.law(numbers(data.numbers).expand(space.count, -1))
    assert float(law.log_prob(x).exp().sum()) == pytest.approx(1, abs=1e-10)


def test_masses_of_levels_and_counts_sum_to_one():
    levels = LevelsLaw((1,), 7, -0.9, 0.9)
    x = torch.linspace(-0.9, 0.9, 7, dtype=torch.float64).unsqueeze(1)
    law = levels.law(numbers(2).expand(7, -1))
    assert float(law.log_prob(x).exp().sum()) == pytest.approx(1, abs=1e-10)
    drawn = levels.law(numbers(2).expand(20_000, -1)).draw(NoiseSource(0, 20_000))
    share = torch.stack([(drawn - value).abs().lt(1e-9).double().mean() for value in x[:, 0]])
    assert float((share - law.log_prob(x).exp()).abs().sum() / 2) < 0.02  # false alarm below 1e-6
    counts = CountsLaw((1,))
    x = torch.arange(60).unsqueeze(1)
    assert float(counts.law(numbers(1).expand(60, -1)).log_prob(x).exp().sum()) == pytest.approx(1, abs=1e-10)


def test_levels_are_those_of_the_decoder_of_numbers():
    """A normal law with the noise of the cut-off is what `DiscretisedGaussian` says of the network's mean."""
    process, eps = un.Gaussian((1,)), 0.1
    x = torch.tensor([[-1.0], [0.0], [0.5]], dtype=torch.float64)
    mean = numbers(1, rows=3)
    wanted = DiscretisedGaussian(5, -1.0, 1.0).nll(process, Clean(mean, process, mean, torch.full((3,), eps)), x, mean, eps)
    t = torch.tensor(eps, dtype=torch.float64)
    std = float(process.schedule.sigma(t) / process.schedule.alpha(t))
    law = un.latent.LevelsNormal(mean, torch.full_like(mean, std), 5, -1.0, 1.0)
    assert torch.allclose(-law.log_prob(x), wanted)


SPACES = {
    "image": (un.Euclidean((9, 7)), numbers(63, 3).reshape(3, 9, 7)),
    "colours": (un.Euclidean((3, 8, 8)), numbers(192, 3).reshape(3, 3, 8, 8)),
    "pixels": (un.Finite(5, (6, 6)), torch.arange(108).reshape(3, 6, 6) % 5),
    "sequence": (un.Finite(4, (7,)), torch.arange(21).reshape(3, 7) % 4),
    "number": (un.Euclidean(()), numbers(1, 3)[:, 0]),
    "vector": (un.Euclidean((5,)), numbers(5, 3)),
    "counts": (un.Counts((4,)), torch.arange(12).reshape(3, 4)),
}
SPACES["table"] = (
    ProductSpace(a=un.Euclidean((2,)), b=un.Finite([2, 3]), c=un.Counts((1,))),
    {"a": numbers(2, 3), "b": torch.tensor([[0, 0], [1, 2], [1, 1]]), "c": torch.tensor([[0], [2], [9]])},
)


@pytest.mark.parametrize("name", SPACES)
def test_every_data_goes_there_and_back(name):
    space, x = SPACES[name]
    x = map_leaves(lambda leaf: leaf.float() if leaf.is_floating_point() else leaf, x)
    torch.manual_seed(0)
    for code in (NormalCode.of(space, 3), QuantisedCode.of(space, 4, width=3)):
        z, terms = code.encode(x, NoiseSource(0, 3), {})
        assert tuple(z.shape) == (3, *code.shape)
        assert torch.equal(terms["likelihood"], -code.law(z, 0.0, None, None).log_prob(x).double())
        space.check(code.law(z, 0.0, None, None).draw(NoiseSource(1, 3)))
    other = map_leaves(lambda leaf: leaf.roll(1, 0), x)  # an encoder sees all leaves of a row, and its own row alone
    own = NormalCode.of(space, 3)
    assert torch.allclose(own.posterior(other)[0], own.posterior(x)[0].roll(1, 0), atol=1e-5)


def test_what_has_no_law_is_refused():
    with pytest.raises(TypeError, match=r"no law .* for Sphere.*likelihood_of.register\(Sphere\)"):
        likelihood_of(un.Sphere(2))
    with pytest.raises(TypeError, match="closes on itself"):
        likelihood_of(un.Torus((2,)))

    class Lights(un.Finite):
        pass

    @un.latent.likelihood_of.register(Lights)
    def _(space):
        return NumbersLaw(space.shape, 1.0)

    assert isinstance(likelihood_of(Lights(2, (3,))), NumbersLaw)
