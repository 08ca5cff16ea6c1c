"""Parts of one's own, put to `unnoise verify`: those of the pages pass, and each planted mistake fails a named row."""

import json
import math
import re
from functools import cache
from pathlib import Path

import pytest
import torch

import unnoise as un
from unnoise.cli.verify import Verify
from unnoise.denoiser import AnyDenoiser
from unnoise.objectives.times import Visits
from unnoise.processes import Process
from unnoise.verify import OWN, Operators, Subject, checks, subject_of
from unnoise.verify.generators import generator_checks
from unnoise.verify.generic_kernels import generic_kernels
from unnoise.verify.kernels import kernel_checks
from unnoise.verify.rows import Place
from unnoise.verify.schedules import schedule_checks
from unnoise.verify.subjects import count_subject, finite_subject, gaussian_subject, mixture_components, product_subject

ROOT = Path(__file__).parents[2]
PARTS = {
    "generator": "own_parts:generator",
    "schedule": "own_schedule:Eased",
    "sampler": "own_parts:sampler",
    "times": "own_parts:times",
    "weighting": "own_parts:Truncated",
    "prediction": "own_parts:Difference",
    "denoiser": "own_parts:denoiser",
}


def failed(rows):
    return [row.quantity for row in rows if not row.ok]


@cache
def own(option: str, name: str) -> list:
    """The rows of a part of this file, made once."""
    return list(OWN[option](f"{__name__}:{name}", False))


@pytest.mark.parametrize("option", PARTS)
def test_the_parts_of_the_pages_pass(option, monkeypatch, capsys):
    monkeypatch.chdir(ROOT / "docs" / "examples")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples"))
    assert Verify(**{option: PARTS[option]}, json=True).run() == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows and all(row["verdict"] in ("ok", "not checked") for row in rows)
    assert sum(row["verdict"] == "ok" for row in rows) >= 3


@pytest.mark.parametrize("path", ["circle:operators", "sphere:operators", "jump_leaf:operators"])
def test_generators_on_spaces_of_ones_own(path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples"))
    rows = list(OWN["generator"](path, False))
    assert rows and all(row.verdict == "ok" for row in rows)


def test_every_option_has_a_part_and_a_page():
    assert set(PARTS) | {"process"} == set(OWN)
    page = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
    for option in OWN:
        assert f"`--{option}`" in page
    for name in ("own_parts.py", "own_schedule.py"):
        module = (ROOT / "docs" / "examples" / name).read_text(encoding="utf-8")
        shown = "verify.md" if name == "own_parts.py" else "extending-schedule.md"
        assert f"```python\n{module}```" in (ROOT / "docs" / shown).read_text(encoding="utf-8"), f"{shown} and {name} differ"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "math:pi"}, "--schedule 'math:pi' is a float, not an unnoise Schedule"),
        ({"prediction": "unnoise.schedules:Linear"}, "is the class Linear, not a subclass of Prediction"),
        ({"prediction": "math:pi"}, "is a float, not a subclass of Prediction"),
        ({"sampler": f"{__name__}:Breaks"}, "making it raised ZeroDivisionError"),
        ({"generator": f"{__name__}:unlisted"}, "cannot be listed: return unnoise.verify.Operators"),
        ({"times": "a:b", "only": "c"}, "give either --times or --only"),
        ({"denoiser": "a:b", "brief": True}, "leave out --denoiser"),
    ],
)
def test_bad_input_is_one_line(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Verify(**options).run()


class Breaks:
    def __init__(self):
        1 / 0  # noqa: B018


def unlisted():
    return un.Gaussian((1,)).generator(0.5)


# --- schedules


class Wrong(un.schedules.Linear):
    def exact_d_alpha(self, t):
        return -1.01 + 0 * t


class Forgetful(un.schedules.Cosine):
    def exact_time_of_beta(self, value):
        return value


class Unsteady(un.schedules.Linear):
    def step_variance(self, s, t):
        return 1.001 * super().step_variance(s, t)


class Steep(un.schedules.Schedule):
    """alpha = (1 - t)^12 (1 + 11 t), sigma = t^12: as steep at its end as numbers allow."""

    def exact_alpha(self, t):
        return (1 - t) ** 12 * (1 + 11 * t)

    def exact_beta(self, t):
        return torch.where(t < 0.5, -torch.expm1(12 * torch.log1p(-t) + torch.log1p(11 * t)), 1 - self.exact_alpha(t))

    def exact_sigma(self, t):
        return t


@pytest.mark.parametrize(
    ("schedule", "quantity"),
    [
        (Wrong(), "d_alpha = autograd"),
        (Wrong(), "d_alpha = differences"),
        (Forgetful(), "time_of_beta"),
        (Unsteady(), "sigma^2_t = "),
    ],
)
def test_a_wrong_schedule_fails(schedule, quantity):
    assert not failed(schedule_checks(type(schedule).__bases__[0](), Place("right")))
    assert any(q.startswith(quantity) for q in failed(schedule_checks(schedule, Place("wrong"))))


def test_a_steep_end_does_not_fail_by_rounding():
    assert not failed(schedule_checks(Steep(), Place("steep")))
    subject = gaussian_subject(un.Gaussian((1,), Steep()), "steep", 3)
    subject.kinds, subject.grid_kind = subject.kinds[:1], None
    rows = list(kernel_checks(subject))
    assert not failed(rows)
    assert any("comes back magnified" in row.note and row.tolerance > 1e-10 for row in rows)


def test_a_family_that_refuses_a_schedule_is_not_checked():
    rows = list(OWN["schedule"]("unnoise.schedules:VE", False))
    assert not failed(rows)
    left = {row.process.split("/")[0]: row.note for row in rows if row.verdict == "not checked"}
    assert "alpha_1" in left["Masking"] and "alpha_1" in left["Uniform"]


# --- samplers


class Overstated(un.samplers.DDIM):
    def __init__(self):
        super().__init__()
        self.order = 2


class NotExact(un.samplers.Ancestral):
    order, exact = None, True


class Chatty(un.samplers.DDIM):
    def calls(self, steps, process):
        return steps - 1


class Crowded(un.samplers.DDIM):
    """A sample ends up in another row."""

    def run(self, problem, x, after):
        return un.tree.map_leaves(lambda v: v.roll(1, 0), super().run(problem, x, after))


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("Overstated", "order of the flow"),
        ("NotExact", "error in law at 2 steps"),
        ("Chatty", "network calls of 4 steps"),
        ("Crowded", "a sample alone and in a batch"),
    ],
)
def test_a_wrong_sampler_fails(name, quantity):
    assert any(q.startswith(quantity) for q in failed(own("sampler", name)))


