"""Bad input raises an error that names the value and the remedy.  One row per mistake."""

import numpy as np
import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import decoders, oracles, schedules, weightings
from unnoise.predictions import ProductPrediction
from unnoise.spaces import Euclidean, Finite, ProductSpace

NAN, INF = float("nan"), float("inf")


class Returns(nn.Module):
    """A network that returns what it was told to."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, t):
        return self.function(x)


class Headed(nn.Module):
    """A network with features and a head of the wrong width."""

    def features(self, x, t):
        return torch.zeros(*x.shape, 4)

    def head(self, h):
        return torch.zeros(*h.shape[:-1], 5)


def logits(size):
    return Returns(lambda x: torch.zeros(*x.shape, size))


same = Returns(lambda x: x)

gaussian = un.Gaussian(3)
masking, uniform = un.Masking(3, 2), un.Uniform(3, 2)
mixed_sizes = un.Uniform([2, 5])
product = un.Product(age=un.Gaussian(1), job=un.Uniform(4, 1))
nested = un.Product(age=un.Gaussian(1), rest=un.Product(job=un.Uniform(4, 1)))

numbers, categories = torch.zeros(4, 3), torch.zeros(4, 2, dtype=torch.int64)
people = {"age": torch.zeros(4, 1), "job": torch.zeros(4, 1, dtype=torch.int64)}
families = {"age": torch.zeros(4, 1), "rest": {"job": torch.zeros(4, 1, dtype=torch.int64)}}

on_numbers = un.Denoiser(same, gaussian, un.Clean)
on_categories = un.Denoiser(logits(3), masking)
on_uniform = un.Denoiser(logits(3), uniform)
on_people = un.Denoiser(Returns(lambda x: {"age": x["age"], "job": torch.zeros(*x["job"].shape, 4)}), product)

wind, globe = un.WrappedNormal((2,)), un.SphereHeat(2)
places = un.Product(at=globe, wind=un.WrappedNormal((1,)))
angles, points = torch.tensor([[3.0, -1.0], [0.5, 2.0]]), torch.eye(3)
on_wind, on_globe = un.Denoiser(Returns(torch.zeros_like), wind), un.Denoiser(Returns(torch.zeros_like), globe)
on_places = un.Denoiser(Returns(lambda x: {name: torch.zeros_like(leaf) for name, leaf in x.items()}), places)


def put(x, index, value):
    x = x.clone()
    x[index] = value
    return x


def custom(alpha, sigma):
    return schedules.Custom(alpha, sigma)


def gaussian_prediction(kind, t=0.5):
    return kind(numbers, gaussian, numbers, t)


def posterior(t=0.5, process=uniform):
    return un.Posterior(torch.zeros(4, 2, 3), process, categories, t)


def transition():
    return un.Transition(torch.zeros(4, 2, 3), uniform, categories, 0.5, s=0.4)


def rates_of_no_law():
    """One destination at a huge rate from each state: its clean law would need negative probabilities."""
    value = torch.full((4, 2, 3), -20.0, dtype=torch.float64)
    value[..., 2] = 5.0
    return un.Rates(value, uniform, categories, 0.3)


def table(probs, process=masking):
    return oracles.table(process, torch.as_tensor(probs, dtype=torch.float64))


def markov(initial, matrix, process=masking):
    return oracles.MarkovChain(process, torch.tensor(initial), torch.tensor(matrix))


FAIR = [[1 / 3] * 3] * 3
falling = {"alpha": lambda t: 1 - 0.5 * t, "sigma": lambda t: t * (1 - t)}  # sigma/alpha rises, then falls

DATA = [
    ("float data for categories", lambda: un.bound(on_categories, categories.float()), TypeError, r"float32.*x0\.long\(\)"),
    ("int data for numbers", lambda: un.bound(on_numbers, numbers.long()), TypeError, r"int64.*x0\.float\(\)"),
    ("bool data for categories", lambda: un.bound(on_categories, categories.bool()), TypeError, r"bool.*x0\.long\(\)"),
    (
        "category too large",
        lambda: un.bound(on_uniform, put(categories, (1, 0), 7)),
        ValueError,
        r"x0\[1, 0\] = 7 is no category of 3: use 0 \.\.\. 2",
    ),
    (
        "category below 0",
        lambda: un.bound(on_uniform, put(categories, (3, 1), -1)),
        ValueError,
        r"x0\[3, 1\] = -1.*0 \.\.\. 2",
    ),
    (
        "category beyond its own coordinate's size",
        lambda: mixed_sizes.marginal(put(categories, (2, 0), 3), 0.5),
        ValueError,
        r"x0\[2, 0\] = 3 is no category of 2: use 0 \.\.\. 1",
    ),
    ("MASK as data", lambda: un.bound(on_categories, put(categories, (0, 1), 3)), ValueError, r"x0\[0, 1\] = 3.*0 \.\.\. 2"),
    (
        "state beyond MASK",
        lambda: on_categories(put(categories, (0, 1), 4), 0.5),
        ValueError,
        r"x_t\[0, 1\] = 4.*0 \.\.\. 3",
    ),
    (
        "NaN in data",
        lambda: un.bound(on_numbers, put(numbers, (1, 2), NAN)),
        ValueError,
        r"x0\[1, 2\] is nan; drop or impute",
    ),
    (
        "inf in data",
        lambda: un.bound(on_numbers, put(numbers, (0, 0), -INF)),
        ValueError,
        r"x0\[0, 0\] is -inf; drop or impute",
    ),
    ("NaN in a state", lambda: on_numbers(put(numbers, (1, 2), NAN), 0.5), ValueError, r"x_t\[1, 2\] is nan"),
    ("wrong shape of numbers", lambda: un.bound(on_numbers, numbers[:, :2]), ValueError, r"\(4, 2\); expected \(batch, 3\)"),
    ("no batch axis", lambda: un.bound(on_numbers, numbers[0]), ValueError, r"\(3,\); expected \(batch, 3\)"),
    ("wrong shape of categories", lambda: un.bound(on_categories, categories[:, :1]), ValueError, r"expected \(batch, 2\)"),
    ("list as data", lambda: un.bound(on_numbers, [[0.0, 0.0, 0.0]]), TypeError, r"x0 is a list.*torch\.as_tensor\(x0\)"),
    ("array as data", lambda: un.bound(on_numbers, np.zeros((4, 3))), TypeError, r"x0 is a ndarray.*torch\.as_tensor\(x0\)"),
    ("marginal of wrong dtype", lambda: masking.marginal(categories.float(), 0.5), TypeError, r"x0\.long\(\)"),
    ("marginal of wrong shape", lambda: gaussian.marginal(numbers[:, :2], 0.5), ValueError, r"expected \(batch, 3\)"),
    ("transition of wrong shape", lambda: gaussian.transition(numbers[:, :2], 0.1, 0.5), ValueError, r"x_s.*\(batch, 3\)"),
    ("transition of no state", lambda: masking.transition(categories + 4, 0.1, 0.5), ValueError, r"x_s\[0, 0\] = 4"),
    (
        "posterior of wrong shape",
        lambda: gaussian.posterior(numbers, numbers[:, :1], 0.1, 0.5),
        ValueError,
        r"x0.*\(batch, 3\)",
    ),
    (
        "posterior of wrong dtype",
        lambda: uniform.posterior(categories, categories.float(), 0.1, 0.5),
        TypeError,
        r"x0\.long",
    ),
    ("oracle at no state", lambda: table([1 / 9] * 9)(categories + 4, 0.5), ValueError, r"x_t\[0, 0\] = 4.*0 \.\.\. 3"),
    (
        "tensor for a product",
        lambda: un.bound(on_people, numbers),
        TypeError,
        r"x0 is a Tensor.*\['age', 'job'\].*pass a dict",
    ),
    ("leaf missing", lambda: un.bound(on_people, {"age": people["age"]}), ValueError, r"lacks \['job'\].*\['age', 'job'\]"),
    ("leaf unknown", lambda: un.bound(on_people, {**people, "pay": numbers}), ValueError, r"has unknown \['pay'\]"),
    (
        "leaves of different rows",
        lambda: un.bound(on_people, {"age": people["age"][:2], "job": people["job"]}),
        ValueError,
        r"leaves of x0 differ in rows: \{'age': 2, 'job': 4\}",
    ),
    (
        "bad value in a leaf",
        lambda: un.bound(on_people, {"age": put(people["age"], (0, 0), NAN), "job": people["job"]}),
        ValueError,
        r"x0\['age'\]\[0, 0\] is nan",
    ),
]

CLOSED = [
    ("degrees in a bound", lambda: un.bound(on_wind, 60 * angles), ValueError, r"x0 has the angle 180.*pi / 180 first if"),
    ("degrees in a state", lambda: on_wind(60 * angles, 0.5), ValueError, r"x_t has the angle 180.*if these are degrees"),
    ("degrees in a likelihood", lambda: un.likelihood(on_wind, 60 * angles), ValueError, r"the angle 180.*project\("),
    ("degrees in a training loss", lambda: un.Objective(on_wind)(60 * angles), ValueError, r"x0 has the angle 180"),
    ("NaN angle", lambda: un.bound(on_wind, put(angles, (1, 0), NAN)), ValueError, r"x0\[1, 0\] is nan"),
    (
        "point off the sphere",
        lambda: un.bound(on_globe, 2 * points),
        ValueError,
        r"row 0 of x0 has the length 2.*project\(x0\)",
    ),
    ("state off the sphere", lambda: on_globe(2 * points, 0.5), ValueError, r"row 0 of x_t has the length 2"),
    (
        "likelihood off the sphere",
        lambda: un.likelihood(on_globe, 2 * points),
        ValueError,
        r"has the length 2.*unit vectors",
    ),
    (
        "loss off the sphere",
        lambda: un.Objective(on_globe)(put(points, (1, 1), 0.0)),
        ValueError,
        r"row 1 of x0 has the length 0",
    ),
    ("NaN on the sphere", lambda: un.bound(on_globe, put(points, (2, 0), NAN)), ValueError, r"row 2 of x0.*nan.*not finite"),
    ("latitude and longitude as a point", lambda: un.bound(on_globe, points[:, :2]), ValueError, r"expected \(batch, 3\)"),
    (
        "leaf off the sphere",
        lambda: un.bound(on_places, {"at": 2 * points[:2], "wind": angles[:, :1]}),
        ValueError,
        r"row 0 of x0\['at'\] has the length 2",
    ),
    (
        "leaf in degrees",
        lambda: un.bound(on_places, {"at": points[:2], "wind": 60 * angles[:, :1]}),
        ValueError,
        r"x0\['wind'\] has the angle 180",
    ),
    (
        "drawn given degrees",
        lambda: un.sample(on_wind, n=2, steps=2, sampler=un.samplers.Replacement(60 * angles, torch.ones(2, 2).bool())),
        ValueError,
        r"the angle 180",
    ),
]

TIMES = [
    ("time above 1", lambda: gaussian.marginal(numbers, 1.5), ValueError, r"t = 1\.5 lies outside \[0, 1\]"),
    ("time below 0", lambda: masking.marginal(categories, -0.1), ValueError, r"t = -0\.1 lies outside \[0, 1\]"),
    (
        "one bad time",
        lambda: on_numbers(numbers, torch.tensor([0.1, 0.2, 3.0, 0.4])),
        ValueError,
        r"t = 3 lies outside \[0, 1\]",
    ),
    ("NaN time", lambda: on_categories(categories, NAN), ValueError, r"t = nan lies outside \[0, 1\]"),
    (
        "int times",
        lambda: on_numbers(numbers, torch.tensor([0, 1, 1, 0])),
        TypeError,
        r"t has dtype torch\.int64.*t\.float\(\)",
    ),
    (
        "times of wrong length",
        lambda: on_numbers(numbers, torch.rand(3)),
        ValueError,
        r"\(3,\).*one time per row, shape \(4,\)",
    ),
    ("times of two axes", lambda: on_numbers(numbers, torch.rand(4, 1)), ValueError, r"\(4, 1\).*shape \(4,\)"),
    ("no time", lambda: on_numbers(numbers, None), TypeError, r"t is None; pass a number in \[0, 1\]"),
    ("word for a time", lambda: on_numbers(numbers, "noon"), TypeError, r"t is 'noon'; pass a number"),
    ("time tree lacks a leaf", lambda: on_people(people, {"age": 0.5}), ValueError, r"time tree t.*lacks \['job'\]"),
    (
        "time tree has an unknown leaf",
        lambda: product.marginal(people, {"age": 0.5, "job": 0.5, "pay": 0.5}),
        ValueError,
        r"has unknown \['pay'\]; its leaves are \['age', 'job'\]",
    ),
    (
        "time tree for a leaf",
        lambda: gaussian.marginal(numbers, {"age": 0.5}),
        TypeError,
        r"\['age'\].*pass one time per row",
    ),
    (
        "time tree too deep",
        lambda: product.marginal(people, {"age": {"x": 0.5}, "job": 0.5}),
        TypeError,
        r"\['x'\].*single leaf: pass one time per row",
    ),
    (
        "time tree lacks a nested leaf",
        lambda: nested.marginal(families, {"age": 0.5, "rest": {}}),
        ValueError,
        r"lacks \['job'\]; its leaves are \['job'\]",
    ),
    (
        "oracle with a time tree for one leaf",
        lambda: table([1 / 9] * 9)(categories, {"age": 0.5}),
        TypeError,
        r"pass one time per row",
    ),
    *[
        (f"{kind} {where}", call, ValueError, rf"s = {s} is not before t = 0\.5; a step needs s < t")
        for kind, s in (("s after t", 0.7), ("s at t", 0.5))
        for where, call in (
            ("in a Gaussian transition", lambda s=s: gaussian.transition(numbers, s, 0.5)),
            ("in a masking transition", lambda s=s: masking.transition(categories, s, 0.5)),
            ("in a uniform transition", lambda s=s: uniform.transition(categories, s, 0.5)),
            ("in a Gaussian posterior", lambda s=s: gaussian.posterior(numbers, numbers, s, 0.5)),
            ("in a masking posterior", lambda s=s: masking.posterior(categories, categories, s, 0.5)),
            ("in a product", lambda s=s: product.transition(people, s, 0.5)),
            ("in a Gaussian step", lambda s=s: gaussian_prediction(un.Noise).step(s)),
            ("in a conversion to Mean", lambda s=s: gaussian_prediction(un.Noise).to(un.Mean, s=s)),
            ("in a posterior's step", lambda s=s: posterior().step(s)),
            ("in a step by rates", lambda s=s: posterior().to(un.Rates).step(s)),
            ("in a conversion to Transition", lambda s=s: posterior().to(un.Transition, s=s)),
        )
    ],
]

SPACES = [
    ("fractional size", lambda: Finite(torch.tensor(2.5)), TypeError, r"size = .*2\.5.* is not a whole number"),
    ("no categories", lambda: un.Masking(0, 2), ValueError, r"0 categories; every coordinate needs at least one"),
    ("empty shape entry", lambda: Euclidean((2, 0)), ValueError, r"shape \(2, 0\) has an entry below 1"),
    ("sizes that do not fit", lambda: un.Uniform([2, 3], (3,)), ValueError, r"sizes have shape \(2,\) but.*\(3,\)"),
    ("empty product space", lambda: ProductSpace(), ValueError, r"at least one leaf"),
    ("empty product", lambda: un.Product(), ValueError, r"at least one leaf"),
    ("leaf that is no process", lambda: un.Product(age=nn.Linear(1, 1)), TypeError, r"leaf 'age' is a Linear.*Gaussian\("),
    ("chain as a leaf", lambda: un.Product(age=un.Chain(gaussian, 4)), TypeError, r"'age' is a chain.*Chain\(Product"),
    ("too many states", lambda: un.Masking(27, 256).space.states(), ValueError, r"10\^366\.4 points.*at most 100000.*draw"),
    ("too many states, sizes", lambda: Finite([27, 28] * 128).states(), ValueError, r"10\^368\.5 points.*at most 100000"),
]

SCHEDULES = [
    (
        "masking that keeps a share",
        lambda: un.Masking(3, schedule=schedules.LinearBeta()),
        ValueError,
        r"0\.0065.*Linear\(\)",
    ),
    ("VE with Uniform", lambda: un.Uniform(3, schedule=schedules.VE()), ValueError, r"alpha_1 = 1.*such as Linear\(\)"),
    ("VE with Masking", lambda: un.Masking(3, schedule=schedules.VE()), ValueError, r"alpha_1 = 1.*such as Linear\(\)"),
    ("sigma/alpha falls", lambda: custom(**falling), ValueError, r"sigma\^2/alpha\^2 decreases at t = 0\.58.*only be added"),
    (
        "alpha above 1",
        lambda: custom(lambda t: 1 + t, lambda t: t),
        ValueError,
        r"alpha = 1\.0009.* at t = 0\.0010.*in \[0, 1\]",
    ),
    (
        "alpha below 0",
        lambda: custom(lambda t: 1 - 2 * t, lambda t: t),
        ValueError,
        r"alpha = -0\.00.* at t = 0\.50.*in \[0, 1\]",
    ),
    ("alpha NaN", lambda: custom(lambda t: t / t, lambda t: t), ValueError, r"alpha = nan at t = 0\.0000"),
    (
        "sigma below 0",
        lambda: custom(lambda t: 1 - t, lambda t: -t),
        ValueError,
        r"sigma = -.* at t = 0\.0010.*not negative",
    ),
    ("sigma infinite", lambda: custom(lambda t: 1 - t, lambda t: t / (1 - t)), ValueError, r"sigma = inf at t = 1\.0000"),
    (
        "number for a function's value",
        lambda: custom(lambda t: 1.0, lambda t: t),
        TypeError,
        r"alpha\(t\).*float.*ones_like\(t\)",
    ),
    (
        "function of wrong shape",
        lambda: custom(lambda t: 1 - t, lambda t: t[:1]),
        TypeError,
        r"sigma\(t\).*\(1,\).*ones_like",
    ),
    ("power 0", lambda: schedules.Polynomial(0.0), ValueError, r"power = 0\.0 must be positive"),
    ("rate below 0", lambda: schedules.LinearBeta(-1.0, 20.0), ValueError, r"alpha = 1\.000.* at t = 0\.0010"),
    ("VE range reversed", lambda: schedules.VE(5.0, 1.0), ValueError, r"sigma_min = 5\.0, sigma_max = 1\.0: need"),
    ("EDM from 0", lambda: schedules.EDM(0.0, 1.0), ValueError, r"sigma_min = 0\.0.*need 0 < sigma_min"),
    ("EDM with rho 0", lambda: schedules.EDM(rho=0.0), ValueError, r"rho = 0\.0 must be positive"),
    ("log-SNR that rises", lambda: schedules.LogSNRLinear(-5.0, 5.0), ValueError, r"high = -5\.0 must exceed low = 5\.0"),
    (
        "diffusion below 0",
        lambda: schedules.FromSDE(lambda t: -t, lambda t: 0.5 - t),
        ValueError,
        r"diffusion = -.*t = 0\.501",
    ),
    (
        "drift infinite",
        lambda: schedules.FromSDE(lambda t: -1 / (1 - t), lambda t: 1.0),
        ValueError,
        r"drift = -inf.*t = 1\.0",
    ),
    (
        "drift that amplifies",
        lambda: schedules.FromSDE(lambda t: 1.0, lambda t: 1.0),
        ValueError,
        r"alpha = 1\.000.*t = 0\.0010",
    ),
    ("time of alpha for VE", lambda: schedules.VE().time_of_alpha(0.5), ValueError, r"VE.*has alpha = 1 throughout"),
    ("no schedules", lambda: schedules.PerCoordinate([]), ValueError, r"one scalar schedule per coordinate"),
    (
        "nested schedules per coordinate",
        lambda: schedules.PerCoordinate([schedules.PerCoordinate([schedules.Linear()])]),
        ValueError,
        r"one scalar schedule per coordinate",
    ),
    (
        "schedules that do not fill the shape",
        lambda: schedules.PerCoordinate([schedules.Linear()] * 3, (2, 2)),
        ValueError,
        r"3 schedules do not fill the shape \(2, 2\)",
    ),
    (
        "time of many schedules",
        lambda: schedules.PerCoordinate([schedules.Linear()] * 2).time_of_log_snr(0.0),
        ValueError,
        r"share no inverse: ask one of `schedules`",
    ),
    *[
        (
            f"schedule of the wrong shape for {family.__name__}",
            lambda family=family, sizes=sizes: family(*sizes, 3, schedule=schedules.PerCoordinate([schedules.Linear()] * 2)),
            ValueError,
            r"schedule of shape \(2,\) does not fit coordinates \(3,\): pass one schedule for all, or one per coordinate",
        )
        for family, sizes in ((un.Gaussian, ()), (un.Masking, (4,)), (un.Uniform, (4,)))
    ],
]

GRIDS = [
    (
        "empty batch",
        lambda: un.bound(un.Denoiser(same, gaussian), numbers[:0]),
        ValueError,
        r"x0 has no rows: pass at least one",
    ),
    ("no steps", lambda: un.Chain(gaussian, 0), ValueError, r"chain of 0 steps: at least one"),
    (
        "grid that repeats",
        lambda: un.Chain(gaussian, [0.1, 0.5, 0.5, 1.0]),
        ValueError,
        r"from 0\.5 to 0\.5: times must increase",
    ),
    ("grid that falls", lambda: un.Chain(gaussian, [0.5, 0.1]), ValueError, r"from 0\.5 to 0\.1: times must increase"),
    ("grid with NaN", lambda: un.Chain(gaussian, [0.1, NAN, 1.0]), ValueError, r"from 0\.1 to nan: times must increase"),
    ("grid beyond 1", lambda: un.Chain(gaussian, [0.1, 1.5]), ValueError, r"from 0\.1 to 1\.5, outside \[0, 1\]"),
    ("grid below 0", lambda: un.Chain(gaussian, [-0.1, 1.0]), ValueError, r"from -0\.1 to 1, outside \[0, 1\]"),
    ("grid of one time", lambda: un.Chain(gaussian, [1.0]), ValueError, r"shape \(1,\): pass at least two increasing times"),
    (
        "chain of a chain",
        lambda: un.Chain(un.Chain(gaussian, 4), 2),
        TypeError,
        r"chain of 4 steps already: pass chain\.process",
    ),
    (
        "time between grid points",
        lambda: un.Denoiser(same, un.Chain(gaussian, 4), un.Mean)(numbers, 0.123),
        ValueError,
        r"t = 0\.123 is not on the chain's grid of 4 steps: pass one of chain\.grid",
    ),
    (
        "step from the first time",
        lambda: un.Denoiser(same, un.Chain(gaussian, [0.25, 1.0]), un.Mean)(numbers, 0.25),
        ValueError,
        r"t = 0\.25 is the chain's first time",
    ),
    (
        "Mean without a chain",
        lambda: un.Denoiser(same, gaussian, un.Mean)(numbers, 0.5),
        TypeError,
        r"needs a chain.*Chain\(",
    ),
    (
        "Transition without a chain",
        lambda: un.Denoiser(logits(3), uniform, un.Transition)(categories, 0.5),
        TypeError,
        r"needs a chain: Denoiser\(network, Chain\(process, T\)\)",
    ),
    (
        "oracle's Mean without a chain",
        lambda: oracles.normal(gaussian, torch.zeros(3), torch.eye(3), un.Mean)(numbers, 0.5),
        TypeError,
        r"Mean belongs to a grid pair: put the oracle on a Chain",
    ),
]

NO = un.InexactConversion
CONVERSIONS = [
    ("Transition to Posterior", lambda: transition().to(un.Posterior), NO, r"Transition does not determine Posterior"),
    ("Transition to RawPosterior", lambda: transition().to(un.RawPosterior), NO, r"Transition does not determine"),
    ("Transition to Rates", lambda: transition().to(un.Rates), NO, r"grid pair \(s, t\) and has no generator; use a Chain"),
    ("Transition to another time", lambda: transition().step(0.1), NO, r"made for s = 0\.4, not for s = 0\.1"),
    (
        "Posterior to Clean",
        lambda: posterior().to(un.Clean),
        NO,
        r"Posterior does not determine Clean: one lives on categories",
    ),
    (
        "Clean to Posterior",
        lambda: gaussian_prediction(un.Clean).to(un.Posterior),
        NO,
        r"Clean does not determine Posterior",
    ),
    (
        "Rates of no law",
        lambda: rates_of_no_law().to(un.Posterior),
        NO,
        r"Rates does not determine.*belong to no law of x_0",
    ),
    (
        "Noise to Clean at alpha = 0",
        lambda: gaussian_prediction(un.Noise, 1.0).to(un.Clean),
        NO,
        r"Noise.*Clean: alpha_t = 0",
    ),
    (
        "Score to Clean at alpha = 0",
        lambda: gaussian_prediction(un.Score, 1.0).to(un.Clean),
        NO,
        r"Score.*Clean: alpha_t = 0",
    ),
    (
        "Mean without s",
        lambda: gaussian_prediction(un.Clean).to(un.Mean),
        ValueError,
        r"pass s, as in prediction\.to\(Mean, s=s\)",
    ),
    (
        "Transition without s",
        lambda: posterior().to(un.Transition),
        ValueError,
        r"pass s, as in prediction\.to\(Transition, s=s\)",
    ),
    (
        "one kind for a product",
        lambda: on_people(people, 0.5).to(un.Noise),
        TypeError,
        r"name the leaf: prediction\.to\(\{'leaf': Kind\}\)",
    ),
    (
        "kind for an unknown leaf",
        lambda: on_people(people, 0.5).to({"pay": un.Noise}),
        ValueError,
        r"no leaf \['pay'\] to convert; the leaves are \['age', 'job'\]",
    ),
    (
        "inverse where nothing is left",
        lambda: uniform.inverse(torch.full((4, 2, 3), 1 / 3), 0.1, 1.0),
        ValueError,
        r"alpha_\{t\|s\} = 0: nothing of x_s is left",
    ),
    (
        "Gaussian inverse where nothing is left",
        lambda: gaussian.inverse((numbers, numbers + 1), 0.1, 1.0),
        ValueError,
        r"alpha_\{t\|s\} = 0: nothing of x_s is left",
    ),
    (
        "step by rates from t = 1",
        lambda: un.Ratio(torch.zeros(4, 2, 3), uniform, categories, 1.0).step(0.5),
        ValueError,
        r"exit rate at t = 1 is infinite.*start before t = 1",
    ),
    (
        "unknown kernel",
        lambda: un.Denoiser(logits(3), uniform, un.RawPosterior, kernel="plugin"),
        ValueError,
        r"'plugin'.*'plug-in'",
    ),
    (
        "unknown kernel of a prediction",
        lambda: un.RawPosterior(torch.zeros(4, 2, 3), uniform, categories, 0.5, kernel="exact"),
        ValueError,
        r"kernel = 'exact': choose 'marginalised' or 'plug-in'",
    ),
]

NETWORKS = [
    (
        "kind of the wrong space",
        lambda: un.Denoiser(same, gaussian, un.Posterior),
        TypeError,
        r"Posterior.*Gaussian: choose Clean",
    ),
    (
        "numbers' kind for categories",
        lambda: un.Denoiser(same, masking, un.Noise),
        TypeError,
        r"Noise.*Masking: choose Posterior",
    ),
    ("kind by name", lambda: un.Denoiser(same, gaussian, "noise"), TypeError, r"predicts = 'noise'.*choose Clean, Noise"),
    (
        "one kind for all leaves",
        lambda: un.Denoiser(same, product, un.Clean),
        TypeError,
        r"on a product: pass a dict.*'age', 'job'",
    ),
    (
        "kind of an unknown leaf",
        lambda: un.Denoiser(same, product, {"pay": un.Clean}),
        ValueError,
        r"predicts names \['pay'\]; the leaves are \['age', 'job'\]",
    ),
    (
        "output of wrong shape",
        lambda: un.Denoiser(Returns(lambda x: x[:, :1]), gaussian)(numbers, 0.5),
        ValueError,
        r"returned shape \(4, 1\); expected \(4, 3\)",
    ),
    (
        "logits for MASK",
        lambda: un.Denoiser(logits(4), masking)(categories, 0.5),
        ValueError,
        r"returned shape \(4, 2, 4\); expected \(4, 2, 3\)",
    ),
    (
        "head of wrong width",
        lambda: un.bound(un.Denoiser(Headed(), masking), categories, seed=0),
        ValueError,
        r"5 logits.*expected 3",
    ),
    (
        "list as output",
        lambda: un.Denoiser(Returns(lambda x: [x]), gaussian)(numbers, 0.5),
        TypeError,
        r"returned a list; it must return a plain tensor",
    ),
    (
        "integers as output",
        lambda: un.Denoiser(Returns(lambda x: x.long()), gaussian)(numbers, 0.5),
        TypeError,
        r"returned dtype torch\.int64; it must return floating point",
    ),
    (
        "three outputs",
        lambda: un.Denoiser(Returns(lambda x: (x, x, x)), gaussian)(numbers, 0.5),
        ValueError,
        r"returned 3 outputs; expected a tensor, or a pair",
    ),
    (
        "tensor as output on a product",
        lambda: un.Denoiser(Returns(lambda x: x["age"]), product)(people, 0.5),
        TypeError,
        r"the network's output is a Tensor.*pass a dict with one entry per leaf",
    ),
    (
        "output without a leaf",
        lambda: un.Denoiser(Returns(lambda x: {"age": x["age"]}), product)(people, 0.5),
        ValueError,
        r"the network's output.*lacks \['job'\]",
    ),
    (
        "output with an unknown leaf",
        lambda: un.Denoiser(Returns(lambda x: {**x, "pay": x["age"]}), product)(people, 0.5),
        ValueError,
        r"the network's output.*has unknown \['pay'\]",
    ),
    (
        "learned variance without a pair",
        lambda: un.Denoiser(same, un.Chain(gaussian, 4), variance=un.variances.LearnedVariance())(numbers, 1.0).step(0.5),
        ValueError,
        r"needs a network that returns a pair \(prediction, v\)",
    ),
    *[
        (
            f"network that returns NaN on {name}",
            lambda process=process, x0=x0, size=size: un.bound(
                un.Denoiser(Returns(lambda x: torch.full((*x.shape, *size), NAN)), process), x0, seed=0
            ),
            FloatingPointError,
            r"bound of row 0 is NaN: the network returned a non-finite value",
        )
        for name, process, x0, size in (
            ("numbers", gaussian, numbers, ()),
            ("masked categories", masking, categories, (3,)),
            ("uniform categories", uniform, categories, (3,)),
        )
    ],
]

BOUNDS = [
    (
        "cut-off 0 on numbers",
        lambda: un.bound(on_numbers, numbers, cutoff=0.0),
        ValueError,
        r"the noise is 0.*t = 0.*cut-off > 0",
    ),
    (
        "cut-off 0 on a leaf",
        lambda: un.bound(on_people, people, cutoff=0.0),
        ValueError,
        r"the noise of leaf 'age' is 0.*cut-off > 0",
    ),
    ("cut-off 1", lambda: un.bound(on_numbers, numbers, cutoff=1.0), ValueError, r"cutoff = 1 lies outside \[0, 1\)"),
    (
        "cut-off below 0",
        lambda: un.bound(on_categories, categories, cutoff=-0.1),
        ValueError,
        r"cutoff = -0\.1 lies outside \[0, 1\)",
    ),
    ("cut-off NaN", lambda: un.bound(on_numbers, numbers, cutoff=NAN), ValueError, r"cutoff = nan lies outside \[0, 1\)"),
    (
        "cut-off of a chain",
        lambda: un.bound(un.Denoiser(same, un.Chain(gaussian, 4)), numbers, cutoff=0.1),
        ValueError,
        r"cutoff = 0\.1: a chain's grid starts at its own cut-off 0\.0001",
    ),
    (
        "Count on numbers",
        lambda: un.bound(on_numbers, numbers, un.MaskedCount()),
        TypeError,
        r"belong to Masking.*use Importance\(\)",
    ),
    (
        "Count on uniform noise",
        lambda: un.bound(on_uniform, categories, un.MaskedCount()),
        TypeError,
        r"belong to Masking.*Importance",
    ),
    ("Grid without a chain", lambda: un.bound(on_numbers, numbers, un.Grid()), TypeError, r"build the denoiser on Chain\("),
    ("power below 1", lambda: un.Importance(power=0.5), ValueError, r"power = 0\.5.*at least 1"),
    (
        "weighting with exact=True",
        lambda: un.Objective(on_numbers, weightings.Simple(), exact=True),
        ValueError,
        r"exact=True computes the bound itself: leave the weighting out",
    ),
    (
        "weighting of an unknown leaf",
        lambda: un.Objective(on_people, weightings.LeafWeightings(pay=weightings.Simple()))(people),
        ValueError,
        r"weighs \['pay'\]; the leaves are \['age', 'job'\]",
    ),
    (
        "weightings of leaves on one leaf",
        lambda: un.Objective(on_numbers, weightings.LeafWeightings(age=weightings.Simple()))(numbers),
        TypeError,
        r"weighs the leaves of a product",
    ),
    (
        "exact with drawn states",
        lambda: un.bound(on_categories, categories, un.MaskedCount(), exact=True),
        ValueError,
        r"use Quadrature\(\)",
    ),
    (
        "exact over 3 numbers",
        lambda: un.bound(on_numbers, numbers, exact=True),
        ValueError,
        r"3 numbers.*at most 2\): draw instead",
    ),
    (
        "exact over too many states",
        lambda: un.bound(un.Denoiser(logits(27), un.Masking(27, 4)), torch.zeros(1, 4, dtype=torch.int64), exact=True),
        ValueError,
        r"10\^5\.8 points, too many to enumerate \(at most 100000\): draw instead",
    ),
    (
        "exact over too large a product",
        lambda: un.Product(a=un.Uniform(10, 4), b=un.Uniform(10, 4)).support(
            {"a": torch.zeros(1, 4, dtype=torch.int64), "b": torch.zeros(1, 4, dtype=torch.int64)}, 0.5
        ),
        ValueError,
        r"\['a', 'b'\] needs 100000000 nodes, more than 5000000: draw instead",
    ),
    (
        "data off the levels",
        lambda: un.bound(on_numbers, numbers + 0.3, decoder=decoders.DiscretisedGaussian(3), seed=0),
        ValueError,
        r"x0\[0, 0\] = 0\.3 is none of 3 levels from -1 to 1: round the data",
    ),
    (
        "data beyond the levels",
        lambda: un.bound(on_numbers, put(numbers, (1, 2), 2.0), decoder=decoders.DiscretisedGaussian(3), seed=0),
        ValueError,
        r"x0\[1, 2\] = 2 is none of 3 levels",
    ),
    ("one level", lambda: decoders.DiscretisedGaussian(1), ValueError, r"levels = 1.*need two levels"),
    (
        "numbers' decoder for categories",
        lambda: un.bound(on_uniform, categories, cutoff=0.1, decoder=decoders.DiscretisedGaussian(), seed=0),
        TypeError,
        r"DiscretisedGaussian does not fit Uniform: leave it out",
    ),
    (
        "categories' decoder for numbers",
        lambda: un.bound(on_numbers, numbers, decoder=decoders.CategoricalDecoder(), seed=0),
        TypeError,
        r"CategoricalDecoder does not fit Gaussian: leave it out",
    ),
    (
        "decoders without a leaf",
        lambda: un.bound(on_people, people, decoder=decoders.LeafDecoders(age=decoders.GaussianDecoder()), seed=0),
        ValueError,
        r"LeafDecoders\(\.\.\.\).*lacks \['job'\]",
    ),
]

ORACLES = [
    (
        "weights that do not sum to one",
        lambda: oracles.mixture(un.Gaussian(1), torch.tensor([0.5, 0.7]), torch.zeros(2, 1), torch.ones(2, 1, 1)),
        ValueError,
        r"sum to 1\.2: divide positive weights by their sum",
    ),
    ("negative weights", lambda: table([1.5, -0.5, 0, 0, 0, 0, 0, 0, 0]), ValueError, r"least is -0\.5"),
    ("NaN weights", lambda: table([NAN] * 9), ValueError, r"must be probabilities; the least is nan"),
    ("probabilities for other states", lambda: table([0.5, 0.5]), ValueError, r"2 probabilities for the 9 states of Finite"),
    (
        "negative covariance",
        lambda: oracles.normal(un.Gaussian(1), torch.zeros(1), -torch.ones(1, 1)),
        ValueError,
        r"negative eigenvalue -1",
    ),
    (
        "matrix with rows for columns",
        lambda: markov([1 / 3] * 3, [[0.8, 0.1, 0.1], [0.5, 0.4, 0.1], [0.2, 0.2, 0.6]]),
        ValueError,
        r"transition\[:, 0\] sums to 1\.5.*row = destination.*transpose",
    ),
    ("initial law", lambda: markov([0.5, 0.5, 0.5], FAIR), ValueError, r"initial sums to 1\.5.*divide it by its sum"),
    (
        "negative rate of a matrix",
        lambda: markov([1 / 3] * 3, [[1.2, 1 / 3, 1 / 3], [-0.2, 1 / 3, 1 / 3], [0.0, 1 / 3, 1 / 3]]),
        ValueError,
        r"transition\[:, 0\].*least entry -0\.2",
    ),
    (
        "matrix of wrong size",
        lambda: markov([0.5, 0.5], [[0.5, 0.5]] * 2),
        ValueError,
        r"3 categories need \(3,\) and \(3, 3\)",
    ),
    (
        "Markov chain on a square",
        lambda: markov([1 / 3] * 3, FAIR, un.Masking(3, (2, 2))),
        ValueError,
        r"one axis.*\(2, 2\)",
    ),
]


def halves(t):
    return torch.stack([t, 1 - t], -1)


def mix(weights=halves, laws=None, schedule=None):
    laws = [un.noise_laws.uniform(3), un.noise_laws.mask(3)] if laws is None else laws
    return un.Mixture(3, 2, laws=laws, weights=weights, schedule=schedule)


PER_COORDINATE = schedules.PerCoordinate([schedules.Linear()] * 2)
NOISES = [
    (
        "law of too few states",
        lambda: un.Interpolation(3, 2, torch.tensor([0.5, 0.5])),
        ValueError,
        r"noise law has 2 states for 3 categories: give each category one",
    ),
    (
        "law of other coordinates",
        lambda: un.Interpolation(3, 2, torch.full((4, 3), 1 / 3)),
        ValueError,
        r"noise laws of shape \(4,\) do not fit coordinates \(2,\): pass one, or one each",
    ),
    (
        "negative noise",
        lambda: un.noise_laws.given(torch.tensor([1.2, -0.2])),
        ValueError,
        r"p\[1\] = -0\.2: .*not negative",
    ),
    ("NaN noise", lambda: un.noise_laws.given(torch.tensor([[1.0, 0.0], [NAN, 1.0]])), ValueError, r"p\[1, 0\] = nan"),
    (
        "noise that does not sum to one",
        lambda: un.noise_laws.given(torch.tensor([[0.5, 0.5], [0.5, 0.7]])),
        ValueError,
        r"noise law sums to 1\.2, not 1: divide it by its sum",
    ),
    ("number for a noise law", lambda: un.noise_laws.given(torch.tensor(1.0)), ValueError, r"a vector of probabilities"),
    (
        "noise on a category that its coordinate lacks",
        lambda: un.Interpolation([2, 3], noise=torch.tensor([0.3, 0.3, 0.4])),
        ValueError,
        r"mass to category 2 of coordinate \[0\], which has 2: pass a law per coordinate with zeros there",
    ),
    (
        "uniform noise with MASK on different sizes",
        lambda: un.Interpolation([2, 3], noise=un.noise_laws.uniform_with_mask(3)),
        ValueError,
        r"uniform noise with MASK takes one number of categories for all coordinates",
    ),
    (
        "negative smoothing",
        lambda: un.noise_laws.frequencies(categories, 3, smoothing=-1.0),
        ValueError,
        r"smoothing = -1 must not be negative",
    ),
    (
        "frequencies of a category too large",
        lambda: un.noise_laws.frequencies(put(categories, (1, 0), 3), 3),
        ValueError,
        r"x0\[1, 0\] = 3 is no category of 3",
    ),
    (
        "frequencies of no category",
        lambda: un.noise_laws.frequencies(categories.float(), 3),
        TypeError,
        r"x0 has dtype torch\.float32.*x0\.long\(\)",
    ),
    (
        "no noise law",
        lambda: un.Interpolation(3, 2),
        ValueError,
        r"needs its noise law: pass probabilities, or one of unnoise.noise_laws",
    ),
    (
        "law without a category and alpha_1 > 0",
        lambda: un.Interpolation(3, 2, torch.tensor([0.5, 0.0, 0.5]), schedules.LinearBeta()),
        ValueError,
        r"alpha_1 = 0\.0065.* > 0, but the prior is without category 1: .*infinite\. Use a schedule with alpha_1 = 0",
    ),
    (
        "mask law and alpha_1 > 0",
        lambda: un.Interpolation(3, 2, un.noise_laws.mask(3), schedules.LinearBeta()),
        ValueError,
        r"> 0, but the prior is all MASK: the bound would be infinite",
    ),
    (
        "VE with a noise law",
        lambda: un.Interpolation(3, 2, un.noise_laws.uniform(3), schedules.VE()),
        ValueError,
        r"alpha_1 = 1",
    ),
    ("mixture of nothing", lambda: mix(laws=[]), ValueError, r"a mixture needs at least one noise law"),
    (
        "weights of wrong shape",
        lambda: mix(lambda t: t),
        TypeError,
        r"weights\(t\) returned shape \(2047,\) for t of shape \(2047,\): .*in the last axis, \(2047, 2\)",
    ),
    ("weights that are no tensor", lambda: mix(lambda t: [0.5, 0.5]), TypeError, r"weights\(t\) returned a list"),
    (
        "weights of a mixture that do not sum to one",
        lambda: mix(lambda t: torch.stack([t, t], -1)),
        ValueError,
        r"weights at t = 0\.0005 are \[0\.0004.*: they must be a law",
    ),
    (
        "negative weights of a mixture",
        lambda: mix(lambda t: torch.stack([0.5 - t, 0.5 + t], -1)),
        ValueError,
        r"weights at t = 0\.500\d are \[-0\.000.*: they must be a law",
    ),
    (
        "NaN weights of a mixture",
        lambda: mix(lambda t: torch.stack([t * NAN, 1 - t], -1)),
        ValueError,
        r"weights at t = 0\.0005 are \[nan",
    ),
    (
        "mixture that is no process",
        lambda: mix(lambda t: torch.stack([(1 - t) ** 9, 1 - (1 - t) ** 9], -1)),
        ValueError,
        r"no Markov process: at t = 0\.111\d the rate of jumps to state 0 would be -.*slow the weights down",
    ),
    (
        "schedules of a mixture's coordinates",
        lambda: mix(schedule=PER_COORDINATE),
        ValueError,
        r"a mixture takes one schedule for all coordinates",
    ),
    (
        "no uniform noise",
        lambda: un.Mixture.uniform_and_mask(3, uniform=0.0),
        ValueError,
        r"uniform = 0 is the share of uniform noise at t = 1/2: choose it in \(0, 1\)",
    ),
    ("uniform noise alone", lambda: un.Mixture.uniform_and_mask(3, uniform=1.0), ValueError, r"uniform = 1 .*in \(0, 1\)"),
    ("gamma 0", lambda: un.Mixture.uniform_and_mask(3, gamma=0.0), ValueError, r"gamma = 0 must lie in \(0, 2\]"),
    ("gamma above 2", lambda: un.Mixture.uniform_and_mask(3, gamma=2.5), ValueError, r"gamma = 2\.5 must lie in \(0, 2\]"),
]

neighbours = un.rate_matrices.nearest_neighbour(4)
chain_steps = un.d3pm.uniform(3, [0.1, 0.5])
embeddings = torch.eye(4)

MATRICES = [
    (
        "negative jump rate",
        lambda: un.RateMatrix(put(neighbours, (2, 0), -1.0)),
        ValueError,
        r"the rate 0 -> 2, entry \[2, 0\], is -1: rates are finite and not negative",
    ),
    ("NaN jump rate", lambda: un.RateMatrix(put(neighbours, (0, 1), NAN)), ValueError, r"the rate 1 -> 0.*is nan"),
    (
        "diagonal that is not the exit rate",
        lambda: un.RateMatrix(put(neighbours, (1, 1), -1.0)),
        ValueError,
        r"column 1 sums to .*, not 0: entry \[1, 1\] must be minus the exit rate",
    ),
    (
        "rates with rows for columns",
        lambda: un.RateMatrix(un.rate_matrices.with_mask(neighbours).T),
        ValueError,
        r"rows do sum to 0, so transpose it \(entry \[y, x\] is the rate x -> y\)",
    ),
    ("no rates at all", lambda: un.RateMatrix(torch.zeros(3, 3)), ValueError, r"every rate is 0: nothing would be noised"),
    ("rates that are not square", lambda: un.RateMatrix(torch.ones(2, 3)), ValueError, r"shape \(2, 3\): pass a square one"),
    (
        "more categories than rates",
        lambda: un.RateMatrix(neighbours, size=5),
        ValueError,
        r"size = 5 categories, but the rate matrix has 4 states",
    ),
    ("no categories among rates", lambda: un.RateMatrix(neighbours, size=0), ValueError, r"size = 0 categories"),
    (
        "prior of another size",
        lambda: un.RateMatrix(neighbours, prior=torch.full((3,), 1 / 3)),
        ValueError,
        r"prior must be a law on the 4 states: pass 4 probabilities that sum to 1",
    ),
    (
        "prior that is no law",
        lambda: un.RateMatrix(neighbours, prior=torch.tensor([0.5, 0.7, -0.2, 0.0])),
        ValueError,
        r"prior must be a law on the 4 states",
    ),
    (
        "method by another name",
        lambda: un.RateMatrix(neighbours, method="expm"),
        ValueError,
        r"method = 'expm': choose 'uniformization' or 'eigen'",
    ),
    (
        "eigenvectors of a cycle",
        lambda: un.RateMatrix(torch.eye(3).roll(1, 0), method="eigen"),
        ValueError,
        r"not reversible: the flow \d -> \d is .*use method='uniformization'",
    ),
    (
        "sparse rates over a long clock",
        lambda: un.RateMatrix((100 * neighbours).to_sparse()),
        ValueError,
        r"series of .* terms, more than 20000: use a schedule with a larger alpha_1, smaller rates, or a dense matrix",
    ),
    ("VE with rates", lambda: un.RateMatrix(neighbours, schedule=schedules.VE()), ValueError, r"alpha_1 = 1.*Linear\(\)"),
    (
        "kernel in common",
        lambda: un.RateMatrix(neighbours, 2, PER_COORDINATE).kernel(None, torch.rand(1, dtype=torch.float64)),
        ValueError,
        r"coordinates with schedules of their own have no kernel in common",
    ),
    (
        "one state",
        lambda: un.rate_matrices.nearest_neighbour(1),
        ValueError,
        r"size = 1: a rate matrix needs at least two states",
    ),
    ("steps of no width", lambda: un.rate_matrices.discretised_gaussian(4, 0.0), ValueError, r"width = 0 must be positive"),
    ("band of no width", lambda: un.rate_matrices.banded(4, 0), ValueError, r"width = 0 must be at least 1"),
    (
        "stationary law with a zero",
        lambda: un.rate_matrices.discretised_gaussian(3, 1.0, torch.tensor([0.5, 0.0, 0.5])),
        ValueError,
        r"stationary law must have 3 positive probabilities",
    ),
    (
        "embeddings of one axis",
        lambda: un.rate_matrices.similarity(torch.ones(4)),
        ValueError,
        r"shape \(4,\): .*\[size, features\]",
    ),
    (
        "embeddings with NaN",
        lambda: un.rate_matrices.similarity(put(embeddings, (0, 0), NAN), 2),
        ValueError,
        r"pass one finite vector per state",
    ),
    (
        "more neighbours than states",
        lambda: un.rate_matrices.similarity(embeddings, 4),
        ValueError,
        r"neighbours = 4: choose between 1 and 3",
    ),
    (
        "temperature 0",
        lambda: un.rate_matrices.similarity(embeddings, 2, 0.0),
        ValueError,
        r"temperature = 0 must be positive",
    ),
    (
        "births without deaths",
        lambda: un.rate_matrices.birth_death(torch.ones(4), torch.ones(3)),
        ValueError,
        r"births \(4,\) and deaths \(3,\) must be vectors of one length",
    ),
    (
        "negative births",
        lambda: un.rate_matrices.birth_death(-torch.ones(3), torch.ones(3)),
        ValueError,
        r"the rate 0 -> 1, entry \[1, 0\], is -1",
    ),
    ("no absorption", lambda: un.rate_matrices.with_mask(neighbours, 0.0), ValueError, r"absorption = 0 must be positive"),
    ("counts up to 0", lambda: un.BirthDeath(0), ValueError, r"most = 0: counts up to at least 1 are needed"),
    (
        "every unit present",
        lambda: un.BirthDeath(3, occupancy=1.0),
        ValueError,
        r"occupancy = 1 is the chance that a fresh unit is present: choose it in \[0, 1\)",
    ),
    ("occupancy below 0", lambda: un.BirthDeath(3, occupancy=-0.1), ValueError, r"occupancy = -0\.1 .*in \[0, 1\)"),
    (
        "pure death that leaves units",
        lambda: un.BirthDeath(3, schedule=schedules.LinearBeta(), occupancy=0.0),
        ValueError,
        r"alpha_1 = 0\.0065.* > 0, but pure death ends with no unit left: .*infinite\. Use a schedule with alpha_1 = 0",
    ),
    (
        "schedules of each count",
        lambda: un.BirthDeath(3, 2, PER_COORDINATE),
        ValueError,
        r"counts take one schedule for all coordinates",
    ),
    ("count above the most", lambda: un.BirthDeath(3, 2).marginal(categories + 4, 0.5), ValueError, r"x0\[0, 0\] = 4"),
    (
        "negative probability of a step",
        lambda: un.MatrixChain(put(chain_steps, (1, 2, 0), -0.1)),
        ValueError,
        r"step 2 of 2: the probability of 0 -> 2, entry \[2, 0\], is -0\.1",
    ),
    (
        "column of a step that does not sum to one",
        lambda: un.MatrixChain(put(chain_steps, (0, 1, 1), 0.5)),
        ValueError,
        r"step 1 of 2: column 1 sums to 0\.56\d*, not 1$",
    ),
    (
        "steps with rows for columns",
        lambda: un.MatrixChain(un.d3pm.absorbing(2, [0.1, 0.5]).mT),
        ValueError,
        r"column 0 sums to .*; its rows do, so transpose the matrices \(entry \[y, x\] is the probability of x -> y\)",
    ),
    (
        "one matrix for a chain",
        lambda: un.MatrixChain(chain_steps[0]),
        ValueError,
        r"\(3, 3\): pass \[steps, states, states\]",
    ),
    (
        "more categories than states of a step",
        lambda: un.MatrixChain(chain_steps, size=4),
        ValueError,
        r"size = 4 categories, but the matrices have 3 states",
    ),
    (
        "generator of a chain by matrices",
        lambda: un.MatrixChain(chain_steps, 2).generator(0.5),
        TypeError,
        r"has no generator: .*Use its T-step bound and kernels, or a process in continuous time",
    ),
    (
        "ratios on a chain by matrices",
        lambda: un.Denoiser(logits(3), un.MatrixChain(chain_steps, 2), un.Ratio),
        TypeError,
        r"predicts = Ratio speaks of rates.*choose Posterior, RawPosterior or Transition",
    ),
    (
        "time between the steps of a chain",
        lambda: un.MatrixChain(chain_steps, 2).marginal(categories, 0.3).log_probs,
        ValueError,
        r"t = 0\.3 is not on the chain's grid of 2 steps: pass one of chain\.grid",
    ),
    ("beta above 1", lambda: un.d3pm.uniform(3, [0.1, 1.5]), ValueError, r"betas must be numbers in \[0, 1\], one per step"),
    ("beta below 0", lambda: un.d3pm.absorbing(3, [-0.1]), ValueError, r"betas must be numbers in \[0, 1\]"),
    ("NaN beta", lambda: un.d3pm.gaussian(3, [NAN]), ValueError, r"betas must be numbers in \[0, 1\]"),
    ("no betas", lambda: un.d3pm.uniform(3, []), ValueError, r"one per step"),
    ("band of a step of no width", lambda: un.d3pm.banded(3, [0.1], 0), ValueError, r"width = 0 must be at least 1"),
]

TABLE = [*DATA, *CLOSED, *TIMES, *SPACES, *SCHEDULES, *GRIDS, *CONVERSIONS, *NETWORKS, *BOUNDS, *ORACLES, *NOISES, *MATRICES]


@pytest.mark.parametrize(("call", "error", "message"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_bad_input_is_named_with_its_remedy(call, error, message):
    with pytest.raises(error, match=f"(?s){message}") as caught:
        call()
    assert caught.type is error  # not a subclass by accident


def test_every_row_has_a_name_of_its_own():
    names = [row[0] for row in TABLE]
    assert sorted(set(names)) == sorted(names)


def test_values_on_an_accelerator_are_not_read():
    """A meta tensor has no values: any look at one, which would make the host wait for a device, raises."""
    t, s = (torch.zeros(4, dtype=torch.float64, device="meta") for _ in range(2))
    x, k = numbers.to("meta"), categories.to("meta")
    assert gaussian.transition(x, s, t).mean.shape == (4, 3)
    assert gaussian.posterior(x, x, s, t).mean.shape == (4, 3)
    assert gaussian.inverse((x, x), s, t)[0].shape == (4, 3)
    assert masking.transition(k, s, t).log_probs.shape == (4, 2, 4)
    assert uniform.posterior(k, k, s, t).log_probs.shape == (4, 2, 3)
    assert un.Noise(x, gaussian, x, t).to(un.Mean, s=s).value.shape == (4, 3)
    rates = un.Posterior(torch.zeros(4, 2, 3, device="meta"), uniform, k, t).to(un.Rates)
    assert rates.step(s).log_probs.shape == (4, 2, 3)
    assert rates.to(un.Posterior).logits.shape == (4, 2, 3)


def test_what_the_rows_spoil_is_good():
    """The inputs that the table alters are accepted unaltered, so every row fails for its own reason only."""
    for denoiser, x0 in ((on_numbers, numbers), (on_categories, categories), (on_uniform, categories), (on_people, people)):
        assert bool(un.bound(denoiser, x0, seed=0).total.isfinite().all())
    for denoiser, x0 in ((on_wind, angles), (on_globe, points), (on_places, {"at": points[:2], "wind": angles[:, :1]})):
        assert bool(un.bound(denoiser, x0, seed=0).total.isfinite().all())
    assert isinstance(on_people(people, {"age": 0.2, "job": 0.7}), ProductPrediction)
    nested.marginal(families, {"age": 0.5, "rest": {"job": 0.2}})
    un.Denoiser(same, un.Chain(gaussian, [0.25, 1.0]), un.Mean)(numbers, 1.0).step(0.25)
    un.Denoiser(logits(3), un.Chain(uniform, [0.25, 1.0]), un.Transition)(categories, 1.0).step(0.25)
    transition().step(0.4)
    posterior().to(un.Rates).to(un.Posterior)
    gaussian_prediction(un.Noise).to(un.Clean)
    table([1 / 9] * 9)(categories, 0.5)
    markov([1 / 3] * 3, FAIR)
    un.bound(on_numbers, numbers, decoder=decoders.DiscretisedGaussian(3), seed=0)
    mix().marginal(categories, 0.5)
    un.RateMatrix(neighbours, 2).marginal(categories, 0.5)
    un.MatrixChain(chain_steps, 2).marginal(categories, 0.5)
    un.BirthDeath(3, 2).marginal(categories, 0.5)
    un.rate_matrices.similarity(embeddings, 2)
