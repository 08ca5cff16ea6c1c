"""Noised states, targets and losses of other projects on numbers beside ours: the same x_0, noise, time and output.

    cd benchmarks; python -m peers.number_losses [--checkouts FOLDER] [--json]

The truth is the closed form, from the formulas of alpha and sigma alone.
"""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import unnoise as un
from peers.checkouts import module
from peers.table import Row, compared, main

DOUBLE = {"dtype": torch.float64}
X_0 = torch.tensor([[-0.7, 0.4], [1.1, 0.3], [0.2, -0.9]], **DOUBLE)
EPS = torch.tensor([[0.3, -1.1], [0.8, 0.5], [-0.4, 1.6]], **DOUBLE)
OUTPUT = torch.tensor([[-0.2, 0.6], [0.9, -0.3], [0.5, -0.4]], **DOUBLE)  # what a network said
T = torch.tensor([0.2, 0.5, 0.9], **DOUBLE)


def noised(schedule: un.schedules.Schedule, t: Tensor = T) -> Tensor:
    law = un.Gaussian((2,), schedule).marginal(X_0, t)
    return law.mean + law.std * EPS


def target(kind: Any, schedule: un.schedules.Schedule, t: Tensor = T) -> Tensor:
    return kind.target(un.Gaussian((2,), schedule), X_0, noised(schedule, t), t)


def loss(weighting: Any, kind: Any, schedule: un.schedules.Schedule, t: Tensor = T) -> Tensor:
    """The integrand of a weighting where the network returned OUTPUT."""
    process = un.Gaussian((2,), schedule)
    return weighting.rate(kind(OUTPUT, process, noised(schedule, t), t), process, X_0)


def squares(error: Tensor) -> Tensor:
    return error.square().flatten(1).sum(1)


def torchcfm(folder: Path) -> list[Row]:
    import torchcfm as theirs

    rows, u = [], 1 - T  # their time runs from noise to data
    pairs = {
        "independent": (theirs.ConditionalFlowMatcher(0.0), un.schedules.Linear(), 1 - T, T, -torch.ones_like(T), T * 0 + 1),
        "target": (
            theirs.TargetConditionalFlowMatcher(0.0),
            un.schedules.Linear(),
            1 - T,
            T,
            -torch.ones_like(T),
            T * 0 + 1,
        ),
        "variance preserving": (
            *(theirs.VariancePreservingConditionalFlowMatcher(0.0), un.schedules.Cosine()),
            *((torch.pi / 2 * T).cos(), (torch.pi / 2 * T).sin()),
            *(-torch.pi / 2 * (torch.pi / 2 * T).sin(), torch.pi / 2 * (torch.pi / 2 * T).cos()),
        ),
    }
    for name, (matcher, schedule, alpha, sigma, d_alpha, d_sigma) in pairs.items():
        matcher.sample_noise_like = lambda x: EPS  # the target's path has its noise from here
        _, x_t, velocity = matcher.sample_location_and_conditional_flow(EPS, X_0, t=u)
        states = alpha[:, None] * X_0 + sigma[:, None] * EPS
        slopes = d_alpha[:, None] * X_0 + d_sigma[:, None] * EPS
        rows.append(compared("torchcfm", f"{name}: x_t", noised(schedule), x_t, states))
        rows.append(compared("torchcfm", f"{name}: velocity", target(un.Flow, schedule), -velocity, slopes))
    return rows


def flow_matching(folder: Path) -> list[Row]:
    from flow_matching.path import AffineProbPath
    from flow_matching.path.scheduler import CondOTScheduler, CosineScheduler, VPScheduler

    rows, u = [], 1 - T
    for name, scheduler, schedule in (
        ("CondOT", CondOTScheduler(), un.schedules.Linear()),
        ("VP", VPScheduler(), un.schedules.LinearBeta()),
        ("cosine", CosineScheduler(), un.schedules.Cosine()),
    ):
        path, process = AffineProbPath(scheduler), un.Gaussian((2,), schedule)
        sample = path.sample(x_0=EPS, x_1=X_0, t=u)
        alpha, sigma, slope, rise = (
            c[:, None] for c in (schedule.alpha(T), schedule.sigma(T), schedule.d_alpha(T), schedule.d_sigma(T))
        )
        x_t = alpha * X_0 + sigma * EPS
        clean, noise = un.Clean(OUTPUT, process, x_t, T), un.Noise(OUTPUT, process, x_t, T)
        from_clean, from_noise = (x_t - alpha * OUTPUT) / sigma, (x_t - sigma * OUTPUT) / alpha
        at = u[:, None]
        rows += [
            compared("flow_matching", f"{name}: x_t", noised(schedule), sample.x_t, x_t),
            compared(
                "flow_matching", f"{name}: velocity", target(un.Flow, schedule), -sample.dx_t, slope * X_0 + rise * EPS
            ),
            compared(
                *("flow_matching", f"{name}: velocity of x_0", clean.to(un.Flow).value),
                *(-path.target_to_velocity(x_1=OUTPUT, x_t=x_t, t=at), slope * OUTPUT + rise * from_clean),
            ),
            compared(
                *("flow_matching", f"{name}: velocity of noise", noise.to(un.Flow).value),
                *(-path.epsilon_to_velocity(epsilon=OUTPUT, x_t=x_t, t=at), slope * from_noise + rise * OUTPUT),
            ),
        ]
    return rows


