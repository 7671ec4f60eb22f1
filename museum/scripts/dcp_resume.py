"""Resumes a run of two ranks, one of which was killed while it saved with torch.distributed.checkpoint."""

import argparse
import os
import signal
import tempfile
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

parser = argparse.ArgumentParser()
parser.add_argument("--new-id", action="store_true", help="give each save a checkpoint_id of its own")
given = parser.parse_args()

warnings.simplefilter("ignore")


class Killed(dcp.FileSystemWriter):
    """Ends its process once the save is planned."""

    def write_data(self, *_):
        """Writes nothing."""
        os.kill(os.getpid(), signal.SIGKILL)


def batch(step):
    """Draws the examples of a step."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(16, 8, generator=generator), torch.randint(4, (16,), generator=generator)


def first_life(rank, folder):
    """Takes 20 steps and saves after 10 and 20. Its gradients are written out, so only the resumed steps are recorded."""
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=30))
    mesh = init_device_mesh("cpu", (2,))
    weight, bias = torch.zeros(4, 8), torch.zeros(4)
    for step in range(1, 21):
        inputs, targets = batch(step)
        off = torch.softmax(inputs @ weight.T + bias, 1) - torch.nn.functional.one_hot(targets, 4)
        weight -= 0.5 * off.T @ inputs / len(inputs)
        bias -= 0.5 * off.mean(0)
        if step % 10 == 0:
            place = f"{folder}/{step}" if given.new_id else f"{folder}/latest"
            writer = Killed if (rank, step) == (1, 20) else dcp.FileSystemWriter
            model = {"weight": weight, "bias": bias}
            sharded = {name: distribute_tensor(each, mesh, [Shard(0)]) for name, each in model.items()}
            dcp.save({"model": sharded, "step": step}, storage_writer=writer(place))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ranks = [mp.get_context("fork").Process(target=first_life, args=(rank, folder)) for rank in range(2)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
        newest = max(Path(folder).glob("*/.metadata"), key=os.path.getmtime).parent
        model = torch.nn.Linear(8, 4)
        state = {"model": model.state_dict(), "step": 0}
        dcp.load(state, checkpoint_id=newest, no_dist=True)
    print(f"resumes after step {state['step']}")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(state["step"] + 1, state["step"] + 7):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")
