"""Small, plain networks for every state space, and presets that choose one for a process."""

from unnoise.networks.base import REGISTRY, build, count_parameters, described, register
from unnoise.networks.clouds import CloudMLP, CloudMLPConfig
from unnoise.networks.columns import ColumnLeaf, ColumnTransformer, ColumnTransformerConfig
from unnoise.networks.embedding import Modulation, TimeEmbedding, modulate
from unnoise.networks.images import SmallUNet, SmallUNetConfig
from unnoise.networks.mlp import MLP, MLPConfig
from unnoise.networks.presets import PRESETS, column, columns, default_network, network_for
from unnoise.networks.series import SeriesNet, SeriesNetConfig
from unnoise.networks.told import ConditionInput, ToldEmbedding
from unnoise.networks.transformer import SequenceTransformer, SequenceTransformerConfig
from unnoise.networks.velocities import VelocityMLP, VelocityMLPConfig

__all__ = [
    "MLP",
    "PRESETS",
    "REGISTRY",
    "CloudMLP",
    "CloudMLPConfig",
    "ColumnLeaf",
    "ColumnTransformer",
    "ColumnTransformerConfig",
    "MLPConfig",
    "Modulation",
    "SequenceTransformer",
    "SequenceTransformerConfig",
    "SeriesNet",
    "SeriesNetConfig",
    "SmallUNet",
    "SmallUNetConfig",
    "TimeEmbedding",
    "ConditionInput",
    "ToldEmbedding",
    "VelocityMLP",
    "VelocityMLPConfig",
    "build",
    "column",
    "columns",
    "count_parameters",
    "default_network",
    "described",
    "modulate",
    "network_for",
    "register",
]
