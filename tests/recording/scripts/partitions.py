"""One model whose optimizer is given flat partitions, as DeepSpeed does it: "mapped" (stages 1 and 2), "shards", or "plain"."""

import os
import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn

kind, RATES = sys.argv[1], (0.1, 0.02)
torch.set_num_threads(1)
torch.manual_seed(0)
rank, world = 0, 1
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
net = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 3))
groups = [[each for each in net.parameters() if each.ndim > 1], [each for each in net.parameters() if each.ndim < 2]]
data = torch.randn(5, 8, 5), torch.randn(5, 8, 3)


class Flat:
    """Updates a flat partition of each group, one group after the other, with the same inner optimizer."""

    def __init__(self) -> None:
        self.fp32_partitioned_groups_flat, self.grad_position = [], {}
        for place, group in enumerate(groups):
            self.fp32_partitioned_groups_flat.append(self.shards(place, group) if kind == "shards" else self.map(group))
        flats = self.fp32_partitioned_groups_flat
        self.inner = torch.optim.SGD([{"params": [flat], "lr": RATES[n]} for n, flat in enumerate(flats)], momentum=0.9)
        for flat in flats:
            flat.grad = torch.zeros_like(flat)
        self.inner.step()  # so that its state is there

    def map(self, group):
        whole = torch.cat([each.detach().flatten() for each in group])
        size = -(-len(whole) // world)
        whole = torch.cat([whole, torch.zeros(size * world - len(whole))])
        flat = nn.Parameter(whole[rank * size : (rank + 1) * size].clone())
        end = 0
        for each in group:
            start, end = end, end + each.numel()
            first, last = max(start, rank * size), min(end, (rank + 1) * size)
            each._hp_mapping = None
            if first < last:
                inner = SimpleNamespace(start=first - rank * size, numel=last - first)
                each._hp_mapping = SimpleNamespace(
                    lp_fragment_address=SimpleNamespace(start=first - start, numel=last - first),
                    hp_fragment_address=inner,
                    hp_fragment=flat.narrow(0, inner.start, inner.numel),
                )
        return flat

    def shards(self, place, group):
        offset, parts = 0, []
        for each in group:
            size = -(-each.numel() // world)
            padded = torch.cat([each.detach().flatten(), torch.zeros(size * world - each.numel())])
            each.ds_shape, each.ds_process_group, each._z3_optimizer = each.shape, None, self
            each.ds_tensor = padded[rank * size : (rank + 1) * size].clone()
            self.grad_position[id(each)] = [place, offset, size]
            offset += size
            parts.append(each.ds_tensor)
        return nn.Parameter(torch.cat(parts))

    def get_param_id(self, parameter):
        return id(parameter)

    def step(self):
        every = self.inner.param_groups
        for place, (group, flat) in enumerate(zip(groups, self.fp32_partitioned_groups_flat, strict=True)):
            flat.grad = torch.zeros_like(flat)
            for each in group:
                if world > 1:
                    dist.all_reduce(each.grad)
                    each.grad /= world
                source, target, size = self.places(each)
                flat.grad[target : target + size] = each.grad.flatten()[source : source + size]
                each.grad = None
            self.inner.param_groups = [every[place]]
            self.inner.step()
        self.inner.param_groups = every
        for group, flat in zip(groups, self.fp32_partitioned_groups_flat, strict=True):
            for each in group:
                source, target, size = self.places(each)
                full = torch.zeros(each.numel())
                full[source : source + size] = flat.detach()[target : target + size]
                if world > 1:
                    dist.all_reduce(full)
                each.data.copy_(full.view_as(each))
                if kind == "shards":
                    each.ds_tensor[:size] = flat.detach()[target : target + size]

    def places(self, each):
        if kind == "shards":
            _, target, size = self.grad_position[id(each)]
            return rank * size, target, max(0, min(size, each.numel() - rank * size))
        mapping = each._hp_mapping
        if mapping is None:
            return 0, 0, 0
        return mapping.lp_fragment_address.start, mapping.hp_fragment_address.start, mapping.lp_fragment_address.numel


plain = torch.optim.SGD([{"params": group, "lr": RATES[n]} for n, group in enumerate(groups)], momentum=0.9)
optimizer = plain if kind == "plain" else Flat()
for inputs, targets in zip(*data, strict=True):
    nn.functional.mse_loss(net(inputs[rank::world]), targets[rank::world]).backward()
    optimizer.step()
    plain.zero_grad()
if dist.is_initialized():
    dist.destroy_process_group()
