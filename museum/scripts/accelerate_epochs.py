"""Trains two epochs on shuffled data, its DataLoader prepared by accelerate."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--examples", type=int, default=32)
parser.add_argument(
    "--split", choices=["even", "uneven"], help="split whole batches over the processes, the last as well"
)
given = parser.parse_args()

set_seed(0)
if given.split:
    from accelerate.utils import DataLoaderConfiguration

    splitting = DataLoaderConfiguration(split_batches=True, even_batches=given.split == "even")
    accelerator = Accelerator(cpu=True, dataloader_config=splitting)
else:
    accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(given.examples, 8), torch.randint(2, (given.examples,)))
loader = torch.utils.data.DataLoader(data, batch_size=8 if given.split else 4, shuffle=not given.split)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        accelerator.print(f"epoch {epoch} loss {loss.item():.4f}")
