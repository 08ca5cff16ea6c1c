"""The bound of a path of finite speed.

q(x_1, v_1 | x_0) has atoms or lies on a curve, so that a divergence from a prior with a density is infinite.  But a path of
the forward process and one of the model's reverse have densities of one another: flows that keep volumes cancel, and there
remain the jumps and the times without any,

    -log p(x_0) <= E[ log q(v_0) - log p(x_1, v_1)  +  sum_jumps log lambda(before)/u(after)  +  int (u - lambda) dt ]

with u the model's reverse rate; with the densities of where a jump leads in the logarithm, where that is drawn.  There is no
reconstruction: paths end on the data.  With the exact reverse and prior it is -log q(x_0) *along every path*.

The integral over a piece between jumps is a Gauss rule on short parts of it.  With `visits` times of a path the whole is
estimated at those alone, a jump of the path being as likely as its rate says (the phi-loss of ratio matching, with its
constants):

    E int [ u(z) - lambda(z) + sum_jumps lambda(z -> y) log lambda(z -> y)/u(y -> z) ] dt
"""

import numpy as np
import torch
from torch import Tensor

from unnoise.conditions import rows_of
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.objectives.path_bound import path_bound_of
from unnoise.objectives.terms import Terms
from unnoise.predictions.flip_ratios import FlightPrediction
from unnoise.processes.finite_speed import FiniteSpeed, Flights
from unnoise.shapes import Float

NODES = 6  # of the rule over a part of a piece


def gauss(count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(count)
    return torch.from_numpy((x + 1) / 2), torch.from_numpy(w / 2)


@path_bound_of.register
def flight_terms(process: FiniteSpeed, denoiser: AnyDenoiser, x0: Tensor, noise: NoiseSource, condition: dict) -> Terms:
    """Of one forward path from each row."""
    with torch.no_grad():
        flights = process.flights(x0, noise.at("path"))
        end, start = flights.end, flights.states[:, 0]
        prior = process.prior(len(x0), x0.dtype, x0.device).log_prob(end).double()
        prior = process.log_start(start[:, 1]) - prior
    if process.visits is None:
        diffusion = whole_path(process, denoiser, flights, condition)
    else:
        diffusion = visited_path(process, denoiser, flights, noise.at("visits"), condition)
    return Terms({"prior": prior, "diffusion": diffusion, "reconstruction": torch.zeros_like(prior)}, is_bound=True)


def asked(denoiser: AnyDenoiser, z: Tensor, t: Tensor, row: Tensor, condition: dict) -> FlightPrediction:
    return denoiser(z, t, **rows_of(condition, row))  # type: ignore[return-value]


def whole_path(process: FiniteSpeed, denoiser: AnyDenoiser, flights: Flights, condition: dict) -> Float[Tensor, "batch"]:
    """All jumps, and the integral over every piece."""
    total = torch.zeros_like(flights.times[:, 0])
    lengths = flights.ends() - flights.times
    row, piece = (lengths > 0).nonzero(as_tuple=True)
    row, piece, begin, length = in_parts(row, piece, flights.times[row, piece], lengths[row, piece], process.longest)
    z = process.flow(flights.states[row, piece], begin - flights.times[row, piece])
    for node, weight in zip(*gauss(NODES), strict=True):
        here = process.flow(z, node * length)
        rate = asked(denoiser, here, begin + node * length, row, condition).exit_rate() - process.exit_rate(here)
        total = total.index_add(0, row, weight * length * rate)
    row, piece = (flights.marks >= 0).nonzero(as_tuple=True)
    if not len(row):
        return total
    before = process.flow(flights.states[row, piece], lengths[row, piece])
    after = asked(denoiser, flights.states[row, piece + 1], flights.times[row, piece + 1], row, condition)
    return total.index_add(0, row, after.log_ratio(before, flights.marks[row, piece]))


def in_parts(
    row: Tensor, piece: Tensor, begin: Tensor, length: Tensor, longest: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pieces cut into equal parts that are short enough for the rule."""
    count = (length / longest).ceil().long()
    place = torch.arange(int(count.sum()), device=row.device) - (count.cumsum(0) - count).repeat_interleave(count)
    row, piece, begin, part = (value.repeat_interleave(count) for value in (row, piece, begin, length / count))
    return row, piece, begin + place * part, part


def visited_path(
    process: FiniteSpeed, denoiser: AnyDenoiser, flights: Flights, noise: NoiseSource, condition: dict
) -> Float[Tensor, "batch"]:
    """At a time in each of equal parts of the path, and at a jump from there."""
    count = int(process.visits or 1)
    total = torch.zeros_like(flights.times[:, 0])
    row = torch.arange(len(total), device=total.device)
    for k, u in enumerate(noise.at("times").uniform((count,)).T):
        t = (k + u) / count
        with torch.no_grad():
            z = process.at(flights, t)
            y, mark, rate = process.trial(z, noise.at("jump", k))
        here = asked(denoiser, z, t, row, condition).exit_rate() - process.exit_rate(z)
        total = total + here + rate * asked(denoiser, y, t, row, condition).log_ratio(z, mark)
    return total / count
