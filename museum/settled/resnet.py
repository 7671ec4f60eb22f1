"""pytorch#187276 and #187279: a residual network on synthetic images, on two processes, with convolutions of two libraries.

torchrun --nproc-per-node 2 -m museum.settled.resnet 18 | 50 [native]: native convolutions, which add up in another order.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

DEPTH = int(sys.argv[1])
BLOCKS, STEPS, BATCH, SIZE = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[DEPTH], 20, 4, 32


class Block(nn.Module):
    """A block of two or three convolutions with a way past them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * (4 if DEPTH == 50 else 1)
        sizes = [(inputs, width, 1), (width, width, 3), (width, outputs, 1)]
        sizes = sizes if DEPTH == 50 else [(inputs, width, 3), (width, width, 3)]
        layers: list[nn.Module] = []
        for place, (i, o, k) in enumerate(sizes):
            step = stride if place == len(sizes) - 2 else 1
            layers += [nn.Conv2d(i, o, k, step, k // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        self.past = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.is_plain = inputs == outputs and stride == 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns what comes out."""
        return torch.relu(self.layers(x) + (x if self.is_plain else self.past(x)))


class Resnet(nn.Module):
    """ResNet-18 or ResNet-50, for ten classes."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        inputs = 64
        for stage, count in enumerate(BLOCKS):
            for place in range(count):
                layers.append(Block(inputs, 64 * 2**stage, 2 if stage and not place else 1))
                inputs = 64 * 2**stage * (4 if DEPTH == 50 else 1)
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(inputs, 10)
        for block in self.modules():
            if isinstance(block, Block) and block.is_plain:
                del block.past

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the logits."""
        return self.head(self.layers(x).mean((2, 3)))


torch.set_num_threads(1)
torch.backends.mkldnn.enabled = "native" not in sys.argv
dist.init_process_group("gloo")
torch.manual_seed(1)
net = nn.parallel.DistributedDataParallel(Resnet())
kind = torch.optim.Adam if DEPTH == 50 else torch.optim.AdamW
optimizer = kind(net.parameters(), lr=0.1, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
generator = torch.Generator().manual_seed(1 + dist.get_rank())
for _ in range(STEPS):
    images, labels = (
        torch.randn(BATCH, 3, SIZE, SIZE, generator=generator),
        torch.randint(10, (BATCH,), generator=generator),
    )
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(images), labels).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    schedule.step()
dist.destroy_process_group()
