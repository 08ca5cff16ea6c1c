"""Correlated Gaussian noise: against dense matrices, and against the plain process that it is in whitened coordinates."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.covariance import Covariance, Stationary
from unnoise.generators import Local, divergence
from unnoise.laws import Normal
from unnoise.objectives.closed_forms import rate
from unnoise.predictions import variances
from unnoise.spaces import Euclidean

schedules = un.schedules
F64 = torch.float64
ROWS = 12
NUMBERS = [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow]
SCHEDULES = {"cosine": schedules.Cosine(), "linear": schedules.Linear(), "VE": schedules.VE(0.1, 5.0)}
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
every_kind = pytest.mark.parametrize("kind", NUMBERS)


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def random_matrix(d, seed=0):
    root = randn(d, d, seed=seed)
    return root @ root.T + 0.3 * torch.eye(d, dtype=F64)


def pair(schedule, shape=(3,), seed=0):
    """The correlated process, the plain one that it is in whitened coordinates, the matrix and its root."""
    plain = un.Gaussian(shape, schedule)
    matrix = random_matrix(plain.space.dimension, seed)
    return un.Gaussian(shape, schedule, covariance=matrix), plain, matrix, torch.linalg.cholesky(matrix)


def through(matrix, x):
    """A matrix applied to the flattened coordinates of each row."""
    return (x.reshape(len(x), -1) @ matrix.T).reshape(x.shape)


def close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# -- the covariance itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3)], ids=str)
def test_the_five_answers_by_dense_matrices(shape):
    d = torch.Size(shape).numel()
    matrix = random_matrix(d)
    covariance, root, x = Covariance(matrix), torch.linalg.cholesky(matrix), randn(5, 7, *shape, seed=1)
    flat = x.reshape(35, d)
    for ours, dense in (
        (covariance.colour, root),
        (covariance.whiten, root.inverse()),
        (covariance.apply, matrix),
        (covariance.solve, matrix.inverse()),
    ):
        close(ours(x), (flat @ dense.T).reshape(x.shape))
    close(torch.tensor(covariance.log_det_root, dtype=F64), 0.5 * torch.logdet(matrix))


@pytest.mark.parametrize(
    ("shape", "axes"), [((6,), None), ((5,), None), ((4, 5), None), ((5, 4), 2), ((2, 3, 4), 2)], ids=str
)
def test_a_stationary_field_is_its_own_dense_matrix(shape, axes):
    """The matrix is read off by applying it to the identity; then the Cholesky form must answer the same questions."""
    field = Stationary(shape, lambda f: (f + 0.2) ** -2, axes)
    d = field.dimension
    matrix = field.apply(torch.eye(d, dtype=F64))
    root = field.colour(torch.eye(d, dtype=F64))
    close(root @ root.T, matrix)
    close(matrix.diagonal(), torch.ones(d, dtype=F64))
    dense, x = Covariance(matrix), randn(3, *shape)
    close(field.apply(x), dense.apply(x))
    close(field.solve(x), dense.solve(x), 1e-10)
    close(field.whiten(field.colour(x)), x)
    close(torch.tensor(field.log_det_root, dtype=F64), torch.tensor(dense.log_det_root, dtype=F64))
    grid = matrix.reshape(*shape, *shape)
    torus = len(shape) if axes is None else axes
    both = [*range(len(shape) - torus, len(shape)), *range(-torus, 0)]
    moved = grid.roll([1] * len(both), both)
    close(moved, grid)  # nothing but the distance counts
    if torus < len(shape):
        assert float(grid[0, :, :, 1].abs().max()) == 0.0  # channels are independent
    assert float((matrix - torch.diag(matrix.diagonal())).abs().max()) > 0.1


def test_a_white_spectrum_is_the_identity_and_a_cosine_is_a_neighbours_correlation():
    x = randn(3, 8)
    close(Stationary(8, lambda f: torch.ones_like(f)).colour(x), x)
    two_pi = 2 * torch.pi
    matrix = Stationary(8, lambda f: 1 + 0.6 * torch.cos(two_pi * f)).apply(torch.eye(8, dtype=F64))
    expected = torch.eye(8, dtype=F64) + 0.3 * (torch.eye(8).roll(1, 0) + torch.eye(8).roll(-1, 0)).double()
    close(matrix, expected)


def test_roots_are_rounded_once_for_each_dtype_and_kept_for_training():
    covariance, x = Covariance(random_matrix(3)), randn(4, 3)
    with torch.inference_mode():
        covariance.colour(x.float())
    first = dict(covariance._rounded)
    leaf = x.float().requires_grad_()
    (covariance.whiten(covariance.colour(leaf)).sum() + covariance.solve(covariance.apply(leaf)).sum()).backward()
    assert covariance._rounded.keys() == first.keys()
    assert all(covariance._rounded[key] is first[key] for key in first)
    torch.testing.assert_close(leaf.grad, torch.full_like(leaf, 2.0), rtol=1e-5, atol=1e-5)
    assert covariance.root.dtype == F64 and covariance.colour(x.half()).dtype == torch.float16
    torch.testing.assert_close(covariance.colour(x.float()).double(), covariance.colour(x), rtol=1e-6, atol=1e-6)


class Halfway(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.map = nn.Linear(d, d)

    def forward(self, x, t):
        return self.map(x)


def test_the_root_is_formed_once(monkeypatch):
    calls = []
    for name in ("cholesky", "cholesky_ex", "eigh", "eigvalsh", "inv", "svd"):
        original = getattr(torch.linalg, name)
        monkeypatch.setattr(torch.linalg, name, lambda *a, original=original, name=name: calls.append(name) or original(*a))
    process = un.Gaussian((3,), covariance=random_matrix(3))
    assert calls == ["cholesky_ex"]
    for kind in (un.Clean, un.Score):
        objective = un.Objective(un.Denoiser(Halfway(3), process, predicts=kind))
        for _ in range(2):
            objective(torch.randn(8, 3)).loss.mean().backward()
    chain = un.Denoiser(Halfway(3), un.Chain(process, 4), un.Clean)
    un.bound(chain, torch.randn(8, 3)).total.sum().backward()
    assert calls == ["cholesky_ex"]


# -- against the whitened process -------------------------------------------------------------------------------------


@every_schedule
@pytest.mark.parametrize("shape", [(3,), (2, 2)], ids=str)
def test_kernels_are_those_of_the_whitened_process(schedule, shape):
    """Log-densities differ by the Jacobian, divergences not at all, and draws are coloured."""
    process, plain, _, root = pair(schedule, shape)
    y0, y_t, y = (randn(ROWS, *shape, seed=seed) for seed in (1, 2, 3))
    x0, x_t, x = (through(root, v) for v in (y0, y_t, y))
    t = torch.linspace(0.05, 0.95, ROWS, dtype=F64)
    s, log_det, noise = 0.6 * t, root.diagonal().log().sum(), un.NoiseSource(0, ROWS)
    for ours, white in (
        (process.marginal(x0, t), plain.marginal(y0, t)),
        (process.transition(x0, s, t), plain.transition(y0, s, t)),
        (process.posterior(x_t, x0, s, t), plain.posterior(y_t, y0, s, t)),
        (process.prior(ROWS, F64), plain.prior(ROWS, F64)),
    ):
        close(ours.log_prob(x), white.log_prob(y) - log_det, 1e-11)
        close(ours.draw(noise), through(root, white.draw(noise)))
    close(process.prior_kl(x0, t), plain.prior_kl(y0, t))
    close(
        process.posterior(x_t, x0, s, t).kl(process.posterior(x_t, x, s, t)),
        plain.posterior(y_t, y0, s, t).kl(plain.posterior(y_t, y, s, t)),
        1e-11,
    )
    moments = (x0, 0.3 + y0.square())
    mean, variance = process.push(moments, s, t)
    close(mean, through(root, plain.push((y0, moments[1]), s, t)[0]))
    close(variance, plain.push((y0, moments[1]), s, t)[1])


def test_support_integrates_over_the_correlated_law():
    """Moments of q(x_t | x_0) by its own nodes: the mean and sigma^2 C."""
    matrix = torch.tensor([[1.0, 0.6], [0.6, 0.8]], dtype=F64)
    process = un.Gaussian((2,), schedules.Linear(), covariance=matrix)
    x0 = randn(3, 2)
    nodes, log_weight = process.support(x0, 0.7)
    weight = log_weight.exp().unsqueeze(-1)
    close((weight * nodes).sum(0), 0.3 * x0)
    gap = nodes - 0.3 * x0
    second = torch.einsum("nb,nbi,nbj->bij", log_weight.exp(), gap, gap)
    close(second, (0.49 * matrix).expand(3, 2, 2))


class White(nn.Module):
    """A nonlinear network on the whitened coordinates, with a second output for a learned variance."""

    def __init__(self, d, both=False):
        super().__init__()
        self.first, self.second, self.both = nn.Parameter(randn(d, d, seed=7)), nn.Parameter(randn(d, seed=8)), both

    def forward(self, y, t):
        h = torch.tanh(y @ self.first.T + t.unsqueeze(-1) * self.second)
        return (h, torch.sigmoid(y)) if self.both else h


class Coloured(nn.Module):
    """The same network for x = L y: its output is what the kind means in x."""

    def __init__(self, white, kind, root):
        super().__init__()
        self.white, self.root = white, root
        self.out = root.inverse().T if kind is un.Score else root  # a score is a covector

    def forward(self, x, t):
        value = self.white(x @ self.root.inverse().T, t)
        return (value[0] @ self.out.T, value[1]) if isinstance(value, tuple) else value @ self.out.T


@every_schedule
@every_kind
def test_bounds_are_those_of_the_whitened_process_up_to_the_jacobian(schedule, kind):
    process, plain, _, root = pair(schedule)
    white = White(3)
    ours = un.Denoiser(Coloured(white, kind, root), process, predicts=kind)
    other = un.Denoiser(white, plain, predicts=kind)
    y0 = randn(ROWS, 3, seed=4)
    for options in (
        {},
        {"fast": False},
        {"decoder": un.decoders.GaussianDecoder(network=True)},
        {"times": un.Quadrature(8)},
    ):
        a = un.bound(ours, through(root, y0), cutoff=0.05, seed=1, **options)
        b = un.bound(other, y0, cutoff=0.05, seed=1, **options)
        close(a.prior, b.prior)
        close(a.diffusion, b.diffusion, 1e-11)
        close(a.total, b.total + root.diagonal().log().sum(), 1e-11)


@pytest.mark.parametrize("choice", ["posterior", "forward", "learned", "fitted"])
def test_chains_are_those_of_the_whitened_process(choice):
    process, plain, _, root = pair(schedules.Linear())
    white = White(3, both=choice == "learned")
    rule = {
        "posterior": variances.PosteriorVariance(),
        "forward": variances.ForwardVariance(),
        "learned": variances.LearnedVariance(),
    }
    y0, grid = randn(ROWS, 3, seed=4), torch.linspace(0.05, 1, 6, dtype=F64)
    ours = un.Denoiser(Coloured(white, un.Clean, root), un.Chain(process, grid), un.Clean, variance=rule.get(choice))
    other = un.Denoiser(white, un.Chain(plain, grid), un.Clean, variance=rule.get(choice))
    if choice == "fitted":
        ours = un.fit_variance(ours, through(root, y0), un.NoiseSource(3, ROWS))
        other = un.fit_variance(other, y0, un.NoiseSource(3, ROWS))
    a, b = un.bound(ours, through(root, y0), seed=1).total, un.bound(other, y0, seed=1).total
    close(a, b + root.diagonal().log().sum(), 1e-11)


def test_a_correlated_leaf_of_a_product():
    process, plain, _, root = pair(schedules.Linear())
    white = White(3)

    class Both(nn.Module):
        def __init__(self, numbers):
            super().__init__()
            self.numbers = numbers

        def forward(self, x, t):
            return {"a": self.numbers(x["a"], t), "b": torch.zeros(*x["b"].shape, 3, dtype=F64)}

    y0, b = randn(ROWS, 3, seed=4), torch.randint(3, (ROWS, 2), generator=torch.Generator().manual_seed(0))
    ours = un.Denoiser(Both(Coloured(white, un.Clean, root)), un.Product(a=process, b=un.Uniform(3, 2)), {"a": un.Clean})
    other = un.Denoiser(Both(white), un.Product(a=plain, b=un.Uniform(3, 2)), {"a": un.Clean})
    first = un.bound(ours, {"a": through(root, y0), "b": b}, seed=1, cutoff=0.05).total
    second = un.bound(other, {"a": y0, "b": b}, seed=1, cutoff=0.05).total
    close(first, second + root.diagonal().log().sum(), 1e-11)


def test_single_precision():
    process, _, _, _ = pair(schedules.Cosine())
    x0, x_t, value = (randn(ROWS, 3, seed=seed).float() for seed in (1, 2, 3))
    t = torch.linspace(0.05, 0.95, ROWS, dtype=F64)
    for kind in NUMBERS:
        single = rate(kind(value, process, x_t, t), process, x0)
        double = rate(kind(value.double(), process, x_t.double(), t), process, x0.double())
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)


# -- predictions, closed forms, weightings ----------------------------------------------------------------------------


@every_schedule
def test_every_kind_by_its_formula(schedule):
    """n is the correlated noise; the score alone has C in it."""
    process, _, matrix, root = pair(schedule)
    x0, n = randn(ROWS, 3, seed=1), through(root, randn(ROWS, 3, seed=2))
    t = torch.linspace(0.05, 0.95, ROWS, dtype=F64)
    alpha, sigma = schedule.alpha(t).unsqueeze(1), schedule.sigma(t).unsqueeze(1)
    x_t = alpha * x0 + sigma * n
    leaf = x_t.clone().requires_grad_()
    score = torch.autograd.grad(process.marginal(x0, t).log_prob(leaf).sum(), leaf)[0]
    close(score, -through(matrix.inverse(), n) / sigma, 1e-9)
    values = {
        un.Clean: x0,
        un.Noise: n,
        un.Score: score,
        un.Velocity: alpha * n - sigma * x0,
        un.Flow: schedule.d_alpha(t).unsqueeze(1) * x0 + schedule.d_sigma(t).unsqueeze(1) * n,
    }
    for kind, value in values.items():
        close(kind.target(process, x0, x_t, t), value, 1e-9)
        for other, expected in values.items():
            close(kind(value, process, x_t, t).to(other).value, expected, 1e-9)


@every_schedule
@every_kind
def test_closed_forms_are_divergences(schedule, kind):
    process, _, _, _ = pair(schedule)
    x0, value = randn(ROWS, 3, seed=1), randn(ROWS, 3, seed=2)
    t = torch.linspace(0.05, 0.95, ROWS, dtype=F64)
    x_t = process.marginal(x0, t).draw(un.NoiseSource(0, ROWS))
    prediction = kind(value, process, x_t, t)
    close(rate(prediction, process, x0), divergence(process.reverse(x_t, x0, t), prediction), 1e-10)


def test_the_divergence_is_the_limit_of_the_kernels():
    process, _, _, _ = pair(schedules.Linear())
    x0, value = randn(ROWS, 3, seed=1), randn(ROWS, 3, seed=2)
    prediction = un.Clean(value, process, randn(ROWS, 3, seed=3), 0.5)
    true, h = process.reverse(prediction.x_t, x0, 0.5), 1e-6
    torch.testing.assert_close(divergence(true, prediction, 0.5 - h) / h, divergence(true, prediction), rtol=1e-4, atol=0)


@every_kind
def test_other_weightings_are_plain_squares(kind):
    """Simple is |n - n_model|^2 and X0 is |x_0 - x_model|^2 in the data's own coordinates, whatever is predicted."""
    process, _, _, _ = pair(schedules.Cosine())
    x0, value = randn(ROWS, 3, seed=1), randn(ROWS, 3, seed=2)
    t = torch.linspace(0.05, 0.95, ROWS, dtype=F64)
    x_t = process.marginal(x0, t).draw(un.NoiseSource(0, ROWS))
    prediction = kind(value, process, x_t, t)
    sigma = process.schedule.sigma(t).unsqueeze(1)
    n = (x_t - process.schedule.alpha(t).unsqueeze(1) * x0) / sigma
    simple = (n - prediction.to(un.Noise).value).square().sum(1)
    clean = (x0 - prediction.to(un.Clean).value).square().sum(1)
    close(un.weightings.Simple().rate(prediction, process, x0), simple, 1e-9)
    close(un.weightings.X0().rate(prediction, process, x0), clean, 1e-9)


