"""What an energy says of a jump-diffusion: its gradient, and its differences wherever a throw leads.

    drift -f + g^2 grad E(x),        jumps J(x, y) = l N(y; x, w) min(e^{E(y) - E(x)}, cap)

The total rate is an integral of e^E that a network does not know: bounds take it at the nodes or the draws of the process,
around x, and samplers draw by thinning (`spaces.ThinnedJumps`), with an evaluation of the energy for each proposal.  The
cap is that of the process, and part of the model: throws are proposed at so many times their rate.  Where
the noise is small a throw leads back to places as narrow as that noise, which nodes and draws around x seldom meet: the
integral is then rough, and what the ratio exceeds the cap by is lost.  `CloudMixture` knows all of it in closed form and is
the default; an energy is for what has no clouds.
"""

from typing import Any

from torch import Tensor

from unnoise.generators import Local
from unnoise.laws import Law
from unnoise.predictions.base import Kind, Prediction, refuse
from unnoise.processes import JumpDiffusion, Process
from unnoise.shapes import Clock, Float
from unnoise.spaces.local import ThinnedJumps


class ScoreAndRatio(Prediction):
    """grad log q_t(x_t), and the function log q_t(y)/q_t(x_t), made of an energy."""

    process: JumpDiffusion
    x_t: Tensor
    t: Tensor

    def __init__(self, score: Tensor, change: Any, process: JumpDiffusion, x_t: Tensor, t: Tensor):
        self.score, self.change, self.process, self.x_t, self.t = score, change, process, x_t, t

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        return "is made of an energy: let the network return one, predicts=un.Energy"

    @classmethod
    def of_energy(cls, leaf: Any) -> "ScoreAndRatio":
        return cls(leaf.slope, leaf.change, leaf.process, leaf.x, leaf.t)

    def log_ratio(self, x: Tensor, y: Tensor) -> Float[Tensor, "states"]:
        """log q_t(y)/q_t(x); x is x_t, each row once or n times."""
        return self.change(y)

    def local(self) -> Local:
        forward = self.process.local(self.x_t, self.t)
        assert forward.drift is not None and forward.diffusion is not None and forward.jumps is not None
        jumps = ThinnedJumps(forward.jumps, self.log_ratio, self.process.cap, self.process.draws)
        return Local(-forward.drift + forward.diffusion * self.score, forward.diffusion, jumps=jumps)

    def step(self, s: Clock) -> Law:
        raise TypeError("an energy has no kernel over a step of a jump-diffusion: use un.samplers.FromGenerator()")

    def to(self, kind: type[Kind], **options: Any) -> Kind:
        if kind is type(self):
            return self  # type: ignore[return-value]
        raise refuse(self, kind, "a score and a ratio at one state are no clouds")
