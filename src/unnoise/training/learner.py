"""What an update changes: the weights, the optimiser's moments and the averaged copies.

An update waits for nothing on the device.  Losses add up there until they are read.  A loss or gradient that is not finite
sets a flag on the device, and while it is set none of the three moves: when the flag is read, all are as they were before
the bad update.  On CUDA an update may be recorded once and then launched as a whole (see `captured`).
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from unnoise.data.base import Format
from unnoise.denoiser import Denoiser
from unnoise.distillation import Distillation
from unnoise.networks.compiled import compile_network, uncompiled
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective, Observed, Stratified
from unnoise.objectives.weightings import Weighting
from unnoise.processes import Process
from unnoise.shapes import Tree
from unnoise.training.captured import PLAIN, Captured
from unnoise.training.config import WEIGHTINGS, TrainConfig
from unnoise.training.ema import EMA
from unnoise.training.leaf_kinds import has, leaf_kind, leaf_processes
from unnoise.training.models import Modelled
from unnoise.training.optimiser import Optimiser
from unnoise.training.run import Parts, RunError, ema_name, load_weights
from unnoise.training.telling import told_objective

SUMMED = ("grad_norm", "loss", "prior", "diffusion", "reconstruction")


def accelerator_for(config: TrainConfig) -> Any:
    try:
        from accelerate import Accelerator, DistributedDataParallelKwargs
    except ImportError as error:
        raise ImportError("training needs the package accelerate: pip install 'unnoise[all]'") from error
    handlers = [DistributedDataParallelKwargs(broadcast_buffers=False)]
    return Accelerator(cpu=config.device == "cpu", mixed_precision="no", kwargs_handlers=handlers)


def objective_of(
    denoiser: Denoiser, config: TrainConfig, options: dict[str, Any], made: Modelled | None = None
) -> Objective:
    """What is minimised: the bound, and for products in a share of the rows the bound given some of their leaves."""
    process, says = denoiser.process, denoiser.code is not None and denoiser.code.categories
    weighting = weighting_of(config.weighting, process, options, says)
    if made is not None and made.objective is not None:
        return made.objective(denoiser, weighting=weighting, **options)
    if len(process.leaves) > 1 and config.observed > 0:
        return Observed(denoiser, config.observed, weighting=weighting, **options)
    graded = any(leaf.absorbing or leaf_kind(leaf) == "number" for leaf in leaf_processes(process))  # in time, by themselves
    even = weighting.even and (says or not graded)
    objective = Objective(denoiser, weighting, **({"times": Stratified(), **options} if even else options))
    objective.loss_only = True
    return objective


def weighting_of(name: str, process: Process, options: dict[str, Any], coded: bool = False) -> Weighting:
    """By name; one that concerns nothing of the data is refused, for the bound would be trained under another name.
    `coded`: whether the states stand for categories."""
    kind, what = ("category", "categories") if name == "cross_entropy" else ("number", "numbers")
    if name != "bound" and not has(process, kind) and not (coded and kind == "category"):
        raise ValueError(f"weighting = {name!r} is for {what}, and this data has none: leave it out")
    if name == "edm":  # formats bring numbers to a standard deviation of 1, and levels to [-1, 1]
        return WEIGHTINGS[name](0.5 if "decoder" in options else 1.0)  # type: ignore[call-arg]
    return WEIGHTINGS[name]()


class Learner:
    def __init__(
        self,
        denoiser: Denoiser,
        config: TrainConfig,
        accelerator: Any,
        options: dict[str, Any] | None = None,
        format: Format | None = None,
        made: Modelled | None = None,
        distillation: Distillation | None = None,
    ):
        """`format` is that of the rows, where their network is told a part of them; `made` what is noised in their place;
        `distillation` is minimised in place of the bound."""
        self.config, self.accelerator, self.device = config, accelerator, accelerator.device
        self.denoiser = denoiser.to(self.device)
        self.optimiser = Optimiser(self.denoiser, config)
        self.ema = EMA(self.denoiser, config.ema)
        if config.compile:
            compile_network(denoiser.network)
        self.distillation = distillation
        objective = objective_of(self.denoiser, config, options or {}, made) if distillation is None else distillation
        self.objective = told_objective(objective, format, config.drop)
        self.model = accelerator.prepare(self.objective)
        self.sums = torch.zeros(len(SUMMED), dtype=torch.float64, device=self.device)
        self.bad, self.good = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        alone = accelerator.num_processes == 1
        captured = config.capture and alone and distillation is None and self.device.type == "cuda"
        self.captured = Captured(self.apply, parameters=self.optimiser.parameters) if captured else None
        self.updates, self.first_seconds = 0, 0.0  # of the first updates, in which kernels are compiled

    def precision(self) -> AbstractContextManager:
        return torch.autocast(self.device.type, torch.bfloat16) if self.config.precision == "bf16" else nullcontext()

    def update(self, parts: Iterable[tuple[Tree, NoiseSource]], count: int, step: int, lr: float) -> None:
        """Update number `step` (the first is 1) on a batch in `count` parts."""
        weights, began = self.ema.weights(step), perf_counter()
        if self.captured is not None and count == 1:
            for x0, noise in parts:
                self.captured(x0, noise, lr, weights, 2 * self.objective.phase + self.denoiser.passes)
        else:
            self.apply(parts, count, lr, weights)
        self.updates += 1
        self.first_seconds += perf_counter() - began if self.updates <= PLAIN else 0.0

    def start_up(self) -> dict[str, float]:
        """Seconds of the first updates, and of recording one."""
        recorded = {} if self.captured is None else {"record": self.captured.seconds}
        return {"first updates": self.first_seconds, **recorded}

    def apply(
        self,
        parts: Iterable[tuple[Tree, NoiseSource]],
        count: int,
        lr: float | Tensor,
        weights: Mapping[float, float | Tensor],
    ) -> None:
        """Everything that an update does on the device, in place."""
        for i, (x0, noise) in enumerate(parts, 1):
            with nullcontext() if i == count else self.accelerator.no_sync(self.model):
                with self.precision():
                    bound = self.model(x0, noise)
                    loss = bound.loss.mean() / count
                loss.backward()
            with torch.no_grad():
                terms = torch.stack([bound.prior, bound.diffusion, bound.reconstruction]).mean(-1) / count
                self.sums[1:] += torch.cat([loss.detach().reshape(1), terms])
        norm = self.optimiser.clip(self.config.clip)
        self.sums[0] += norm
        self.bad.copy_(torch.maximum(self.bad, (~self.sums[:2].isfinite().all()).float()))
        if self.accelerator.num_processes > 1:
            torch.distributed.all_reduce(self.bad, torch.distributed.ReduceOp.MAX)
        self.good += 1 - self.bad
        self.optimiser.update(lr, self.bad)
        self.ema.update(weights, self.bad)

    def read(self) -> tuple[dict[str, float], int, bool]:
        """(sums since the last reading, good updates among them, whether a bad one came after): waits for the device."""
        sums = self.accelerator.reduce(self.sums, "mean")
        *values, good, bad = torch.cat([sums, self.good.double()[None], self.bad.double()[None]]).tolist()
        for tensor in (self.sums, self.bad, self.good):
            tensor.zero_()
        return dict(zip(SUMMED, values, strict=True)), int(good), bool(bad)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """For the length of a `with`, the weights to validate and sample from: the first averaged copy, if there is one."""
        averaged = self.ema.applied(self.denoiser, self.config.ema[0]) if self.config.ema else nullcontext()
        with averaged, uncompiled(self.denoiser):
            yield

    def share(self, done: float) -> float:
        """By which the learning rate falls, when a share `done` of the training lies behind: of a round of distillation,
        which begins here when it is due."""
        if self.distillation is None:
            return done
        self.distillation.advance(done, self.shown())
        return self.distillation.within(done)

    def parts(self) -> Parts:
        """All of it as tensors by name, with the random state of every process (for networks with drop-out)."""
        rng = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            rng["cuda"] = torch.cuda.get_rng_state(self.device)
        rng = {name: self.accelerator.gather(state.to(self.device)[None]).cpu() for name, state in rng.items()}
        parts: Parts = {"weights": self.denoiser.state_dict(), "optimizer": self.optimiser.state_dict(), "rng": rng}
        for rate in self.config.ema:
            with self.ema.applied(self.denoiser, rate):
                parts[ema_name(rate)] = {name: value.clone() for name, value in self.denoiser.state_dict().items()}
        if self.distillation is not None:
            parts["teacher"] = self.distillation.kept()
        return parts

    def load(self, parts: Parts, where: Any) -> None:
        load_weights(self.denoiser, parts["weights"], where)
        self.optimiser.load_state_dict(parts["optimizer"])
        for rate in self.config.ema:
            self.ema.load_state_dict(rate, parts[ema_name(rate)])
        if self.distillation is not None:
            self.distillation.restore(parts["teacher"])
        rank = self.accelerator.process_index
        try:
            if rank < len(parts["rng"]["cpu"]):
                torch.set_rng_state(parts["rng"]["cpu"][rank].clone())  # of its own memory: a view is misread
                if self.device.type == "cuda" and "cuda" in parts["rng"]:
                    torch.cuda.set_rng_state(parts["rng"]["cuda"][rank].clone(), self.device)
        except (KeyError, IndexError, TypeError, RuntimeError) as error:
            raise RunError(f"{where}: rng.safetensors holds no random state of this PyTorch: {error}") from error
