"""An energy on every space: against oracles, against brute force, through training, and what it refuses."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

import unnoise as un
from unnoise.objectives.closed_forms import rate
from unnoise.oracles import CategoricalLeaf, Components, GaussianLeaf, poisson_mixture
from unnoise.predictions import ProductPrediction, energy, variances

schedules = un.schedules
F64 = torch.float64
ROWS = 10


def rand(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def gaussians(process):
    root = rand(2, 2, 2, seed=5)
    covariances = root @ root.mT + 0.2 * torch.eye(2, dtype=F64)
    return un.oracles.mixture(process, torch.tensor([0.4, 0.6]), rand(2, 2, seed=6), covariances)


def table(process):
    return un.oracles.table(process, rand(process.space.count, seed=7).softmax(0))


def poisson(process):
    return poisson_mixture(process, torch.tensor([0.3, 0.7]), torch.tensor([[0.5, 2.0], [3.0, 1.0]], dtype=F64))


def mixed():
    process = un.Product(
        y=un.Gaussian((1,), schedules.Linear()),
        inner=un.Product(c=un.Uniform([2, 3]), m=un.Masking(3, (2,))),
        n=un.Thinning((2,), immigration=0.7),
    )
    leaves = {
        "y": GaussianLeaf(rand(2, 1, seed=1), torch.tensor([[[0.3]], [[0.6]]])),
        "inner": {
            "c": CategoricalLeaf(
                rand(2, 2, 3, seed=2).masked_fill(~process.leaves["inner"].leaves["c"].space.valid(), -1e30)
            ),
            "m": CategoricalLeaf(rand(2, 2, 3, seed=3)),
        },
        "n": poisson(un.Thinning((2,))).leaves,
    }
    for leaf in (leaves["inner"]["c"], leaves["inner"]["m"]):
        leaf.log_probs = leaf.log_probs.log_softmax(-1)
    return Components(process, torch.tensor([0.4, 0.6]), leaves)


ORACLES = {
    "gaussian": lambda: gaussians(un.Gaussian((2,), schedules.Linear())),
    "correlated": lambda: gaussians(un.Gaussian((2,), schedules.Cosine(), [[1.0, 0.6], [0.6, 0.8]])),
    "scalar": lambda: un.oracles.normal(un.Gaussian(), torch.tensor(0.3), torch.tensor([[0.5]])),
    "uniform": lambda: table(un.Uniform(3, (2,))),
    "uniform-scalar": lambda: table(un.Uniform(4)),
    "uniform-sizes": lambda: table(un.Uniform([2, 3])),
    "masking": lambda: table(un.Masking(3, (2,), schedules.Cosine())),
    "masking-sizes": lambda: table(un.Masking([2, 3])),
    "death": lambda: poisson(un.Thinning((2,))),
    "immigration": lambda: poisson(un.Thinning((2,), immigration=1.3)),
    "product": mixed,
}
every_oracle = pytest.mark.parametrize("make", ORACLES.values(), ids=ORACLES.keys())


def case(make, seed=0):
    oracle = make()
    x0 = oracle.draw(un.NoiseSource(seed, ROWS))
    t = torch.linspace(0.1, 0.9, ROWS, dtype=F64)
    return oracle, x0, oracle.process.marginal(x0, t).draw(un.NoiseSource(seed + 1, ROWS)), t


def differences(process):
    if isinstance(process, un.Product):
        return {name: differences(leaf) for name, leaf in process.leaves.items()}
    return un.Score if isinstance(process, un.Gaussian) else un.CountRatio if isinstance(process, un.Thinning) else un.Ratio


def assert_same_local(ours, other):
    if isinstance(ours, dict):
        for name in ours:
            assert_same_local(ours[name], other[name])
        return
    for name in ("drift", "log_rates"):
        a, b = getattr(ours, name), getattr(other, name)
        assert (a is None) == (b is None)
        if a is not None:
            close(*(v.exp() if name == "log_rates" else v for v in (a, b)), 1e-9)


# -- against oracles --------------------------------------------------------------------------------------------------


@every_oracle
def test_an_oracles_energy_is_its_score_and_its_ratios(make):
    oracle, x0, x_t, t = case(make)
    ours = oracle.predicting(un.Energy)(x_t, t)
    other = oracle.predicting(differences(oracle.process))(x_t, t)
    assert isinstance(ours, un.Energy) and ours.joint
    close(ours.value, oracle.log_marginal(x_t, t), 0)
    assert_same_local(ours.local(), other.local())
    assert_same_local(ours.local(), oracle(x_t, t).local())
    noise, s = un.NoiseSource(2, ROWS), 0.7 * t
    x_s = other.step(s).draw(noise)
    close(ours.step(s).log_prob(x_s), other.step(s).log_prob(x_s), 1e-8)
    close(rate(ours, oracle.process, x0), rate(other, oracle.process, x0), 1e-9)


@every_oracle
def test_a_constant_of_time_and_a_time_tree_change_nothing(make):
    oracle, _, x_t, t = case(make)
    exact = oracle.predicting(un.Energy)(x_t, t)

    def shifted(x, rows):
        return exact.function(x, rows) + torch.sin(9 * (t if rows is None else t[rows]))

    assert_same_local(un.Energy(shifted, oracle.process, x_t, t).local(), exact.local())
    if isinstance(oracle.process, un.Product):
        tree = {"y": t, "inner": {"c": 0.5 * t, "m": t}, "n": t.flip(0)}
        assert_same_local(oracle.predicting(un.Energy)(x_t, tree).local(), oracle(x_t, tree).local())


def test_conversions_go_through_the_score_and_the_ratios():
    oracle, _, x_t, t = case(ORACLES["correlated"])
    ours = oracle.predicting(un.Energy)(x_t, t)
    for kind in (un.Score, un.Clean, un.Noise, un.Velocity, un.Flow):
        assert type(ours.to(kind)) is kind
        close(ours.to(kind).value, oracle.predicting(kind)(x_t, t).value)
    close(ours.to(un.Mean, s=0.5 * t).value, oracle(x_t, t).to(un.Mean, s=0.5 * t).value)
    assert ours.to(un.Energy) is ours
    oracle, _, x_t, t = case(ORACLES["uniform"])
    ours = oracle.predicting(un.Energy)(x_t, t)
    for kind in (un.Posterior, un.RawPosterior):
        close(ours.to(kind).log_theta().exp(), oracle.predicting(kind)(x_t, t).log_theta().exp(), 1e-9)
    close(ours.to(un.Rates).local().rates, oracle(x_t, t).local().rates)
    oracle, _, x_t, t = case(ORACLES["product"])
    ours = oracle.predicting(un.Energy)(x_t, t).to({"y": un.Noise})
    assert isinstance(ours, ProductPrediction) and type(ours["n"]) is un.CountRatio
    close(ours["y"].value, oracle(x_t, t)["y"].to(un.Noise).value)


@pytest.mark.parametrize("name", ["gaussian", "uniform", "masking", "death"])
def test_the_bound_of_the_exact_energy_is_the_surprise(name):
    oracle = (
        ORACLES[name]()
        if name != "gaussian"
        else un.oracles.normal(un.Gaussian(1, schedules.Linear()), torch.tensor([0.3]), torch.tensor([[0.5]]))
    )
    x = oracle.draw(un.NoiseSource(0, 3))
    view = oracle.predicting(un.Energy)
    ours = un.bound(view, x, exact=True, decoder=oracle.decoder)
    torch.testing.assert_close(ours.total, -oracle.log_prob(x), rtol=0, atol=1e-6)


# -- against brute force ----------------------------------------------------------------------------------------------


class Network(nn.Module):
    """A small nonlinear energy of any tree of states, with a condition."""

    def __init__(self, width=3, seed=0):
        super().__init__()
        self.weight, self.bend = nn.Parameter(rand(width, 8, seed=seed)), nn.Parameter(rand(width, seed=seed + 1))
        self.rows = []

    def forward(self, x, t, shift=None):
        parts = [leaf.reshape(len(leaf), -1).to(F64) for leaf in leaves_of(x)]
        clock = next(iter(leaves_of(t))).to(F64)
        flat = torch.cat(parts, 1)
        self.rows.append(len(flat))
        h = torch.tanh(0.5 * flat @ self.weight[:, : flat.shape[1]].T + clock.unsqueeze(1) * self.bend)
        h = h if shift is None else h * (1 + shift.unsqueeze(1))
        return (h * self.bend).sum(1)


def leaves_of(x):
    return [leaf for part in x.values() for leaf in leaves_of(part)] if isinstance(x, dict) else [x]


def test_scores_are_gradients_and_see_the_condition():
    process, network = un.Gaussian((2, 2)), Network()
    x_t, t, shift = rand(ROWS, 2, 2), torch.linspace(0.1, 0.9, ROWS, dtype=F64), rand(ROWS, seed=3)
    ours = un.Denoiser(network, process, predicts=un.Energy)(x_t, t, shift=shift).to(un.Score).value
    jacobian = torch.autograd.functional.jacobian(lambda x: network(x, t, shift), x_t)
    close(ours, torch.stack([jacobian[i, i] for i in range(ROWS)]))


@pytest.mark.parametrize("name", ["uniform", "uniform-scalar", "uniform-sizes", "masking", "masking-sizes"])
def test_ratios_are_differences_at_every_neighbour(name):
    """Each neighbour is asked for on its own, at the time and condition of its row."""
    oracle, _, x_t, t = case(ORACLES[name])
    process, network, shift = oracle.process, Network(), rand(ROWS, seed=3)
    ours = un.Denoiser(network, process, predicts=un.Energy)(x_t, t, shift=shift).to(un.Ratio)
    moves, checked = ours._moves(), 0
    for row in range(ROWS):
        one = slice(row, row + 1)
        around = process.state_space.neighbours(x_t[one])
        many = len(around)
        energies = network(around, t[one].expand(many), shift[one].expand(many)) - network(x_t[one], t[one], shift[one])
        expected = energies.reshape(ours.value.shape[1:])
        close(ours.value[row][moves[row]], expected[moves[row]])
        checked += int(moves[row].sum())
    assert checked >= 10
    assert (ours.value[~moves & (ours.value != 0)] < -1e29).all()


def test_only_states_that_lead_back_are_evaluated():
    """Under masking: the categories of the masked coordinates.  No state off the space is asked for."""
    process, network = un.Masking([2, 3]), Network()
    x_t = torch.tensor([[0, 1], [3, 2], [3, 3]])
    un.Denoiser(network, process, predicts=un.Energy)(x_t, 0.5).local()
    assert network.rows == [3, 2 + 2 + 3]
    network.rows.clear()
    un.Denoiser(network, process, predicts=un.Energy)(x_t[:1], 0.5).local()
    assert network.rows == [1]


@pytest.mark.parametrize("name", ["uniform", "product"])
def test_chunks_change_nothing(name, monkeypatch):
    oracle, x0, x_t, t = case(ORACLES[name])
    denoiser = un.Denoiser(Network(), oracle.process, predicts=un.Energy)
    results = []
    for chunk in (energy.CHUNK, 24):
        monkeypatch.setattr(energy, "CHUNK", chunk)
        denoiser.network.rows.clear()
        denoiser.zero_grad()
        value = rate(denoiser(x_t, t), oracle.process, x0)
        value.sum().backward()
        results.append((value.detach(), denoiser.network.weight.grad.clone(), max(denoiser.network.rows[1:])))
    close(results[0][0], results[1][0])
    close(results[0][1], results[1][1])
    assert results[0][2] > results[1][2] and results[1][2] <= 24 // oracle.process.state_space.dimension


# -- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "correlated", "uniform", "masking", "death", "product"])
def test_gradients_of_the_bound(name):
    """Training goes through the score, a gradient itself: derivatives of second order against finite differences."""
    oracle, x0, x_t, t = case(ORACLES[name])
    network, process = Network(), oracle.process
    names = [key for key, _ in network.named_parameters()]

    def loss(*values):
        parameters = dict(zip(names, values, strict=True))
        denoiser = un.Denoiser(Functional(network, parameters), process, predicts=un.Energy)
        return rate(denoiser(x_t, t), process, x0)

    assert torch.autograd.gradcheck(loss, tuple(p.detach().clone().requires_grad_() for p in network.parameters()))


class Functional(nn.Module):
    def __init__(self, network, parameters):
        super().__init__()
        self.network, self.values = [network], parameters

    def forward(self, x, t):
        return functional_call(self.network[0], self.values, (x, t))


@pytest.mark.parametrize("name", ["gaussian", "product"])
def test_without_gradients(name):
    """Under no_grad the score is still taken, and nothing is kept for later."""
    oracle, _, x_t, t = case(ORACLES[name])
    denoiser = un.Denoiser(Network(), oracle.process, predicts=un.Energy)
    with torch.no_grad():
        prediction = denoiser(x_t, t)
        free = prediction.local()
    bound = prediction.local()  # the same prediction, where gradients are wanted
    assert_same_local(free, bound)
    local = bound["y"] if isinstance(bound, dict) else bound
    assert local.drift.requires_grad and not (free["y"] if isinstance(free, dict) else free).drift.requires_grad
    with torch.no_grad():
        assert_same_local(prediction.local(), bound)


def test_gradients_reach_a_learned_schedule():
    """x_t depends on the schedule: what trains it passes through the score's own derivative in x_t."""

    class Scaled(schedules.Schedule):
        def __init__(self):
            super().__init__()
            self.rate = nn.Parameter(torch.tensor(0.9, dtype=F64))

        def exact_alpha(self, t):
            return 1 - self.rate * t

        def exact_sigma(self, t):
            return self.rate * t

    schedule = Scaled()
    process = un.Gaussian((2,), schedule)
    x0, network = rand(4, 2), Network()
    slopes = []
    for value in (0.9 - 1e-5, 0.9 + 1e-5, 0.9):
        with torch.no_grad():
            schedule.rate.fill_(value)
        objective = un.Objective(un.Denoiser(network, process, predicts=un.Energy), cutoff=0.05)
        slopes.append(objective(x0, un.NoiseSource(0, 4)).loss.sum())
    (slope,) = torch.autograd.grad(slopes[2], schedule.rate)
    torch.testing.assert_close(slope, (slopes[1] - slopes[0]).detach() / 2e-5, rtol=1e-5, atol=1e-6)


