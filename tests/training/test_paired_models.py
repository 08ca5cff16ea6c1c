"""Models of categories with vectors beside them, from a format to a run that goes on, is scored and drawn from."""

import pytest
import small_run
import torch

import unnoise as un
from unnoise import hybrids
from unnoise.training import Run, trainer
from unnoise.training.models import model_options
from unnoise.training.recipes import recipe
from unnoise.training.task import Task
from unnoise.training.trainer import Trainer, train

OPTIONS = {"cadd": {"width": 2}, "ccdd": {"width": 2, "learned": True}}
LAST = 16


def make(folder, name, **options):
    task = Task.of(small_run.Letters(), None, {"name": name, "options": OPTIONS[name] | options})
    network = {"width": 16, "layers": 1, "heads": 2}
    settings = {"steps": LAST, "batch_size": 32, "save_every": 8, "validate_every": LAST, "panels": 0, "lr": 0.03}
    settings |= {"warmup": 2, "ema": (0.5,), "validation_rows": 16, "validation_draws": 2}
    config = recipe(task, 200, "tiny", network_options=network, device="cpu", tensorboard=False, **settings)
    return Run.create(folder, config, small_run.FORMATS)


def scored(denoiser):
    """The bound of some rows, at the same noise for all."""
    with torch.no_grad():
        return float(un.bound(denoiser, small_run.rows()[:32], times=un.MixedTimes(32, 1.0), seed=0).total.mean())


def test_a_run_goes_on_bit_for_bit(tmp_path, monkeypatch):
    runs = {name: make(tmp_path / name, "cadd") for name in ("whole", "cut")}
    train(runs["whole"], small_run.rows())
    update = Trainer._update

    def stop(self, stream):
        if self.step == 11:
            raise KeyError("cut")
        update(self, stream)

    with monkeypatch.context() as patch, pytest.raises(KeyError):
        patch.setattr(trainer.Trainer, "_update", stop)
        train(runs["cut"], small_run.rows())
    again = Run.open(tmp_path / "cut", small_run.FORMATS)
    train(again, small_run.rows())
    assert small_run.same(small_run.weights(runs["whole"], False), small_run.weights(again, False))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_run_learns_is_scored_and_drawn_from(name, tmp_path):
    run = make(tmp_path / name, name)
    first = run.denoiser_of_config()
    own, before = {key: value.clone() for key, value in first.state_dict().items() if "coded" in key}, scored(first)
    assert train(run, small_run.rows()).step == LAST
    denoiser = run.denoiser()
    assert any(not torch.equal(value, denoiser.state_dict()[key]) for key, value in own.items())
    assert scored(denoiser) < before - 0.1
    x, _ = un.sample(denoiser, 5, 4, seed=0)
    assert x.shape == (5, small_run.LENGTH) and int(x.max()) < small_run.SIZE


def test_what_they_are_made_of():
    letters = small_run.Letters().process()
    for table, width in (("learned", 2), ("bits", 2), ("one_hot", 4)):
        made = un.training.MODELS["cadd"](letters, {}, width=2, table=table)
        assert isinstance(made.code(), hybrids.Paired)
        assert (
            made.process.leaves["vectors"].space.shape == (small_run.LENGTH, width) and made.network[1]["vectors"] == width
        )
    made = un.training.MODELS["ccdd"](letters, {"windows": True}, reach=2)
    assert made.code().encoder.reach == 2 and made.network[1]["length"] == 0
    assert torch.equal(made.code().encoder.tables, made.code().encoder.tables)
    assert model_options("ccdd") == {"width": 16, "reach": 1, "learned": False, "cutoff": 0.01}


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="table = 'random': choose learned, bits, one_hot"):
        un.training.MODELS["cadd"](small_run.Letters().process(), {}, table="random")
    with pytest.raises(ValueError, match="--model ccdd is for sequences of categories"):
        un.training.MODELS["ccdd"](small_run.Pairs().process(), {})
