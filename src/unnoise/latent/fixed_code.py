"""A deterministic map in the place of an encoder: z_0 = e(x), and p(x | z) at the end.

Categories have probabilities, and a map to them has no entropy to count:

    -log p(x)  <=  bound(e(x))  -  log p(x | e(x)).

Numbers have densities, and z_0 = e(x) has none.  There the way back ends at the cut-off, and the decoder reads the data off
noisy states, z_eps/alpha_eps = e(x) + (sigma_eps/alpha_eps) n:

    -log p(x)  <=  KL(q(z_1 | e(x)) || p_1) + int_eps^1 rate dt + E[-log p(x | z_eps)].

Both are bounds for any map, one that loses some of x too: what is lost is drawn by p(x | z).
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from unnoise.codes import Code
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import Gaussian, Process
from unnoise.shapes import Tree
from unnoise.spaces import Space
from unnoise.tree import first_leaf


class FixedCode(Code):
    """`encode_by(x)` are states; `decode(z)` is the law of data, at states less the scale of the noise.

    `rounds=False` is for states that are categories.  Maps that are modules are parts of this one, and trained with the
    denoiser unless they are frozen (`requires_grad_(False)`).
    """

    def __init__(
        self,
        space: Space,
        encode_by: Callable[[Tree], Tree],
        decode: Callable[[Any], Law],
        rounds: bool = True,
        cutoff: float | None = None,
    ):
        super().__init__()
        self.space, self.rounds, self.cutoff = space, rounds, cutoff
        self.encode_by, self.decode = encode_by, decode
        parts = [part for part in (encode_by, decode) if isinstance(part, nn.Module)]
        self.trained = any(p.requires_grad for part in parts for p in part.parameters())

    def encode(self, x: Tree, noise: NoiseSource, condition: dict[str, Any]) -> tuple[Tree, dict[str, Tensor]]:
        z = self.encode_by(x)
        if self.rounds:
            return z, {}
        if first_leaf(z).dtype.is_floating_point:
            raise ValueError(
                "the states of FixedCode(rounds=False) are numbers, and z = e(x) has no density: data are read off the "
                "states at the cut-off then, rounds=True"
            )
        return z, {"likelihood": -self.law(z, 0.0, None, None).log_prob(x).double()}

    def law(self, z: Tree, t: float, process: Process | None, prediction: Prediction | None) -> Law:
        if self.rounds and isinstance(process, Gaussian) and isinstance(z, Tensor):
            z = z / process.coefficient(process.schedule.alpha(process.times(t, z)), z)
        return self.decode(z)
