"""The generator as an operator, against formulas written out by hand, dense matrices and exact marginals."""

from functools import reduce
from math import log
from operator import add

import pytest
import torch

import unnoise as un
from unnoise.generators import kolmogorov
from unnoise.oracles import CategoricalLeaf, Components, GaussianLeaf
from unnoise.spaces import Euclidean, tree_leaves
from unnoise.tree import batch_size, pick

schedules = un.schedules
F64 = torch.float64
T = 0.4

GAUSSIANS = {
    "linear": lambda: un.Gaussian((2,), schedules.Linear()),
    "polynomial": lambda: un.Gaussian((2,), schedules.Polynomial(2.0)),
    "exploding": lambda: un.Gaussian((2,), schedules.VE(0.1, 5.0)),
    "per-coordinate": lambda: un.Gaussian((2,), schedules.PerCoordinate([schedules.Linear(), schedules.VE(0.1, 5.0)])),
}
FINITE = {
    "masking": lambda: un.Masking(3, 2),
    "masking-cosine": lambda: un.Masking(3, 2, schedules.Cosine()),
    "uniform": lambda: un.Uniform(3, 2),
    "uniform-sizes": lambda: un.Uniform([2, 3]),
    "uniform-per-coordinate": lambda: un.Uniform(
        3, 2, schedules.PerCoordinate([schedules.Linear(), schedules.Polynomial(3.0)])
    ),
}
PRODUCTS = {
    "product": lambda: un.Product(a=un.Gaussian((1,), schedules.Linear()), b=un.Masking(3, 2)),
    "nested": lambda: un.Product(
        inner=un.Product(a=un.Gaussian((2,), schedules.Polynomial(2.0)), b=un.Uniform([2, 3])), c=un.Masking(2, 1)
    ),
}
ALL = {**GAUSSIANS, **FINITE, **PRODUCTS}


def every(processes):
    return pytest.mark.parametrize("process", [pytest.param(make(), id=name) for name, make in processes.items()])


