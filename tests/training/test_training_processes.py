"""Two processes train as one does on the same global batch."""

import os
import socket
import subprocess
import sys

import pytest
import small_run
import torch

from unnoise.training import metrics, train


def free_port() -> int:
    with socket.socket() as server:
        try:
            server.bind(("127.0.0.1", 0))
        except OSError as error:
            pytest.skip(f"no port can be bound here: {error}")
        return server.getsockname()[1]


def launched(folder, world: int) -> None:
    """Train the run in a folder on several processes that talk by gloo."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    children = [
        subprocess.Popen(
            [sys.executable, small_run.__file__, str(folder)],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "ACCELERATE_USE_CPU": "true"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    errors = [child.communicate(timeout=120)[1] for child in children]
    assert [child.returncode for child in children] == [0] * world, "\n".join(errors)


@pytest.mark.parametrize("weighting", ["bound", "balanced"])
def test_two_processes_give_the_losses_of_one(tmp_path, weighting):
    options = {"weighting": weighting, "steps": 12, "dropout": 0.0, "accumulate": 2, "validate_every": 6, "log_every": 1}
    one, two = (small_run.make(tmp_path / name, small_run.Pairs(2.0), **options) for name in ("one", "two"))
    train(one, small_run.pairs())
    launched(two.folder, 2)
    ours, theirs = ([line for line in metrics.read_metrics(run.metrics) if "start_up" not in line] for run in (one, two))
    names = ("loss", "prior", "diffusion", "reconstruction", "grad_norm", "lr", "validation_bound", "validation_se")
    compared = 0
    assert len(ours) == len(theirs) == 12 + 3  # and the bound at the start, in the middle, at the end
    for line, other in zip(ours, theirs, strict=True):
        assert (line["step"], line["epoch"]) == (other["step"], other["epoch"])
        for name in names:
            if name in line:
                assert other[name] == pytest.approx(line[name], rel=1e-5), (line["step"], name)
                compared += 1
    assert compared == 12 * 6 + 3 * 2
    for ema in (False, 0.9):
        for p, q in zip(small_run.weights(one, ema).values(), small_run.weights(two, ema).values(), strict=True):
            assert torch.allclose(p, q, rtol=1e-3, atol=1e-4)
    assert len(two.load()[2]["rng"]["cpu"]) == 2  # the random state of each