# --- times


class Light(un.Importance):
    def visit(self, process, x0, low, noise):
        visits = super().visit(process, x0, low, noise)
        return Visits(visits.t, 0.9 * visits.weight, visits.x_t)


class Fixed(un.Importance):
    """Even weights for times that are not even."""

    def visit(self, process, x0, low, noise):
        visits = super().visit(process, x0, low, noise)
        return Visits(visits.t, torch.full_like(visits.weight, 1 - low), visits.x_t)


@pytest.mark.parametrize("name", ["Light", "Fixed"])
def test_wrong_weights_fail(name):
    found = failed(own("times", name))
    assert any(q.startswith("weights = 1/density") for q in found) and any(q.startswith("mean over random") for q in found)


class Stops(un.Importance):
    """A rule that breaks on all families but one, by an error that is no refusal."""

    def visit(self, process, x0, low, noise):
        if not isinstance(process, un.Gaussian):
            raise RuntimeError("broken")
        return super().visit(process, x0, low, noise)


class Refuses(un.Importance):
    def visit(self, process, x0, low, noise):
        if not isinstance(process, un.Gaussian):
            raise TypeError("numbers only")
        return super().visit(process, x0, low, noise)


def test_what_breaks_is_no_refusal():
    broken = [row for row in own("times", "Stops") if not row.ok]
    assert len(broken) == 4 and all(row.note == "RuntimeError: broken" for row in broken)
    refused = [row for row in own("times", "Refuses") if row.verdict == "not checked"]
    assert len(refused) == 4 and all(row.note == "numbers only" for row in refused)


class Mistyped(un.samplers.Ancestral):
    """An exact sampler that adds a string to a number: no reason to draw its law instead."""

    order, exact = None, True

    def step(self, problem, setup, state, i):
        return state.x + "1"


def test_a_broken_exact_sampler_fails():
    rows = [row for row in own("sampler", "Mistyped") if row.quantity.startswith("law of an exact sampler")]
    assert rows and all(not row.ok and "stopped in step" in row.quantity for row in rows)


# --- weightings


class Pretends(un.weightings.Simple):
    is_bound = True


class Infinite(un.weightings.Simple):
    def on_clean(self, schedule, t):
        return torch.where(t > 0.5, torch.inf, super().on_clean(schedule, t))


