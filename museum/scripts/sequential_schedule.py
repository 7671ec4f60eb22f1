"""Warms up for four steps and then follows a cosine, with torch's SequentialLR."""

import argparse
import warnings

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

parser = argparse.ArgumentParser()
parser.add_argument("--nested", action="store_true", help="within another SequentialLR, which changes nothing")
parser.add_argument(
    "--resume", choices=["state", "last-epoch"], help="go on at step 6, from a saved state or by its number"
)
given = parser.parse_args()

warnings.simplefilter("ignore")
torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD([{"params": model.parameters(), "initial_lr": 0.1}], lr=0.1)
last = 5 if given.resume == "last-epoch" else -1
parts = [LinearLR(optimizer, 0.2, total_iters=4, last_epoch=-1), CosineAnnealingLR(optimizer, 8)]
schedule = SequentialLR(optimizer, parts, [4], last_epoch=last)
if given.nested:
    schedule = SequentialLR(optimizer, [schedule], [])
if given.resume == "state":
    for _ in range(6):
        schedule.step()
inputs, targets = torch.randn(16, 8), torch.randint(2, (16,))
for step in range(6 if given.resume else 12):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    schedule.step()
    print(f"step {step} loss {loss.item():.4f}")