# -- the generator ----------------------------------------------------------------------------------------------------


def smooth(seed):
    w = randn(3, seed=seed)
    return lambda x: torch.sin(1 + x @ w) + 0.3 * torch.cos(x @ w.flip(0))


def hessians(function, x):
    return torch.stack([torch.autograd.functional.hessian(lambda v: function(v[None])[0], row) for row in x])


def gradients(function, x):
    return torch.stack([torch.autograd.functional.jacobian(lambda v: function(v[None])[0], row) for row in x])


def test_act_by_the_full_hessian():
    process, _, matrix, _ = pair(schedules.Linear())
    phi, x, t = smooth(1), randn(6, 3, seed=2), 0.4
    drift, g2 = process.schedule.drift(t), process.schedule.diffusion(t)
    expected = (drift * x * gradients(phi, x)).sum(1) + 0.5 * g2 * (matrix * hessians(phi, x)).sum((1, 2))
    close(process.generator(t).act(phi, x), expected)


def own(root):
    """A user's own process: drift and diffusion vary with the state, each whitened coordinate with its own."""
    covariance = Covariance(root @ root.T)

    def local(x):
        return Local(torch.sin(x + x.roll(1, 1)), 2 + torch.cos(x - 2 * x.roll(1, 1)), covariance=covariance)

    return un.Generator(Euclidean(3), local)


