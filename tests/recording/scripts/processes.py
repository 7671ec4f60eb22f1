"""What the argument names: "forked" ranks, "left" by os._exit, two "threads" that train at the same time, or in "turns"."""

import os
import socket
import sys
import threading
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

STEPS = 4
torch.set_num_threads(1)
torch.manual_seed(0)


def train(rank: int, wait: Callable[[int], object] = lambda step: None) -> None:
    net = nn.Linear(6, 3)
    if dist.is_initialized():
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(STEPS):
        inputs = torch.full((4, 6), float(step)) + rank
        loss = net(inputs).square().mean()
        wait(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def work(rank: int, port: int) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    train(rank)
    dist.destroy_process_group()


if sys.argv[1] == "forked":
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        free = listener.getsockname()[1]
    mp.start_processes(work, (free,), nprocs=2, start_method="fork")
elif sys.argv[1] == "threads":
    barrier = threading.Barrier(2)

    def last(step: int) -> None:
        """Trains along with the first, and takes the last step when the first one has ended."""
        barrier.wait()
        if step == STEPS - 1:
            first.join()

    first = threading.Thread(target=train, args=(0, lambda step: barrier.wait()))
    second = threading.Thread(target=train, args=(1, last))
    first.start()
    second.start()
    second.join()
elif sys.argv[1] == "turns":
    for rank in range(2):
        thread = threading.Thread(target=train, args=(rank,))
        thread.start()
        thread.join()
else:
    train(0)
    os._exit(0)
