"""Two optimizers: "split" gives each a half of one model; otherwise a generator and a discriminator take turns."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
data, noise = torch.randn(4, 8, 6), torch.randn(4, 8, 2)
if "split" in sys.argv:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.AdamW(model[2].parameters(), lr=0.01)
    for batch in data:
        model.zero_grad()
        model(batch).square().mean().backward()
        first.step()
        second.step()
    sys.exit()
generator, discriminator = nn.Linear(2, 6), nn.Sequential(nn.Linear(6, 1))
of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=0.1)
for real, seed in zip(data, noise, strict=True):
    discriminator.zero_grad()
    discriminator(real).mean().backward()
    fake = generator(seed)
    (-discriminator(fake.detach())).mean().backward()
    of_discriminator.step()
    generator.zero_grad()
    discriminator(fake).mean().backward()
    of_generator.step()