def diffusers(folder: Path) -> list[Row]:
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

    scheduler, steps = DDPMScheduler(), torch.tensor([199, 499, 899])
    betas = torch.linspace(1e-4, 0.02, 1000, **DOUBLE)
    schedule = un.schedules.FromBetas(betas)
    signal = (1 - betas).cumprod(0)[steps][:, None]
    alpha, sigma = signal.sqrt(), (1 - signal).sqrt()
    velocity: Any = scheduler.get_velocity(X_0, EPS, steps)
    return [
        compared(
            "diffusers",
            "add_noise",
            noised(schedule),
            scheduler.add_noise(X_0, EPS, steps),
            alpha * X_0 + sigma * EPS,
            inside=torch.float32,
        ),
        compared(
            "diffusers", "v target", target(un.Velocity, schedule), velocity, alpha * EPS - sigma * X_0, inside=torch.float32
        ),
    ]


def edm(folder: Path) -> list[Row]:
    theirs, rows = module("edm", "training.loss", folder, absent=["torch_utils.persistence"]), []
    image, noise = X_0.reshape(3, 2, 1, 1), EPS.reshape(3, 2, 1, 1)
    levels = torch.tensor([-0.5, 0.1, 1.3], **DOUBLE).reshape(3, 1, 1, 1)  # the normal draw behind each sigma
    sigma = (levels * 1.2 - 1.2).exp().flatten()
    schedule = un.schedules.EDM()
    t = schedule.time_of_log_snr(-2 * sigma.log())

    def network(*args: Any, **options: Any) -> Tensor:
        return OUTPUT.reshape(3, 2, 1, 1)

    with patch("torch.randn", lambda *a, **o: levels), patch("torch.randn_like", lambda *a, **o: noise):
        found = theirs.EDMLoss()(network, image).flatten(1).sum(1)
    truth = (sigma**2 + 0.25) / (0.5 * sigma) ** 2 * squares(OUTPUT - X_0)
    rows.append(compared("EDM", "EDM loss", loss(un.weightings.EDMWeighting(), un.Clean, schedule, t), found, truth))
    share = torch.tensor([0.2, 0.5, 0.9], **DOUBLE)
    with patch("torch.rand", lambda *a, **o: share.reshape(3, 1, 1, 1)), patch("torch.randn_like", lambda *a, **o: noise):
        found = theirs.VELoss()(network, image, None).flatten(1).sum(1)
    truth = squares(OUTPUT - X_0) / (0.02 * 5000**share).square()
    ours = loss(un.weightings.Simple(), un.Clean, un.schedules.VE(0.02, 100.0), share)
    return [*rows, compared("EDM", "VE loss", ours, found, truth)]


def score_sde(folder: Path) -> list[Row]:
    theirs, rows = module("score_sde_pytorch", "losses", folder, absent=["tensorflow"]), []
    lib = theirs.mutils.sde_lib
    for name, sde, schedule in (
        ("VP", lib.VPSDE(), un.schedules.LinearBeta()),
        ("sub-VP", lib.subVPSDE(), un.schedules.SubVP()),
    ):
        sigma, g2 = schedule.sigma(T), schedule.diffusion(T)
        for likelihood in (True, False):
            found = []
            for i in range(3):  # their loss is the mean of a batch
                chosen = slice(i, i + 1)
                lossy = theirs.get_sde_loss_fn(sde, False, reduce_mean=False, likelihood_weighting=likelihood, eps=0.0)
                model = _Fixed(OUTPUT[chosen].reshape(1, 2, 1, 1))
                draws = patch("torch.rand", lambda *a, c=chosen, **o: T[c])
                with draws, patch("torch.randn_like", lambda *a, c=chosen, **o: EPS[c].reshape(1, 2, 1, 1)):
                    found.append(lossy(model, X_0[chosen].reshape(1, 2, 1, 1)))
            weighting = un.weightings.Bound() if likelihood else 0.5 * un.weightings.Simple()
            weight = g2 / sigma.square() if likelihood else torch.ones_like(T)
            what = f"{name}, {'likelihood' if likelihood else 'plain'} weighting"
            ours = loss(weighting, un.Noise, schedule)
            rows.append(compared("score_sde", what, ours, torch.stack(found), 0.5 * weight * squares(OUTPUT - EPS)))
    return rows


