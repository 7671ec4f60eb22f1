"""One model, in the layout that the first argument names: plain, ddp, fsdp1, fsdp1_orig, fsdp2, tp. A second may be "clipped"."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

layout = sys.argv[1]
torch.set_num_threads(1)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(10)
        self.up = nn.Linear(10, 14)
        self.down = nn.Linear(14, 10)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(13, 10)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(10, 13, bias=False)

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


net, rank, world = Net(), 0, 1
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
if layout == "ddp":
    net = nn.parallel.DistributedDataParallel(net)
elif layout.startswith("fsdp1"):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    net = FullyShardedDataParallel(
        net, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params="orig" in layout, device_id=torch.device("cpu")
    )
elif layout in ("fsdp2", "tp"):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (world,))
    if layout == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in net.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(net, mesh=mesh)
    else:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        for block in net.blocks:
            parallelize_module(block, mesh, plan)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
generator = torch.Generator().manual_seed(1)
data = torch.randint(13, (6, 8, 5), generator=generator)
for batch in data:
    part = batch if layout in ("plain", "tp") else batch[rank::world]
    logits = net(part[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    if "clipped" in sys.argv:
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
if dist.is_initialized():
    dist.destroy_process_group()
