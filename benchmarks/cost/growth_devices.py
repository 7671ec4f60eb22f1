"""Compares the processor seconds of `torch:ddp` with a loop by hand, to explain why its cost grows faster than its devices.

`python -m benchmarks.cost.growth_devices [--devices 4,8]` trains with 20 and with 220 steps, by the command and by a loop written
by hand with the same model. It prints the processor seconds of the 200 steps in between, over all processes. Starting is not
included.
"""

import argparse
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable

from samestep.experiments.printing.text import github

FEW, MANY, BATCH = 20, 220, 48
WORKLOAD = "digits-mlp+width=32"


def main() -> None:
    """Trains each number of devices, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="4,8", help="numbers of devices, as in 4,8,16")
    rows = []
    for devices in map(int, parser.parse_args().devices.split(",")):
        ours, hand = (_between(each, devices) for each in (_command, _by_hand))
        rows.append([str(devices), f"{ours:.2f}", f"{hand:.2f}"])
    print(github(["devices", "ours s", "by hand s"], rows))


def _between(take: Callable[[int, int], None], devices: int) -> float:
    """Returns the processor seconds of the steps from FEW to MANY, over all processes that a function starts and waits for."""
    spent = []
    for steps in (FEW, MANY):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        take(devices, steps)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return spent[1] - spent[0]


def _command(devices: int, steps: int) -> None:
    words = ["--devices", str(devices), "--workload", WORKLOAD, "--batch-size", str(BATCH), "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as scratch:
        line = [sys.executable, "-m", "samestep", "run", "torch:ddp", *words, "--no-evaluate", "--no-parity"]
        subprocess.run(
            [*line, "--out", f"{scratch}/run"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


def _by_hand(devices: int, steps: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    begun = []
    for rank in range(devices):
        if not (pid := os.fork()):
            _train(rank, devices, steps, port)
        begun.append(pid)
    for pid in begun:
        os.waitpid(pid, 0)


def _train(rank: int, devices: int, steps: int, port: int) -> None:
    import torch
    from torch import distributed, nn

    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=devices)
    layers = (nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10))
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), 0.03)
    inputs, targets = torch.randn(BATCH // devices, 64), torch.randint(0, 10, (BATCH // devices,))
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    distributed.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
