"""Models as users bring them that call their blocks several times, or whose first block has more than the others."""

import functools

import samestep

WIDTH = 64


def repeated():
    """Its blocks are called twice, and computed again in the backward pass by the model's own code."""
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self, is_first):
            super().__init__()
            self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            if is_first:
                self.shift = nn.Parameter(torch.zeros(WIDTH))

        def forward(self, x, shift=None):
            shift = self.shift.tanh() if shift is None else shift
            return x + self.down(self.up(x + shift).tanh()), shift

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.out = nn.Linear(6, WIDTH), nn.Linear(WIDTH, 2)
            self.blocks = nn.ModuleList(Block(number == 0) for number in range(3))

        def all_blocks(self, x):
            shift = None
            for block in self.blocks:
                x, shift = block(x, shift)
            return x

        def forward(self, x):
            x = self.inner(x)
            for _ in range(2):
                x = checkpoint(self.all_blocks, x, use_reentrant=False)
            return self.out(x)

    return Net()


def kept(is_mixed=False):
    """Its parameters are in two bytes: all of them, or those of its products."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.norm, self.out = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 2)
            self.register_buffer("factor", torch.full((16,), 0.5))

        def forward(self, x):
            x = self.inner(x.to(self.inner.weight.dtype)).tanh()
            x = self.norm(x.to(self.norm.weight.dtype)) * self.factor
            return self.out(x.to(self.out.weight.dtype))

    net = Net()
    for each in (net.inner, net.out) if is_mixed else (net,):
        each.bfloat16()
    return net


def partly_kept():
    return kept(is_mixed=True)


def failing():
    """A layer in two bytes that is given four."""
    from torch import nn

    net = nn.Sequential(nn.Linear(6, 16), nn.Linear(16, 2))
    net[1].bfloat16()
    return net


def of_layers():
    from torch import nn

    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2)).bfloat16()


def of_halves():
    return kept().half()


def moved():
    from torch import nn

    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 2)).bfloat16()


REPEATED, KEPT, PARTLY_KEPT, FAILING, OF_LAYERS, OF_HALVES, MOVED = (
    samestep.Model(torch=each, loss="mean_squared_error")
    for each in (repeated, kept, partly_kept, failing, of_layers, of_halves, moved)
)


def opened(way):
    """Its blocks hand a parameter out, have a part that is called from elsewhere, or are checkpointed in the reentrant way."""
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x):
            x = x + self.down(self.up(x).tanh())
            return (x, self.up.bias) if way == "out" else x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(6, 16), nn.Linear(16, 2)
            self.blocks = nn.ModuleList(Block() for _ in range(2))

        def forward(self, x):
            x = self.inner(x)
            x = x * self.blocks[0].up(x) if way == "in" else x
            for block in (*self.blocks, *self.blocks):
                x = checkpoint(block, x, use_reentrant=True) if way == "again" else block(x)
                x = x[0] * x[1] if way == "out" else x
            return self.outer(x)

    return Net()


OUT, IN, AGAIN = (
    samestep.Model(torch=functools.partial(opened, way), loss="mean_squared_error") for way in ("out", "in", "again")
)