def test_the_exact_energy_minimises_the_bound():
    """At one time, averaged over the data: the gradient in a free energy per state vanishes at log q_t, not beside it."""
    process = un.Uniform(3, (2,))
    oracle, data, t = table(process), process.space.states(), 0.4
    nodes, log_weight = process.support(data, t)
    clock = torch.full((len(nodes) * len(data),), t, dtype=F64)
    weight = (log_weight.exp() * oracle.log_prob(data).exp()).flatten()
    for start, vanishes in ((torch.zeros(9, dtype=F64), True), (rand(9, seed=1), False)):
        extra = start.requires_grad_()

        def free(x, rows, extra=extra):
            return oracle.log_marginal(x, t) + extra[x[:, 0] * 3 + x[:, 1]]

        prediction = un.Energy(free, process, nodes.flatten(0, 1), clock)
        mean = (weight * rate(prediction, process, data.repeat(len(nodes), 1))).sum()
        (gradient,) = torch.autograd.grad(mean, extra)
        assert (float(gradient.abs().max()) < 1e-12) == vanishes


@pytest.mark.conformance
def test_training_an_energy_finds_the_law():
    torch.manual_seed(0)
    process = un.Uniform(3, (2,))
    law = torch.tensor([0.30, 0.02, 0.02, 0.02, 0.30, 0.02, 0.02, 0.02, 0.28], dtype=F64)

    class Free(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(7, 32), nn.Tanh(), nn.Linear(32, 1))

        def forward(self, x, t):
            seen = torch.cat([nn.functional.one_hot(x, 3).flatten(1).to(t), t.unsqueeze(1)], 1)
            return (1 - t) * self.net(seen).squeeze(1)  # all states are alike at t = 1

    oracle, denoiser = un.oracles.table(process, law), un.Denoiser(Free(), process, predicts=un.Energy)
    optimiser = torch.optim.Adam(denoiser.parameters(), lr=1e-2)
    objective = un.Objective(denoiser)
    for step in range(150):
        optimiser.zero_grad()
        objective(oracle.draw(un.NoiseSource(step, 128))).loss.mean().backward()
        optimiser.step()
    with torch.no_grad():
        after = (law * un.bound(denoiser, process.space.states(), exact=True).total).sum()
    assert -1e-6 < float(after + (law * law.log()).sum()) < 0.15


