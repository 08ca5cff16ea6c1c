"""Sequence to sequence: a source is told as tokens, and what is drawn follows it, place by place."""

from math import log

import pytest
import torch

import unnoise as un
from unnoise.networks import ConditionInput

SIZE, LENGTH = 4, 6
SWAPPED = torch.tensor([2, 0, 3, 1])  # each letter of the source stands for another, and the word is read backwards
SOURCE = ConditionInput(name="source", size=SIZE, shape=[LENGTH], sequence=True)
SMALL = {"size": SIZE, "length": LENGTH, "width": 32, "layers": 2, "heads": 2, "time": False}


def network(**more):
    return un.networks.build("SequenceTransformer", {**SMALL, "conditions": [SOURCE], **more}, seed=0)


def translated(source):
    return SWAPPED[source].flip(1)


@pytest.fixture(scope="module")
def model():
    denoiser = un.Denoiser(network(), un.Masking(SIZE, (LENGTH,)))
    objective, g = un.Objective(denoiser), torch.Generator().manual_seed(0)
    optimiser = torch.optim.AdamW(denoiser.parameters(), lr=5e-3)
    for step in range(160):
        source = torch.randint(SIZE, (128, LENGTH), generator=g)
        told = torch.where(torch.rand(128, 1, generator=g) < 0.2, -1, source)
        optimiser.zero_grad()
        noise = un.NoiseSource(0, 128).at("step", step)
        objective(translated(source), noise, {"source": told}).loss.mean().backward()
        optimiser.step()
    return denoiser.eval()


@torch.no_grad()
def test_a_translation_is_learned(model):
    source = torch.randint(SIZE, (200, LENGTH), generator=torch.Generator().manual_seed(1))
    x, _ = un.sample(model, n=200, sampler=un.samplers.FirstHitting(), seed=0, condition={"source": source})
    assert float((x == translated(source)).double().mean()) > 0.95
    told = {"source": source}
    bound = float(un.bound(model, translated(source), seed=0, condition=told).total.mean())
    nothing = {"source": torch.full_like(source, -1)}
    bare = float(un.bound(model, translated(source), seed=0, condition=nothing).total.mean())
    assert bound < 0.1 * bare and bare == pytest.approx(LENGTH * log(SIZE), rel=0.15)


@torch.no_grad()
def test_guidance_towards_a_source(model):
    """Of a source of which half is not known: the rest of it is sharpened, and nothing is lost."""
    source = torch.randint(SIZE, (100, LENGTH), generator=torch.Generator().manual_seed(2))
    guided = un.guidance.ClassifierFree(model, weight=2.0)
    x, _ = un.sample(guided, n=100, sampler=un.samplers.FirstHitting(), seed=0, condition={"source": source})
    assert float((x == translated(source)).double().mean()) > 0.95


@torch.no_grad()
def test_every_row_hears_its_own_source_and_what_is_left_out_is_nothing():
    net = network()
    for p in net.parameters():
        p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3)))
    x, source = torch.full((3, LENGTH), SIZE), torch.zeros(3, LENGTH, dtype=torch.int64)
    other = source.clone()
    other[1, 2] = 1
    a, b = net(x, source=source), net(x, source=other)
    assert (a != b).flatten(1).any(1).tolist() == [False, True, False] and a.shape == (3, LENGTH, SIZE)
    torch.testing.assert_close(net(x), net(x, source=torch.full_like(source, -1)))


def test_misuse_is_named():
    x = torch.zeros(2, LENGTH, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"'source' has shape \(2, 5\); this network takes \(2, 6\)"):
        network()(x, source=x[:, :5])
    with pytest.raises(ValueError, match=r"'source' holds 4: its categories are 0 \.\.\. 3"):
        network()(x, source=x + 4)
    with pytest.raises(TypeError, match="categories are whole numbers"):
        network()(x, source=x.float())
    with pytest.raises(ValueError, match="is a sequence: it has categories along one axis"):
        ConditionInput(name="source", size=4, shape=[2, 2], sequence=True)
    with pytest.raises(ValueError, match="SequenceTransformer alone is told"):
        un.networks.build("MLP", {"shape": [2], "conditions": [SOURCE]})
    with pytest.raises(ValueError, match="causal = True takes no condition that is a sequence"):
        network(causal=True)
