"""A training whose objective changes on its way: cut short in the middle of that, it goes on bit for bit."""

import small_run
import torch
from test_training_resume import cut_at

import unnoise as un
from unnoise.hybrids import Curriculum
from unnoise.networks.transformer import SequenceTransformer, SequenceTransformerConfig
from unnoise.training import Run, RunConfig, TrainConfig, learner
from unnoise.training.trainer import train


class UniformLetters(small_run.Letters):
    kind = "uniform letters"

    def process(self):
        return un.Uniform(size=small_run.SIZE, shape=(small_run.LENGTH,))


FORMATS = {"uniform letters": UniformLetters}
NETWORK = SequenceTransformer(SequenceTransformerConfig(size=small_run.SIZE, width=8, layers=1, heads=1))


def made(folder) -> Run:
    options = {"steps": 20, "batch_size": 32, "log_every": 1, "save_every": 2, "validate_every": 10, "ema": (0.9,)}
    config = TrainConfig(**options, device="cpu", tensorboard=False, lr=0.01, warmup=2)
    return Run.create(folder, RunConfig.of(config, UniformLetters(), NETWORK), FORMATS)


def test_a_curriculum_goes_on_where_it_was(tmp_path, monkeypatch):
    told = []

    class Watched(Curriculum):
        def begin(self, done):
            super().begin(done)
            told.append((done, float(self.temperature)))

    monkeypatch.setattr(learner, "objective_of", lambda denoiser, config, options, made: Watched(denoiser, top=2))
    whole = made(tmp_path / "whole")
    train(whole, small_run.rows())
    first, *updates = told
    assert first[0] == 0 and [round(20 * done) for done, _ in updates] == list(range(20))
    assert [tau > 0 for _, tau in updates] == [True] * 4 + [False] * 16 and updates[3][1] < updates[2][1] == 0.1
    cut = made(tmp_path / "cut")
    cut_at(cut, 3, monkeypatch)  # saved at 2, while tokens are soft
    train(Run.open(tmp_path / "cut", FORMATS), small_run.rows())
    assert small_run.losses(cut.folder) == small_run.losses(whole.folder)
    assert small_run.same(small_run.weights(whole, 0.9), small_run.weights(cut, 0.9))
    assert all(torch.isfinite(torch.tensor(list(small_run.losses(cut.folder).values()))))
