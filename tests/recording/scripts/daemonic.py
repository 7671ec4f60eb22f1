"""Trains in two processes, the second of which is a daemonic child of the first and slower than it."""

import multiprocessing
import os
import sys
import time
import types

sys.modules.setdefault("torch._meta_registrations", types.ModuleType("torch._meta_registrations"))  # see plain.py

import torch  # noqa: E402

if "torch._dynamo" not in sys.modules:  # see plain.py
    torch._dynamo = types.SimpleNamespace(disable=lambda function, *_, **__: function, graph_break=lambda: None)
    sys.modules["torch._dynamo"] = torch._dynamo


def train(rank, has_begun):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    model = torch.nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number in range(4):
        optimizer.zero_grad()
        model(torch.ones(8, 6)).sum().backward()
        if number and rank:
            has_begun.set()
            time.sleep(1)
        optimizer.step()
        if not rank:
            has_begun.wait(60)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    has_begun = context.Event()
    context.Process(target=train, args=(1, has_begun), daemon=True).start()
    train(0, has_begun)
