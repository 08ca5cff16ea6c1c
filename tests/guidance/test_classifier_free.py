"""Classifier-free guidance is the combination that its page says, leaf by leaf."""

import pytest
import torch

import unnoise as un

SIZE = 4
MASKING, NUMBERS = un.Masking(SIZE, (3,)), un.Gaussian((2,))


class Told(torch.nn.Module):
    """A network that is told a label; -1: nothing."""

    def __init__(self, out):
        super().__init__()
        self.by_label = torch.nn.Parameter(torch.randn(3, out, generator=torch.Generator().manual_seed(0)).double())
        self.labels = []

    def forward(self, x, t, label=None):
        self.labels.append(label)
        shape = (*x.shape, SIZE) if not x.dtype.is_floating_point else x.shape
        return self.by_label[label + 1].reshape(shape) * (
            1 + x.double().flatten(1).sum(1).reshape(-1, *[1] * (len(shape) - 1))
        )


def at(process, weight, **options):
    network = Told(12 if process is MASKING else 2)
    kind = un.Posterior if process is MASKING else un.Noise
    model = un.Denoiser(network, process, predicts=kind)
    x = process.prior(5, torch.float64).draw(un.NoiseSource(1, 5))
    t, label = torch.linspace(0.2, 0.9, 5).double(), torch.tensor([0, 1, 0, 1, 1])
    guided = un.guidance.ClassifierFree(model, weight, **options)(x, t, label=label)
    return guided, model(x, t, label=label), model(x, t, label=torch.full((5,), -1)), t


@torch.no_grad()
@pytest.mark.parametrize("weight", [0.0, 1.0, 2.5])
def test_destinations_are_the_normalised_product_and_the_reveal_rate_stays(weight):
    guided, c, u, _ = at(MASKING, weight)
    laws = [p.logits.log_softmax(-1) for p in (guided, c, u)]
    wanted = (weight * laws[1] + (1 - weight) * laws[2]).log_softmax(-1)
    assert (laws[0] - wanted).abs().max() < 1e-12
    exits = [p.to(un.Rates).value.exp()[..., :SIZE].sum(-1) for p in (guided, c)]
    assert (exits[0] - exits[1]).abs().max() < 1e-10


@torch.no_grad()
def test_rates_reveal_too_early_where_they_are_not_normalised():
    """The same product of rates: its exit rate is Z = sum_v c(v)^g u(v)^(1 - g) times too large."""
    _, c, u, _ = at(MASKING, 2.5)
    rates = un.predictions.combine([c.to(un.Rates), u.to(un.Rates)], [2.5, -1.5]).value.exp()[..., :SIZE].sum(-1)
    z = (2.5 * c.logits.log_softmax(-1) - 1.5 * u.logits.log_softmax(-1)).exp().sum(-1)
    assert (rates / c.to(un.Rates).value.exp()[..., :SIZE].sum(-1) / z - 1).abs().max() < 1e-10
    assert z.min() > 1


@torch.no_grad()
def test_scores_are_summed():
    guided, c, u, _ = at(NUMBERS, 3.0)
    scores = [p.to(un.Score).value for p in (guided, c, u)]
    assert (scores[0] - (3 * scores[1] - 2 * scores[2])).abs().max() < 1e-10


@torch.no_grad()
def test_weight_holds_within_its_interval_alone():
    guided, c, u, t = at(NUMBERS, 3.0, interval=(0.3, 0.7))
    inside = ((t >= 0.3) & (t <= 0.7)).unsqueeze(1)
    assert bool(inside.any()) and not bool(inside.all())
    wanted = torch.where(inside, 3 * c.value - 2 * u.value, c.value)
    assert (guided.value - wanted).abs().max() < 1e-12


@torch.no_grad()
def test_rescaled_estimates_have_the_conditional_spread():
    guided, c, _, _ = at(NUMBERS, 3.0, rescale=1.0)
    spread = [p.to(un.Clean).value.std(1, correction=0) for p in (guided, c)]
    assert (spread[0] / spread[1] - 1).abs().max() < 1e-8
    half, _, _, _ = at(NUMBERS, 3.0, rescale=0.5)
    plain, _, _, _ = at(NUMBERS, 3.0)
    own = [p.to(un.Clean).value.std(1, correction=0) for p in (half, plain, c)]
    assert (own[0] - (own[1] + own[2]) / 2).abs().max() < 1e-8


