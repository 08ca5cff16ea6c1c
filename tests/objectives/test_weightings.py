"""Every weighting is the squared error (or cross-entropy) that it names, whatever the network predicts."""

import pytest
import torch

import unnoise as un
from unnoise.generators import divergence
from unnoise.predictions import ProductPrediction

schedules, weightings = un.schedules, un.weightings
F64 = torch.float64
ROWS = 20

SCHEDULES = {
    "linear": schedules.Linear(),
    "cosine": schedules.Cosine(),
    "VE": schedules.VE(0.05, 20.0),
    "linear-beta": schedules.LinearBeta(),
}
NUMBERS = [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow, un.Mean]


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def simple(error, alpha, sigma, rate):
    return error["eps"]


def clean(error, alpha, sigma, rate):
    return error["x0"]


def velocity(error, alpha, sigma, rate):
    return error["v"]


def min_snr(error, alpha, sigma, rate):
    return torch.minimum((alpha / sigma) ** 2, torch.tensor(3.0, dtype=F64)) * error["x0"]


def edm(error, alpha, sigma, rate):
    s, d = sigma / alpha, 0.7
    return (s**2 + d**2) / (s * d) ** 2 * error["x0"]


def sigmoid(error, alpha, sigma, rate):
    log_snr = 2 * (alpha.log() - sigma.log())
    return torch.sigmoid(-1.5 - log_snr) * rate / 2 * error["eps"]


STATED = {
    "Simple": (weightings.Simple(), simple),
    "X0": (weightings.X0(), clean),
    "V": (weightings.V(), velocity),
    "MinSNR": (weightings.MinSNR(3.0), min_snr),
    "EDM": (weightings.EDMWeighting(0.7), edm),
    "Sigmoid": (weightings.SigmoidWeighting(-1.5), sigmoid),
}


def gaussian_case(schedule, kind, shape=(3,)):
    """A random prediction, and the squared errors of x_0, eps and v that it amounts to, from their definitions."""
    process = un.Gaussian(shape, schedule)
    x0, eps, model = randn(ROWS, *shape, seed=1), randn(ROWS, *shape, seed=2), randn(ROWS, *shape, seed=3)
    t = torch.linspace(0.08, 0.95, ROWS, dtype=F64)
    alpha, sigma = schedule.alpha(t), schedule.sigma(t)
    a, s = (c.reshape(-1, *[1] * len(shape)) for c in (alpha, sigma))
    x_t = a * x0 + s * eps
    told = un.Clean(model, process, x_t, t)
    prediction = told.to(un.Mean, s=0.5 * t) if kind is un.Mean else told.to(kind)
    model_eps = (x_t - a * model) / s
    gaps = {"x0": x0 - model, "eps": eps - model_eps, "v": (a * eps - s * x0) - (a * model_eps - s * model)}
    error = {name: gap.reshape(ROWS, -1).square().sum(1) for name, gap in gaps.items()}
    _, slope = torch.func.jvp(lambda v: 2 * (schedule.alpha(v) / schedule.sigma(v)).log(), (t,), (torch.ones_like(t),))
    return process, x0, prediction, error, alpha, sigma, -slope


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
@pytest.mark.parametrize(("weighting", "stated"), STATED.values(), ids=STATED.keys())
def test_integrand_is_the_stated_squared_error(weighting, stated, schedule, kind):
    process, x0, prediction, error, alpha, sigma, rate = gaussian_case(schedule, kind)
    expected = stated(error, alpha, sigma, rate)
    torch.testing.assert_close(weighting.rate(prediction, process, x0), expected, rtol=1e-9, atol=1e-12)