def rand(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def random_states(space, rows, seed=0):
    """Rows of any space; a finite leaf is visited in all its states if there are no more than `rows`."""
    if isinstance(space, un.spaces.ProductSpace):
        return {name: random_states(part, rows, seed + i) for i, (name, part) in enumerate(space.leaves.items())}
    if isinstance(space, Euclidean):
        return rand(rows, *space.shape, seed=seed)
    states = space.states()
    return states[torch.randperm(rows, generator=torch.Generator().manual_seed(seed)) % len(states)]


def random_function(space, seed=0):
    """sin(1 + sum over leaves of a random linear form or of random values per category): no product form, no symmetry."""
    weights = {}
    for i, (path, leaf) in enumerate(tree_leaves(space)):
        width = (leaf.dimension,) if isinstance(leaf, Euclidean) else (leaf.dimension, leaf.size)
        weights[path] = rand(*width, seed=100 * seed + i)

    def phi(x):
        total = 1.0
        for path, leaf in tree_leaves(space):
            part, w = pick(x, path).flatten(1), weights[path]
            is_number = isinstance(leaf, Euclidean)
            total = total + ((part * w).sum(1) if is_number else w[torch.arange(leaf.dimension), part].sum(1))
        return torch.sin(total)

    phi.weights = weights
    return phi


def table_function(space, values):
    """A function given by its value at every state; asking it for a state off the space is an IndexError."""
    return lambda x: values[kolmogorov.code(space, x)]


def kronecker_sum(first, second):
    eye = torch.eye
    return torch.kron(first, eye(len(second), dtype=F64)) + torch.kron(eye(len(first), dtype=F64), second)


def dense(process, t):
    """The rate matrix of two coordinates by the Kronecker sum of -(alpha'/alpha)(p 1^T - I), row = destination."""
    columns = []
    for k in range(2):
        schedule = process.schedule.schedules[k] if process.schedule.shape else process.schedule
        rate = -float(schedule.d_alpha(t) / schedule.alpha(t))
        if isinstance(process, un.Masking):
            noise = torch.zeros(process.space.size + 1, dtype=F64)
            noise[-1] = 1
        else:
            size = process.space.size if process.space.sizes is None else int(process.space.sizes[k])
            noise = torch.full((size,), 1 / size, dtype=F64)
        columns.append(rate * (noise.unsqueeze(1).expand(-1, len(noise)) - torch.eye(len(noise), dtype=F64)))
    return kronecker_sum(*columns)


def oracle_of(process):
    """A correlated data law on any of the processes above."""
    if isinstance(process, un.Gaussian):
        root = rand(2, 2, 2, seed=5)
        cov = root @ root.mT + 0.2 * torch.eye(2, dtype=F64)
        return un.oracles.mixture(process, torch.tensor([0.3, 0.7], dtype=F64), rand(2, 2, seed=6), cov)
    if isinstance(process, un.Product):

        def leaf_of(part, seed):
            if isinstance(part, un.Product):
                return {name: leaf_of(inner, seed + 1 + i) for i, (name, inner) in enumerate(part.leaves.items())}
            if isinstance(part, un.Gaussian):
                d = part.space.dimension
                root = rand(3, d, d, seed=seed)
                return GaussianLeaf(rand(3, d, seed=seed + 50), root @ root.mT + 0.3 * torch.eye(d, dtype=F64))
            logits = rand(3, *part.space.shape, part.space.size, seed=seed)
            valid = part.space.valid()
            logits = logits if valid is None else torch.where(valid, logits, -1e30)
            return CategoricalLeaf(logits.log_softmax(-1))

        return Components(process, torch.tensor([0.2, 0.5, 0.3], dtype=F64), leaf_of(process, 0))
    return un.oracles.table(process, rand(process.space.count, seed=8).softmax(0))


# -- act --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "drift", "diffusion"),
    [
        (schedules.Linear(), -1 / (1 - T), 2 * T / (1 - T)),
        (schedules.Polynomial(2.0), -2 * T / (1 - T**2), 4 * T**3 / (1 - T**2)),
        (schedules.VE(0.1, 5.0), 0.0, 2 * (0.1 * 50**T) ** 2 * log(50)),
    ],
    ids=["linear", "polynomial", "exploding"],
)
def test_act_of_gaussian_noise_is_drift_and_half_laplacian(schedule, drift, diffusion):
    process = un.Gaussian((2,), schedule)
    phi, x = random_function(process.space), rand(7, 2, seed=1)
    w = phi.weights[()]
    inner = 1 + x @ w
    expected = drift * (x @ w) * inner.cos() - 0.5 * diffusion * w.square().sum() * inner.sin()
    torch.testing.assert_close(process.generator(T).act(phi, x), expected, rtol=1e-12, atol=1e-12)


def test_act_of_masking_sends_each_unmasked_coordinate_to_the_mask():
    process = un.Masking(3, 2)
    phi, x = random_function(process.state_space), process.state_space.states()
    expected = torch.zeros(len(x), dtype=F64)
    for i, row in enumerate(x):
        for k in range(2):
            if row[k] != 3:
                masked = row.clone()
                masked[k] = 3
                expected[i] += 1 / (1 - T) * (phi(masked[None]) - phi(row[None])).item()
    torch.testing.assert_close(process.generator(T).act(phi, x), expected, rtol=1e-12, atol=1e-12)
    assert float(expected.abs().max()) > 0.1


def test_act_on_a_product_adds_the_leaves():
    process = PRODUCTS["product"]()
    phi, x = random_function(process.state_space), random_states(process.state_space, 32)
    w, table = phi.weights[("a",)], phi.weights[("b",)]
    inner = 1 + x["a"] @ w + table[0, x["b"][:, 0]] + table[1, x["b"][:, 1]]
    expected = -1 / (1 - T) * (x["a"] @ w) * inner.cos() - T / (1 - T) * w.square().sum() * inner.sin()
    for k in range(2):
        to_mask = inner + table[k, 3] - table[k, x["b"][:, k]]
        expected = expected + 1 / (1 - T) * (to_mask.sin() - inner.sin())  # no change where it is masked already
    torch.testing.assert_close(process.generator(T).act(phi, x), expected, rtol=1e-12, atol=1e-12)


