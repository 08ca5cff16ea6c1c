"""The reverse of a process of finite speed, exactly: along the flow backwards, with jumps by thinning.

Candidates come at `cap` times the rates that lead here, which are those of the forward process from the state turned round
(`processes.finite_speed`): the time of the next one has a closed form.  One that comes at t is a jump with the probability
min(r, cap)/cap, as the model says there.  Every candidate costs a row of one network call; a round takes the next candidate
of every row, each at its own time, and rows that are done drop out.  The model's law is met at any number of steps: the
grid is where the states are looked at.
"""

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.predictions.flip_ratios import FlightPrediction
from unnoise.processes import Process
from unnoise.processes.finite_speed import FiniteSpeed
from unnoise.samplers.base import After, Stepping
from unnoise.samplers.problem import Problem
from unnoise.samplers.state import State
from unnoise.shapes import AnyState
from unnoise.spaces.phase import turned


class ThinnedFlights(Stepping):
    """For processes of finite speed; a run that ends at t = 0 returns positions."""

    exact = True
    differentiable = False

    def refuse(self, process: Process) -> str | None:
        if isinstance(process, FiniteSpeed):
            return None
        return f"ThinnedFlights runs processes of finite speed backwards, and {type(process).__name__} is none"

    def calls(self, steps: int, process: Process) -> int | None:
        return None

    def step(self, problem: Problem, setup: None, state: State, i: int) -> State:
        process: FiniteSpeed = problem.process  # type: ignore[assignment]
        end, noise = float(problem.times[i + 1]), problem.noise.at("step", i)
        z = state.x.clone()
        now = torch.full((len(z),), float(problem.times[i]), dtype=torch.float64, device=z.device)
        jumps = torch.zeros(len(z), dtype=torch.int64, device=z.device) if state.jumps is None else state.jumps.clone()
        row, k = torch.arange(len(z), device=z.device), 0
        while len(row):
            own = noise.of(row)
            wait, mark = process.next_jump(turned(z[row]), own.at("next", k), process.cap)
            stays = now[row] - wait <= end
            h = torch.where(stays, now[row] - end, wait)
            z[row] = process.flow(z[row], -h)
            now[row] -= h
            row, mark, k = row[~stays], mark[~stays], k + 1
            if len(row):
                there = self._candidate(problem, z, now, row, mark, noise.of(row).at("thinned", k))
                jumps[row] += (there != z[row]).flatten(1).any(1)
                z[row] = there
        return State(z, state.memory, jumps)

    def _candidate(self, problem: Problem, z: Tensor, now: Tensor, row: Tensor, mark: Tensor, noise: NoiseSource) -> Tensor:
        prediction: FlightPrediction = problem.predict_rows(z, now, row)  # type: ignore[assignment]
        return prediction.thinned(mark, noise)

    def run(self, problem: Problem, x: AnyState, after: After) -> Tensor:
        z: Tensor = super().run(problem, x, after)  # type: ignore[assignment]
        return z[:, 0] if float(problem.times[-1]) <= 0 else z