def test_a_schedule_per_coordinate_is_weighed_coordinate_by_coordinate():
    parts = [schedules.Linear(), schedules.VE(0.05, 20.0)]
    process = un.Gaussian((2,), schedules.PerCoordinate(parts))
    x0, x_t, value = (randn(ROWS, 2, seed=seed) for seed in range(3))
    t = torch.linspace(0.1, 0.9, ROWS, dtype=F64)
    for weighting, _ in STATED.values():
        alone = sum(
            weighting.rate(un.Noise(value[:, k], un.Gaussian((), part), x_t[:, k], t), un.Gaussian((), part), x0[:, k])
            for k, part in enumerate(parts)
        )
        together = weighting.rate(un.Noise(value, process, x_t, t), process, x0)
        torch.testing.assert_close(together, alone, rtol=1e-12, atol=0)


def test_only_the_bound_is_a_bound():
    everything = [w for w, _ in STATED.values()] + [
        weightings.CrossEntropy(),
        weightings.LeafWeightings(a=weightings.Simple()),
    ]
    assert weightings.Bound().is_bound and not any(w.is_bound for w in everything)
    process, x0, prediction, *_ = gaussian_case(SCHEDULES["linear"], un.Noise)
    exact = divergence(process.reverse(prediction.x_t, x0, prediction.t), prediction)
    torch.testing.assert_close(weightings.Bound().rate(prediction, process, x0), exact, rtol=1e-10, atol=1e-12)
    for weighting, _ in STATED.values():
        assert float((weighting.rate(prediction, process, x0) / exact - 1).abs().max()) > 0.1


def neighbours_errors(t, error, reach):
    """The mean error of the rows next in time, one row at a time."""
    order, found = t.argsort().tolist(), torch.empty_like(error)
    for place, row in enumerate(order):
        near = order[max(0, place - reach) : place] + order[place + 1 : place + 1 + reach]
        found[row] = error[near].mean()
    return found


def test_balanced_weighs_relative_errors():
    """(b + late) times the squared error of v, over what it is in the rows next in time, as a constant."""
    _, x0, prediction, error, alpha, sigma, slope = gaussian_case(SCHEDULES["cosine"], un.Velocity)
    value = prediction.value.clone().requires_grad_()
    process, told = prediction.process, un.Velocity(value, prediction.process, prediction.x_t, prediction.t)
    own = slope / 2 * error["eps"] / error["v"]
    loss = weightings.Balanced(late=5.0).rate(told, process, x0)
    usual = neighbours_errors(prediction.t, error["v"], 8)
    torch.testing.assert_close(loss, (own + 5) * error["v"] / usual, rtol=1e-9, atol=0)
    (gradient,) = torch.autograd.grad(loss.sum(), value)
    v = alpha[:, None] * (told.x_t - alpha[:, None] * x0) / sigma[:, None] - sigma[:, None] * x0
    expected = ((own + 5) / usual)[:, None] * 2 * (value - v)
    torch.testing.assert_close(gradient, expected.detach(), rtol=1e-9, atol=1e-12)
    assert float(own[0] / own[-1]) > 100  # little noise still counts most
    assert not weightings.Balanced().is_bound


def test_usual_errors_are_those_of_the_neighbours_in_time():
    t, error = torch.rand(40, dtype=F64), torch.rand(40, dtype=F64)
    for reach in (1, 3, 100):
        torch.testing.assert_close(weightings.usual(t, error, 1.0, reach=reach), neighbours_errors(t, error, reach))
    assert weightings.usual(t[:1], error[:1], 7.0).tolist() == [7.0]


def test_usual_errors_are_those_of_the_free_rows():
    t, error = torch.rand(40, dtype=F64), torch.rand(40, dtype=F64)
    free = torch.arange(40) % 3 != 0
    for reach in (1, 3, 100):
        found = weightings.usual(t, torch.where(free, error, 1e9), 1.0, free, reach)
        torch.testing.assert_close(found[free], neighbours_errors(t[free], error[free], reach))
        assert bool(found.isfinite().all())
    one = torch.arange(40) == 17
    assert weightings.usual(t, error, 7.0, one)[17] == 7.0


