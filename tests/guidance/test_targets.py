"""Laws that targets name, against enumeration and quadrature."""

import pytest
import torch
from enumerated import weighted_law

import unnoise as un

SIZE, LENGTH = 3, 3
PROCESS = un.Masking(SIZE, (LENGTH,))


def table(seed):
    p = torch.rand(SIZE**LENGTH, generator=torch.Generator().manual_seed(seed)).double().square() + 1e-3
    return p / p.sum()


P, Q = table(0), table(1)


def model(p):
    return un.oracles.table(PROCESS, p)


def total_variation(p, q):
    return float((p / p.sum() - q / q.sum()).abs().sum() / 2)


REWARD = torch.tensor([0.3, -1.0, 0.8], dtype=torch.float64)


def reward(x):
    return REWARD.to(x.device)[x].sum(1)


STATES = PROCESS.space.states()
TARGETS = {
    "itself": (model(P), P),
    "geometric 2": (un.targets.geometric(model(P), model(Q), 2.0), P**2 / Q),
    "geometric 0.5": (un.targets.geometric(model(P), model(Q), 0.5), (P * Q).sqrt()),
    "tempered 2": (un.targets.tempered(model(P), 2.0), P**2),
    "tempered 0.5": (un.targets.tempered(model(P), 0.5), P.sqrt()),
    "product": (un.targets.product([model(P), model(Q)]), P * Q),
    "product 3, -2": (un.targets.product([model(P), model(Q)], [3.0, -2.0]), P**3 / Q**2),
    "reward": (un.targets.rewarded(model(P), reward, 1.5), P * (1.5 * reward(STATES)).exp()),
    "reward, nothing on the way": (un.targets.rewarded(model(P), reward, 1.5, draws=0), P * (1.5 * reward(STATES)).exp()),
    "restricted": (un.targets.restricted(model(P), lambda x: x[:, 0] <= x[:, 2]), P * (STATES[:, 0] <= STATES[:, 2])),
    "reward of a power": (
        un.targets.rewarded(un.targets.tempered(model(P), 2.0), reward, 0.5),
        P**2 * (0.5 * reward(STATES)).exp(),
    ),
}


@pytest.mark.parametrize("name", TARGETS)
def test_weighted_law_is_the_target_and_the_mean_weight_its_normaliser(name):
    target, wanted = TARGETS[name]
    law, z = weighted_law(target)
    assert total_variation(law, wanted) < 1e-12
    assert abs(z / float(wanted.sum()) - 1) < 1e-12


def test_guidance_without_weights_has_another_law():
    target, wanted = TARGETS["geometric 2"]
    law, z = weighted_law(target, weigh=False)
    assert abs(z - 1) < 1e-12  # a law it is
    assert total_variation(law, wanted) > 0.2


def test_automaton_is_followed_exactly():
    """Words with an even number of 1s, of a model that knows nothing of it."""
    even = un.guidance.Automaton([[0, 1, 0], [1, 0, 1]], [True, False])
    target = un.targets.restricted(model(P), even)
    wanted = P * ((STATES == 1).sum(1) % 2 == 0)
    law, z = weighted_law(target)
    assert total_variation(law, wanted) < 1e-12
    assert abs(z - float(wanted.sum())) < 1e-12
    proposed, _ = weighted_law(target, weigh=False)
    assert float(proposed[wanted == 0].sum()) == 0  # what is not accepted is never proposed


class Inconsistent(un.AnyDenoiser):
    """A network whose conditionals belong to no joint law."""

    def __init__(self):
        super().__init__()
        self.process = PROCESS
        generator = torch.Generator().manual_seed(3)
        self.weight = torch.nn.Parameter(torch.randn(LENGTH * (SIZE + 1), LENGTH * SIZE, generator=generator).double())

    def forward(self, x_t, t, /, **condition):
        seen = torch.nn.functional.one_hot(x_t, SIZE + 1).double().flatten(1)
        return un.Posterior((seen @ self.weight).reshape(-1, LENGTH, SIZE), self.process, x_t, t)


