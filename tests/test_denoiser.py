"""A denoiser is anything with `process` and `forward`: what wrappers answer by default, and processes of one's own."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.predictions import Prediction, admitted_kinds, default_kind
from unnoise.samplers import DDIM, Heun, Reveal

F64 = torch.float64


class Line(nn.Module):
    def __init__(self, size=None, dtype=torch.float32):
        super().__init__()
        self.size, self.scale = size, nn.Parameter(torch.tensor(0.5, dtype=dtype))

    def forward(self, x, t):
        return self.scale * x if self.size is None else self.scale * torch.zeros(*x.shape, self.size, dtype=self.scale.dtype)


class Wrapped(un.AnyDenoiser):
    """Hands on what it holds."""

    def __init__(self, *inner):
        super().__init__()
        self.process, self.parts = inner[0].process, nn.ModuleList(inner)

    def forward(self, x_t, t, /, **condition):
        return un.predictions.combine(
            [part(x_t, t, **condition) for part in self.parts], [1 / len(self.parts)] * len(self.parts)
        )


# -- wrappers -----------------------------------------------------------------------------------------------------------


def test_a_wrapped_single_precision_denoiser_is_sampled_in_its_precision():
    for kind in (None, un.Noise):
        plain = un.Denoiser(Line(), un.Gaussian((2,), un.schedules.LinearBeta()), kind)
        for steps in (DDIM(), None):
            x, info = un.sample(Wrapped(plain), 5, 4, steps, seed=0)
            assert x.dtype is torch.float32 and torch.equal(x, un.sample(plain, 5, 4, steps, seed=0)[0])
    masked = un.Denoiser(Line(3), un.Masking(3, (4,)))
    x, _ = un.sample(Wrapped(masked), 6, 4, Reveal(), seed=0)
    assert torch.equal(x, un.sample(masked, 6, 4, Reveal(), seed=0)[0])


def test_a_wrapped_raw_posterior_keeps_its_cut_off():
    process = un.Uniform(3, (2,))
    for kind, cutoff in ((un.RawPosterior, 1e-4), (un.Ratio, 1e-4), (un.Posterior, 0.0), (un.Energy, 1e-4)):
        inner = un.Denoiser(Line(3), process, kind)
        assert inner.cutoff == cutoff and Wrapped(inner).cutoff == cutoff
        assert un.Objective(Wrapped(inner)).cutoff == cutoff
    assert Wrapped(un.Denoiser(Line(3), process), un.Denoiser(Line(3), process, un.RawPosterior)).cutoff == 1e-4
    assert un.Denoiser(Line(3), un.Masking(3, (2,)), un.RawPosterior).cutoff == 0
    product = un.Product(a=un.Masking(3, (1,)), b=process)
    assert un.Denoiser(Line(3), product, {"b": un.Rates}).cutoff == 1e-4
    assert un.Denoiser(Line(3), product, {"a": un.Rates}).cutoff == 0
    chain = un.Chain(process, [0.2, 0.6, 1.0])
    assert un.Denoiser(Line(3), chain, un.RawPosterior).cutoff == 0.2


def test_what_wrappers_say_of_themselves():
    schedule = un.schedules.Learned(hidden=3)
    process = un.Gaussian((2,), schedule)
    single, double = (un.Denoiser(Line(dtype=d), process, un.Noise) for d in (torch.float32, F64))
    assert any(p.dtype is F64 for p in process.parameters()) and single.dtype is torch.float32
    assert (Wrapped(single, double).dtype, Wrapped(double).dtype) == (torch.float32, F64)
    assert Wrapped(single).kinds is un.Noise and Wrapped(single).device == torch.device("cpu")
    assert Wrapped(single).to("meta").device.type == "meta"
    assert Wrapped(single, un.Denoiser(Line(), process)).kinds is None  # unlike kinds: not known beforehand
    assert Wrapped(single, double).passes == 2
    twice = un.Denoiser(Line(), process, un.Clean, self_condition=True)
    assert twice.passes == 2 and Wrapped(twice, single).passes == 3 and Wrapped(Wrapped(twice, single)).passes == 3
    oracle = un.oracles.normal(un.Gaussian((2,)), torch.zeros(2), torch.eye(2))
    assert (oracle.dtype, oracle.device.type, oracle.passes, oracle.kinds) == (F64, "cpu", 1, un.Velocity)
    told = Wrapped(single)
    told.kinds = un.Clean
    assert told.kinds is un.Clean and single.kinds is un.Noise


def test_a_kind_tied_to_the_grid_is_refused_on_a_sub_grid_when_wrapped_too():
    denoiser = Wrapped(un.Denoiser(Line(dtype=F64), un.Chain(un.Gaussian((2,)), 4), un.Mean))
    with pytest.raises(ValueError, match="Mean prediction belongs to the chain's own steps"):
        un.sample(denoiser, 2, 2)


@pytest.mark.parametrize("sampler", [DDIM(), Heun()])
def test_hooks_and_overridden_forward_are_honoured(sampler):
    process = un.Gaussian((2,), un.schedules.LinearBeta())
    seen = []

    class Doubled(un.Denoiser):
        def forward(self, x_t, t, /, **condition):
            seen.append("own")
            return super().forward(x_t, t, **condition)

    denoiser = Doubled(Line(), process)
    denoiser.register_forward_pre_hook(lambda module, args: seen.append("before"))
    denoiser.register_forward_hook(lambda module, args, out: out.with_value(0 * out.value))
    x, info = un.sample(denoiser, 3, 4, sampler, seed=0)
    assert seen == ["before", "own"] * info.calls
    still = un.Denoiser(Line(), process)
    nn.init.zeros_(still.network.scale)
    assert torch.equal(x, un.sample(still, 3, 4, sampler, seed=0)[0])  # what the hook returned is what was used


def test_times_and_states_are_positional():
    denoiser = un.Denoiser(Line(), un.Gaussian((2,)))
    with pytest.raises(TypeError, match="positional"):
        denoiser(torch.zeros(1, 2), t=0.5)


def test_a_network_that_is_exchanged_is_asked_again_what_it_can():
    class Parts(nn.Module):
        def features(self, x, t):
            return torch.nn.functional.one_hot(x, 4).float()

        def head(self, h):
            return h[..., :3]

        def forward(self, x, t):
            return self.head(self.features(x, t))

    denoiser, x = un.Denoiser(Parts(), un.Masking(3, (2,))), torch.full((1, 2), 3)
    assert denoiser(x, 0.5).head is not None
    denoiser.network = Line(3)
    assert denoiser(x, 0.5).head is None
    assert torch.compile(Parts(), backend="eager").features(x, torch.ones(1)).shape == (1, 2, 4)
    denoiser.network = torch.compile(Parts(), backend="eager")
    assert denoiser(x, 0.5).head is not None


# -- kinds --------------------------------------------------------------------------------------------------------------


def test_one_default_for_each_family():
    gaussian, masking, death = un.Gaussian((1,)), un.Masking(3, (1,)), un.Thinning((1,))
    arriving = un.Thinning((1,), immigration=1.0)
    product = un.Product(a=gaussian, b=un.Product(c=masking, d=death), e=arriving)
    kinds = {"a": un.Velocity, "b": {"c": un.Posterior, "d": un.Remaining}, "e": un.Intensity}
    assert default_kind(product) == kinds and default_kind(un.Chain(product, 3)) == kinds
    assert un.Denoiser(nn.Identity(), product).kinds == kinds
    assert un.Denoiser(nn.Identity(), product, {"b": {"c": un.Ratio}}).kinds["b"] == {"c": un.Ratio, "d": un.Remaining}
    assert un.oracles.normal(gaussian, torch.zeros(1), torch.eye(1)).kinds is un.Velocity
    assert admitted_kinds(masking) == (un.Posterior, un.RawPosterior, un.Ratio, un.Rates, un.Transition)
    assert admitted_kinds(arriving) == (un.Intensity, un.CountRatio)
    assert admitted_kinds(un.Chain(gaussian, 2))[:2] == (un.Clean, un.Noise)


class Still(un.Process):
    """A process of one's own, of which the library knows nothing."""

    def __init__(self):
        super().__init__()
        self.space = self.state_space = un.Euclidean((2,))


