"""nn.DataParallel runs one replica without GPUs, and raises no error.

What to do: use DistributedDataParallel over gloo.
"""

import torch
from torch import nn

model, seen = nn.Linear(2, 1), []
model.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
nn.DataParallel(model, device_ids=["cpu", "cpu"])(torch.ones(4, 2))
print(f"four examples on two devices; examples per forward pass: {seen}")
assert seen != [4], "one module had the whole batch"