class _Fixed(torch.nn.Module):
    """A network that says one thing."""

    def __init__(self, output: Tensor):
        super().__init__()
        self.output = output

    def forward(self, *args: Any) -> Tensor:
        return self.output


def azula(folder: Path) -> list[Row]:
    from azula.denoise import SimpleDenoiser
    from azula.noise import CosineSchedule

    schedule, found = un.schedules.Cosine(), []
    for i in range(3):
        with patch("torch.randn_like", lambda *a, i=i, **o: EPS[i : i + 1]):
            fixed = _Fixed(OUTPUT[i : i + 1])
            fixed.weight = torch.nn.Parameter(torch.zeros(1, **DOUBLE))
            found.append(SimpleDenoiser(fixed, CosineSchedule(0.0, 0.0)).loss(X_0[i : i + 1], T[i : i + 1]) * 2)
    turn = torch.pi / 2 * T
    truth = squares(OUTPUT - X_0) / turn.sin().square()
    ours = loss(un.weightings.X0() + un.weightings.Simple(), un.Clean, schedule)
    return [compared("azula", "denoising loss", ours, torch.stack(found), truth)]


def moco(folder: Path) -> list[Row]:
    from bionemo.moco import interpolants
    from bionemo.moco.distributions.prior import GaussianPrior
    from bionemo.moco.distributions.time import UniformTimeDistribution
    from bionemo.moco.schedules.noise.continuous_snr_transforms import CosineSNRTransform

    cfm = interpolants.ContinuousFlowMatcher(UniformTimeDistribution(), GaussianPrior(), prediction_type="velocity")
    line, turn, schedule = un.schedules.Linear(), torch.pi / 2 * T, un.schedules.Cosine()
    vdm = interpolants.VDM(UniformTimeDistribution(), GaussianPrior(), CosineSNRTransform(s=0.0))
    rows = [
        compared(
            "moco", "flow: x_t", noised(line), cfm.interpolate(X_0, 1 - T, EPS), (1 - T)[:, None] * X_0 + T[:, None] * EPS
        ),
        compared("moco", "flow: velocity", target(un.Flow, line), -cfm.calculate_target(X_0, EPS), EPS - X_0),
    ]
    slope = torch.pi / 2 * turn.cos() / turn.sin() ** 3  # -d cot^2(pi t/2)/dt, halved
    found = 2 * vdm.loss(OUTPUT, X_0, T.clone(), weight_type="variational_objective_continuous_data")
    bound = loss(un.weightings.Bound(), un.Clean, schedule)
    rows.append(compared("moco", "VDM: bound by x_0", bound, found, slope * squares(OUTPUT - X_0)))
    found = 2 * vdm.loss(OUTPUT, EPS, T.clone(), weight_type="variational_objective_continuous_noise")
    bound = loss(un.weightings.Bound(), un.Noise, schedule)
    rows.append(compared("moco", "VDM: bound by noise", bound, found, slope * turn.tan().square() * squares(OUTPUT - EPS)))
    process, s = un.Gaussian((2,), schedule), T - 0.1
    said = un.Noise(OUTPUT, process, noised(schedule), T)
    ours = 2 * un.divergence(process.reverse(said.x_t, X_0, T), said, s)
    ratio = (turn.tan() / (torch.pi / 2 * s).tan()).square()  # SNR_s/SNR_t
    found = 2 * vdm.loss(OUTPUT, EPS, T, dt=0.1, weight_type="variational_objective_discrete")
    why = "theirs is divided by SNR_s/SNR_t"
    return [
        *rows,
        compared("moco", "VDM: twice a step's KL by noise", ours, found, (ratio - 1) * squares(OUTPUT - EPS), why),
    ]


if __name__ == "__main__":
    main(__doc__, [torchcfm, flow_matching, diffusers, edm, score_sde, azula, moco])
