"""Models by way of the states of an encoder (`latent`): numbers under Gaussian noise, or codes under finite noise."""

from math import prod
from typing import Any

from unnoise.latent import Adversarial, DataLaw, Extra, LevelsLaw, NormalCode, Perceptual, QuantisedCode, likelihood_of
from unnoise.latent.coders import coders_for, latent_shape
from unnoise.networks.presets import network_for
from unnoise.processes import FiniteProcess, Gaussian, Masking, Process, Uniform
from unnoise.training.models import Modelled, register_model

SHARES = {True: 0.3, False: 0.15}  # of the time, for the first stage: of two, and as a start
STAGES, NOISES = ("joint", "two"), {"masking": Masking, "uniform": Uniform}


def data_law(process: Process, hints: dict[str, Any]) -> DataLaw:
    """The law of data given states: of levels where numbers come in bins, else what suits the space."""
    width = hints.get("bin", 0.0)
    if not width or process.leaves or not isinstance(process.base, Gaussian):
        return likelihood_of(process.space)
    return LevelsLaw(process.base.space.shape, round(2 / width), width / 2 - 1, 1 - width / 2)


def extras(perceptual: float, adversarial: float) -> tuple[Extra, ...]:
    return (*([Perceptual(perceptual)] if perceptual else []), *([Adversarial(adversarial)] if adversarial else []))


def network_of(process: Process, channels: int, length: int) -> tuple[str, dict[str, Any]]:
    """That of the latent process; numbers at places in a row go by attention."""
    shape = process.space.shape  # type: ignore[attr-defined]
    if isinstance(process, FiniteProcess):
        needed = {"size": process.space.size, "extra": process.state_space.size - process.space.size}
        return "SequenceTransformer", {**needed, "length": length, "time": not process.absorbing}
    if len(shape) == 2:
        needed = {"size": channels, "extra": 0, "numbers": channels, "length": length}
        return "SequenceTransformer", {**needed, "time": True}
    return network_for(process)


@register_model("latent")
def _(
    process: Process,
    hints: dict[str, Any],
    stage: str = "joint",
    latent: int = 8,
    preset: str = "tiny",
    patch: int = 2,
    cutoff: float = 0.01,
    kl: float = 0.1,
    share: float | None = None,
    first_steps: int | None = None,
    lr: float = 2e-3,
    perceptual: float = 0.0,
    adversarial: float = 0.0,
) -> Modelled:
    """States of a Gaussian encoder, trained jointly with it or in two stages."""
    if stage not in STAGES:
        raise ValueError(f"stage = {stage!r}: choose from {', '.join(STAGES)}")
    if not 0 < cutoff < 1 or latent < 1:
        raise ValueError(f"cutoff = {cutoff}, latent = {latent}: a time between 0 and 1, and one number at a place at least")
    space, data = process.space, data_law(process, hints)
    places = coders_for(space)(data=data, size=preset, patch=patch).places
    own = Gaussian(latent_shape(places, latent))
    settled = stage == "two"
    share = SHARES[settled] if share is None else share
    first = {"kl": kl, "share": share, "first_steps": first_steps, "lr": lr}

    def code() -> NormalCode:
        more = extras(perceptual, adversarial)
        return NormalCode.of(space, latent, preset, patch, data, settled, more, **first)

    length = 0 if hints.get("windows") or len(places) != 1 else places[0]
    training = {"weighting": "bound", "optimiser": "adamw", "start": "nothing"}
    network = network_of(own, latent, length)
    return Modelled(process=own, code=code, network=network, options={"cutoff": cutoff}, training=training)


@register_model("vq")
def _(
    process: Process,
    hints: dict[str, Any],
    noise: str = "masking",
    codes: int = 256,
    width: int = 8,
    preset: str = "tiny",
    patch: int = 2,
    places: int = 8,
    commitment: float = 0.25,
    codebook: str = "ema",
    share: float = 0.3,
    first_steps: int | None = None,
    lr: float = 2e-3,
    perceptual: float = 0.0,
    adversarial: float = 0.0,
) -> Modelled:
    """Codes of a vector-quantised encoder, under masking or uniform noise; always in two stages."""
    if noise not in NOISES:
        raise ValueError(f"noise = {noise!r}: choose from {', '.join(NOISES)}")
    if codes < 2 or width < 1:
        raise ValueError(f"codes = {codes}, width = {width}: two codes and one number in each at least")
    space, data = process.space, data_law(process, hints)
    shape = coders_for(space)(data=data, size=preset, patch=patch, wanted=places).places
    count = prod(shape)
    own = NOISES[noise](codes, (count,))
    first = {"commitment": commitment, "codebook": codebook, "share": share, "first_steps": first_steps, "lr": lr}

    def code() -> QuantisedCode:
        more = extras(perceptual, adversarial)
        return QuantisedCode.of(space, codes, width, preset, patch, places, data, more, **first)  # type: ignore[arg-type]

    network = network_of(own, width, 0 if hints.get("windows") else count)
    training = {"weighting": "bound", "optimiser": "adamw", "start": "nothing"}
    return Modelled(process=own, code=code, network=network, training=training)