def test_balanced_learns_the_mean_and_an_error_relative_to_itself_does_not():
    """Where nothing of a skewed x_0 is left, the best guess is its mean: the gradient is 0 there, within 4 standard errors
    over batches (a false alarm in 16,000).  Divided by its own error, the loss would favour what is common."""
    process, mean = un.Gaussian((1,), schedules.Cosine()), 0.1
    balanced, own = [], []
    for seed in range(400):
        noise = un.NoiseSource(seed, 64)
        x0 = (noise.at("data").uniform((1,)) < mean).to(F64)  # mostly 0, now and then 1
        t = 1 - 0.02 * noise.at("time").uniform()
        guess = torch.full((64, 1), mean, dtype=F64, requires_grad=True)
        x_t = process.marginal(x0, t).draw(noise.at("state"))
        prediction = un.Clean(guess, process, x_t, t)
        loss = weightings.Balanced().rate(prediction, process, x0)
        balanced.append(float(torch.autograd.grad(loss.sum(), guess, retain_graph=True)[0].sum()))
        error = weightings.V().rate(prediction, process, x0)
        own.append(float(torch.autograd.grad((error / error.detach()).sum(), guess)[0].sum()))
    for gradients, is_mean in ((balanced, True), (own, False)):
        gradients = torch.tensor(gradients, dtype=F64)
        far = abs(float(gradients.mean() / (gradients.std() / len(gradients) ** 0.5)))
        assert (far < 4) == is_mean, far


def test_balanced_learns_the_mean_from_rows_one_by_one():
    """A skewed x_0 of which nothing is left: the gradients of 1 and of 0, each in a batch of its own, cancel at the mean."""
    process, mean = un.Gaussian((2,), schedules.Cosine()), 0.1
    t, x_t = torch.tensor([0.99], dtype=F64), torch.zeros(1, 2, dtype=F64)
    total = 0.0
    for value, share in ((1.0, mean), (0.0, 1 - mean)):
        guess = torch.full((1, 2), mean, dtype=F64, requires_grad=True)
        loss = weightings.Balanced().rate(un.Clean(guess, process, x_t, t), process, torch.full((1, 2), value, dtype=F64))
        total += share * torch.autograd.grad(loss.sum(), guess)[0]
        assert loss.item() == pytest.approx(8 * (value - mean) ** 2, rel=0.02)  # of v, per coordinate: late is 8
    assert float(total.abs().max()) < 1e-12


# -- categories -------------------------------------------------------------------------------------------------------

FINITE = {
    "masking": lambda: un.Masking(3, 2, schedules.Cosine()),
    "masking-sizes": lambda: un.Masking([2, 3]),
    "uniform": lambda: un.Uniform(3, 2),
    "uniform-sizes": lambda: un.Uniform([2, 3]),
}


def finite_case(process, seed=0):
    states = process.space.states()
    x0 = states[torch.randint(len(states), (ROWS,), generator=torch.Generator().manual_seed(seed))]
    t = torch.linspace(0.1, 0.9, ROWS, dtype=F64)
    x_t = process.marginal(x0, t).draw(un.NoiseSource(seed, ROWS))
    return x0, x_t, t, randn(ROWS, 2, process.space.size, seed=seed + 5)


@pytest.mark.parametrize("kind", [un.Posterior, un.RawPosterior])
@pytest.mark.parametrize("make", FINITE.values(), ids=FINITE.keys())
def test_cross_entropy_is_the_surprise_of_the_movable_coordinates(make, kind):
    """-log p(x_0^k | x_t), with the evidence of x_t^k itself written out for leave-one-out logits."""
    process = make()
    x0, x_t, t, logits = finite_case(process)
    expected = torch.zeros(ROWS, dtype=F64)
    for b in range(ROWS):
        for k in range(2):
            size = process.space.size if process.space.sizes is None else int(process.space.sizes[k])
            masking, alpha = isinstance(process, un.Masking), float(process.schedule.alpha(t[b]))
            if masking and int(x_t[b, k]) != process.mask:
                continue
            theta = logits[b, k, :size].softmax(0)
            if kind is un.Posterior and not masking:
                evidence = torch.full((size,), (1 - alpha) / size, dtype=F64)
                evidence[int(x_t[b, k])] += alpha
                theta = theta * evidence / (theta * evidence).sum()
            expected[b] -= theta[int(x0[b, k])].log()
    actual = weightings.CrossEntropy().rate(kind(logits, process, x_t, t), process, x0)
    assert float(expected.max()) > 0.5
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-13)


