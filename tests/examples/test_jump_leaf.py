"""The example of a leaf with drift, diffusion and jumps: operator identities, and samples by its generator alone."""

import torch
from examples_path import example

import unnoise as un

leaf = example("jump_leaf")
X = torch.linspace(-3, 3, 13, dtype=torch.float64).unsqueeze(1)


def density(x):
    return torch.exp(-0.5 * (x[:, 0] - 0.4).square() / 0.8) / (2 * torch.pi * 0.8) ** 0.5


def test_constants_are_in_the_kernel_and_moments_follow():
    """L 1 = 0, L x = -x, L x^2 = -2 x^2 + 2 a^2 + rate (a s)^2."""
    generator, a2 = leaf.Thrown().generator(0.5), torch.exp(torch.tensor(-1.0, dtype=torch.float64))
    torch.testing.assert_close(generator.act(lambda x: 0 * x[:, 0] + 1, X), 0 * X[:, 0], rtol=0, atol=1e-12)
    torch.testing.assert_close(generator.act(lambda x: x[:, 0], X), -X[:, 0], rtol=0, atol=1e-10)
    exact = -2 * X[:, 0].square() + 2 * a2 + leaf.RATE * a2 * leaf.SIZE**2
    torch.testing.assert_close(generator.act(lambda x: x[:, 0].square(), X), exact, rtol=0, atol=1e-10)


def test_adjoint_is_dual_to_the_action():
    """int q L phi = int phi L* q, by the trapezoidal rule."""
    generator, h = leaf.Thrown().generator(0.5), 0.05
    x = torch.arange(-12, 12, h, dtype=torch.float64).unsqueeze(1)

    def phi(y):
        return torch.sin(y[:, 0]) + 0.1 * y[:, 0].square()

    left, right = density(x) * generator.act(phi, x), phi(x) * generator.adjoint(density, x)
    torch.testing.assert_close(left.sum() * h, right.sum() * h, rtol=0, atol=1e-10)


def test_the_closed_form_solves_the_forward_equation():
    """d/dt q_t = L_t* q_t for the noised law of the data: drift, diffusion and jumps are one process."""
    process, t = leaf.Thrown(), torch.full((len(X),), 0.4, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(process.log_marginal(X, t).exp().sum(), t)[0]
    ours = process.generator(0.4).adjoint(lambda x: process.log_marginal(x, 0.4).exp(), X)
    torch.testing.assert_close(ours, slope, rtol=0, atol=1e-10)


def test_reversal_is_the_identity_of_nelson_and_undoes_itself():
    """q L^ phi = L*(q phi) - phi L* q, pointwise; reversed twice it is itself."""
    generator = leaf.Thrown().generator(0.5)

    def phi(y):
        return torch.cos(y[:, 0])

    back = generator.reversed(lambda y: density(y).log())
    ours = density(X) * back.act(phi, X)
    exact = generator.adjoint(lambda y: density(y) * phi(y), X) - phi(X) * generator.adjoint(density, X)
    torch.testing.assert_close(ours, exact, rtol=0, atol=1e-9)
    again = back.reversed(lambda y: density(y).log())
    torch.testing.assert_close(again.act(phi, X), generator.act(phi, X), rtol=0, atol=1e-9)


def test_samples_by_the_generator_alone_have_the_law_of_the_data():
    """From q_1 back to t = 0.02 in 40 steps: mean and variance within 5 standard errors and the bias of the steps
    (false alarm below 1e-5), and a reverse process without its jumps fails."""
    rows, steps = 500, 40
    x = leaf.noised(rows, 1.0, seed=1)
    drawn, _ = un.sample(leaf.Exact(), x=x, steps=steps, sampler=un.samplers.FromGenerator(), end=0.02, seed=2)
    exact = leaf.noised(200_000, 0.02, seed=3)
    bias = 0.05
    assert abs(float(drawn.mean() - exact.mean())) < 5 * float(drawn.std()) / rows**0.5 + bias
    assert abs(float(drawn.std() / exact.std()) - 1) < 5 * (2 / rows) ** 0.5 + bias

    class Continuous(leaf.Exact):
        def forward(self, x_t, t, /, **condition):
            prediction = super().forward(x_t, t)
            local = prediction.local()
            prediction.local = lambda: un.Local(local.drift, local.diffusion)
            return prediction

    wrong, _ = un.sample(Continuous(), x=x, steps=steps, sampler=un.samplers.FromGenerator(), end=0.02, seed=2)
    assert abs(float(wrong.std() / exact.std()) - 1) > 0.25