def spread(root, local, x):
    """a = L diag(diffusion) L^T as a function of the state."""
    return torch.einsum("ik,bk,jk->bij", root, local(x).diffusion.expand_as(x), root)


@pytest.mark.parametrize("mine", [False, True], ids=["process", "own"])
def test_adjoint_and_reversal_by_the_full_matrix(mine):
    """-div(b q) + 1/2 sum_ij d_i d_j (a_ij q), and the drift -b + div a + a grad log q, entry by entry."""
    process, _, _, root = pair(schedules.Linear())
    generator = own(root) if mine else process.generator(0.4)
    log_q, phi, x = smooth(1), smooth(2), randn(5, 3, seed=3)

    def q(y):
        return log_q(y).exp()

    expected, divergence_of_a = torch.zeros(5, dtype=F64), torch.zeros(5, 3, dtype=F64)
    for i in range(3):
        flux = gradients(lambda y, i=i: generator.local(y).drift[:, i] * q(y), x)[:, i]
        expected = expected - flux
        for j in range(3):
            bent = hessians(lambda y, i=i, j=j: spread(root, generator.local, y)[:, i, j] * q(y), x)[:, i, j]
            expected = expected + 0.5 * bent
            slope = gradients(lambda y, i=i, j=j: spread(root, generator.local, y)[:, i, j] + 0 * y[:, 0], x)[:, j]
            divergence_of_a[:, i] += slope
    close(generator.adjoint(q, x), expected, 1e-10)
    a = spread(root, generator.local, x)
    drift = -generator.local(x).drift + divergence_of_a + (a @ gradients(log_q, x).unsqueeze(-1)).squeeze(-1)
    reverse = generator.reversed(log_q)
    close(reverse.local(x).drift, drift, 1e-10)
    right = generator.adjoint(lambda y: q(y) * phi(y), x) - phi(x) * generator.adjoint(q, x)
    close(reverse.act(phi, x), right / q(x), 1e-9)