@every(FINITE)
def test_act_and_adjoint_are_the_dense_matrix_and_its_transpose(process):
    space, rates = process.state_space, dense(process, T)
    x, generator = space.states(), process.generator(T)
    values, masses = rand(len(x), seed=2), rand(len(x), seed=3).exp()
    torch.testing.assert_close(kolmogorov.matrix(generator), rates, rtol=1e-13, atol=1e-13)
    acted = generator.act(table_function(space, values), x)
    torch.testing.assert_close(acted, rates.T @ values, rtol=1e-12, atol=1e-12)
    pushed = generator.adjoint(table_function(space, masses), x)
    torch.testing.assert_close(pushed, rates @ masses, rtol=1e-12, atol=1e-12)


# -- adjoint ----------------------------------------------------------------------------------------------------------


@every(FINITE)
def test_duality_on_finite_spaces(process):
    space, generator, x = process.state_space, process.generator(T), process.state_space.states()
    phi, q = random_function(space, 1), random_function(space, 2)
    left, right = (generator.act(phi, x) * q(x)).sum(), (phi(x) * generator.adjoint(q, x)).sum()
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)
    assert abs(float(left)) > 1e-3


@pytest.mark.parametrize("schedule", [schedules.Linear(), schedules.VE(0.1, 5.0)], ids=["linear", "exploding"])
@pytest.mark.parametrize("with_categories", [False, True])
def test_duality_by_quadrature(schedule, with_categories):
    """sum over categories and trapezoidal rule over [-14, 14] of a Gaussian times a smooth factor: exact to rounding."""
    gaussian = un.Gaussian((1,), schedule)
    process = un.Product(a=gaussian, b=un.Masking(2, 1)) if with_categories else gaussian
    line = torch.linspace(-14, 14, 701, dtype=F64).unsqueeze(1)
    x = {"a": line.repeat(3, 1), "b": torch.arange(3).repeat_interleave(701).unsqueeze(1)} if with_categories else line
    space = process.state_space
    phi, other = random_function(space, 1), random_function(space, 2)

    def q(y):
        number = y["a"] if with_categories else y
        return torch.exp(-0.5 * (number[:, 0] - 0.7).square()) * (2 + other(y))

    generator = process.generator(T)
    left, right = (generator.act(phi, x) * q(x)).sum() * 0.04, (phi(x) * generator.adjoint(q, x)).sum() * 0.04
    torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-11)
    assert abs(float(left)) > 1e-2


@every(ALL)
def test_adjoint_of_the_marginal_is_its_time_derivative(process):
    """The Kolmogorov forward equation (eq:KFE-eq), conditioned on x_0 and for the whole data law."""
    oracle = oracle_of(process)
    x0 = oracle.draw(un.NoiseSource(3, 1))

    def law(rows, t):
        return process.marginal(un.tree.map_leaves(lambda v: v.expand(rows, *v.shape[1:]), x0), t)

    anywhere, likely = random_states(process.state_space, 24, seed=4), law(24, T).draw(un.NoiseSource(4, 24))
    x = un.tree.map_leaves(lambda *rows: torch.cat(rows), anywhere, likely)  # a narrow law is 0 almost anywhere

    def conditional(y, t):
        return law(batch_size(y), t).log_prob(y).exp()

    def whole(y, t):
        return oracle.log_marginal(y, t).exp()

    for density in (conditional, whole):
        t = torch.full((48,), T, dtype=F64, requires_grad=True)
        slope = torch.autograd.grad(density(x, t).sum(), t)[0]
        adjoint = process.generator(T).adjoint(lambda y, density=density: density(y, T), x)
        torch.testing.assert_close(adjoint, slope, rtol=1e-9, atol=1e-11)
        assert float(slope.abs().max()) > 1e-3