class Broken(un.weightings.Simple):
    def on_clean(self, schedule, t):
        return None + t


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("Pretends", "it claims to be the bound"),
        ("Infinite", "rows whose rate is no number"),
        ("Broken", "rate of a weighting: stopped in on_clean"),
    ],
)
def test_a_wrong_weighting_fails(name, quantity):
    assert any(q.startswith(quantity) for q in failed(own("weighting", name)))


# --- predictions


class TurnedBack(un.Velocity):
    """A velocity that reads itself with the wrong sign on eps."""

    def coefficients(self):
        a, b = super().coefficients()
        return a, -b


class Rescaled(un.Posterior):
    """Logits that are read at twice their size."""

    def log_theta(self):
        return (2 * super().log_theta()).log_softmax(-1)

    @classmethod
    def converted(cls, other, **options):
        return cls(other.to(un.Posterior).value, other.process, other.x_t, other.t)


@pytest.mark.parametrize(
    ("name", "quantity"),
    [("TurnedBack", "x_0 of it"), ("TurnedBack", "rate as training takes it = divergence"), ("Rescaled", "bound(x)")],
)
def test_a_wrong_kind_fails(name, quantity):
    assert any(q.startswith(quantity) for q in failed(own("prediction", name)))


# --- denoisers


class Averaging(AnyDenoiser):
    """Its logits are centred over the batch."""

    def __init__(self):
        super().__init__()
        law = torch.arange(1.0, 10.0, dtype=torch.float64)
        self.oracle = un.oracles.table(un.Uniform(3, (2,)), law / law.sum())
        self.process = self.oracle.process

    def forward(self, x_t, t, **condition):
        told = self.oracle(x_t, t)
        return un.Posterior(told.value - told.value.mean(0), told.process, told.x_t, told.t)


def test_a_denoiser_that_depends_on_its_batch_fails():
    assert "a row's prediction, alone" in failed(own("denoiser", "Averaging"))


def test_a_denoiser_of_numbers_is_asked_what_it_can_be():
    rows = own("denoiser", "numbers")
    assert not failed(rows) and [row.verdict for row in rows].count("not checked") == 1


def numbers():
    return un.oracles.normal(un.Gaussian((2,)), torch.zeros(2), torch.eye(2))


# --- generators


@pytest.mark.parametrize("process", [un.Uniform(3, (2,)), un.Product(a=un.Masking(2, (1,)), b=un.Uniform(2, (1,)))])
def test_generators_of_categories(process):
    given = Operators.of(process.generator(0.4), "x")
    rows = list(generator_checks(given, Place("x")))
    assert not failed(rows) and any(row.quantity == "sum q L phi = sum phi L* q" for row in rows)


def test_wrong_operators_fail(monkeypatch):
    given = Operators.of(un.Uniform(3, (2,)).generator(0.4), "x")

    class Turned(un.Generator):
        def adjoint(self, q, x):
            return -super().adjoint(q, x)

        def reversed(self, log_q):
            right = super().reversed(lambda x: 1.1 * log_q(x))
            return Turned(right.space, right.local)

        def act(self, phi, x):
            return super().act(phi, x) + 0.1 * phi(x)

    given.generator = Turned(given.generator.space, given.generator.local)
    found = failed(generator_checks(given, Place("x")))
    for quantity in ("L 1 = 0", "q L^ phi", "L^* q = -L* q", "sum q L phi"):
        assert any(q.startswith(quantity) for q in found), quantity


# --- any process


@pytest.mark.parametrize(
    "make",
    [
        lambda: gaussian_subject(un.Gaussian((1,)), "numbers", 6),
        lambda: finite_subject(un.Uniform(3, (2,)), "categories"),
        lambda: count_subject(un.Thinning((1,)), "counts"),
    ],
)
def test_generic_kernels_hold_for_every_family(make):
    rows = list(generic_kernels(make()))
    assert not failed(rows) and [row.quantity for row in rows if row.verdict == "not checked"] == [
        "bounds of wrong networks"
    ]


class Foreign(Process):
    """A process of no family: everything is asked of another one inside, and one question is left open."""

    def __init__(self):
        super().__init__()
        self.inside = un.Gaussian((1,))
        self.space = self.state_space = self.inside.space
        self.cutoff = self.inside.cutoff

    def prior(self, *arguments):
        return self.inside.prior(*arguments)

    def marginal(self, x0, t):
        return self.inside.marginal(x0, t)

    def transition(self, x_s, s, t):
        return self.inside.transition(x_s, s, t)

    def local(self, x, t):
        return self.inside.local(x, t)

    def reverse(self, x_t, x0, t):
        return self.inside.reverse(x_t, x0, t)

    def noiseless(self, t):
        return self.inside.noiseless(t)

    def support(self, x0, t):
        return self.inside.support(x0, t)


