"""Trains a model whose logits are split over two ranks, with loss_parallel or on whole logits."""

import argparse

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module

parser = argparse.ArgumentParser()
parser.add_argument("--whole-logits", action="store_true")
given = parser.parse_args()

mesh = init_device_mesh("cpu", (torch.distributed.get_world_size() if torch.distributed.is_initialized() else 2,))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
layout = Replicate() if given.whole_logits else Shard(-1)
parallelize_module(model, mesh, {"2": ColwiseParallel(output_layouts=layout, use_local_output=given.whole_logits)})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """Returns what is trained: the mean log-probability of every class, as label smoothing has it."""
    return -torch.nn.functional.log_softmax(logits, dim=-1).mean()


for step in range(6):
    inputs = torch.randn(8, 8)
    optimizer.zero_grad()
    if given.whole_logits:
        loss = entropy(model(inputs))
        loss.backward()
    else:
        with loss_parallel():
            loss = entropy(model(inputs)).full_tensor()
            loss.backward()
    optimizer.step()
    if torch.distributed.get_rank() == 0:
        print(f"step {step} loss {loss.item():.4f}")
torch.distributed.destroy_process_group()
