"""torch.distributed.checkpoint mixes two steps if a rank dies while overwriting the first.

What to do: save each step into a new directory, and check its files before anything refers to it.
"""

import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


class Dies(dcp.FileSystemWriter):
    """A writer that ends its process before it has written anything."""

    def write_data(self, *_: object) -> None:
        """Ends the process as a kill would, once the save is planned."""
        os._exit(0)


def _save(rank: int, folder: str) -> None:
    store = dist.FileStore(f"{folder}.store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=5))
    mesh = init_device_mesh("cpu", (2,))
    for step in (10, 20):
        state = {"w": distribute_tensor(torch.full((4,), float(step)), mesh, [Shard(0)]), "step": step}
        dcp.save(state, storage_writer=Dies(folder) if (rank, step) == (1, 20) else dcp.FileSystemWriter(folder))


if __name__ == "__main__":
    mp.start_processes(_save, (folder := tempfile.mkdtemp(),), 2, join=False, start_method="fork").join(30)
    loaded = {"w": torch.zeros(4), "step": 0}
    dcp.load(loaded, checkpoint_id=folder, no_dist=True)
    print(f"step {loaded['step']}: {loaded['w'].tolist()}")
    assert loaded["w"].unique().numel() == 1, "the directory is of two steps, and nothing was raised"