# -- objectives -------------------------------------------------------------------------------------------------------


def test_weightings_go_through_the_score():
    oracle, x0, x_t, t = case(ORACLES["correlated"])
    prediction = un.Denoiser(Network(), oracle.process, predicts=un.Energy)(x_t, t)
    for weighting in (un.weightings.Simple(), un.weightings.V(), un.weightings.Bound()):
        expected = weighting.rate(prediction.to(un.Score), oracle.process, x0)
        close(weighting.rate(prediction, oracle.process, x0), expected, 0)
    oracle, x0, x_t, t = case(ORACLES["product"])
    prediction = un.Denoiser(Network(), oracle.process, predicts=un.Energy)(x_t, t)
    named = un.weightings.LeafWeightings(y=un.weightings.Simple())
    close(named.rate(prediction, oracle.process, x0), named.rate(prediction.by_leaf(), oracle.process, x0), 0)


@pytest.mark.parametrize("name", ["gaussian", "uniform", "masking", "death", "product"])
def test_objectives_chains_and_decoders(name):
    oracle, x0, _, _ = case(ORACLES[name])
    process = oracle.process
    denoiser = un.Denoiser(Network(), process, predicts=un.Energy)
    value = un.Objective(denoiser, cutoff=0.05)(x0, un.NoiseSource(0, ROWS))
    assert value.total.isfinite().all() and value.total.requires_grad
    with torch.no_grad():
        again = un.Objective(denoiser, cutoff=0.05)(x0, un.NoiseSource(0, ROWS))
    close(again.total, value.total.detach())
    if name not in ("gaussian", "uniform"):
        return  # where their last time is 1 they have alpha = 0 there, and a ratio says nothing of x_0
    chain = un.Chain(process, torch.linspace(0.05, 0.95, 5, dtype=F64))
    assert un.bound(un.Denoiser(Network(), chain, predicts=un.Energy), x0, seed=0).total.isfinite().all()


