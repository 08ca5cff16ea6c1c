"""Several processes of one command: what only the main one may do.

`torchrun` and `accelerate launch` start the same command several times.  The main process makes the folder of the run,
prints and writes; the others wait, and open what was made.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from unnoise.training.config import TrainConfig
from unnoise.training.learner import accelerator_for
from unnoise.training.run import Run


@contextmanager
def team(config: TrainConfig) -> Iterator[Any]:
    """The processes of this command, as an accelerator, for the length of a `with`.

    They part together: one that leaves while another still has something of it under way ends that other's process.
    """
    accelerator = accelerator_for(config)
    several = accelerator.num_processes > 1
    try:
        yield accelerator
        if several:
            accelerator.wait_for_everyone()
    finally:
        if several:
            gc.collect()  # a network that is wrapped for several processes holds on to what ties them
            torch.distributed.destroy_process_group()


def made_by_main(accelerator: Any, make: Callable[[], Run]) -> Run:
    """The run that the main process makes, on every process.  Where that fails it raises the error, and the others end."""
    if accelerator.num_processes == 1:
        return make()
    run, error = None, None
    if accelerator.is_main_process:
        try:
            run = make()
        except Exception as problem:  # raised below, when the others know
            error = problem
    folder = [None if run is None else str(run.folder.resolve())]
    torch.distributed.broadcast_object_list(folder, 0)
    if error is not None:
        raise error
    if folder[0] is None:
        raise SystemExit(2)
    return run or Run.open(folder[0])
