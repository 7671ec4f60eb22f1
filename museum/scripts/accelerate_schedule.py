"""Trains with a learning rate that falls to zero over the steps; the schedule is prepared by accelerate, or not."""

import argparse

import torch
from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--keep-schedule", action="store_true", help="step the schedule once a step, unprepared")
parser.add_argument("--accumulate", type=int, default=1)
given = parser.parse_args()

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=given.accumulate)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 10))
data = torch.utils.data.TensorDataset(torch.randn(80, 8), torch.randint(2, (80,)))
loader = torch.utils.data.DataLoader(data, batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
if not given.keep_schedule:
    schedule = accelerator.prepare(schedule)
for inputs, targets in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    accelerator.print(f"loss {loss.item():.4f}")
