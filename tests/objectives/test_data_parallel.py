"""Two workers on gloo compute what one does with the same global batch: losses, and gradients through features and head."""

import os

import pytest
import torch
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel

import unnoise as un
from unnoise.kernels import head_chunks
from unnoise.objectives import closed_forms
from unnoise.predictions import linear_heads

ROWS, LENGTH, SIZE = 6, 5, 4


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(SIZE + 1, 8)
        self.mix = torch.nn.Linear(LENGTH * 8, LENGTH * 8)
        self.head = torch.nn.Linear(8, SIZE)

    def features(self, x, t):
        return torch.tanh(self.mix(self.embed(x).flatten(1))).reshape(len(x), LENGTH, 8) + t.reshape(-1, 1, 1)

    def forward(self, x, t):
        return self.head(self.features(x, t))


def objective(name):
    process = {"masking": un.Masking, "uniform": un.Uniform}[name.removesuffix(" in chunks")](SIZE, (LENGTH,))
    return un.Objective(un.Denoiser(Network().double(), process))


def data():
    return torch.randint(SIZE, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))


def work(rank, name, port, queue):
    if "in chunks" in name:
        linear_heads.FEW, closed_forms.CHUNK = {"cpu": 0}, 0
        head_chunks.ON_HOST = head_chunks.ChunkPlan(2 * SIZE, 1, kernels=False)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    module = DistributedDataParallel(objective(name))
    mine = torch.arange(rank * ROWS // 2, (rank + 1) * ROWS // 2)
    loss = module(data()[mine], un.NoiseSource(7, mine)).loss
    loss.mean().backward()
    gradients = {key: value.grad.tolist() for key, value in module.module.named_parameters()}
    queue.put((rank, loss.tolist(), gradients))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["masking", "uniform", "masking in chunks", "uniform in chunks"])
def test_two_workers_equal_one(name, unused_port):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=work, args=(rank, name, unused_port, queue)) for rank in range(2)]
    for worker in workers:
        worker.start()
    results = sorted((queue.get(timeout=120) for _ in workers), key=lambda r: r[0])
    for worker in workers:
        worker.join()
    alone = objective(name)
    loss = alone(data(), un.NoiseSource(7, ROWS)).loss
    loss.mean().backward()
    together = torch.tensor(results[0][1] + results[1][1], dtype=torch.float64)
    torch.testing.assert_close(together, loss.detach(), atol=1e-12, rtol=0)
    for key, value in alone.named_parameters():
        for _, _, gradients in results:
            torch.testing.assert_close(torch.tensor(gradients[key], dtype=torch.float64), value.grad, atol=1e-12, rtol=0)


@pytest.fixture
def unused_port():
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
