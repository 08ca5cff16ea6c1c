"""A forward Markov process on a space.

Every process answers the same questions, for any s < t in [0, 1]:

    prior(rows)                 p_1, where sampling starts
    marginal(x0, t)             q(x_t | x_0)
    transition(x_s, s, t)       q(x_t | x_s)
    posterior(x_t, x0, s, t)    q(x_s | x_t, x_0)
    local(x, t), generator(t)   drift, diffusion and jumps
    reverse(x_t, x0, t)         the reverse process conditioned on x_0: generator and kernel

What a process does not answer raises, and names the process and what to write.  The reverse process conditioned on x_0 is
the generator reversed under the marginal, unless a family has a closed form.

Processes are modules, so that learned schedules are trained with the network that uses them.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from unnoise.checks import Unanswered, instance_of
from unnoise.covariance import Covariance
from unnoise.generators import Generator, Local, Reversal
from unnoise.laws import Law
from unnoise.schedules import Schedule
from unnoise.shapes import AnyState, Clock, Tree
from unnoise.spaces import Space
from unnoise.tree import batch_size, first_leaf, repeat_rows


class Process(nn.Module):
    """Base of all forward processes.  `space` holds the data, `state_space` also the states that noise adds."""

    space: Space
    state_space: Space
    has_generator: bool = True  # False for chains by matrices, which are defined on their grid only
    cutoff: float = 0.0  # the earliest time that the bound visits unless told otherwise
    grid: Tensor | None = None  # the times of a chain; None in continuous time
    has_density: bool = False  # whether states have densities, not probabilities: their bound diverges without noise
    reparametrised: bool = False  # whether a drawn x_t moves smoothly with the schedule: gradients pass along its path
    costly_rate: bool = False  # whether the bound's rate costs much beside a plain loss, as matrices over all states do
    has_flow: bool = False  # whether a probability flow with its marginals is known
    even_diffusion: bool = False  # whether its diffusion, that of its schedule, is the same at every state
    covariance: Covariance | None = None  # of its noise over the coordinates, where that is correlated
    by_generator: bool = False  # whether it is a generator that is simulated, so that slopes of log q say its reverse
    by_paths: bool = False  # whether it has no marginals besides, so that its bound is that of its paths
    absorbing: bool = False  # whether each coordinate is its own value or MASK, so that the reverse reveals it once for all

    @property
    def latest(self) -> float:
        """The latest time at which its generator is finite: a little before 1 where alpha_1 = 0."""
        return min((leaf.latest for leaf in self.leaves.values()), default=1.0)

    @property
    def leaves(self) -> dict[str, "Process"]:
        """The processes of a product by name; none where the process is a leaf itself."""
        return {}

    @property
    def base(self) -> "Process":
        """The process in continuous time: of a chain the one it restricts, else itself."""
        return self

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        raise self.unanswered("prior(rows, dtype, device)", "the law p_1 that sampling starts from")

    def marginal(self, x0: AnyState, t: Clock) -> Law:
        raise self.unanswered("marginal(x0, t)", "the law q(x_t | x_0)")

    def transition(self, x_s: AnyState, s: Clock, t: Clock) -> Law:
        raise self.unanswered("transition(x_s, s, t)", "the law q(x_t | x_s)")

    def transition_table(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor] | None:
        """(on_x, std) of x_t = on_x x_s + std L z for steps from s to t, float64 [steps] or [steps, *shape]; None where
        `transition` is not of that form."""
        return None

    def posterior(self, x_t: AnyState, x0: AnyState, s: Clock, t: Clock) -> Law:
        raise self.unanswered("posterior(x_t, x0, s, t)", "the law q(x_s | x_t, x_0)")

    def local(self, x: AnyState, t: Clock) -> Tree[Local]:
        """The forward generator's data at each row."""
        raise self.unanswered("local(x, t)", "drift, diffusion and jumps of its generator")

    def conditioned_local(self, x_t: AnyState, x0: AnyState, t: Clock) -> Tree[Local]:
        """The data of the reverse generator conditioned on x_0: the generator reversed under q(x_t | x_0)."""
        rows = batch_size(x_t)

        def log_q(x: Tree, t: Clock) -> Tensor:
            times = batch_size(x) // rows
            return self.marginal(x0 if times == 1 else repeat_rows(x0, times), t).log_prob(x)

        return self.reversed_local(log_q, x_t, t)

    def reversed_local(self, log_q: Callable[[Tree, Clock], Tensor], x_t: Tree, t: Clock) -> Tree[Local]:
        """The data at (x_t, t) of the generator run backwards under the densities exp log_q(x, t)."""

        def clock(x: Tree) -> Clock:
            return spread_times(t, batch_size(x_t), batch_size(x))

        forward = Generator(self.state_space, lambda x: self.local(x, clock(x)))
        return forward.reversed(lambda x: log_q(x, clock(x))).local(x_t)

    def reverse(self, x_t: Tree, x0: Tree, t: Clock) -> Reversal:
        """The reverse process conditioned on x_0, seen from (x_t, t)."""
        return Conditioned(self, x_t, x0, t)

    def noiseless(self, t: float) -> bool:
        """Whether x_t = x_0 at this time."""
        return False

    def movable(self, x_t: AnyState) -> AnyState:
        """Which coordinates the reverse process can still change: all, unless noise is absorbing."""
        return torch.ones_like(x_t, dtype=torch.bool)

    def unfinished(self, x: AnyState) -> Tensor | None:
        """Which coordinates hold a state that noise has added, such as MASK, and no value of the data; None: never any."""
        return None

    def support(self, x0: AnyState, t: Clock) -> tuple[Tree, Tensor]:
        """Nodes [nodes, batch, *shape] and log-weights [nodes, batch] of an exact expectation over q(x_t | x_0)."""
        raise self.unanswered("support(x0, t)", "nodes and log-weights of an exact expectation over q(x_t | x_0)")

    def push(self, q: Any, s: Clock, t: Clock) -> Any:
        """Carry a law from s to t: log-probabilities on finite spaces, (mean, variance) on Euclidean ones."""
        raise self.unanswered("push(q, s, t)", "how a law is carried from s to t")

    def inverse(self, q: Any, s: Clock, t: Clock) -> Any:
        """Carry a law from t back to s by the inverse kernel; undoes `push`.  Finite spaces: probabilities."""
        raise self.unanswered("inverse(q, s, t)", "how a law is carried from t back to s")

    def unanswered(self, method: str, what: str) -> Unanswered:
        name = type(self).__name__
        return Unanswered(f"the process {name} does not say {what}: write the method {method} of the class {name}")

    def prior_kl(self, x0: AnyState, t: Clock = 1.0) -> Tensor:
        """KL(q(x_t | x_0) || p_1): the first term of the bound."""
        law, leaf = self.marginal(x0, t), first_leaf(x0)
        return law.kl(self.prior(leaf.shape[0], leaf.dtype if leaf.dtype.is_floating_point else None, leaf.device))

    def generator(self, t: float) -> Generator:
        """The forward generator at one time."""
        return Generator(self.state_space, lambda x: self.local(x, t))