class ForeignClean(un.Clean):
    """An estimate of x_0 that speaks of this process too."""

    @classmethod
    def misfit(cls, process):
        return None


class ForeignOracle(un.oracles.Oracle):
    """What is known of it is known of the other."""

    def __init__(self, process):
        weights, means, covariances = mixture_components(1)
        super().__init__(process, ForeignClean)
        self.known = un.oracles.mixture(process.inside, weights, means, covariances)

    def native(self, x_t, t):
        return self.known.native(x_t, t)

    def log_prob(self, x0):
        return self.known.log_prob(x0)

    def log_marginal(self, x_t, t):
        return self.known.log_marginal(x_t, t)

    def draw(self, noise):
        return self.known.draw(noise)


def test_a_process_of_no_family_registers_its_subject():
    @subject_of.register
    def _(process: Foreign, name: str) -> Subject:
        oracle = ForeignOracle(process)
        return Subject(name, process, oracle, (ForeignClean,), None, oracle.draw(un.NoiseSource(1, 5)), (1e-3, 0.1), 112)

    rows = list(checks(subject_of(Foreign(), "foreign")))
    assert not failed(rows)
    told = {row.quantity.split(",")[0] for row in rows if row.verdict == "ok"}
    assert {
        "forward equation of the generator",
        "marginal = transition of marginal",
        "bound(x) with the exact model",
    } <= told
    left = [row for row in rows if row.verdict == "not checked"]
    assert any(row.note == "Foreign has no posterior" for row in left)
    assert all(not math.isnan(row.tolerance) for row in rows)


def test_a_leaf_without_an_oracle_says_what_to_write():
    with pytest.raises(ValueError, match=r"leaf_oracle\.register\(Foreign\)"):
        product_subject(un.Product(a=Foreign(), b=un.Masking(2, (1,))), "x")


class Sum(un.predictions.ContinuousPrediction):
    """x_0 + eps: D = alpha - sigma is 0 on the way."""

    @staticmethod
    def target_coefficients(schedule, t):
        one = torch.ones_like(schedule.alpha(t))
        return one, one


def test_a_kind_that_loses_x0_on_the_way_fails():
    rows = [row for row in own("prediction", "Sum") if not row.ok]
    assert len(rows) == 2 and all("D = alpha b - sigma a is 0" in row.quantity for row in rows)
    assert rows[0].note.startswith("from t = 0.5 on")
    denoiser = un.Denoiser(torch.nn.Identity(), un.Gaussian((1,)), predicts=Sum)
    halfway = Sum(torch.ones(2, 1).double(), denoiser.process, torch.ones(2, 1).double(), 0.5)
    with pytest.raises(un.InexactConversion, match="is 0 here though alpha is not"):
        halfway.to(un.Clean)


class Bare(un.Space):
    shape, dimension = (1,), 1

    def check(self, x, name="x"):
        return x


def bare():
    return Operators(un.Generator(Bare(), lambda x: un.Local(drift=x)), torch.ones(3, 1).double())


def test_nothing_checked_is_no_success(capsys):
    assert Verify(generator=f"{__name__}:bare").run() == 1
    assert "nothing was checked" in capsys.readouterr().out


class Angles(un.Euclidean):
    def project(self, x):
        return torch.remainder(x + 3, 6) - 3


def outside():
    generator = un.Generator(Angles((1,)), lambda x: un.Local(drift=torch.ones_like(x)))
    return Operators(generator, torch.tensor([[0.5], [4.0]]).double())


def test_points_outside_the_space_are_refused():
    with pytest.raises(ValueError, match=r"point 1, \[4.0\], lies outside Angles"):
        own("generator", "outside")


def test_a_negative_diffusion_is_called_by_its_name():
    class Backwards(un.Process):
        def __init__(self):
            super().__init__()
            self.space = self.state_space = un.Euclidean((1,))

        def local(self, x, t):
            return un.Local(diffusion=-torch.ones_like(x))

    class Flat(AnyDenoiser):
        def __init__(self):
            super().__init__()
            self.process = Backwards()

        def forward(self, x, t, /, **condition):
            return un.FromMarginal(lambda y, s: -y.square().sum(1), self.process, x, t)

    with pytest.raises(ValueError, match="diffusion below 0"):
        un.sample(Flat(), x=torch.zeros(3, 1), steps=2, sampler=un.samplers.FromGenerator())
