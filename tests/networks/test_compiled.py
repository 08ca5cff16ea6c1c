"""Networks that are compiled for a while."""

import pytest
import torch

import unnoise as un
from unnoise.networks.compiled import compile_network, compiled
from unnoise.networks.precision import in_precision
from unnoise.networks.presets import default_network

PROCESSES = {
    "columns": lambda: un.Product(a=un.Gaussian((1,)), c=un.Masking([2, 3], (2,))),
    "sequences": lambda: un.Masking(5, (6,)),
    "images": lambda: un.Masking(4, (8, 8)),
}


def parts(network):
    return [part for part in network.modules() if part._compiled_call_impl is not None]


@pytest.mark.parametrize("name", PROCESSES)
def test_a_network_is_as_it_was_when_it_is_over(name):
    process = PROCESSES[name]()
    network = default_network(process, "tiny")
    before = set(vars(network))
    denoiser = in_precision(un.Denoiser(network, process, un.predictions.default_kind(process)), "bf16")
    with pytest.raises(KeyError), compiled(denoiser.network):
        assert parts(network)
        raise KeyError
    assert not parts(network) and set(vars(network)) == before


def test_what_was_compiled_before_stays_so():
    network = default_network(PROCESSES["columns"](), "tiny")
    compile_network(network)
    own = parts(network)
    with compiled(network):
        assert parts(network) == own
    assert parts(network) == own


def test_what_cannot_be_compiled_runs_as_it_is_written():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return x + 1

    def refuses(graph, inputs):
        raise RuntimeError("there is no compiler here")

    network = Odd()
    with compiled(network):
        network.compile(backend=refuses)
        assert torch.equal(network(torch.zeros(3)), torch.ones(3))
    torch._dynamo.reset()