def valid_schedule(schedule: Schedule | None, default: Schedule) -> Schedule:
    """The schedule that a process is given, or its default; refused where no process has it."""
    return instance_of(default if schedule is None else schedule, Schedule, "schedule", "un.schedules.Cosine()").validate()


class Conditioned(Reversal):
    """The reverse process of a leaf, conditioned on x_0."""

    def __init__(self, process: Process, x_t: Tree, x0: Tree, t: Clock):
        self.process, self.x_t, self.x0, self.t = process, x_t, x0, t

    @property
    def space(self) -> Space:
        return self.process.state_space

    def local(self) -> Tree[Local]:
        return self.process.conditioned_local(self.x_t, self.x0, self.t)

    def step(self, s: Clock) -> Law:
        return self.process.posterior(self.x_t, self.x0, s, self.t)


def spread_times(t: Clock, rows: int, wanted: int) -> Clock:
    """Times of a batch for one in which every row stands several times over."""
    if isinstance(t, dict):
        return cast(Clock, {name: spread_times(own, rows, wanted) for name, own in t.items()})
    if isinstance(t, Tensor) and t.ndim and len(t) == rows and wanted != rows:
        return t.repeat_interleave(wanted // rows)
    return t


def last_time(holds: Callable[[float], bool]) -> float:
    """The last time at which something holds that holds up to some time, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
