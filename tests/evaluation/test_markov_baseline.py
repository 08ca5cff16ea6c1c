"""The Markov model with back-off: a law, the entropy of a known chain, the order that made the data."""

from itertools import product
from math import log

import pytest
import torch

from unnoise.evaluation.markov import Markov, SymbolCounts, codes, fit_markov

# the next symbol given the last two: copies the one before last with probability 0.8, else uniform among 3
COPY, SIZE = 0.8, 3
ENTROPY = -(COPY + (1 - COPY) / 3) * log(COPY + (1 - COPY) / 3) - 2 * (1 - COPY) / 3 * log((1 - COPY) / 3)


def chain(rows: int, length: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(SIZE, (rows, length), generator=generator)
    copies = torch.rand(rows, length, generator=generator) < COPY
    for i in range(2, length):
        x[:, i] = torch.where(copies[:, i], x[:, i - 2], x[:, i])
    return x


@pytest.fixture(scope="module")
def fitted() -> Markov:
    return fit_markov(chain(2000, 64, 0), chain(500, 64, 1), SIZE)


def test_probabilities_of_all_rows_sum_to_one(fitted):
    rows = torch.tensor(list(product(range(SIZE), repeat=5)))
    assert float(fitted.log_prob(rows).exp().sum()) == pytest.approx(1, abs=1e-12)


def test_the_order_of_the_data_is_found_and_its_entropy_reached(fitted):
    assert fitted.order == 2
    nats = -float(fitted.log_prob(chain(2000, 64, 2)).mean())
    assert nats / 64 == pytest.approx((2 * log(SIZE) + 62 * ENTROPY) / 64, abs=0.005)


def test_a_lower_order_cannot(fitted):
    cut = Markov(SIZE, fitted.counts[:2], fitted.strengths[:2])
    assert -float(cut.log_prob(chain(500, 64, 2)).mean()) / 64 == pytest.approx(log(SIZE), abs=0.01)


def test_counts_and_back_off_by_hand():
    x = torch.tensor([[0, 1, 0, 1, 1]])
    assert codes(x, 1, 2).tolist() == [[1, 2, 1, 3]]
    model = Markov(2, [SymbolCounts.of(x, k, 2) for k in (0, 1)], [1.0, 2.0])
    zero, one = (2 + 0.5) / 6, (3 + 0.5) / 6  # p_0: 0 occurs twice, 1 thrice
    after_one = (1 + 2 * zero) / (2 + 2)  # 1 is followed by 0 once and by 1 once
    assert float(model.log_prob(torch.tensor([[1, 0]]))) == pytest.approx(log(one) + log(after_one))


def test_contexts_never_seen_leave_the_shorter_one():
    x = torch.tensor([[0, 0, 0, 0]])
    model = Markov(2, [SymbolCounts.of(x, k, 2) for k in (0, 1)], [1.0, 1.0])
    unseen = torch.tensor([[1, 0]])
    assert float(model.log_prob(unseen).exp()) == pytest.approx((0.5 / 5) * (4.5 / 5))


def test_codes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="lower order"):
        codes(torch.zeros(1, 30, dtype=torch.int64), 20, 27)