# -- products ---------------------------------------------------------------------------------------------------------


def product_case():
    process = un.Product(
        age=un.Gaussian((3,), schedules.Linear()),
        rest=un.Product(job=un.Uniform(3, 2), text=un.Masking(3, 2)),
    )
    gaussian = gaussian_case(SCHEDULES["linear"], un.Clean)
    x0, leaf = {"age": gaussian[1]}, gaussian[2]
    t = torch.linspace(0.1, 0.9, ROWS, dtype=F64)
    x_t, inner = {"age": leaf.x_t}, {}
    x0["rest"], x_t["rest"] = {}, {}
    for i, (name, part) in enumerate(process.leaves["rest"].leaves.items()):
        x0["rest"][name], x_t["rest"][name], _, logits = finite_case(part, seed=i)
        inner[name] = un.Posterior(logits, part, x_t["rest"][name], t)
    rest = ProductPrediction(inner, process.leaves["rest"], x_t["rest"], t)
    leaf = un.Noise(leaf.value, process.leaves["age"], x_t["age"], t)
    return process, x0, ProductPrediction({"age": leaf, "rest": rest}, process, x_t, t)


def leaf_rate(weighting, process, x0, prediction, *path):
    for name in path:
        process, x0, prediction = process.leaves[name], x0[name], prediction.leaves[name]
    return weighting.rate(prediction, process, x0)


AGE, JOB, TEXT = ("age",), ("rest", "job"), ("rest", "text")


def test_a_gaussian_weighting_concerns_the_numbers_of_a_product_and_cross_entropy_its_categories():
    case, bound = product_case(), weightings.Bound()
    simple, cross = weightings.Simple(), weightings.CrossEntropy()
    numbers = leaf_rate(simple, *case, *AGE) + leaf_rate(bound, *case, *JOB) + leaf_rate(bound, *case, *TEXT)
    torch.testing.assert_close(leaf_rate(simple, *case), numbers, rtol=1e-13, atol=0)
    categories = leaf_rate(bound, *case, *AGE) + leaf_rate(cross, *case, *JOB) + leaf_rate(cross, *case, *TEXT)
    torch.testing.assert_close(leaf_rate(cross, *case), categories, rtol=1e-13, atol=0)
    whole = divergence(case[0].reverse(case[2].x_t, case[1], case[2].t), case[2])
    torch.testing.assert_close(leaf_rate(bound, *case), whole, rtol=1e-10, atol=1e-12)


def test_leaves_name_their_own_weightings():
    case, bound = product_case(), weightings.Bound()
    inner = weightings.LeafWeightings(text=weightings.CrossEntropy())
    both = weightings.LeafWeightings(age=weightings.V(), rest=inner)
    expected = leaf_rate(weightings.V(), *case, *AGE) + leaf_rate(bound, *case, *JOB)
    expected = expected + leaf_rate(weightings.CrossEntropy(), *case, *TEXT)
    torch.testing.assert_close(leaf_rate(both, *case), expected, rtol=1e-13, atol=0)
    one = leaf_rate(weightings.V(), *case, *AGE) + leaf_rate(bound, *case, "rest")
    torch.testing.assert_close(leaf_rate(weightings.LeafWeightings(age=weightings.V()), *case), one, rtol=1e-13, atol=0)
    with pytest.raises(TypeError, match="leaves of a product"):
        leaf_rate(both, *case, *AGE)


# -- the objective ----------------------------------------------------------------------------------------------------


class Shrink(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(0.6, dtype=F64))

    def forward(self, x, t):
        return self.factor * x * (1 + t).reshape(-1, *[1] * (x.ndim - 1))


class Logits(torch.nn.Module):
    def __init__(self, process):
        super().__init__()
        self.table = torch.nn.Parameter(randn(process.state_space.size, process.space.size))

    def forward(self, x, t):
        return self.table[x]


