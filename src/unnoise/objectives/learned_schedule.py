"""Fitting a learned schedule to a network: its ends by the bound, its interior by the variance of the bound's estimate.

Let D be the diffusion term of one example at drawn (x_0, t, eps).  Both draws are free of the schedule, which enters through
x_t = alpha_t x_0 + sigma_t eps and the weight -log_snr'(t)/2, so gradients pass along the path of a draw.  With
E[D] = 1/2 int_low^high E|eps - eps_model|^2 dl free of the interior (see `schedules.learned`),

    grad Var[D] = grad E[D^2] - 2 E[D] grad E[D] = grad E[D^2] = E[grad D^2],

and the gradient of D^2 at a draw is an unbiased estimate of it.  The ends descend the bound itself.

That E[D] is free of the interior asks for one schedule, for a network that sees time as log-SNR, and for cut-off 0 (else
the data end of the integral is log_snr(cutoff), which the interior moves).  Where it does not hold (a schedule per
coordinate, a product, a network of t) what is descended is E[D^2] = Var[D] + E[D]^2, the two together.

The schedule takes over the work of grading the times, so the objective's rule should be uniform in t: `Stratified()`.
"""

import torch
from torch import Tensor, nn

from unnoise.checks import instance_of
from unnoise.conditions import Condition, checked, rows_of
from unnoise.noise import NoiseSource
from unnoise.objectives.bound import Objective
from unnoise.objectives.leaves import leaves_of
from unnoise.processes import Process
from unnoise.schedules import Learned
from unnoise.shapes import Float, Tree
from unnoise.tree import first_leaf
from unnoise.tree import rows as some_rows


def _learned(objective: Objective) -> list[Learned]:
    """The schedules to fit; refuses an objective whose estimate has no variance to lower, or no path to differentiate."""
    process = objective.denoiser.process
    for _, leaf in leaves_of(process.base):
        if not leaf.reparametrised and _schedules(leaf):
            raise TypeError(
                f"{type(leaf).__name__} has a learned schedule, but its drawn states jump and have no derivative: "
                f"fit the schedule of a Gaussian process"
            )
    if process.grid is not None:
        raise TypeError(
            "the bound of a chain depends on the whole schedule, at every step: train it through objective(x0).loss, "
            "or fit the schedule in continuous time and build the Chain on it"
        )
    if objective.exact:
        raise ValueError("exact=True leaves the estimate no variance to lower: build the Objective without it")
    if not objective.weighting.is_bound:
        raise ValueError(
            f"the weighting {type(objective.weighting).__name__} is no bound, and depends on the whole schedule: "
            f"leave the weighting out to fit the schedule"
        )
    found = _schedules(process)
    if not found:
        raise TypeError(
            f"{type(process).__name__} has no learned schedule: build it on one, as in Gaussian((2,), schedules.Learned())"
        )
    if not any(p.requires_grad for schedule in found for p in schedule.parameters()):
        raise ValueError("the learned schedule is frozen: call schedule.requires_grad_(True) to fit it")
    return found


def _schedules(process: Process) -> list[Learned]:
    return [part for part in process.modules() if isinstance(part, Learned)]


@torch.enable_grad()
def fit_schedule(
    objective: Objective,
    data: Tree,
    steps: int = 300,
    batch: int = 256,
    lr: float = 0.1,
    seed: int | None = None,
    condition: Condition | None = None,
) -> dict[str, Float[Tensor, "steps"]]:
    """Train the learned schedules of the objective's process, and nothing else, on batches drawn from the data.

    Adam, with a rate that falls to 0.  Returns what each step saw in its batch: the mean `bound` in nats, and the `variance`
    of the diffusion term.  Without a seed rows and noise are fresh.
    """
    schedules = _learned(instance_of(objective, Objective, "objective", "un.Objective(denoiser)"))
    data = objective.denoiser.space.check(data, "data")
    leaf = first_leaf(data)
    if steps < 1 or batch < 2 or not lr > 0:
        raise ValueError(f"steps = {steps}, batch = {batch}, lr = {lr}: need a step, two rows in a batch, and lr > 0")
    if not leaf.shape[0]:
        raise ValueError("data has no rows: pass at least one example")
    given = checked(condition, leaf.shape[0])
    ends: list[nn.Parameter] = [p for schedule in schedules for p in schedule.ends()]
    interior: list[nn.Parameter] = [p for schedule in schedules for p in schedule.interior()]
    optimiser = torch.optim.Adam([*ends, *interior], lr=lr)
    source = NoiseSource.fresh(batch, leaf.device) if seed is None else NoiseSource(seed, batch, leaf.device)
    bounds, variances = [], []
    for step in range(steps):
        noise = source.at(step)
        rows = (noise.at("rows").uniform() * leaf.shape[0]).long()
        result = objective(some_rows(data, rows), noise=noise, condition=rows_of(given, rows))
        losses = ((result.total.mean(), ends), (result.diffusion.square().mean(), interior))
        for loss, parameters in losses:
            if parameters:
                gradients = torch.autograd.grad(loss, parameters, retain_graph=True)
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.grad = gradient
        optimiser.param_groups[0]["lr"] = lr * (1 - step / steps)
        optimiser.step()
        optimiser.zero_grad()
        bounds.append(result.total.detach().mean())
        variances.append(result.diffusion.detach().var())
    return {"bound": torch.stack(bounds).cpu(), "variance": torch.stack(variances).cpu()}