# -- reversed ---------------------------------------------------------------------------------------------------------


@every(ALL)
def test_reversed_generator_formula(process):
    """L^ phi = (L*[q phi] - phi L* q)/q for any positive q and any phi (eq:reversed-generator)."""
    space, generator = process.state_space, process.generator(T)
    phi, log_q = random_function(space, 1), random_function(space, 2)
    x = random_states(space, 24, seed=4)

    def q(y):
        return log_q(y).exp()

    right = generator.adjoint(lambda y: q(y) * phi(y), x) - phi(x) * generator.adjoint(q, x)
    left = generator.reversed(log_q).act(phi, x)
    torch.testing.assert_close(left, right / q(x), rtol=1e-10, atol=1e-10)
    assert float(left.abs().max()) > 1e-2


@every(FINITE)
def test_reversed_rates_of_a_matrix(process):
    """R^(y, x) = R(x, y) q(y)/q(x) off the diagonal, which is minus the column sum."""
    space, rates = process.state_space, dense(process, T)
    q = rand(len(rates), seed=3).softmax(0)
    expected = rates.T * q.unsqueeze(1) / q
    expected = expected - torch.diag(expected.diagonal())
    expected = expected - torch.diag(expected.sum(0))
    reverse = process.generator(T).reversed(table_function(space, q.log()))
    torch.testing.assert_close(kolmogorov.matrix(reverse), expected, rtol=1e-12, atol=1e-12)


def state_dependent():
    """A user's own process on the plane: drift and diffusion that vary with the state, in every coordinate."""

    def local(x):
        turned = x.flip(1)
        return un.generators.Local(torch.sin(x + 2 * turned), 2 + torch.cos(x - turned))

    return un.Generator(Euclidean(2), local)


def test_adjoint_of_a_state_dependent_diffusion():
    """-sum_k d_k(b_k q) + 1/2 sum_k d_k^2(a_k q), written out for q = exp(-|x|^2/2)."""
    x = rand(9, 2, seed=1)
    u, v = x[:, 0], x[:, 1]
    expected = torch.zeros(9, dtype=F64)
    for a, b in ((u, v), (v, u)):
        spread = 2 + torch.cos(a - b)
        first, second = -torch.sin(a - b), -torch.cos(a - b)
        expected = expected - (torch.cos(a + 2 * b) - a * torch.sin(a + 2 * b))
        expected = expected + 0.5 * (second - 2 * a * first + (a.square() - 1) * spread)
    q = torch.exp(-0.5 * x.square().sum(1))
    adjoint = state_dependent().adjoint(lambda y: torch.exp(-0.5 * y.square().sum(1)), x)
    torch.testing.assert_close(adjoint, expected * q, rtol=1e-12, atol=1e-12)


def test_reversal_of_a_state_dependent_diffusion():
    """The drift turns into -b + div a + a grad log q; without div a the formula fails."""
    generator, phi, log_q = state_dependent(), random_function(Euclidean(2), 1), random_function(Euclidean(2), 2)
    x = rand(9, 2, seed=1)
    right = generator.adjoint(lambda y: log_q(y).exp() * phi(y), x)
    right = right - phi(x) * generator.adjoint(lambda y: log_q(y).exp(), x)
    reverse = generator.reversed(log_q)
    torch.testing.assert_close(reverse.act(phi, x), right / log_q(x).exp(), rtol=1e-11, atol=1e-11)
    forward, difference = generator.local(x), x - x.flip(1)
    score = torch.cos(1 + x @ log_q.weights[()]).unsqueeze(1) * log_q.weights[()]
    drift = -forward.drift - torch.sin(difference) + forward.diffusion * score
    torch.testing.assert_close(reverse.local(x).drift, drift, rtol=1e-12, atol=1e-12)


