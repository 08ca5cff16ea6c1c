"""What an objective uses unless told: open functions of the process.

    default_decoder(process)    how the bound ends
    default_times(process)      where it is visited
    default_weighting(process)  what training minimises: the bound, for every process of the library

A process of one's own has its answers registered by its class, from outside:

    @un.objectives.default_decoder.register(MyProcess)
    def _(process):
        return MyDecoder()

A subclass has those of its base, a product those of its leaves, a chain those of the process that it restricts.
"""

from functools import singledispatch
from typing import cast

from unnoise.denoiser import AnyDenoiser
from unnoise.objectives import flight_bound  # noqa: F401  registers the bound of its paths
from unnoise.objectives.band_times import BandTimes
from unnoise.objectives.decoders import (
    CategoricalDecoder,
    CountDecoder,
    Decoder,
    GaussianDecoder,
    HeatDecoder,
    LeafDecoders,
    ThrownDecoder,
)
from unnoise.objectives.leaves import leaves_of
from unnoise.objectives.mixed_times import MixedTimes
from unnoise.objectives.path_bound import LastStep, PathsEnd
from unnoise.objectives.simplex_decoders import OrthantDecoder, SimplexDecoder, VertexDecoder
from unnoise.objectives.times import Importance, MaskedCount, Times
from unnoise.objectives.weightings import Bound, Weighting
from unnoise.processes import (
    Chain,
    CoxIngersollRoss,
    FiniteProcess,
    FiniteSpeed,
    Gaussian,
    HeatProcess,
    JumpDiffusion,
    Masking,
    Process,
    Product,
    Simulated,
    Thinning,
    WrightFisher,
)


@singledispatch
def default_decoder(process: Process) -> Decoder:
    """-log p(x_0 | x_eps) at the cut-off."""
    name = type(process).__name__
    raise TypeError(
        f"{name} has no default decoder, the bound's last term -log p(x_0 | x_eps): pass decoder=..., or register one for "
        f"the class, @un.objectives.default_decoder.register({name})"
    )


@default_decoder.register(Gaussian)
def _(process: Gaussian) -> Decoder:
    return GaussianDecoder()


@default_decoder.register(FiniteProcess)
def _(process: FiniteProcess) -> Decoder:
    return CategoricalDecoder()


@default_decoder.register(Thinning)
def _(process: Thinning) -> Decoder:
    return CountDecoder()


@default_decoder.register(Simulated)
def _(process: Simulated) -> Decoder:
    return PathsEnd() if process.by_paths else LastStep()


@default_decoder.register(FiniteSpeed)
def _(process: FiniteSpeed) -> Decoder:
    return PathsEnd()


@default_decoder.register(HeatProcess)
def _(process: HeatProcess) -> Decoder:
    return HeatDecoder()


@default_decoder.register(JumpDiffusion)
def _(process: JumpDiffusion) -> Decoder:
    return ThrownDecoder()


@default_decoder.register(CoxIngersollRoss)
def _(process: CoxIngersollRoss) -> Decoder:
    return OrthantDecoder()


@default_decoder.register(WrightFisher)
def _(process: WrightFisher) -> Decoder:
    return VertexDecoder() if process.vertices else SimplexDecoder()


@default_decoder.register(Product)
def _(process: Product) -> Decoder:
    return LeafDecoders(**{name: default_decoder(leaf) for name, leaf in process.leaves.items()})


@default_decoder.register(Chain)
def _(process: Chain) -> Decoder:
    return default_decoder(process.base)


@singledispatch
def default_times(process: Process) -> Times:
    """Graded towards 0, which is right for any process; with states that are masked for certain where there are MASKs."""
    if process.absorbing and not cast(Masking, process).schedule.shape:
        return MaskedCount()
    return MixedTimes() if any(leaf.absorbing for _, leaf in leaves_of(process)) else Importance()


@default_times.register(Chain)
def _(process: Chain) -> Times:
    return default_times(process.base)


def times_of(denoiser: AnyDenoiser) -> Times:
    """Where a denoiser's bound is visited: where its code says that the rate is, else as its process asks."""
    process, code = denoiser.process.base, denoiser.code
    band = None if code is None else code.band(process)
    return default_times(denoiser.process) if band is None else BandTimes(process.schedule, *band)  # type: ignore[arg-type]


@singledispatch
def default_weighting(process: Process) -> Weighting:
    return Bound()