def test_coordinates_do_not_decouple():
    process, plain, _, _ = pair(schedules.Linear())
    with pytest.raises(ValueError, match=r"noise is correlated .* coordinates do not decouple"):
        process.generator(0.4).coordinate((), 0).local(randn(2, 3))
    both = process.local(randn(2, 3), 0.4) + Local(drift=randn(2, 3))
    assert both.covariance is process.covariance
    with pytest.raises(ValueError, match="add generators of one process"):
        process.local(randn(2, 3), 0.4) + plain.local(randn(2, 3), 0.4)


# -- the oracle -------------------------------------------------------------------------------------------------------


@every_schedule
def test_the_oracle_by_dense_bayes(schedule):
    """log q_t, E[x_0 | x_t] and the whitened Var(x_0 | x_t) of a mixture, with the covariances written out."""
    process, _, matrix, root = pair(schedule)
    weights, means = torch.tensor([0.3, 0.7], dtype=F64), randn(2, 3, seed=1)
    covariances = torch.stack([random_matrix(3, 2), random_matrix(3, 3)])
    oracle = un.oracles.mixture(process, weights, means, covariances)
    x_t, t = randn(ROWS, 3, seed=4), 0.37
    alpha, sigma = schedule.alpha(t), schedule.sigma(t)
    noised = alpha**2 * covariances + sigma**2 * matrix
    each = torch.distributions.MultivariateNormal(alpha * means, noised).log_prob(x_t.unsqueeze(1)) + weights.log()
    close(oracle.log_marginal(x_t, t), each.logsumexp(1), 1e-11)
    share = each.softmax(1)
    gain = alpha * covariances @ noised.inverse()
    conditional = means + ((x_t.unsqueeze(1) - alpha * means).unsqueeze(-2) @ gain.mT).squeeze(-2)
    clean = (share.unsqueeze(-1) * conditional).sum(1)
    close(oracle.predicting(un.Clean)(x_t, t).value, clean, 1e-10)
    close(oracle.predicting(un.Noise)(x_t, t).value, (x_t - alpha * clean) / sigma, 1e-10)
    gap = conditional - clean.unsqueeze(1)
    whole = covariances - alpha * gain @ covariances + gap.unsqueeze(-1) * gap.unsqueeze(-2)
    whole = (share[..., None, None] * whole).sum(1)
    white = root.inverse() @ whole @ root.inverse().T
    close(oracle.clean_variance(x_t, t), white.diagonal(dim1=-2, dim2=-1), 1e-10)