def test_the_default_cutoff_is_that_of_ratios():
    for kind in (un.Ratio, un.Energy):
        assert un.Objective(un.Denoiser(Network(), un.Uniform(3, (2,)), predicts=kind)).cutoff == 1e-4
        assert un.Objective(un.Denoiser(Network(), un.Masking(3, (2,)), predicts=kind)).cutoff == 0


def test_fitting_a_variance():
    process = un.Chain(un.Gaussian((2,)), torch.linspace(0.05, 0.95, 5, dtype=F64))
    denoiser = un.fit_variance(un.Denoiser(Network(), process, predicts=un.Energy), rand(20, 2))
    assert denoiser.kinds is un.Energy and isinstance(denoiser.variance, variances.OptimalVariance)
    assert un.bound(denoiser, rand(5, 2), seed=0).total.isfinite().all()


def test_half_precision_energies_are_subtracted_in_single():
    process = un.Uniform(3, (2,))
    ours = un.Energy(lambda x, rows: x.sum(1).to(torch.bfloat16), process, torch.tensor([[0, 2]]), 0.5).to(un.Ratio)
    assert ours.value.dtype == torch.float32
    assert ours.value[0].tolist() == [[0.0, 1.0, 2.0], [-2.0, -1.0, 0.0]]


def test_an_energy_that_ignores_the_numbers_has_no_score():
    process = un.Gaussian((2,))
    for function in (lambda x, rows: torch.zeros(len(x)), lambda x, rows: torch.ones(len(x), requires_grad=True)):
        assert un.Energy(function, process, torch.ones(3, 2), 0.5).to(un.Score).value.abs().max() == 0


