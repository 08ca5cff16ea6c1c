"""Where a thing belongs, a name or a class is refused with what to write; what is unanswered names class and method."""

import jaxtyping
import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.checks import instance_of, whole

NORMAL = un.oracles.normal(un.Gaussian((2,)), torch.zeros(2).double(), torch.eye(2).double())
NUMBERS, CATEGORIES = torch.zeros(4, 2).double(), torch.zeros(4, 2).long()
LAW = torch.ones(9).double() / 9


class Returns(un.AnyDenoiser):
    """A denoiser that returns what a function makes of the state."""

    def __init__(self, function):
        super().__init__()
        self.process, self.function = un.Gaussian((2,)), function

    def forward(self, x_t, t, /, **condition):
        """Whatever it is."""
        return self.function(self.process, x_t, t)


class Unspoken(un.AnyDenoiser):
    def __init__(self):
        super().__init__()
        self.process = un.Gaussian((2,))


class Matrices(un.DenseProcess):
    """A process whose kernel is the function that it is given."""

    def __init__(self, kernel):
        super().__init__()
        self.space = self.state_space = un.Finite(3, (2,))
        self.given = kernel

    def kernel(self, s, t):
        return self.given(t)

    def rates(self, t):
        return torch.ones(len(t), 3, 3, dtype=torch.float64)


class Silent(un.DenseProcess):
    def __init__(self):
        super().__init__()
        self.space = self.state_space = un.Finite(3, (2,))


class HalfSaid(un.schedules.Schedule):
    def exact_alpha(self, t):
        return 1 - t


class Constant(HalfSaid):
    def exact_sigma(self, t):
        return 0.5


def bound_of(kernel):
    return un.bound(un.oracles.table(Matrices(kernel), LAW), CATEGORIES, exact=True)


def filled(value, *shape, dtype=torch.float64):
    return lambda t: torch.full(tuple(len(t) if n is None else n for n in shape), value, dtype=dtype)


MISTAKES = {
    "sampler name": (
        lambda: un.sample(NORMAL, 2, sampler="DDIM"),
        r"sampler = 'DDIM', .*=un\.samplers\.DDIM\(\)",
    ),
    "sampler class": (lambda: un.sample(NORMAL, 2, sampler=un.samplers.Heun), r"the class Heun, .*pass sampler=Heun\("),
    "weighting name": (lambda: un.Objective(NORMAL, weighting="simple"), r"weighting = 'simple', .*weightings\.Simple\(\)"),
    "weighting class": (lambda: un.Objective(NORMAL, weighting=un.weightings.V), r"the class V, .*weighting=V\("),
    "leaf weighting": (lambda: un.weightings.LeafWeightings(age="simple"), r"age = 'simple', .*pass age=un\.weightings"),
    "times name": (lambda: un.bound(NORMAL, NUMBERS, times="importance"), r"times = 'importance', .*un\.Importance\(\)"),
    "times class": (lambda: un.bound(NORMAL, NUMBERS, times=un.Importance), r"the class Importance, .*times=Importance\("),
    "decoder name": (lambda: un.bound(NORMAL, NUMBERS, decoder="gaussian"), r"decoder = 'gaussian', .*GaussianDecoder\(\)"),
    "schedule name": (
        lambda: un.Gaussian((2,), "cosine"),
        r"schedule = 'cosine', .*=un\.schedules\.Cosine\(\)",
    ),
    "schedule class": (lambda: un.Masking(3, (2,), un.schedules.Linear), r"the class Linear, .*schedule=Linear\("),
    "schedule of counts": (lambda: un.Thinning((2,), "linear"), "schedule = 'linear'"),
    "schedule of rates": (lambda: un.BirthDeath(3, (2,), schedule=un.schedules.Linear), "the class Linear"),
    "space": (lambda: un.Denoiser(nn.Identity(), un.Euclidean((2,))), r"process is a Euclidean, .*Process.*un\.Gaussian"),
    "other class": (lambda: un.Denoiser(nn.Identity(), int), r"the class int, where a Process.*process=un\.Gaussian"),
    "denoiser": (
        lambda: un.fit_schedule(NORMAL, NUMBERS),
        r"objective is a \w+, .*=un\.Objective\(denoiser\)",
    ),
    "tensor": (
        lambda: un.bound(Returns(lambda process, x, t: x), NUMBERS),
        r"Returns\.forward returned a Tensor.*Clean",
    ),
    "nothing": (lambda: un.sample(Returns(lambda process, x, t: None), 2), r"Returns\.forward returned a NoneType"),
    "no forward": (lambda: un.bound(Unspoken(), NUMBERS), r"the denoiser Unspoken does not say .*forward\(x_t, t"),
    "no kernel": (lambda: un.bound(un.oracles.table(Silent(), LAW), CATEGORIES), r"Silent does not say .*kernel\(s, t\)"),
    "no rates": (lambda: Silent().local(CATEGORIES, 0.5), r"Silent does not say its rates .*rates\(t\)"),
    "no sigma": (lambda: un.Gaussian((2,), HalfSaid()), r"HalfSaid does not say .* sigma.*exact_sigma\(t\)"),
    "plain sigma": (lambda: un.Gaussian((2,), Constant()), r"exact_sigma\(t\) returned a float for t of shape"),
    "columns": (lambda: bound_of(filled(0.5, None, 3, 3)), r"Matrices\.kernel\(None, 1\): column 0 sums to 1\.5"),
    "matrix": (lambda: bound_of(filled(1 / 3, 3, 3)), r"shape \(3, 3\).*float64 of shape \(1, 3, 3\)"),
    "precision": (lambda: bound_of(filled(1 / 3, None, 3, 3, dtype=torch.float32)), "dtype torch.float32"),
    "half steps": (lambda: un.sample(NORMAL, 2, steps=2.5), r"steps = 2\.5 is no whole number"),
}