# -- gradients and draws ----------------------------------------------------------------------------------------------


@every_kind
def test_gradients_of_the_bound(kind):
    process, _, _, root = pair(schedules.Cosine(), (2,))
    x0 = randn(4, 2, seed=1)

    def loss(first, second):
        network = White(2)
        del network.first, network.second
        network.first, network.second = first, second
        denoiser = un.Denoiser(Coloured(network, kind, root), process, predicts=kind)
        return un.Objective(denoiser, cutoff=0.05)(x0, un.NoiseSource(0, 4)).loss

    parameters = (randn(2, 2, seed=2).requires_grad_(), randn(2, seed=3).requires_grad_())
    assert torch.autograd.gradcheck(loss, parameters)


def covariance_alarm(law, matrix, draws=40_000):
    """The largest gap of the sample covariance's entries from the matrix, in standard errors (C_ii C_jj + C_ij^2)/n."""
    x = law.draw(un.NoiseSource(5, draws)) - law.mean
    sample = x.T @ x / draws
    variance = (matrix.diagonal()[:, None] * matrix.diagonal() + matrix.square()) / draws
    return float(((sample - matrix).abs() / variance.sqrt()).max())


def test_draws_have_the_covariance(monkeypatch):
    """Six entries within 5 standard errors: a false alarm once in 290,000 seeds.  With L^T for L the same test fails."""
    process, _, matrix, _ = pair(schedules.Linear())
    law = process.marginal(torch.zeros(40_000, 3, dtype=F64), 0.6)
    assert covariance_alarm(law, 0.36 * matrix) < 5
    monkeypatch.setattr(Covariance, "colour", lambda self, z: z @ self.root)
    assert covariance_alarm(law, 0.36 * matrix) > 10


