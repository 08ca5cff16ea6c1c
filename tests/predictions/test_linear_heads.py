"""Which heads are known to be linear, and when their logits are made in chunks."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import unnoise as un
from unnoise.predictions import LinearHead, linear_heads, linear_weights
from unnoise.predictions.linear_heads import chosen_log_prob, streamed_weights

SIZE, WIDTH, LENGTH, ROWS = 5, 4, 3, 6


def test_a_linear_layer_is_linear():
    for bias in (False, True):
        head = nn.Linear(WIDTH, SIZE, bias=bias)
        weight, b = linear_weights(head)
        h = torch.randn(7, WIDTH)
        assert weight is head.weight and b is head.bias
        torch.testing.assert_close(nn.functional.linear(h, weight, b), head(h))
    shared = torch.randn(SIZE + 1, WIDTH)
    head = LinearHead(shared[:SIZE])
    torch.testing.assert_close(head(h), h @ shared[:SIZE].T)
    assert linear_weights(head)[0] is head.weight and linear_weights(head)[1] is None


def test_parametrised_weights_are_those_in_use():
    head = parametrizations.weight_norm(nn.Linear(WIDTH, SIZE))
    h = torch.randn(7, WIDTH)
    weight, bias = linear_weights(head)
    torch.testing.assert_close(nn.functional.linear(h, weight, bias), head(h))


class Scaled(nn.Linear):
    def forward(self, h):
        return 2 * super().forward(h)


def hooked(register):
    head = nn.Linear(WIDTH, SIZE)
    getattr(head, register)(lambda *_: None)
    return head


def wrapped():
    head = nn.Linear(WIDTH, SIZE)
    inner = head.forward
    head.forward = lambda h: 2 * inner(h)
    return head


OTHERS = {
    "a function": lambda: lambda h: h @ torch.ones(WIDTH, SIZE),
    "another layer": lambda: nn.Sequential(nn.Linear(WIDTH, SIZE)),
    "a subclass with its own forward": lambda: Scaled(WIDTH, SIZE),
    "a layer whose forward was replaced": wrapped,
    "a layer that is watched": lambda: hooked("register_forward_hook"),
    "a layer whose input is changed": lambda: hooked("register_forward_pre_hook"),
    "a layer whose gradient is watched": lambda: hooked("register_full_backward_hook"),
    "no head": lambda: None,
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not_known_to_be(name):
    assert linear_weights(OTHERS[name]()) is None


def test_a_head_of_ones_own_may_say_that_it_is():
    class Own:
        matrix = torch.randn(SIZE, WIDTH)

    assert linear_weights(Own()) is None
    linear_weights.register(Own, lambda head: (head.matrix, None))
    assert linear_weights(Own())[0] is Own.matrix


@pytest.fixture
def in_chunks(monkeypatch):
    monkeypatch.setattr(linear_heads, "FEW", {"cpu": 0})


def posterior(process=None, head=None, features=None):
    process = process or un.Masking(SIZE, (LENGTH,))
    x0 = torch.randint(2, (ROWS, LENGTH))
    x_t = process.marginal(x0, 0.6).draw(un.NoiseSource(0, ROWS))
    features = torch.randn(ROWS, LENGTH, WIDTH) if features is None else features
    return un.Posterior(features, process, x_t, 0.6, head=head or nn.Linear(WIDTH, SIZE)), x0


def test_chosen_coordinates(in_chunks):
    prediction, x0 = posterior()
    chosen = prediction.x_t == SIZE
    found = chosen_log_prob(prediction, x0, chosen)
    assert 0 < int(chosen.sum()) < chosen.numel()
    torch.testing.assert_close(found, torch.where(chosen, prediction.log_prob(x0), 0.0))


def test_few_logits_are_made_at_once(monkeypatch):
    prediction, x0 = posterior()
    assert streamed_weights(prediction) is None and chosen_log_prob(prediction, x0, x0 == x0) is None
    monkeypatch.setattr(linear_heads, "FEW", {"cpu": ROWS * LENGTH * SIZE})
    assert streamed_weights(prediction) is None
    monkeypatch.setattr(linear_heads, "FEW", {"cpu": ROWS * LENGTH * SIZE - 1})
    assert streamed_weights(prediction) is not None


def test_where_the_host_would_wait_for_a_list_they_are_not():
    large = linear_heads.SMALL_HEAD + 1
    for size, there in ((large, True), (large - 1, False)):
        process, x = un.Masking(size, (LENGTH,)), torch.zeros(2, LENGTH, dtype=torch.int64, device="meta")
        head, features = nn.Linear(WIDTH, size, device="meta"), torch.empty(2, LENGTH, WIDTH, device="meta")
        assert (streamed_weights(un.Posterior(features, process, x, 0.5, head=head)) is not None) == there


def test_what_goes_the_plain_way(in_chunks):
    assert streamed_weights(posterior()[0]) is not None
    assert streamed_weights(posterior(head=lambda h: h @ torch.ones(WIDTH, SIZE))[0]) is None
    assert streamed_weights(posterior(un.Masking([2, 5, 3]))[0]) is None  # coordinates of their own sizes
    assert streamed_weights(posterior(head=nn.Linear(WIDTH, SIZE).double())[0]) is None  # torch says what is wrong
    assert streamed_weights(posterior(head=nn.Linear(WIDTH, SIZE + 1))[0]) is None  # and the prediction
    assert streamed_weights(posterior(head=nn.Linear(WIDTH, SIZE, device="meta"))[0]) is None
    ready, _ = posterior()
    assert streamed_weights(un.Posterior(ready.logits, ready.process, ready.x_t, ready.t)) is None
    with torch.autocast("cpu", torch.bfloat16):  # which brings them to one precision
        assert streamed_weights(posterior(features=torch.randn(ROWS, LENGTH, WIDTH).bfloat16())[0]) is not None
