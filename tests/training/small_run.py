"""Small runs for the tests: three letters, or two numbers and three letters, with formats and a network of their own.

As a program it trains the run in a folder, `python small_run.py FOLDER`, so that tests can kill it or start two of it.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import unnoise as un
from unnoise.data.base import Format, Line
from unnoise.networks.base import register
from unnoise.noise import NoiseSource
from unnoise.training import Run, RunConfig, TrainConfig

SIZE, LENGTH = 4, 3


class Pairs(Format):
    """Rows of two numbers and three letters, as JSON."""

    kind, suffix = "pairs", ".json"

    def __init__(self, scale: float = 1.0):
        self.scale = scale

    def lines(self):
        return [Line("number", "number", "two", "Gaussian"), Line("letters", "category", "four", "Masking")]

    def process(self):
        return un.Product(number=un.Gaussian((2,)), letters=un.Masking(size=SIZE, shape=(LENGTH,)))

    def encode(self, path):
        rows = json.loads(path.read_text())
        return {"number": torch.tensor(rows["number"]) / self.scale, "letters": torch.tensor(rows["letters"])}

    def write(self, x, path):
        path.write_text(json.dumps({"number": (x["number"] * self.scale).tolist(), "letters": x["letters"].tolist()}))

    def to_json(self):
        return {"scale": self.scale}

    @classmethod
    def from_json(cls, data):
        return cls(**data)


class Letters(Pairs):
    """The three letters alone."""

    kind = "letters"

    def process(self):
        return un.Masking(size=SIZE, shape=(LENGTH,))

    def encode(self, path):
        return super().encode(path)["letters"]

    def write(self, x, path):
        path.write_text(json.dumps({"letters": x.tolist()}))


FORMATS = {"pairs": Pairs, "letters": Letters}


@dataclass(kw_only=True)
class Options:
    width: int = 16
    dropout: float = 0.1


@register(Options)
class Small(nn.Module):
    def __init__(self, config: Options):
        super().__init__()
        self.config = config
        self.letter = nn.Embedding(SIZE + 1, 4)
        self.body = nn.Sequential(
            nn.Linear(2 + 4 * LENGTH + 1, config.width), nn.SiLU(), nn.Dropout(config.dropout), nn.Linear(config.width, 14)
        )

    def forward(self, x, t):
        mixed = isinstance(x, dict)
        t = t["letters"] if isinstance(t, dict) else t  # one leaf may be observed
        letters, clock = x["letters"] if mixed else x, t.float()[:, None]
        number = x["number"] if mixed else clock.expand(-1, 2)
        out = self.body(torch.cat([number, self.letter(letters).flatten(1), clock], 1))
        logits = out[:, 2:].reshape(-1, LENGTH, SIZE)
        return {"number": out[:, :2], "letters": logits} if mixed else logits


def pairs(n: int = 200):
    noise = NoiseSource(7, n)
    letters = (noise.at("first").uniform((1,)) * SIZE).long().repeat(1, LENGTH)  # three times the same letter
    number = noise.at("number").normal((2,), torch.float32) * 0.1 + letters[:, :2].float() - 1.5
    return {"number": number, "letters": letters}


def rows(n: int = 200):
    return pairs(n)["letters"]


def config(form: Format | None = None, dropout: float = 0.1, predicts=None, **options) -> RunConfig:
    base = {"steps": 40, "batch_size": 32, "warmup": 5, "lr": 0.01, "log_every": 1, "save_every": 10, "validate_every": 20}
    base |= {"validation_draws": 2, "device": "cpu", "tensorboard": False, "ema": (0.9, 0.99)}
    network = {"name": "Small", "options": {"width": 16, "dropout": dropout}}
    return RunConfig.of(TrainConfig(**(base | options)), form or Letters(2.0), network, predicts)


def make(folder, form: Format | None = None, **options) -> Run:
    return Run.create(folder, config(form, **options), FORMATS)


def opened(folder) -> Run:
    return Run.open(folder, FORMATS)


def losses(folder) -> dict[int, float]:
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def weights(run: Run, ema) -> dict:
    return run.denoiser(ema).state_dict()


def same(one, other) -> bool:
    if not isinstance(one, dict):
        return torch.equal(one, other)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


if __name__ == "__main__":
    from unnoise.training import train

    torch.set_num_threads(1)
    run = opened(Path(sys.argv[1]))
    train(run, pairs() if run.config.format["kind"] == "pairs" else rows())