def assert_same_local(actual, expected, rows=None):
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for name in expected:
            assert_same_local(actual[name], expected[name], rows)
        return
    for name in ("drift", "diffusion", "rates"):
        if (expected.log_rates if name == "rates" else getattr(expected, name)) is None:
            continue
        a, b = torch.broadcast_tensors(getattr(actual, name), getattr(expected, name))
        a, b = (a, b) if rows is None else (a[rows], b[rows])
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@every(ALL)
def test_reversed_by_the_conditional_marginal_is_the_closed_form_given_x0(process):
    x0 = oracle_of(process).draw(un.NoiseSource(3, 1))
    x = random_states(process.state_space, 24, seed=4)

    def log_q(y):
        one = un.tree.map_leaves(lambda v: v.expand(batch_size(y), *v.shape[1:]), x0)
        return process.marginal(one, T).log_prob(y)

    possible = log_q(x) > -1e20
    assert int(possible.sum()) >= 2
    one = un.tree.map_leaves(lambda v: v.expand(24, *v.shape[1:]), x0)
    closed = process.reverse(x, one, T).local()
    assert_same_local(process.generator(T).reversed(log_q).local(x), closed, possible)


@every(ALL)
def test_reversed_by_the_marginal_is_what_the_oracle_predicts(process):
    oracle, x = oracle_of(process), random_states(process.state_space, 24, seed=4)
    reverse = process.generator(T).reversed(lambda y: oracle.log_marginal(y, T))
    assert_same_local(reverse.local(x), oracle(x, T).local())


# -- coordinates ------------------------------------------------------------------------------------------------------


@every(ALL)
@pytest.mark.parametrize("backward", [False, True])
def test_coordinate_parts_add_up_to_the_whole(process, backward):
    """eq:generator-dimensional-sum, for the process and for its reversal."""
    space, generator = process.state_space, process.generator(T)
    if backward:
        generator = generator.reversed(random_function(space, 2))
    parts = [generator.coordinate(path, k) for path, leaf in tree_leaves(space) for k in range(leaf.dimension)]
    assert len(parts) == space.dimension
    phi, x = random_function(space, 1), random_states(space, 24, seed=4)
    assert_same_local(reduce(add, parts).local(x), generator.local(x))
    acted = torch.stack([part.act(phi, x) for part in parts])
    torch.testing.assert_close(acted.sum(0), generator.act(phi, x), rtol=1e-11, atol=1e-11)
    assert (acted.abs().amax(1) > 1e-3).all()


@every({name: ALL[name] for name in ("linear", "uniform", "masking", "nested")})
def test_a_coordinate_part_moves_no_other_coordinate(process):
    space, generator = process.state_space, process.generator(T)
    x = random_states(space, 24, seed=4)
    for path, leaf in tree_leaves(space):
        for k in range(leaf.dimension):

            def phi(y, path=path, k=k):
                return torch.sin(1.0 + pick(y, path).flatten(1)[:, k].double())

            for other, part in tree_leaves(space):
                for j in range(part.dimension):
                    largest = float(generator.coordinate(other, j).act(phi, x).abs().max())
                    assert (largest > 1e-2) if (other, j) == (path, k) else (largest == 0.0)


# -- Kolmogorov equations ---------------------------------------------------------------------------------------------

SMALL = {
    **FINITE,
    "finite-product": lambda: un.Product(a=un.Masking(2, 1), b=un.Uniform([2, 3], schedule=schedules.Cosine())),
}


def rates_of(process):
    return lambda times: kolmogorov.matrices(process.state_space, process.local, times)


@every(SMALL)
def test_matrices_at_many_times_are_those_at_each(process):
    times = torch.tensor([0.2, 0.5, 0.9], dtype=F64)
    together = rates_of(process)(times)
    alone = torch.stack([kolmogorov.matrix(process.generator(t)) for t in times.tolist()])
    torch.testing.assert_close(together, alone, rtol=1e-14, atol=0)


