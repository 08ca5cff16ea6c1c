"""Other libraries: left out where they are not installed, called as their loops go where they are."""

import sys
from types import ModuleType, SimpleNamespace

import torch

from unnoise.bench.bodies import PlainPerceptron, PlainTransformer
from unnoise.bench.peers import DIFFUSERS, diffusers_run, flow_matching_run


def module(monkeypatch, name, **members):
    made = ModuleType(name)
    vars(made).update(members)
    monkeypatch.setitem(sys.modules, name, made)


def test_what_is_not_installed_has_no_entry(monkeypatch):
    for name in ("diffusers", "flow_matching"):
        monkeypatch.setitem(sys.modules, name, None)
    x = torch.zeros(2, 4)
    assert all(diffusers_run(name, PlainPerceptron(4, 8), x, 2) == {} for name in DIFFUSERS)
    assert flow_matching_run(PlainTransformer(5, 4, 8, 1), x.long(), 5, 2) == {}


def test_a_scheduler_is_stepped_once_for_each_of_its_times(monkeypatch):
    class Halving:
        """x_s = x_t - prediction / 2 at the times 1000, 500."""

        def __init__(self, clip_sample):
            assert clip_sample is False

        def set_timesteps(self, steps, device):
            self.timesteps = torch.linspace(1000, 1000 / steps, steps)

        def step(self, predicted, t, x):
            return SimpleNamespace(prev_sample=x - predicted / 2)

    for name in ("diffusers", "diffusers.schedulers"):
        module(monkeypatch, name)
    module(monkeypatch, "diffusers.schedulers.scheduling_ddpm", DDPMScheduler=Halving)

    class Times(torch.nn.Module):
        def forward(self, x, t):
            return x * t.unsqueeze(1)

    run = diffusers_run("DDPMScheduler", Times(), torch.ones(3, 2), 2)["diffusers"]
    assert run().tolist() == [[0.375, 0.375]] * 3  # (1 - 1/2) (1 - 1/4)
    assert run().tolist() == [[0.375, 0.375]] * 3


def test_the_euler_solver_is_given_probabilities_without_a_mask(monkeypatch):
    seen = {}

    class Wrapper(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

    class Solver:
        def __init__(self, model, path, vocabulary_size):
            seen.update(model=model, size=vocabulary_size)

        def sample(self, x_init, step_size, time_grid):
            seen.update(step=step_size, ends=time_grid.tolist())
            return seen["model"](x_init, torch.tensor(0.5))

    module(monkeypatch, "flow_matching")
    module(monkeypatch, "flow_matching.path", MixtureDiscreteProbPath=lambda scheduler: None)
    module(monkeypatch, "flow_matching.path.scheduler", PolynomialConvexScheduler=lambda n: None)
    module(monkeypatch, "flow_matching.solver", MixtureDiscreteEulerSolver=Solver)
    module(monkeypatch, "flow_matching.utils", ModelWrapper=Wrapper)
    network = PlainTransformer(5, 4, 8, 1).eval()
    x = torch.full((2, 4), 5)
    p = flow_matching_run(network, x, 5, 8)["flow_matching"]()
    assert p.shape == (2, 4, 6) and seen["size"] == 6 and seen["step"] == 1 / 8
    assert torch.equal(p[..., 5], torch.zeros(2, 4))
    torch.testing.assert_close(p[..., :5], network(x, torch.full((2,), 0.5)).softmax(-1))