@pytest.fixture
def unannotated():
    """What a user meets: the annotations of arguments are looked at in tests alone."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("unannotated")
def test_what_is_given_is_named_and_what_to_write(name):
    action, message = MISTAKES[name]
    with pytest.raises((TypeError, ValueError), match=message):
        action()


def test_rows_that_sum_to_one_are_not_columns():
    """A kernel the wrong way round: each of its rows is a law, and its columns are none."""
    turned = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).double()
    with pytest.raises(ValueError, match="column 0 sums to 2"):
        bound_of(lambda t: turned.expand(len(t), -1, -1))
    assert bound_of(lambda t: turned.T.expand(len(t), -1, -1) * 0 + 1 / 3).total.isfinite().all()


def test_a_kernel_is_looked_at_once():
    asked = []

    def kernel(t):
        asked.append(len(t))
        return torch.full((len(t), 3, 3), 1 / 3, dtype=torch.float64)

    process = Matrices(kernel)
    for _ in range(3):
        process.log_evidence(CATEGORIES, None, 0.5)
    assert len(asked) == 4


def test_a_denoiser_from_elsewhere_keeps_its_name_and_its_prediction():
    told = Returns(lambda process, x, t: un.Clean(x, process, x, t))
    assert type(told(NUMBERS, 0.5)) is un.Clean and un.bound(told, NUMBERS, seed=0).total.isfinite().all()
    assert Returns.forward.__doc__ == "Whatever it is."
    own = type("Own", (un.AnyDenoiser,), {"__module__": "unnoise.oracles", "forward": lambda self, x_t, t: x_t})
    assert own.forward.__name__ == "<lambda>" and own.forward(None, 3, 0.5) == 3  # the library's own are not looked at


def test_things_themselves_pass():
    sampler = un.samplers.DDIM()
    assert instance_of(sampler, un.samplers.Sampler, "sampler", "") is sampler
    assert whole(torch.tensor(3).item(), "n") == 3 and whole(0, "n", 0) == 0
    with pytest.raises(TypeError, match="n = True"):
        whole(True, "n")
    with pytest.raises(ValueError, match="n = 0: at least one"):
        whole(0, "n")
