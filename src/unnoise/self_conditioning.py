"""Self-conditioning: a network that is shown its own first estimate of x_0, as a function of (x_t, t) alone.

    previous = E[x_0 | x_t] by network(x_t, t),      prediction = network(x_t, t, previous=previous),

both at the same (x_t, t).  `previous` is always an estimate of the clean data, whatever the network predicts: numbers as
they are (a velocity is converted), categories as probabilities [..., size].  A call costs two evaluations of the network.

Because nothing is carried from one step of a sampler to the next, the result is a denoiser like any other: bounds are
bounds, and every sampler and likelihood applies.  An estimate carried along the chain would save the first evaluation, but
then the reverse step depends on the whole path, while the bound compares kernels of x_t alone and would bound nothing.

The first estimate is a constant as far as the weights are concerned: no gradient reaches them through it, so nothing of the
first pass is kept in memory.  It still depends on x_t: derivatives by the state (the divergence of a flow) are whole.
In training half of the updates make one pass (`one_pass`), so that the first estimate is trained too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from unnoise.predictions.kinds import admitted_kinds
from unnoise.processes import Process
from unnoise.shapes import Clock, Tree


def check_kinds(process: Process, kinds: Any) -> None:
    """Refuse predictions without an estimate of the clean data: noise and scores say nothing of x_0 where alpha = 0."""
    process = process.base
    if isinstance(kinds, dict):
        for name, kind in kinds.items():
            check_kinds(process.leaves[name], kind)
    elif kinds.joint or not kinds.tells_clean(process):
        telling = [] if process.leaves else [kind for kind in admitted_kinds(process) if kind.tells_clean(process)]
        choice = ", ".join(kind.__name__ for kind in telling) or "of every leaf"
        raise TypeError(f"self_condition=True with predicts = {kinds.__name__}: it needs an estimate of x_0 ({choice})")


def first_pass(network: nn.Module, x_t: Tree, t: Clock, condition: dict[str, Any]) -> Tree:
    """The network's output, a constant as far as its weights are concerned."""
    if not torch.is_grad_enabled():
        return network(x_t, t, **condition)
    fixed = {name: parameter.detach() for name, parameter in network.named_parameters()}
    return torch.func.functional_call(network, fixed, (x_t, t), condition)


@contextmanager
def one_pass(denoiser: Any) -> Iterator[None]:
    """The denoiser without its second pass, for the length of a `with`."""
    passes, denoiser.passes = denoiser.passes, 1
    try:
        yield
    finally:
        denoiser.passes = passes
