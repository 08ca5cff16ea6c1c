"""The host waits for nothing on the device: neither training nor a fixed grid asks it a question or hands it a number.

A `meta` tensor has no values, and is not on the CPU: all that a run on an accelerator would have to wait for fails on it (to
read a value, to list where something is true), or is seen as a copy from one device to the other.  Counts without end are
left out: how far their laws reach depends on the data, and is asked.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import unnoise as un
from unnoise.networks.presets import default_network
from unnoise.objectives import Observed, Stratified
from unnoise.self_conditioning import one_pass

META = torch.device("meta")
ROWS = 4


class Copies(TorchDispatchMode):
    """Notes copies between devices, made after the first call has moved what it keeps."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        source = args[1] if function is torch.ops.aten.copy_.default else args[0] if args else None
        moves = function in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
        if moves and isinstance(source, torch.Tensor) and source.device != out.device:
            self.found.append((str(function), tuple(source.shape)))
        return out


def empty(process):
    """Data without values."""
    leaf = process.prior(ROWS, torch.float32).draw(un.NoiseSource(0, ROWS))
    return un.tree.map_leaves(lambda x: x.to(META), leaf)


PROCESSES = {
    "masking": lambda: un.Masking(5, (6,)),
    "masking by columns": lambda: un.Masking([2, 3, 4], (3,)),
    "masking of many": lambda: un.Masking(2000, (6,)),  # a head that is too large to visit all
    "masking images": lambda: un.Masking(4, (8, 8)),
    "uniform": lambda: un.Uniform(5, (6,)),
    "uniform of many": lambda: un.Uniform(2000, (6,)),
    "uniform by columns": lambda: un.Uniform([2, 3, 4], (3,)),
    "ordinals": lambda: un.RateMatrix(un.rate_matrices.nearest_neighbour(4), (8, 8), un.schedules.Cosine(), method="eigen"),
    "numbers": lambda: un.Gaussian((3,)),
    "images": lambda: un.Gaussian((8, 8)),
    "table": lambda: un.Product(a=un.Gaussian((1,)), c=un.Masking([2, 3, 4], (3,))),
}


def denoiser_on_meta(process, **options):
    network = default_network(process, "tiny", **options)
    twice = bool(options.get("self_condition"))
    return un.Denoiser(network, process, un.predictions.default_kind(process), self_condition=twice).to(META)


def updated(objective, x0, step):
    objective(x0, un.NoiseSource(0, torch.arange(ROWS, device=META)).at("step", step)).loss.mean().backward()


def copies_of(objective, x0):
    """What an update copies from one device to the other, once the first has moved what is kept."""
    updated(objective, x0, 0)
    with Copies() as copies:
        updated(objective, x0, 1)
    return copies.found


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("half", [False, True])
def test_an_update_waits_for_nothing(name, half):
    process = PROCESSES[name]()
    x0 = empty(process)
    objective = un.Objective(denoiser_on_meta(process))
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        assert not copies_of(objective, x0)


def test_nor_with_leaves_observed():
    process = PROCESSES["table"]()
    objective, x0 = Observed(denoiser_on_meta(process), 0.5), empty(process)
    assert not copies_of(objective, x0)


@pytest.mark.parametrize("weighting", [un.weightings.Balanced(), un.weightings.MinSNR()])
def test_nor_under_a_weighting_with_a_decoder(weighting):
    process = PROCESSES["images"]()
    decoder = un.decoders.DiscretisedGaussian(levels=17)
    objective = un.Objective(denoiser_on_meta(process, bin=2 / 17), weighting, decoder=decoder, cutoff=1e-3)
    x0 = empty(process)
    assert not copies_of(objective, x0)


def test_nor_under_cross_entropy():
    process = PROCESSES["ordinals"]()
    x0 = empty(process)
    objective = un.Objective(denoiser_on_meta(process), un.weightings.CrossEntropy(), times=Stratified())
    objective.loss_only = True
    assert not copies_of(objective, x0)


def test_nor_under_cross_entropy_of_many():
    process = PROCESSES["masking of many"]()
    x0 = empty(process)
    objective = un.Objective(denoiser_on_meta(process), un.weightings.CrossEntropy())
    assert not copies_of(objective, x0)


def test_nor_with_self_conditioning():
    process = PROCESSES["masking"]()
    denoiser, x0 = denoiser_on_meta(process, self_condition=True), empty(process)
    objective = un.Objective(denoiser)
    updated(objective, x0, 0)
    with Copies() as copies:
        updated(objective, x0, 1)
        with one_pass(denoiser):
            updated(objective, x0, 2)
    assert not copies.found


@pytest.mark.parametrize("name", ["masking", "uniform", "ordinals", "numbers", "table"])
def test_a_fixed_grid_hands_over_its_times_and_nothing_else(name):
    """More steps make no more copies."""
    process = PROCESSES[name]()
    denoiser = denoiser_on_meta(process).requires_grad_(False)
    made = []
    for steps in (4, 4, 12):  # the first moves what is kept
        with Copies() as copies:
            un.sample(denoiser, n=ROWS, steps=steps, sampler=un.samplers.Ancestral(), device=META, seed=0)
        made.append(len(copies.found))
    assert made[1] == made[2] <= 3


def test_nor_do_rows_with_grids_of_their_own():
    process = PROCESSES["table"]()
    denoiser = denoiser_on_meta(process).requires_grad_(False)
    made = []
    for steps in (4, 4, 12):
        with Copies() as copies:
            _, info = un.sample(denoiser, n=ROWS, steps=steps, device=META, seed=0)
        made.append(len(copies.found))
        assert info.calls == steps + 3
    assert made[1] == made[2] <= 5


def test_questions_and_copies_are_noticed():
    process = PROCESSES["numbers"]()
    denoiser, x0 = denoiser_on_meta(process), empty(process)

    class Asks(torch.nn.Module):
        def __init__(self, network):
            super().__init__()
            self.network = network

        def forward(self, x, t):
            return self.network(x, t) * (2.0 if bool((x > 0).any()) else 1.0)

    class Hands(Asks):
        def forward(self, x, t):
            return self.network(x, t) * torch.tensor([1.0, 2.0, 3.0]).to(x.device)

    asking, handing = (un.Denoiser(kind(denoiser.network), process, denoiser.kinds) for kind in (Asks, Hands))
    with pytest.raises((RuntimeError, NotImplementedError)):
        updated(un.Objective(asking), x0, 0)
    assert copies_of(un.Objective(handing), x0)
