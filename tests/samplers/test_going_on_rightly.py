"""What a run is given beside the model: where rows start, what a callback hands back, how a method is named."""

from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.samplers import Memory, State, registry
from unnoise.samplers.run_grid import checked_start
from unnoise.samplers.sample import refused, row_numbers

F64 = torch.float64
X = torch.tensor([[0.5, -1.0], [0.2, 0.3], [1.0, 1.5], [-0.7, 0.1]], dtype=F64)


class Shrink(nn.Module):
    def forward(self, x, t):
        return torch.tanh(x) * (1 + t).unsqueeze(1)


def denoiser(process=None):
    return un.Denoiser(Shrink(), un.Gaussian((2,)) if process is None else process)


CHAIN = un.Chain(un.Gaussian((2,)), torch.tensor([0.01, 0.25, 0.5, 0.75, 1.0], dtype=F64))


@pytest.mark.parametrize("options", [{}, {"grid": [1.0, 0.5, 0.0]}])
def test_a_start_in_a_tensor_of_no_axis_is_one_start(options):
    """It was left out where the grid has ends of its own, and the run began at t = 1."""
    half = torch.tensor(0.5)
    with pytest.raises(ValueError, match="start = 0.5.*has its own ends"):
        un.sample(denoiser(CHAIN if not options else None), x=X, start=half, seed=0, **options)
    same = [un.sample(denoiser(), x=X, start=start, steps=4, seed=0)[0] for start in (half, 0.5)]
    assert torch.equal(*same)


def test_rows_enter_a_chain_at_its_own_times():
    model = denoiser(CHAIN)
    with pytest.raises(ValueError, match="t = 0.51 is not on the chain's grid"):
        un.sample(model, x=X, start=torch.tensor([1.0, 0.51, 0.5, 0.25]), seed=0)
    found, _ = un.sample(model, x=X, start=torch.tensor([1.0, 0.5, 0.5, 0.25]), seed=0)
    alone, _ = un.sample(model, x=X[1:3], grid=[0.5, 0.25, 0.01], seed=0, rows=torch.tensor([1, 2]))
    assert torch.equal(found[1:3], alone)


def test_starts_of_no_rows_and_of_no_tensor():
    assert un.sample(denoiser(), x=torch.zeros(0, 2), start=torch.zeros(0))[0].shape == (0, 2)
    with pytest.raises(TypeError, match=r"start = \[1.0, 0.5\]: pass a number, or a tensor"):
        checked_start([1.0, 0.5])


def test_a_state_without_its_memory_is_refused():
    def forgetful(i, t, state):
        return State(state.x)

    def cut(i, t, state):
        return replace(state, memory=state.memory.rows(torch.tensor([0])))

    with pytest.raises(TypeError, match="remembers NoneType, but the method goes on from Past"):
        un.sample(denoiser(), x=X, steps=4, seed=0, callback=forgetful)
    with pytest.raises(ValueError, match=r"4 rows with a memory of \[1\]"):
        un.sample(denoiser(), x=X, steps=4, seed=0, callback=cut)
    assert un.sample(denoiser(), x=X, steps=4, sampler=un.samplers.Ancestral(), callback=forgetful)[0].shape == X.shape


@dataclass(frozen=True)
class Scale(Memory):
    scale: torch.Tensor


def test_a_memory_of_one_number_for_all_rows_has_no_rows():
    with pytest.raises(TypeError, match="a memory holds a Tensor, which has no rows"):
        State(X, Scale(torch.tensor(2.0))).rows(torch.tensor([1, 0]))


def test_rows_are_numbered_by_whole_numbers():
    """Numbers that are rounded down would give two samples the same noise."""
    with pytest.raises(TypeError, match="rows has dtype torch.float32"):
        row_numbers(torch.tensor([0.5, 0.7]), 0, 2, "cpu")
    assert row_numbers(torch.tensor([3, 1]), 0, 2, "cpu").tolist() == [3, 1]


@pytest.mark.parametrize("method", [un.samplers.DDIM, "DDIM"])
def test_what_is_no_method_is_named(method):
    with pytest.raises(TypeError, match=r"is no method: pass one, such as un.samplers.DDIM\(\)"):
        refused(method, un.Gaussian((2,)))


class Own(un.Gaussian):
    pass


def test_a_default_that_is_no_plan_is_named():
    un.samplers.default_sampler.register(Own)(lambda process, steps=None: un.samplers.DDIM())
    with pytest.raises(TypeError, match=r"default_sampler of Own returned .*: return Plan\(method, steps\)"):
        un.sample(denoiser(Own((2,))), 2)


def test_registering_without_a_name():
    """The class would be lost: what stands in its place is the decorator."""
    with pytest.raises(TypeError, match=r"write @register_sampler\('Mine'\)"):

        @un.samplers.register_sampler
        class Mine(un.samplers.Ancestral):
            pass


def test_an_installed_sampler_that_cannot_be_imported(monkeypatch):
    broken = EntryPoint("Broken", "no_such_module_of_anyone:Broken", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda **which: [broken])
    with pytest.raises(ImportError, match="offers the sampler 'Broken', and no_such_module_of_anyone:Broken cannot"):
        registry.method_named("Broken")
