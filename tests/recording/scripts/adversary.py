"""A maker and a critic take turns: with "detach" the critic's loss does not reach the maker, with "clear" it is cleared."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Maker(nn.Linear):
    pass


maker, critic = Maker(3, 4), nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
of_maker, of_critic = (torch.optim.Adam(each.parameters(), 0.01) for each in (maker, critic))
for real, noise in zip(torch.randn(3, 8, 4), torch.randn(3, 8, 3), strict=True):
    made = maker(noise)
    of_critic.zero_grad()
    (critic(made.detach() if "detach" in sys.argv else made).mean() - critic(real).mean()).backward(retain_graph=True)
    of_critic.step()
    if "clear" in sys.argv:
        of_maker.zero_grad()
    (-critic(maker(noise)).mean()).backward()
    of_maker.step()
    of_maker.zero_grad()
