"""The training loop.

    outcome = train(Run.create(folder, config), x0)     # the same call goes on with a run that was cut short

Each update sees the batch at the cursor, noised by numbers that are a function of (seed, epoch, batch, example).  What the
device sums up is read every `log_every` steps, and before the bound is measured or a state is saved; nothing else waits for
it.  If a loss or gradient was not finite, the state before that update is saved and training stops.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from unnoise.codes import Code
from unnoise.denoiser import Denoiser
from unnoise.networks.linear_law import fit_linear_law
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective
from unnoise.self_conditioning import one_pass
from unnoise.shapes import Tree
from unnoise.spaces import Space
from unnoise.start_up import StartUp
from unnoise.training import safe_files
from unnoise.training.data_order import Cursor, InMemory, Order, Source, batches, split
from unnoise.training.distilling import distillation_of
from unnoise.training.interrupts import Asked, polite
from unnoise.training.learner import Learner, accelerator_for
from unnoise.training.metrics import Metrics
from unnoise.training.panels import Panels
from unnoise.training.run import Run
from unnoise.training.safe_files import RunError
from unnoise.training.schedules import Rounds
from unnoise.training.telling import told_objective
from unnoise.training.validation import Validation, error_words
from unnoise.training.watching import Watch
from unnoise.tree import leaves, map_leaves

MOST_FITTED = 50_000  # rows that a law is fitted to
EARLY = 0.25  # the share of a training before which nothing is said to be wrong with a code


class NonFinite(FloatingPointError):
    """A loss or gradient that is not finite."""


@dataclass(frozen=True)
class Outcome:
    """How training ended: "steps", "epochs", "minutes", "patience" or "interrupted"."""

    reason: str
    step: int
    epoch: int
    seconds: float
    best: float | None  # the lowest bound on the held-out rows
    best_se: float | None = None  # and its standard error


class Trainer:
    def __init__(self, run: Run, x0: Tree | Source, progress: bool = False, start_up: StartUp | None = None):
        """`start_up` holds how long what was done before took."""
        self.run, self.config, self.progress = run, run.config.train, progress
        self.start_up: StartUp | None = start_up or StartUp()
        c = self.config
        self.accelerator = accelerator_for(c)
        self.device, self.rank = self.accelerator.device, self.accelerator.process_index
        self.alone = self.accelerator.num_processes == 1
        process, space = run.task().process, run.task().space
        self.format = run.format()
        self.source = x0 if isinstance(x0, Source) else InMemory(self._checked(space, x0))
        rows, held = split(len(self.source), c.validation, c.seed)
        if c.start == "law" and run.config.law is None and not run.found():
            law = fit_linear_law(process, self._modelled(rows))
            run.start_from(law.to_json(), write=self.accelerator.is_main_process)
        denoiser = run.denoiser_of_config()
        student = distillation_of(run, denoiser)
        self.held = held[NoiseSource(c.seed, held).at("validation").uniform().argsort()[: c.validation_rows]]
        self.held = self.held if student is None else self.held[:0]  # what a student minimises is no bound
        self.order = Order(rows, c.batch_size, c.seed, c.accumulate, self.accelerator.num_processes)
        some, began = rows[:: -(-len(rows) // MOST_FITTED)], perf_counter()
        self.settled = denoiser.code is not None and not run.found() and self._prepare(denoiser.code, rows)
        settling = perf_counter() - began
        new = student is None and not run.found()
        self.has_law = run.config.law is not None or (new and _fit_base(denoiser, lambda: self._modelled(some)))
        self.options, self.log_fill = run.objective_options(), self.format.log_fill
        self.bound = Objective(denoiser, **self.options)  # of the held-out rows, and of a schedule that is learned
        self.watch = Watch(told_objective(self.bound, self.format), self.source, rows, self.held, c)
        self.rounds = Rounds(self.bound, rows, self.order.part, c.seed, self.format)
        self.learner = Learner(denoiser, c, self.accelerator, self.options, self.format, run.task().made, student)
        if self.accelerator.is_main_process and not run.found():
            run.keep_conditions(self.source, rows)
        self.step, self.cursor, self.seconds = 0, Cursor(), settling if self.settled else 0.0
        self.troubled: set[str] = set()  # what was wrong with the code, and said
        self.best: float | None = None
        self.best_se: float | None = None
        self.waited = 0  # validations since the best one
        self.saved = -1
        self.asked = Asked()
        self.metrics: Metrics | None = None  # of the main process, as are the panels
        self.panels: Panels | None = None
        self.start_up.mark("build")

    def _checked(self, space: Space, rows: Tree) -> Tree:
        """The values of data in memory are looked at here, once."""
        x0, condition = self.format.apart(rows)
        x0 = space.check(x0, "x0")
        return rows if self.format.inputs() else x0

    def _prepare(self, code: Code, rows: Tensor) -> bool:
        """What a code settles before the first update, by the rows that are trained on; whether it has anything to."""
        c, order = self.config, NoiseSource(self.config.seed, rows).at("prepare").uniform().argsort()

        def some(n: int | None = None) -> Tree:
            return self._modelled(rows[order[:n]])

        return bool(code.prepare(some, 60 * c.minutes if c.minutes is not None else None, self.device, c.seed))

    def _modelled(self, rows: Tensor) -> Tree:
        """What is modelled of some rows."""
        return self.format.apart(self.source.take(rows))[0]

    def fit(self) -> Outcome:
        """Train to the end, from the newest saved state if there is one."""
        devices = [self.device.index or 0] if self.device.type == "cuda" else []
        mine = self.run.locked() if self.accelerator.is_main_process else nullcontext()
        with mine, torch.random.fork_rng(devices=devices), polite(self.alone) as self.asked:
            torch.manual_seed((self.config.seed * 1_000_003 + self.rank) % 2**63)  # for networks with drop-out
            self._resume()
            if self.accelerator.is_main_process:
                c = self.config
                self.metrics = Metrics(self.run.metrics, self.step, self._total(), self.progress, c.tensorboard)
                self.panels = Panels(self.run.samples, self.format, c, self.step, self._done(), self.run.telling())
            try:
                return self._loop()
            finally:
                if self.metrics is not None:
                    self.metrics.close()

    def best_denoiser(self) -> Denoiser:
        """When training is over: the denoiser that was trained, with the weights of the best state."""
        return self.run.denoiser(which="best", into=self.learner.denoiser)

    def _loop(self) -> Outcome:
        c = self.config
        stream = batches(self.source, self.order, self.cursor, self.device, self.rank, c.workers)
        self.learner.denoiser.train()
        self.began = perf_counter() - self.seconds
        reason = self._reason()
        if self.step == 0 and reason is None and len(self.held):
            if self.has_law or self.settled:
                self._save(self._validate())  # the network may have nothing to add, or much lies behind already
            else:
                self._record_bounds()  # where the curve begins
        self.watch.begin(self._done())
        self._begin_window()
        while reason is None:
            self._update(stream)
            reason = self._reason()
            validates = len(self.held) > 0 and (reason not in (None, "interrupted") or self._bound_due())
            saves = reason is not None or self._due(c.save_every)
            improved = False
            fits = self.learner.distillation is None and self.rounds.due(self.step)
            if validates or saves or fits or self._due(c.log_every):
                self._log()
                if fits:
                    self.rounds.fit(self.source, self.step, self._done(), self.device)
                improved = validates and self._validate()
                reason = reason or self._reason()  # patience, or the clock that several processes share
                if improved or saves or reason is not None:
                    self._save(improved)
                self._show(reason)
                self._begin_window()
        return Outcome(reason, self.step, self.cursor.epoch, self.seconds, self.best, self.best_se)

    def _update(self, stream: Iterator) -> None:
        def parts() -> Iterator[tuple[Tree, NoiseSource]]:
            for _ in range(self.order.parts):
                cursor, rows, x0 = next(stream)
                yield x0, NoiseSource(self.config.seed, rows).at("epoch", cursor.epoch, "batch", cursor.position)

        done = self._done()
        self.lr = self.config.lr_at(self.step, self.learner.share(done))
        self.learner.objective.begin(done)
        # every other update of a self-conditioned network makes one pass, so that its first estimate is trained too
        try:
            with one_pass(self.learner.denoiser) if self.step % 2 else nullcontext():
                self.learner.update(parts(), self.order.parts, self.step + 1, self.lr)
        except FloatingPointError as error:  # seen before anything was added up, or updated
            self._stop_non_finite(self.learner.read()[1], str(error))
        self.step, self.cursor = self.step + 1, self.order.after(self.cursor)
        if self.alone:
            self.seconds = perf_counter() - self.began

    def _due(self, every: int | None) -> bool:
        return every is not None and self.step % every == 0

    def _reason(self) -> str | None:
        """Why training ends now, if it does."""
        c = self.config
        if self.asked.yes:
            return "interrupted"
        if c.steps is not None and self.step >= c.steps:
            return "steps"
        if c.epochs is not None and self.cursor.epoch >= c.epochs:
            return "epochs"
        if c.minutes is not None and self.seconds >= 60 * c.minutes:
            return "minutes"
        return "patience" if c.patience is not None and self.waited >= c.patience else None

    def _done(self) -> float:
        """The share of the training that lies behind."""
        c = self.config
        ends = ((self.seconds / 60, c.minutes), (self.step, c.steps), (self._epochs(), c.epochs))
        return max((behind / end for behind, end in ends if end), default=0.0)

    def _epochs(self) -> float:
        """Those that lie behind, whatever the size of their batches was."""
        return self.cursor.epoch + self.cursor.position / (self.order.per_epoch * self.order.batch)

    def _total(self) -> int | None:
        """The step that ends the training, where one is known before."""
        c = self.config
        epochs = None if c.epochs is None else self.step + round((c.epochs - self._epochs()) * self.order.per_epoch)
        return min((end for end in (c.steps, epochs) if end is not None), default=None)

    def _begin_window(self) -> None:
        self.window = (self.step, self.cursor, perf_counter())

    def _log(self) -> None:
        """Read what the device has summed up since the last time, and write it down."""
        start, _, then = self.window
        sums, good, bad = self.learner.read()
        if not self.alone:  # all go by the clock of the first
            now = torch.tensor([perf_counter() - self.began], dtype=torch.float64, device=self.device)
            torch.distributed.broadcast(now, 0)
            self.seconds = float(now)
        if bad:
            self._stop_non_finite(good)
        steps, pace = self.step - start, (self.step - start) * self.order.batch / max(perf_counter() - then, 1e-9)
        if self.metrics is not None:
            self._tell_start_up()
            means = {name: value / steps for name, value in sums.items() if value == value}  # a term may be left out
            entry = {"epoch": self.cursor.epoch, **means, "lr": self.lr}
            self.metrics.write(self.step, {**entry, "examples_per_second": pace, "seconds": self.seconds})
            shown = {"loss": f"{means['loss']:.4g}", "examples/s": f"{pace:.0f}"}
            if self.config.minutes is not None:
                shown["left"] = f"{max(0.0, self.config.minutes - self.seconds / 60):.1f} min"
            self.metrics.show(self.step, **shown)

    def _tell_start_up(self) -> None:
        """Once, when the first updates lie behind, or all of them."""
        if self.metrics is not None and self.start_up is not None:
            self.metrics.write(self.step, {"start_up": {**self.start_up.parts, **self.learner.start_up()}})
            self.start_up = None

    def _stop_non_finite(self, good: int, why: str = "") -> None:
        """Save the state before the bad update, say which examples it saw, and stop."""
        self.step, self.cursor, _ = self.window
        for _ in range(good):
            self.step, self.cursor = self.step + 1, self.order.after(self.cursor)
        path = self.run.folder / "nonfinite.json"
        if self.accelerator.is_main_process:
            where = {"step": self.step + 1, "epoch": self.cursor.epoch, "position": self.cursor.position}
            safe_files.write_json(path, {**where, "examples": self.order.at(self.cursor, self.order.batch).tolist()})
        self._save()
        why = why or self._blamed()
        raise NonFinite(
            (f"{why}; " if why else "")
            + f"the loss or its gradient is not finite at step {self.step + 1} (its examples: {path}); nothing was updated: "
            f"try a lower lr (now {self.config.lr:g}), a smaller clip (now {self.config.clip}), "
            f'or precision "no" (now "{self.config.precision}")'
        )

    def _blamed(self) -> str:
        """Whether it is the code that makes no numbers of the examples."""
        code, rows = self.learner.denoiser.code, self.order.at(self.cursor, self.order.batch)
        if code is None:
            return ""
        try:
            with torch.no_grad():
                x = map_leaves(lambda leaf: leaf.to(self.device), self._modelled(rows))
                found = leaves(code.encode(x, NoiseSource(self.config.seed, rows, self.device), {})[0])
        except FloatingPointError as error:
            return str(error)
        except (TypeError, ValueError, RuntimeError):  # such as a code that asks what the rows are told
            return ""
        bad = any(not bool(z.isfinite().all()) for z in found)
        return f"the encoder of {type(code).__name__} returned what is not finite" if bad else ""

    def _bound_due(self) -> bool:
        c = self.config
        clocked = self.alone and c.minutes is not None and self.watch.due(self._done(), self.seconds)
        return clocked or self._due(c.validate_every)

    def _record_bounds(self) -> Validation:
        """Measure the bounds on the held-out rows and on some that are trained on, and write them down."""
        held, some = self.watch.measure(self.learner, self.accelerator, self.order.part, self.log_fill)
        if self.metrics is not None:
            names = {f"validation_{name}": value for name, value in held.to_json().items()}
            names |= {"training_bound": some.bound, "training_rows": some.rows, **self._watched()}
            self.metrics.write(self.step, {"epoch": self.cursor.epoch, **names})
            error = error_words(held.se).replace(" ", "")
            self.metrics.show(self.step, bound=f"{held.bound:.4g}{error}")
        return held

    def _watched(self) -> dict[str, float]:
        """What the code has to show on some rows that are trained on; what is wrong with it is said once."""
        code = self.learner.denoiser.code
        if code is None:
            return {}
        x = map_leaves(lambda leaf: leaf.to(self.device), self._modelled(self.watch.some))
        with self.learner.shown(), torch.no_grad():
            seen = code.monitor(x, NoiseSource(self.config.seed, self.watch.some, self.device).at("monitor"))
        for name, words in code.troubles(seen).items():
            if name not in self.troubled and self._done() >= EARLY:
                self.troubled.add(name)
                warnings.warn(f"{name} at step {self.step}: {words}", stacklevel=2)
        return {f"code_{name}": value for name, value in seen.items()}

    def _validate(self) -> bool:
        """Measure the bound on the held-out rows; whether it is the best so far."""
        result = self._record_bounds()
        improved = result.bound < (float("inf") if self.best is None else self.best)
        if improved:
            self.waited, self.best, self.best_se = 0, result.bound, result.se
        elif self._due(self.config.validate_every):  # patience counts the regular measurements
            self.waited += 1
        return improved

    def _show(self, reason: str | None) -> None:
        """Draw a panel of samples, where one is due."""
        ended = reason not in (None, "interrupted")
        if self.panels is not None and self.metrics is not None and self.panels.due(self._done(), self.seconds, ended):
            try:
                with self.learner.shown():
                    path = self.panels.draw(self.learner.denoiser, self.step)
                self.metrics.panel(self.step, path)
            except Exception as error:  # no picture is worth a training
                warnings.warn(f"no panel of samples at step {self.step}: {error}", stacklevel=2)

    def _save(self, best: bool = False) -> None:
        if self.saved == self.step and not best:
            return
        parts = self.learner.parts()
        if self.accelerator.is_main_process:
            place = {"step": self.step, "epoch": self.cursor.epoch, "position": self.cursor.position}
            so_far = {"seconds": self.seconds, "waited": self.waited, "rows": len(self.source)}
            self.run.save(self.step, {**place, **so_far, "best": self.best, "best_se": self.best_se}, parts, best)
        self.saved = self.step
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        """Put everything back as it was when the newest whole state was saved."""
        if not self.run.found():
            return
        state, numbers, parts = self.run.load()
        if numbers["rows"] != len(self.source):
            raise RunError(
                f"{self.run.folder} was trained on {numbers['rows']} rows, and the data now has {len(self.source)}: "
                f"go on with the same data, or start a new run"
            )
        self.learner.load(parts, state.folder)
        self.step = numbers["step"]
        self.cursor = self.order.next_batch(Cursor(numbers["epoch"], numbers["position"]))  # batches may be larger now
        self.seconds, self.best, self.waited = numbers["seconds"], numbers["best"], numbers["waited"]
        self.best_se = numbers.get("best_se")
        self.saved = self.step
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            self.run.drop_after(state)
        self.accelerator.wait_for_everyone()


def _fit_base(denoiser: Denoiser, x0: Callable[[], Tree]) -> bool:
    """A network that starts from a law fitted to the data, `fit_base(x0)`, is given the training rows before the first
    update; what it keeps of them are buffers, saved with the weights."""
    fit = getattr(denoiser.network, "fit_base", None)
    if fit is not None:
        fit(x0())
    return fit is not None


def train(run: Run, x0: Tree | Source, progress: bool = False) -> Outcome:
    """Train a run to its end, or go on with it."""
    return Trainer(run, x0, progress).fit()