@every(SMALL)
@pytest.mark.parametrize("t", [0.05, 0.5, 0.95])
def test_columns_of_a_rate_matrix_sum_to_zero(process, t):
    rates = kolmogorov.matrix(process.generator(t))
    torch.testing.assert_close(rates.sum(0), torch.zeros(len(rates), dtype=F64), rtol=0, atol=1e-12)
    assert (rates - torch.diag(rates.diagonal()) >= 0).all() and float(rates.max()) > 0.1


@every(SMALL)
def test_solving_the_forward_equation_gives_the_transition_kernel(process):
    states = kolmogorov.states(process.state_space)
    n = batch_size(states)
    kernel = kolmogorov.solve(rates_of(process), torch.eye(n, dtype=F64), 0.1, 0.8)
    source = un.tree.map_leaves(lambda x: x.repeat(n, *[1] * (x.ndim - 1)), states)
    target = un.tree.map_leaves(lambda x: x.repeat_interleave(n, 0), states)
    expected = process.transition(source, 0.1, 0.8).log_prob(target).exp().reshape(n, n)
    torch.testing.assert_close(kernel, expected, rtol=0, atol=1e-9)


@every(
    {
        "masking": FINITE["masking"],
        "uniform": lambda: un.Uniform(3, 2, schedules.LinearBeta(0.1, 10.0)),
        "uniform-sizes": lambda: un.Uniform([2, 3], schedule=schedules.LinearBeta(0.1, 10.0)),
    }
)
def test_reverse_dynamics_carry_the_noise_back_to_the_data(process):
    oracle, space = oracle_of(process), process.state_space
    x = space.states()

    def reverse_rates(times):
        return kolmogorov.matrices(space, lambda y, t: oracle(y, t).local(), times)

    start, end = oracle.log_marginal(x, 1.0).exp(), oracle.log_marginal(x, 0.05).exp()
    assert float((start - end).abs().max()) > 0.05
    back = kolmogorov.solve(reverse_rates, start, 1.0, 0.05, tolerance=1e-8)
    torch.testing.assert_close(back, end, rtol=0, atol=1e-7)


@pytest.mark.parametrize("family", [un.Masking, un.Uniform])
def test_coordinate_marginals_of_a_product_chain_obey_their_own_equation(family):
    """Noise is independent over coordinates, so correlated data still evolves coordinate by coordinate."""
    process, single = family(3, 2), family(3, 1)
    oracle, size = oracle_of(process), process.state_space.size
    law = oracle.log_marginal(process.state_space.states(), 0.0).exp()
    joint = law.reshape(size, size)
    assert float((joint - joint.sum(1, keepdim=True) * joint.sum(0)).abs().max()) > 0.01  # correlated
    both = kolmogorov.solve(rates_of(process), law, 0.0, 0.7).reshape(size, size)
    for k in range(2):
        alone = kolmogorov.solve(rates_of(single), joint.sum(1 - k), 0.0, 0.7)
        torch.testing.assert_close(both.sum(1 - k), alone, rtol=0, atol=1e-9)
        assert float((alone - joint.sum(1 - k)).abs().max()) > 0.05


def test_the_adjoint_of_a_reversed_generator_takes_the_derivative_of_its_score():
    """L^* q = -L* q: the law of the process run backwards goes back the way it came."""

    def local(x):
        return un.generators.Local(torch.sin(x) - 0.3 * x.flip(1), 1 + 0.3 * torch.cos(x))

    def log_q(x):
        return torch.sin(x).sum(1) - 0.5 * x.square().sum(1)

    forward, x = un.Generator(Euclidean((2,)), local), rand(7, 2)
    back = forward.reversed(log_q).adjoint(lambda y: log_q(y).exp(), x)
    torch.testing.assert_close(back, -forward.adjoint(lambda y: log_q(y).exp(), x), rtol=1e-12, atol=1e-12)
