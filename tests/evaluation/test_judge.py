"""The judge learns a Markov chain to near its entropy rate, and finds other sequences less likely."""

import pytest
import torch

from unnoise.evaluation.judge import train_judge


def chain(rows: int, length: int, seed: int) -> torch.Tensor:
    """Letters that go on to the next one with probability 0.85, else anywhere."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(4, (rows, 1), generator=generator)
    for _ in range(length - 1):
        go = torch.rand(rows, 1, generator=generator) < 0.85
        x = torch.cat([x, torch.where(go, (x[:, -1:] + 1) % 4, torch.randint(4, (rows, 1), generator=generator))], 1)
    return x


@pytest.mark.conformance
def test_a_judge_learns_what_is_likely():
    train, held = chain(600, 16, 0), chain(200, 16, 1)
    judge = train_judge(train, held, 4, "tiny", steps=250, batch=64, lr=3e-3)
    p = torch.tensor([0.85 + 0.15 / 4, 0.15 / 4, 0.15 / 4, 0.15 / 4])
    rate = (-(p * p.log()).sum() * 15 + torch.tensor(4.0).log()) / 16  # nats per letter of the chain itself
    assert rate - 0.02 < judge.nats < rate + 0.12
    assert abs(float(judge.log_prob(held).mean()) + 16 * judge.nats) < 1e-3
    other = torch.randint(4, (200, 16), generator=torch.Generator().manual_seed(2))
    assert float(judge.log_prob(other).mean()) < float(judge.log_prob(held).mean()) - 10
