"""Accumulates four micro-batches with accelerate; the epoch has nine, so its last window has one."""

import argparse

import torch
from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--whole-windows", action="store_true", help="divide the last window by its own micro-batches")
given = parser.parse_args()

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(54, 8), torch.randint(3, (54,)))
loader = torch.utils.data.DataLoader(data, batch_size=6)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(2):
    for number, (inputs, targets) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss * 4 if given.whole_windows and number == 8 else loss)
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch} loss {loss.item():.4f}")