# -- refusals ---------------------------------------------------------------------------------------------------------


@every_oracle
def test_nothing_converts_to_an_energy(make):
    oracle, _, x_t, t = case(make)
    with pytest.raises(un.InexactConversion, match=r"does not determine Energy.*predicts=Energy"):
        oracle(x_t, t).to(un.Energy)
    if isinstance(oracle.process, un.Product):
        with pytest.raises(un.InexactConversion, match="Velocity does not determine Energy"):
            oracle(x_t, t).to({"y": un.Energy})
        with pytest.raises(TypeError, match="name the leaf"):
            oracle.predicting(un.Energy)(x_t, t).to(un.Score)


class Returns(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, t):
        return self.function(x)


PAIR = un.Product(a=un.Gaussian(1), b=un.Uniform(3, 1))


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda x: torch.zeros(len(x), 1), ValueError, r"shape \(4, 1\); an Energy is one number per row, shape \(4,\)"),
        (lambda x: torch.zeros(()), ValueError, r"shape \(\); an Energy is one number per row"),
        (lambda x: torch.zeros(len(x), dtype=torch.int64), TypeError, "floating point"),
        (lambda x: {"a": torch.zeros(len(x))}, TypeError, "returned a dict"),
    ],
)
def test_outputs_that_are_no_energy(function, error, words):
    for process, x in ((un.Gaussian(2), torch.zeros(4, 2)), (un.Uniform(3, 2), torch.zeros(4, 2, dtype=torch.int64))):
        with pytest.raises(error, match=words):
            un.Denoiser(Returns(function), process, predicts=un.Energy)(x, 0.5).local()


def test_an_energy_of_one_leaf_alone_is_refused():
    with pytest.raises(TypeError, match=r"names Energy for \['a'\].*pass predicts=Energy"):
        un.Denoiser(Network(), PAIR, predicts={"a": un.Energy})
    with pytest.raises(TypeError, match="or Energy"):
        un.Denoiser(Network(), PAIR, predicts=un.Score)
    assert un.Denoiser(Network(), PAIR, predicts=un.Energy).kinds is un.Energy
    with pytest.raises(TypeError, match="a function of the state"):
        un.Denoiser(Network(), PAIR, predicts=un.Energy).typed(torch.zeros(4), {}, 0.5)