def test_leaves_have_weights_of_their_own():
    process = un.Product(size=un.Gaussian((1,)), colour=un.Masking(3, (1,)))
    one, two = (
        un.oracles.Components(
            process,
            torch.ones(1),
            {
                "size": un.oracles.GaussianLeaf(torch.full((1, 1), m).double(), torch.ones(1, 1, 1).double()),
                "colour": un.oracles.CategoricalLeaf(torch.tensor([[p]]).double().log()),
            },
        )
        for m, p in ((1.0, [0.6, 0.3, 0.1]), (-1.0, [0.2, 0.2, 0.6]))
    )
    x = process.prior(4, torch.float64).draw(un.NoiseSource(0, 4))
    t = torch.full((4,), 0.5).double()
    guided = un.guidance.ClassifierFree(one, {"colour": 2.0}, weaker=two)(x, t)
    assert torch.equal(guided["size"].value, one(x, t)["size"].value)
    law = guided["colour"].logits.log_softmax(-1)
    wanted = (2 * torch.tensor([0.6, 0.3, 0.1]).double().log() - torch.tensor([0.2, 0.2, 0.6]).double().log()).log_softmax(0)
    assert (law - wanted).abs().max() < 1e-10
    with pytest.raises(ValueError, match=r"weight names \['sise'\]"):
        un.guidance.ClassifierFree(one, {"sise": 2.0}, weaker=two)


def test_misuse_is_refused():
    model = un.Denoiser(Told(2), NUMBERS, predicts=un.Noise)
    with pytest.raises(ValueError, match="no condition to lead towards"):
        un.sample(un.guidance.ClassifierFree(model, 2.0), n=2, steps=2)
    with pytest.raises(ValueError, match="times lie in"):
        un.guidance.ClassifierFree(model, 2.0, interval=(0.9, 0.1))
    with pytest.raises(ValueError, match="a share lies in"):
        un.guidance.ClassifierFree(model, 2.0, rescale=2.0)


def test_a_settled_condition_is_told_of_every_row():
    network = Told(2)
    model = un.guidance.Given(un.Denoiser(network, NUMBERS, predicts=un.Noise), label=1)
    x, _ = un.sample(model, n=3, steps=2, sampler=un.samplers.DDIM(), seed=0)
    assert all(torch.equal(label, torch.ones(3, dtype=torch.int64)) for label in network.labels) and network.labels
    un.sample(un.guidance.Unconditional(model.denoiser), n=3, steps=1, seed=0, condition={"label": torch.tensor([0, 1, 1])})
    assert torch.equal(network.labels[-1], torch.full((3,), -1))


def test_rates_of_counts_are_combined_geometrically_and_a_weaker_model_guides():
    """log of the rate of a birth or death: g times the one's, 1 - g times the other's."""
    process = un.Thinning((1,))
    one, two = (
        un.oracles.poisson_mixture(process, torch.tensor(w).double(), torch.tensor([[1.0], [5.0]]).double())
        for w in ([0.7, 0.3], [0.2, 0.8])
    )
    k, t = torch.arange(6).unsqueeze(1), torch.full((6,), 0.4).double()
    found = [model(k, t).to(un.CountRatio).value for model in (un.guidance.ClassifierFree(one, 2.5, weaker=two), one, two)]
    assert (found[0] - (2.5 * found[1] - 1.5 * found[2]))[found[1] > -1e3].abs().max() < 1e-10
    assert (found[0] - found[1]).abs().max() > 0.1


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), {"x": float("nan")}])
def test_a_weight_is_a_number(weight):
    model = un.Denoiser(Told(2), un.Product(x=NUMBERS) if isinstance(weight, dict) else NUMBERS)
    with pytest.raises(ValueError, match=r"weight = (nan|inf): it must be a number"):
        un.guidance.ClassifierFree(model, weight)


def test_a_run_that_leaves_all_numbers_says_so():
    model = un.guidance.ClassifierFree(un.Denoiser(Told(2), NUMBERS, predicts=un.Noise), 1e300)
    with pytest.raises(ValueError, match="it ran away: guide less"):
        un.sample(model, n=2, steps=8, seed=0, condition={"label": torch.tensor([0, 1])})
