"""What a space answers for a generator: jumps to anywhere, refusals of what means nothing, and names of what is missing."""

import math

import pytest
import torch

import unnoise as un
from unnoise.generators import Local, divergence_rate
from unnoise.generators.kolmogorov import matrix
from unnoise.laws import LOG_ZERO

F64 = torch.float64


class Nowhere(un.Space):
    """A space that says nothing of itself."""

    dimension = 1

    def check(self, x, name="x"):
        return x


class Anywhere(un.JumpKernel):
    """Jumps between any two states of a finite space, both coordinates at once."""

    def __init__(self, space, rates):
        self.space, self.table = space, rates  # [to, from]

    def log_rate(self, x, y):
        rate = self.table[self.space.code(y), self.space.code(x)]
        return torch.where(rate > 0, rate.clamp_min(1e-300).log(), LOG_ZERO)

    def nodes(self, x):
        states = self.space.states()
        return states.expand(len(x), *states.shape), torch.zeros(len(x), len(states), dtype=F64)


class Throws(un.JumpKernel):
    """J(x, y) = rate N(y; x + shift, 1) on a line."""

    def __init__(self, rate=2.0, shift=0.5, reach=math.inf):
        self.rate, self.shift, self.reach = rate, shift, reach

    def log_rate(self, x, y):
        z = (y - x - self.shift)[:, 0]
        value = -0.5 * z.square() - 0.5 * math.log(2 * math.pi) + math.log(self.rate)
        return torch.where((y - x)[:, 0] < self.reach, value, LOG_ZERO)

    def nodes(self, x):
        z = torch.arange(-9, 9, 0.1, dtype=x.dtype)
        return x.unsqueeze(1) + z.reshape(1, -1, 1), torch.full((len(x), len(z)), math.log(0.1), dtype=x.dtype)


def random_rates(count, seed=3):
    rates = un.NoiseSource(seed, count).uniform((count,))
    return rates * (1 - torch.eye(count, dtype=F64))


