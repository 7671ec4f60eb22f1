"""Warms up for five epochs and then divides the rate by ten each epoch, with warmup_scheduler or with torch's schedules."""

import argparse
import warnings

import torch
from torch.optim.lr_scheduler import LambdaLR, StepLR

parser = argparse.ArgumentParser()
parser.add_argument("--lambda-schedule", action="store_true")
given = parser.parse_args()

warnings.simplefilter("ignore")
torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(16, 8), torch.randint(2, (16,))
if given.lambda_schedule:
    schedule = LambdaLR(optimizer, lambda epoch: epoch / 5 if epoch <= 5 else 0.1 ** (epoch - 5))
else:
    from warmup_scheduler import GradualWarmupScheduler

    schedule = GradualWarmupScheduler(optimizer, 1, 5, after_scheduler=StepLR(optimizer, 1, 0.1))
for epoch in range(10):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    schedule.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
