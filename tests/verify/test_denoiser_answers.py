"""What a denoiser says of itself against what it does: true of the library's own, and each lie fails a row that names it."""

import math

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.verify import OWN
from unnoise.verify.denoiser_answers import answer_rows, evaluations
from unnoise.verify.rows import Place


class Net(nn.Module):
    def __init__(self, size=None, dtype=torch.float32):
        super().__init__()
        self.size, self.scale = size, nn.Parameter(torch.ones(1, dtype=dtype))

    def forward(self, x, t, previous=None):
        h = x.to(self.scale.dtype) * self.scale
        h = h if self.size is None else h.unsqueeze(-1) * torch.arange(1, self.size + 1)
        return h if previous is None else h + previous


class Parts(Net):
    def features(self, x, t):
        return Net.forward(self, x, t)

    def head(self, h):
        return torch.sin(h)

    def forward(self, x, t):
        return self.head(self.features(x, t))


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x, t):
        return -0.5 * self.scale * x.square().sum(1)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Net(), Net(3)

    def forward(self, x, t):
        return {"a": self.a(x["a"], t), "b": self.b(x["b"], t)}


def numbers(dtype=torch.float32, **options):
    return un.Denoiser(Net(dtype=dtype), un.Gaussian((2,)), **options)


TRUE = {
    "numbers": numbers,
    "double": lambda: numbers(torch.float64),
    "half": lambda: numbers(torch.bfloat16),
    "self-conditioned": lambda: numbers(self_condition=True),
    "chain": lambda: un.Denoiser(Net(), un.Chain(un.Gaussian((2,)), 8), un.Mean),
    "in two parts": lambda: un.Denoiser(Parts(3), un.Masking(3, (2,))),
    "energy": lambda: un.Denoiser(Potential(), un.Gaussian((2,)), un.Energy),
    "product": lambda: un.Denoiser(Both(), un.Product(a=un.Gaussian((2,)), b=un.Masking(3, (1,)))),
    "oracle": lambda: un.oracles.normal(un.Gaussian((2,)), torch.zeros(2), torch.eye(2)),
}


def rows_of(denoiser):
    return list(answer_rows(denoiser, Place("x")))


def failed(rows):
    return [row.quantity for row in rows if not row.ok]


@pytest.mark.parametrize("name", TRUE)
def test_the_librarys_denoisers_say_what_is_so(name):
    rows = rows_of(TRUE[name]().eval())
    assert not failed(rows) and {row.quantity.split(":")[0].split(" ")[0] for row in rows} >= {"kinds", "dtype", "device"}
    assert all(row.verdict == "ok" for row in rows)


class Wrapper(un.AnyDenoiser):
    """A denoiser around another, asked so many times."""

    def __init__(self, times=1, inner=None):
        super().__init__()
        self.inner, self.times = inner or numbers(), times
        self.process = self.inner.process

    def forward(self, x_t, t, /, **condition):
        return [self.inner(x_t, t, **condition) for _ in range(self.times)][0]


class OtherKind(Wrapper):
    """Says what its inner denoiser predicts, but converts it."""

    def forward(self, x_t, t, /, **condition):
        return super().forward(x_t, t).to(un.Clean)


class Mistyped(Wrapper):
    dtype = torch.float64


class Promoting(Wrapper):
    def forward(self, x_t, t, /, **condition):
        told = super().forward(x_t, t)
        return told.with_value(told.value.double())


class Elsewhere(Wrapper):
    device = torch.device("meta")


class Boasting(Wrapper):
    passes = 3


class Skipping(Wrapper):
    """Two inner denoisers, one of which is never asked."""

    def __init__(self):
        super().__init__()
        self.other = numbers()


class Late(Wrapper):
    cutoff = 1.0


class Early(Wrapper):
    cutoff = -0.1


class Nowhere(Wrapper):
    cutoff = math.nan


class LeafKinds(Wrapper):
    """One kind for a product of two leaves, of which each has its own."""

    def __init__(self):
        super().__init__(inner=TRUE["product"]())
        self.kinds = {"a": un.Noise, "b": un.Posterior}


LIES = {
    OtherKind: ("kinds: leaves predicted in another kind than stated", "its prediction: states Velocity, is Clean"),
    LeafKinds: ("kinds: leaves predicted in another kind than stated", "a: states Noise, is Velocity"),
    Mistyped: ("dtype: that of its parameters", "states torch.float64, but its first parameter has torch.float32"),
    Promoting: ("dtype: predictions in another than stated", "states torch.float32, but its prediction has torch.float64"),
    Elsewhere: ("device: that of its parameters", "states meta, but its first parameter has cpu"),
    Boasting: ("passes: evaluations of networks in one call", "states 3, but 1 were made"),
    Skipping: ("passes: evaluations of networks in one call", "states 2, but 1 were made"),
    Late: ("cut-off lies in [0, 1)", "states 1.0"),
    Early: ("cut-off lies in [0, 1)", "states -0.1"),
    Nowhere: ("cut-off lies in [0, 1)", "states nan"),
}


def test_the_wrapper_itself_is_true():
    assert not failed(rows_of(Wrapper()))
    assert not failed(rows_of(Wrapper(inner=TRUE["self-conditioned"]())))


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_fails_the_row_that_names_it(lie):
    rows = rows_of(lie())
    quantity, note = LIES[lie]
    (row,) = [row for row in rows if row.quantity == quantity]
    assert row.verdict == "FAIL" and row.note == note
    if lie is not Elsewhere:  # on another device nothing can be computed
        assert {q.split(":")[0] for q in failed(rows)} == {quantity.split(":")[0]}


class Twice(un.AnyDenoiser):
    """Asks its own network twice, and does not say so."""

    kinds = un.Velocity

    def __init__(self):
        super().__init__()
        self.process, self.nets = un.Gaussian((2,)), nn.ModuleList([Net(), Net()])

    def forward(self, x_t, t, /, **condition):
        value = (self.nets[0](x_t, t) + self.nets[0](x_t, t)) / 2
        return un.Velocity(value, self.process, x_t, t)


def test_passes_are_counted_through_networks_and_wrappers():
    assert evaluations(Wrapper(times=3)) == (3, 3)
    assert evaluations(Wrapper(times=2, inner=TRUE["self-conditioned"]())) == (4, 4)
    assert evaluations(TRUE["in two parts"]()) == (1, 1)
    assert evaluations(Twice()) == (2, 2)
    assert failed(rows_of(Twice())) == ["passes: evaluations of networks in one call"]
    assert failed(rows_of(Wrapper(times=2))) == ["passes: evaluations of networks in one call"]
    twice = Twice()
    evaluations(twice)
    assert all("forward" not in part.__dict__ for part in twice.modules())  # nothing is left behind


def test_a_denoiser_that_states_no_kind_is_not_checked():
    twice = Twice()
    type(twice).kinds = None
    try:
        (row,) = [row for row in rows_of(twice) if row.quantity.startswith("kinds")]
    finally:
        type(twice).kinds = un.Velocity
    assert row.verdict == "not checked"


def test_the_rows_stand_among_those_of_a_denoiser():
    rows = list(OWN["denoiser"](f"{__name__}:Boasting", False))
    assert failed(rows) == ["passes: evaluations of networks in one call"]


def chain():
    return TRUE["chain"]()


def energy():
    return TRUE["energy"]()


@pytest.mark.parametrize("maker", ["chain", "energy"])
def test_chains_and_energies_of_numbers_go_through_the_command(maker):
    rows = list(OWN["denoiser"](f"{__name__}:{maker}", False))
    assert not failed(rows) and [row.verdict for row in rows].count("not checked") == 1