@torch.no_grad()
def test_law_of_a_network_is_the_mean_over_orders():
    """What the docs say of conditionals that are not consistent, and that it is not a power of the model's law."""
    network = Inconsistent()
    beta = 2.0
    law, z = weighted_law(un.targets.tempered(network, beta))
    wanted, own = torch.zeros(SIZE**LENGTH).double(), torch.zeros(SIZE**LENGTH).double()
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    for order in orders:
        x, log_p = torch.full_like(STATES, SIZE), torch.zeros(len(STATES)).double()
        for place in order:
            logits = network(x, torch.full((len(x),), 0.5)).logits.log_softmax(-1)
            log_p = log_p + logits[torch.arange(len(x)), place, STATES[:, place]]
            x = x.clone()
            x[:, place] = STATES[:, place]
        wanted, own = wanted + (beta * log_p).exp() / 6, own + log_p.exp() / 6
    assert total_variation(law, wanted) < 1e-12 and abs(z - float(wanted.sum())) < 1e-12
    assert total_variation(law, own**beta) > 0.01


def groups(target, n, particles, seed=0, **options):
    steps = options.pop("steps", None)
    return un.sample(target, n=n, steps=steps, seed=seed, sampler=un.samplers.Particles(particles, **options))


def test_normaliser_is_unbiased_under_resampling():
    """1,000 groups of 8: the mean of exp(log_normaliser) within 4 standard errors of Z (false alarms: 6e-5)."""
    target, wanted = TARGETS["geometric 2"]
    _, info = groups(target, 1000, 8, share=0.9)
    z = info.particles.log_normaliser.exp() / float(wanted.sum())
    assert abs(float(z.mean()) - 1) < 4 * float(z.std()) / 1000**0.5 < 0.4
    assert any(bool((a != torch.arange(8)).any()) for a in info.particles.ancestors)


def test_samples_have_the_law():
    """Pearson's statistic of 2,000 samples under 16 particles, whose bias is smaller than the noise."""
    target, wanted = TARGETS["tempered 2"]
    x, info = groups(target, 2000, 16)
    code = (x * SIZE ** torch.arange(LENGTH - 1, -1, -1)).sum(1)
    found, expected = torch.bincount(code, minlength=SIZE**LENGTH).double(), 2000 * wanted / wanted.sum()
    kept = expected > 5
    chi = float(((found - expected).square() / expected)[kept].sum())
    assert chi < 2 * int(kept.sum()) + 30  # a chance of less than 1e-4 by its mean and deviation
    log_z, error = info.particles.estimate()
    assert abs(log_z - float(wanted.sum().log())) < 4 * error


def test_row_does_not_depend_on_its_batch():
    target, _ = TARGETS["reward"]
    whole, _ = groups(target, 6, 4)
    part, _ = un.sample(target, n=2, first=3, seed=0, sampler=un.samplers.Particles(4))
    assert torch.equal(whole[3:5], part)


def test_bad_targets_are_refused():
    with pytest.raises(ValueError, match="is no number"):
        un.targets.geometric(model(P), model(Q), float("nan"))
    with pytest.raises(ValueError, match="sum above 0"):
        un.targets.product([model(P), model(Q)], [1.0, -1.0])
    with pytest.raises(ValueError, match="processes of their own"):
        un.targets.product([model(P), un.oracles.table(un.Masking(SIZE, (LENGTH,)), Q)])
    with pytest.raises(ValueError, match="one exponent"):
        un.targets.product([model(P)], [1.0, 2.0])
    with pytest.raises(TypeError, match="does not say the density"):
        groups(model(P), 2, 4, proposal=un.samplers.Gillespie())


def test_rewards_that_are_no_numbers_stop_the_run():
    def of_nan(x):
        return torch.full((len(x),), float("nan"))

    with pytest.raises(ValueError, match="finite number"):
        groups(un.targets.rewarded(model(P), of_nan), 2, 4)
    with pytest.raises(ValueError, match="stopped with ZeroDivisionError"):
        groups(un.targets.rewarded(model(P), lambda x: 1 / 0), 2, 4)


def test_no_survivor_is_said_with_what_was_drawn():
    with pytest.raises(un.samplers.NoSurvivors) as caught:
        groups(un.targets.restricted(model(P), lambda x: x[:, 0] < 0), 3, 4)
    assert caught.value.states.shape == (12, LENGTH)
    with pytest.raises(TypeError, match="accepts no sequence of length 3"):
        un.targets.restricted(model(P), un.guidance.Automaton([[1, -1, -1], [-1, -1, -1]], [False, True]))
