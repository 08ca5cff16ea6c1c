"""Many samples of a trained model, batch by batch, and how their kernels are launched.

The batch is what fits and keeps the device busy (`batch_sizes`), measured on the first calls of two small runs.  Let a run
have S steps, h the host's time to launch the kernels of one, d the device's time to work through them.  B batches take

    plainly              B S max(h, d)
    a recorded run       S max(h, d) + S h + (B - 1) S d         the first batch, the recording, and a replay for each other
    a recorded network   about B S (max(h, d) - h') + 4 h'       with h' the network's part of h, and 4 calls to record it

so to record pays where the device waits for the host, d < h: the whole run from three batches on, else the network, if it is
called often enough.  A batch that is large enough to keep the device busy has d > h, and is launched kernel by kernel:
there is nothing to be gained, and a recording needs memory of its own.  That is read off the bytes of a batch, not off the
clock, so that the same command does the same thing twice.

To compile a network takes longer than most draws: it is done for those that would take minutes (`COMPILED_FROM`).

What cannot be recorded is launched plainly, and `info.way` says why.  All ways draw the same samples: the kernels are the
same, only who starts them differs; those of a compiled network round otherwise.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from torch import Tensor
from tqdm.auto import tqdm

from unnoise.batch_sizes import TRIED, DeviceMemory, Need, even, in_batches, measured, memory_of
from unnoise.denoiser import AnyDenoiser, Denoiser
from unnoise.samplers.base import Sampler, Stepping
from unnoise.samplers.captured import captured
from unnoise.samplers.captured_run import CapturedRun
from unnoise.samplers.parts import joined
from unnoise.samplers.problem import Info
from unnoise.samplers.sample import chosen, sample
from unnoise.shapes import Tree
from unnoise.tree import join, map_leaves
from unnoise.tree import rows as some_rows

HOST_BOUND = 2**28  # bytes of a batch up to which the device waits for the host
BATCHES, CALLS = 3, 16  # from which a run is recorded, and a network
COMPILED_FROM = 24 * 2**40  # bytes of all calls together: two minutes of an H200, which does 4 GiB of a batch in 20 ms
PROBED = 3  # calls of a run that is measured
RECORDED_ON: tuple[str, ...] = ("cuda",)
PLAIN, NETWORK, RUN = "plain", "recorded network", "recorded run"

Begin = Callable[[int, int], dict[str, Any]]  # what `sample` is told of rows first ... first + count - 1


class _Enough(Exception):
    """Raised where a run has been watched long enough."""


def first_calls(denoiser: AnyDenoiser, run: Callable[[], Any], calls: int, began: Callable[[], None]) -> None:
    """A run up to so many calls of the denoiser; `began()` is called at the first of them."""
    seen = 0

    def count(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            began()
        if seen > calls:
            raise _Enough

    hook = denoiser.register_forward_pre_hook(count)
    try:
        run()
    except _Enough:
        pass
    finally:
        hook.remove()


def need_of(denoiser: AnyDenoiser, run: Callable[[int], Any], rows: int, memory: DeviceMemory) -> Need:
    """What `run(m)`, the run of m rows, needs of memory."""
    return measured(lambda m, anew: first_calls(denoiser, lambda: run(m), PROBED, anew), memory, rows)


def way_of(sampler: Sampler, denoiser: AnyDenoiser, need: Need, size: int, batches: int, calls: int | None) -> str:
    """How the batches of a run on CUDA are launched, and why, if plainly."""
    if not isinstance(sampler, Stepping):
        return f"{PLAIN}: {type(sampler).__name__} asks the device what to do next"
    if need.per_row * size > HOST_BOUND:
        return f"{PLAIN}: a batch keeps the device busy"
    if batches >= BATCHES:
        return RUN
    if not isinstance(denoiser, Denoiser):
        return f"{PLAIN}: a {type(denoiser).__name__} has no network to record"
    return NETWORK if (calls or 0) * batches >= CALLS else f"{PLAIN}: too few calls to record one"


class Batches:
    """The batches of one run, `draw(first, count)`: `sample` with the options of the run and what `begin` says of rows."""

    def __init__(self, denoiser: AnyDenoiser, n: int, batch: int | None, begin: Begin, options: dict[str, Any]):
        self.denoiser, self.begin, self.options = denoiser, begin, options
        records, memory, need = denoiser.device.type in RECORDED_ON, memory_of(denoiser.device), None
        if records or batch is None and n > TRIED[-1]:
            need = need_of(denoiser, lambda m: self._plain(denoiser, 0, m), min(n, batch or n), memory)
        self.size = even(n, n if need is None else need.rows(memory)) if batch is None else min(batch, n)
        self.way, self.compiled = PLAIN, False
        self.rows = 0  # of what is recorded or compiled
        self.network: AnyDenoiser | None = None
        self.run: CapturedRun | None = None
        if records and need is not None:
            self._choose(need, n)

    def _choose(self, need: Need, n: int) -> None:
        begun = self.begin(0, 1)
        options = {**self.options, **begun}
        wanted = (options.get(name) for name in ("steps", "sampler", "grid", "calls", "tolerance"))
        sampler, steps = chosen(self.denoiser, *wanted)
        calls = sampler.calls(steps or 1, self.denoiser.process.base)
        batches = 1 if "sampler" in begun else -(-n // self.size)  # of one method
        self.way = way_of(sampler, self.denoiser, need, self.size, batches, calls)
        self.compiled = isinstance(sampler, Stepping) and n * (calls or 0) * need.per_row >= COMPILED_FROM

    def draw(self, first: int, count: int) -> tuple[Tree, Info]:
        """Samples first ... first + count - 1, and what they took."""
        if self.way in (NETWORK, RUN):
            try:
                return self._recorded(first, count)
            except RuntimeError as error:  # it cannot be recorded, or there is no memory for that
                self.way, self.network, self.run = f"{PLAIN}: {_line(error)}", None, None
        if not self.compiled:
            return self._plain(self.denoiser, first, count)
        self.rows = self.rows if count < self.rows < 2 * count else count  # every other size would be compiled anew
        x, info = self._plain(self.denoiser, first, self.rows)
        return some_rows(x, slice(count)), info

    def _plain(self, denoiser: AnyDenoiser, first: int, count: int) -> tuple[Tree, Info]:
        return sample(denoiser, **{**self.options, **self.begin(first, count)})

    def _recorded(self, first: int, count: int) -> tuple[Tree, Info]:
        """By what is recorded for `rows` rows: the last batch is filled up, and cut again."""
        if self.way == RUN and first == 0:
            return self._plain(self.denoiser, first, count)  # this prepares what the next one records
        self.rows = max(self.rows, count)
        x, info = self._replayed(first) if self.way == RUN else self._by_network(first)
        return some_rows(x, slice(count)), info

    def _replayed(self, first: int) -> tuple[Tree, Info]:
        begun = self.begin(first, self.rows)
        if self.run is None:
            start = {name: begun.get(name) for name in ("x", "condition")}
            self.run = CapturedRun(self.denoiser, self.rows, warm_up=False, **start, **self.options)
        return self.run(**{name: begun[name] for name in ("x", "condition", "first", "rows") if name in begun})

    def _by_network(self, first: int) -> tuple[Tree, Info]:
        self.network = self.network or captured(self.denoiser)
        return self._plain(self.network, first, self.rows)


def _line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def from_prior(first: int, count: int) -> dict[str, Any]:
    return {"n": count, "first": first}


def sample_many(
    denoiser: AnyDenoiser,
    n: int,
    batch: int | None = None,
    begin: Begin = from_prior,
    progress: bool = False,
    compiled: Callable[[], AbstractContextManager] = nullcontext,
    keep: bool = False,
    **options: Any,
) -> tuple[Tree, Info]:
    """n samples on the CPU, and what they took, by `sample` with these options, a seed among them.

    `batch` rows at a time, or as many as suit the device.  `begin(first, count)` is what `sample` is told of some rows: the
    states that they start from, a method that holds what is known of them.  It may be asked for more rows than there are.
    Within `compiled()` the denoiser's network is compiled: a draw that is long enough is made there.

    Where a batch after the first stops with a ValueError, as that of a reward is, `keep` returns those before it, and
    `info.failure` says why there are no more.
    """
    batches = Batches(denoiser, n, batch, begin, options)
    bar = tqdm(total=n, unit="sample", disable=not progress or n <= batches.size, leave=False)
    with bar, compiled() if batches.compiled else nullcontext():
        before = list[tuple[Tree, Info]]()

        def draw(first: int, count: int) -> tuple[Tree, Info]:
            x, info = batches.draw(first, count)
            drawn = map_leaves(Tensor.cpu, x)
            bar.update(count)
            before.append((drawn, replace(info, jumps=None, clipped=None, batch=count, way=batches.way)))
            return before[-1]

        try:
            done, failure = in_batches(n, batches.size, draw), None
        except ValueError as error:
            if not keep or not before:
                raise
            done, failure = before, str(error)
    return join([x for x, _ in done]), replace(joined([info for _, info in done]), failure=failure)
