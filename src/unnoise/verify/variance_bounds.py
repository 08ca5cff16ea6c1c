"""Bounds of Gaussian data by the reverse variance of a chain."""

from collections.abc import Iterator
from typing import Any, cast

import torch

from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.objectives import bound
from unnoise.oracles import Oracle
from unnoise.predictions import ContinuousPrediction, variances
from unnoise.processes import Chain, Gaussian
from unnoise.shapes import Clock, Tree
from unnoise.verify.bounds import DISCRETE, IDENTITY, prior_mismatch
from unnoise.verify.gaussian_kernels import normal_data
from unnoise.verify.guard import guarded
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject


@guarded("bounds of Gaussian data by reverse variance")
def variance_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    """Gaussian data: with the optimal reverse variance the T-step bound is exact for every T; any other is above it."""
    process = cast(Gaussian, subject.process)
    if process.schedule.shape:
        return
    oracle = normal_data(process)
    x = oracle.draw(NoiseSource(40, 64))  # a mean over data: of few the other variance may happen to do better
    chain = Chain(process, torch.linspace(0.1, 1.0, 5, dtype=torch.float64))
    exact = -oracle.log_prob(x) + prior_mismatch(oracle, process, x)
    place = Place(subject.name, "Clean", DISCRETE)
    totals = {}
    for name, choice in (
        ("posterior", variances.PosteriorVariance()),
        ("forward", variances.ForwardVariance()),
        ("optimal", variances.OptimalVariance(oracle.clean_variance)),
    ):
        totals[name] = bound(_WithVariance(oracle, chain, choice), x, exact=True, decoder=oracle.decoder).total
    yield place.equal("4-step bound of Gaussian data, optimal variance", exact, totals["optimal"], IDENTITY)
    for name in ("posterior", "forward"):
        yield place.at_most(
            f"optimal variance <= {name} variance, mean over x", totals[name].mean(), totals["optimal"].mean()
        )


class _WithVariance(AnyDenoiser):
    """An oracle on a chain with a chosen reverse variance."""

    def __init__(self, oracle: Oracle, chain: Chain, variance: variances.Variance):
        super().__init__()
        self.oracle, self.process, self.variance = oracle.predicting(None, chain), chain, variance

    def forward(self, x_t: Tree, t: Clock, /, **condition: Any) -> ContinuousPrediction:
        prediction = cast(ContinuousPrediction, self.oracle(x_t, t))
        prediction.variance = self.variance
        return prediction