class Known(Still):
    """The same, that has answered."""


class Guess(Prediction):
    """A kind of its own."""

    def __init__(self, value, process, x_t, t):
        self.value, self.process, self.x_t, self.t = value, process, x_t, t

    @classmethod
    def misfit(cls, process):
        return None if isinstance(process, Still) else super().misfit(process)

    def to(self, kind, **options):
        return self

    local = step = None


def test_a_process_of_one_s_own_is_refused_at_once_by_name():
    words = r"default_kind of Still is not known: write unnoise\.predictions\.default_kind\.register\(Still\)"
    for process in (Still(), un.Product(a=un.Gaussian((1,)), b=Still())):
        with pytest.raises(TypeError, match=words):
            un.Denoiser(Line(), process)
    with pytest.raises(TypeError, match=r"admitted_kinds\.register\(Still\)"):
        un.Denoiser(Line(), Still(), un.Clean)
    with pytest.raises(TypeError, match=r"difference_kind\.register\(Still\)"):
        print(un.Denoiser(Line(), Still(), un.Energy).cutoff)


def test_a_kind_and_a_process_of_one_s_own():
    x = torch.ones(3, 2)
    told = un.Denoiser(Line(), Still(), Guess)(x, 0.5)
    assert type(told) is Guess and torch.equal(told.value, 0.5 * x) and told.t.tolist() == [0.5] * 3
    with pytest.raises(TypeError, match="predicts = Guess does not fit Gaussian: choose Clean"):
        un.Denoiser(Line(), un.Gaussian((2,)), Guess)
    default_kind.register(Known)(lambda process: Guess)
    assert un.Denoiser(Line(), Known()).kinds is Guess
    assert un.Denoiser(Line(), un.Product(a=Known())).kinds == {"a": Guess}