QUESTIONS = {
    "act": lambda s, x: s.act(un.Local(), lambda y: y, x),
    "adjoint": lambda s, x: s.adjoint(lambda y: un.Local(), lambda y: y, x),
    "reverse": lambda s, x: s.reverse(lambda y: un.Local(), lambda y: y, x),
    "freeze": lambda s, x: s.freeze(un.Local(), x),
    "move": lambda s, x: s.move({}, un.Local(), x, torch.tensor(0.1), un.NoiseSource(0, 2)),
    "divergence": lambda s, x: s.divergence(un.Local(), un.Local(), x),
    "coordinate": lambda s, x: s.coordinate(un.Local(), x, 0),
    "project": lambda s, x: s.project(x),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_a_space_does_not_answer_is_named(question):
    with pytest.raises(TypeError, match=rf"the space Nowhere does not say .*: write the method {question}\("):
        QUESTIONS[question](Nowhere(), torch.zeros(2, 1))


def test_a_generator_on_a_space_of_ones_own_never_answers_zero():
    generator = un.Generator(Nowhere(), lambda x: un.Local(drift=x))
    with pytest.raises(TypeError, match="space Nowhere does not say what a generator does to a test function"):
        generator.act(lambda x: x[:, 0], torch.ones(2, 1))
    with pytest.raises(TypeError, match="Nowhere is not finite|is not finite"):
        Nowhere().states()


@pytest.mark.parametrize("question", ["act", "adjoint", "reversed", "divergence"])
def test_data_that_means_nothing_on_a_space_is_refused(question):
    """Rates by coordinate on numbers, and a drift of categories: an error, where they were left out silently."""
    line, x = un.Euclidean((1,)), torch.zeros(2, 1, dtype=F64)
    letters, a = un.Finite(3, (1,)), torch.zeros(2, 1, dtype=torch.int64)
    rates, drift = un.Local(log_rates=torch.zeros(2, 1, 3, dtype=F64)), un.Local(drift=torch.ones(2, 1, dtype=F64))
    for space, local, state, what in ((line, rates, x, "log_rates"), (letters, drift, a, "drift")):
        generator = un.Generator(space, lambda y, local=local: local)
        with pytest.raises(TypeError, match=f"the generator has {what}, which .* cannot read"):
            if question == "act":
                generator.act(lambda y: y[:, 0].double(), state)
            elif question == "adjoint":
                generator.adjoint(lambda y: y[:, 0].double(), state)
            elif question == "reversed":
                generator.reversed(lambda y: y[:, 0].double()).local(state)
            else:
                divergence_rate(space, local, local, state)


def test_jumps_of_both_coordinates_at_once_are_a_dense_matrix():
    """Action, adjoint and reversal of any rates between the states of a finite space, and added to those by coordinate."""
    space = un.Finite(2, (2,))
    rates = random_rates(4)
    dense = rates - torch.diag(rates.sum(0))
    own = un.Uniform(2, (2,)).generator(0.4)
    generator = un.Generator(space, lambda x: un.Local(jumps=Anywhere(space, rates)))
    both, x = generator + own, space.states()
    phi, q = (un.NoiseSource(seed, 4).uniform() + 0.1 for seed in (5, 6))

    def of(table):
        return lambda y: table[space.code(y)]

    for one, matrix_of_it in ((generator, dense), (both, dense + matrix(own))):
        torch.testing.assert_close(one.act(of(phi), x), matrix_of_it.T @ phi, rtol=0, atol=1e-12)
        torch.testing.assert_close(one.adjoint(of(q), x), matrix_of_it @ q, rtol=0, atol=1e-12)
    back = generator.reversed(of(q.log())).act(of(phi), x)
    reversed_rates = rates.T * q[:, None] / q[None]
    exact = (reversed_rates - torch.diag(reversed_rates.sum(0))).T @ phi
    torch.testing.assert_close(back, exact, rtol=0, atol=1e-12)


def test_divergence_of_jumps_to_anywhere():
    """The sum over states, written out; infinite where the model forbids a jump, and zero of a kernel from itself."""
    space, x = un.Finite(2, (2,)), un.Finite(2, (2,)).states()
    true, model = random_rates(4, 3), random_rates(4, 4)
    kernels = [un.Local(jumps=Anywhere(space, rates)) for rates in (true, model)]
    off = ~torch.eye(4, dtype=torch.bool)
    terms = torch.where(off, model - true + true * (true.clamp_min(1e-300) / model.clamp_min(1e-300)).log(), 0.0)
    torch.testing.assert_close(divergence_rate(space, *kernels, x), terms.sum(0), rtol=0, atol=1e-12)
    assert divergence_rate(space, kernels[0], kernels[0], x).abs().max() == 0
    forbidden = model.clone()
    forbidden[2, 1] = 0
    barred = un.Local(jumps=Anywhere(space, forbidden))
    assert divergence_rate(space, kernels[0], barred, x).isinf().tolist() == [False, True, False, False]
    torch.testing.assert_close(divergence_rate(space, un.Local(), kernels[1], x), model.sum(0), rtol=0, atol=1e-12)


def test_divergence_of_throws_on_a_line():
    """Two Gaussian kernels of one width: rate KL = rate shift^2/2; a kernel that cannot follow is infinitely far."""
    line, x = un.Euclidean((1,)), torch.zeros(2, 1, dtype=F64)
    near, far = un.Local(jumps=Throws(2.0, 0.0)), un.Local(jumps=Throws(2.0, 0.5))
    torch.testing.assert_close(
        divergence_rate(line, near, far, x), torch.full((2,), 2 * 0.125, dtype=F64), rtol=0, atol=1e-9
    )
    assert divergence_rate(line, near, un.Local(jumps=Throws(reach=1.0)), x).tolist() == [math.inf] * 2
    assert divergence_rate(line, near, un.Local(), x).tolist() == [math.inf] * 2


def test_a_frozen_jump_comes_with_its_probability_and_lands_by_its_law():
    """Over h a jump comes with probability 1 - exp(-2 h); its mean displacement is 0.5.  20,000 rows: within 4.5 standard
    errors (false alarm 1e-5 for the two)."""
    line, rows, h = un.Euclidean((1,)), 20_000, torch.tensor(0.25, dtype=F64)
    x, local = torch.zeros(rows, 1, dtype=F64), un.Local(jumps=Throws())
    moved = line.move(line.freeze(local, x), local, x, h, un.NoiseSource(1, rows))
    jumped = (moved != 0)[:, 0].double()
    p = 1 - math.exp(-0.5)
    assert abs(float(jumped.mean()) - p) < 4.5 * (p * (1 - p) / rows) ** 0.5
    landed = moved[jumped > 0]
    assert abs(float(landed.mean()) - 0.5) < 4.5 / len(landed) ** 0.5


def test_the_trapezoidal_rule_refuses_jumps_to_anywhere():
    process = un.Gaussian((1,))
    oracle = un.oracles.normal(process, torch.zeros(1, dtype=F64), torch.eye(1, dtype=F64))

    class Thrown(un.AnyDenoiser):
        def __init__(self):
            super().__init__()
            self.process, self.oracle = process, oracle

        def forward(self, x_t, t, /, **condition):
            prediction = self.oracle(x_t, t)
            local = prediction.local()
            prediction.local = lambda: un.Local(local.drift, local.diffusion, jumps=Throws())
            return prediction

    options = {"n": 3, "steps": 2, "start": 0.9, "end": 0.1, "seed": 0}
    x, _ = un.sample(Thrown(), sampler=un.samplers.FromGenerator(), **options)
    assert x.isfinite().all()
    with pytest.raises(TypeError, match="jumps to anywhere, which the trapezoidal rule cannot mix"):
        un.sample(Thrown(), sampler=un.samplers.FromGenerator(0.5), **options)


@pytest.mark.parametrize("part", ["drift", "diffusion"])
def test_a_part_of_another_shape_is_refused(part):
    """Of shape (rows,) at states (rows, 1) it would be spread over other rows."""
    space, x = un.Euclidean((1,)), torch.zeros(3, 1, dtype=torch.float64)
    for shape in ((3,), (3, 5), (1, 3, 1)):
        local = Local(**{part: torch.ones(shape, dtype=torch.float64)})
        for ask in (lambda local=local: space.act(local, lambda y: y.sum(1), x), lambda local=local: space.freeze(local, x)):
            with pytest.raises(ValueError, match=rf"a {part} of shape .* at states of shape \(3, 1\): return one number"):
                ask()
    for shape in ((3, 1), (1, 1), (1,)):
        space.freeze(Local(**{part: torch.ones(shape, dtype=torch.float64)}), x)