def test_stationary_noise_trains_like_any_other():
    field = Stationary((1, 4, 4), lambda f: (f + 0.25) ** -2, axes=2)
    process = un.Gaussian((1, 4, 4), covariance=field)
    dense = un.Gaussian((1, 4, 4), covariance=field.apply(torch.eye(16, dtype=F64)))
    x0, x_t, value = (randn(5, 1, 4, 4, seed=seed) for seed in (1, 2, 3))
    for kind in NUMBERS:
        ours, other = (rate(kind(value, p, x_t, 0.4), p, x0) for p in (process, dense))
        close(ours, other, 1e-10)
    close(process.marginal(x0, 0.4).log_prob(x_t), dense.marginal(x0, 0.4).log_prob(x_t), 1e-10)

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(0.5, dtype=F64))

        def forward(self, x, t):
            return self.weight * x

    network = Scale()
    un.Objective(un.Denoiser(network, process, un.Clean))(x0).loss.mean().backward()
    assert network.weight.grad.isfinite() and float(network.weight.grad) != 0


# -- refusals ---------------------------------------------------------------------------------------------------------

EYE = torch.eye(2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Covariance(torch.ones(2, 3)), r"shape \(2, 3\).*\[d, d\]"),
        (lambda: Covariance([[1.0, float("nan")], [0.0, 1.0]]), r"covariance\[0, 1\] is nan"),
        (
            lambda: Covariance([[1.0, 0.6], [0.5, 1.0]]),
            r"covariance\[0, 1\] = 0.6 but covariance\[1, 0\] = 0.5.*\(C \+ C.T\)",
        ),
        (lambda: Covariance([[1.0, 2.0], [2.0, 1.0]]), r"eigenvalue -1.*C \+ 2 \* torch.eye\(2\)"),
        (lambda: Covariance([[1.0, 1.0], [1.0, 1.0]]), r"eigenvalue.*some variance in every direction"),
        (lambda: Stationary(4, lambda f: 1 / f), r"spectrum is inf at frequency 0.*add a floor"),
        (lambda: Stationary(4, lambda f: f - 0.3), r"spectrum is -0.3 at frequency 0"),
        (lambda: Stationary((4, 4), lambda f: 1 + f, axes=3), r"axes = 3.*2 axes"),
        (lambda: un.Gaussian(3, covariance=EYE), r"dimension=2\) does not fit the 3 coordinates"),
        (
            lambda: un.Gaussian(2, schedules.PerCoordinate([schedules.Linear(), schedules.Cosine()]), EYE),
            r"a schedule per coordinate.*pass one schedule",
        ),
        (
            lambda: un.bound(
                un.Denoiser(Halfway(2), un.Gaussian(2, covariance=EYE)),
                torch.ones(2, 2),
                decoder=un.decoders.DiscretisedGaussian(2),
            ),
            r"mass of a bin under correlated noise.*decoders.GaussianDecoder",
        ),
    ],
)
def test_refusals(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_laws_of_different_covariances_are_not_compared():
    mean, one = randn(2, 2), torch.ones(2, 1, dtype=F64)
    with pytest.raises(TypeError, match="take both laws from one process"):
        Normal(mean, one, Covariance(EYE)).kl(Normal(mean, one))


def test_rounding_of_a_float32_estimate_is_no_asymmetry():
    data = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    matrix = (data.T @ data / 50).float()
    matrix[0, 1] *= 1 + 1e-7
    assert Covariance(matrix).dimension == 4


def test_half_precision_concerns_the_network_alone():
    """Under autocast the noise is what it was: whitening would enlarge a rounded one by the root of the condition number."""
    place = torch.arange(8.0, dtype=F64)
    matrix = (-(place[:, None] - place).square() / 18).exp() + 1e-5 * torch.eye(8, dtype=F64)
    oracle = un.oracles.normal(un.Gaussian((8,), covariance=matrix), torch.zeros(8), matrix)
    x = oracle.draw(un.NoiseSource(0, 500)).float()
    plain = un.bound(oracle, x, seed=1).total
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(un.bound(oracle, x, seed=1).total, plain, rtol=1e-6, atol=1e-6)
        apply = Covariance(matrix).apply(x)
    torch.testing.assert_close(apply, (x.double() @ matrix).float(), rtol=1e-4, atol=1e-4)
