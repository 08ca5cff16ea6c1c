"""Training: a run on disk, the loop that fills it, and what they are told."""

from unnoise.training import hybrid_models, latent_models, paired_models, token_models  # noqa: F401  registers them
from unnoise.training.config import RunConfig, TrainConfig
from unnoise.training.data_order import InMemory, Source, split
from unnoise.training.models import MODELS, Modelled, register_model
from unnoise.training.run import Run
from unnoise.training.safe_files import RunError
from unnoise.training.trainer import NonFinite, Outcome, Trainer, train

__all__ = [
    "MODELS",
    "InMemory",
    "Modelled",
    "NonFinite",
    "Outcome",
    "Run",
    "RunConfig",
    "RunError",
    "Source",
    "TrainConfig",
    "Trainer",
    "register_model",
    "split",
    "train",
]