@pytest.mark.parametrize(
    ("weighting", "process"),
    [
        *[(w, un.Gaussian((3,), schedules.Linear())) for w, _ in STATED.values()],
        (weightings.CrossEntropy(), un.Masking(3, 2)),
        (weightings.CrossEntropy(), un.Uniform(3, 2)),
    ],
    ids=[*STATED, "CrossEntropy-masking", "CrossEntropy-uniform"],
)
def test_loss_is_weighted_and_total_stays_the_bound(weighting, process):
    """Same noise, same bound; the loss is the mean of the weighted integrand at the visited states and times."""
    numbers = isinstance(process, un.Gaussian)
    x0 = randn(ROWS, 3) if numbers else finite_case(process)[0]
    network = Shrink() if numbers else Logits(process)
    denoiser = un.Denoiser(network, process, un.Clean if numbers else None)
    plain, weighted = un.Objective(denoiser, cutoff=0.01), un.Objective(denoiser, weighting, cutoff=0.01)
    noise = un.NoiseSource(4, ROWS)
    bound, result = plain(x0, noise), weighted(x0, noise)
    assert torch.equal(bound.loss, bound.total)
    for term in ("prior", "diffusion", "reconstruction", "total"):
        torch.testing.assert_close(getattr(result, term), getattr(bound, term), rtol=1e-12, atol=0)
    torch.testing.assert_close(bound.total, bound.prior + bound.diffusion + bound.reconstruction)
    visits = weighted.times.visit(process, x0, 0.01, noise)
    t = visits.t[0]
    x_t = process.marginal(x0, t).draw(noise.at("state", 0)) if visits.x_t is None else visits.x_t
    expected = visits.weight[0] * weighting.rate(denoiser(x_t, t), process, x0)
    torch.testing.assert_close(result.loss, expected, rtol=1e-12, atol=0)
    assert float((result.loss.detach() - result.total).abs().max()) > 0.1
    parameter = next(network.parameters())
    assert float(torch.autograd.grad(result.loss.sum(), parameter)[0].abs().max()) > 1e-3
    assert not result.total.requires_grad and bound.total.requires_grad


def test_what_the_loss_does_not_need_can_be_left_out():
    """Then a weighted loss is the same, at one evaluation of the network, and there is no bound."""
    asked = []

    class Counting(Shrink):
        def forward(self, x, t):
            asked.append(len(x))
            return super().forward(x, t)

    denoiser, noise = un.Denoiser(Counting(), un.Gaussian((3,)), un.Clean), un.NoiseSource(4, ROWS)
    x0, decoder = (randn(ROWS, 3) > 0).to(F64) * 2 - 1, un.decoders.DiscretisedGaussian(levels=2)
    whole, less = (un.Objective(denoiser, w, decoder=decoder, cutoff=0.01) for w in (weightings.V(), weightings.V()))
    less.loss_only = True
    full, short = whole(x0, noise), less(x0, noise)
    assert len(asked) == 3 and torch.equal(full.loss, short.loss)
    assert bool(full.total.isfinite().all()) and bool(short.total.isnan().all())
    bound = un.Objective(denoiser, decoder=decoder, cutoff=0.01)
    bound.loss_only = True
    assert bool(bound(x0, noise).total.isfinite().all())


def test_a_weighted_loss_on_average_is_the_integral_of_its_integrand():
    """With the linear schedule, an x_0-error that is constant in t has the integral (1 - low) |x_0|^2."""
    process = un.Gaussian((3,), schedules.Linear())

    class Zero(torch.nn.Module):
        def forward(self, x, t):
            return 0 * x

    x0 = randn(ROWS, 3)
    objective = un.Objective(un.Denoiser(Zero(), process, un.Clean), weightings.X0(), times=un.Quadrature(8), cutoff=0.1)
    expected = 0.9 * x0.square().sum(1)
    torch.testing.assert_close(objective(x0).loss, expected, rtol=1e-12, atol=0)
