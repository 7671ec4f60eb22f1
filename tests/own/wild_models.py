"""Torch models as they are in the wild, small: blocks of transformers, timm and others, written by hand."""

import functools

import samestep


def llama():
    """Root mean squares, rotated positions, queries that share keys, a gated unit: a decoder of today."""
    import torch
    from torch import nn

    def rotated(x):
        positions = torch.arange(x.shape[-2], dtype=x.dtype)
        angles = positions[:, None] * 100.0 ** -torch.linspace(0, 1, x.shape[-1] // 2, dtype=x.dtype)
        one, other = x.chunk(2, -1)
        return torch.cat([one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()], -1)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(16), nn.RMSNorm(16)
            self.q, self.k, self.v, self.o = (nn.Linear(16, n, bias=False) for n in (16, 8, 8, 16))
            self.gate, self.up, self.down = (nn.Linear(*sizes, bias=False) for sizes in ((16, 32), (16, 32), (32, 16)))

        def forward(self, x):
            y = self.norm1(x)
            q, k, v = (f(y).unflatten(-1, (-1, 4)).transpose(1, 2) for f in (self.q, self.k, self.v))
            k, v = (each.repeat_interleave(2, 1) for each in (rotated(k), v))
            y = nn.functional.scaled_dot_product_attention(rotated(q), k, v, is_causal=True)
            x = x + self.o(y.transpose(1, 2).flatten(-2))
            y = self.norm2(x)
            return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.layers = nn.Embedding(31, 16), nn.ModuleList(Layer() for _ in range(2))
            self.norm, self.head = nn.RMSNorm(16), nn.Linear(16, 31, bias=False)

        def forward(self, ids):
            x = self.table(ids)
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    return Net()


def mixtral():
    """Each token goes to two of four experts, whose products are one function that takes no float64."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.gate, self.head = nn.Embedding(31, 8), nn.Linear(8, 4, bias=False), nn.Linear(8, 31)
            self.up, self.down = (nn.Parameter(torch.randn(4, *sizes) / 4) for sizes in ((8, 16), (16, 8)))

        def forward(self, ids):
            x = self.table(ids)
            shares, chosen = self.gate(x).softmax(-1).topk(2)
            order = chosen.flatten().argsort(stable=True)
            ends = (chosen.flatten() == torch.arange(4)[:, None]).sum(1).cumsum(0, dtype=torch.int32)
            given = x.flatten(0, 1)[order // 2]
            hidden = nn.functional.silu(nn.functional.grouped_mm(given, self.up, offs=ends))
            made = nn.functional.grouped_mm(hidden, self.down, offs=ends)[order.argsort()].unflatten(0, chosen.shape)
            return self.head(x + (made * shares[..., None]).sum(-2))

    return Net()


def translator():
    """An encoder and a decoder, which are given two arrays."""
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(31, 16)
            self.inner = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
            self.out = nn.Linear(16, 2)

        def forward(self, ids, mask):
            unread = mask == 0
            x = self.inner(self.table(ids), self.table(ids.flip(1)), src_key_padding_mask=unread)
            return self.out(x.mean(1))

    return Net()


def mamba():
    """A state that is selected token by token, and a convolution over the past."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.conv = nn.Embedding(31, 8), nn.Conv1d(8, 8, 3, groups=8)
            self.rates = nn.Parameter(torch.arange(1.0, 5.0).log().repeat(8, 1))
            self.selected, self.step, self.gate, self.out = (nn.Linear(8, n) for n in (8, 8, 8, 31))

        def forward(self, ids):
            x = self.table(ids)
            y = nn.functional.silu(self.conv(nn.functional.pad(x.transpose(1, 2), (2, 0)))).transpose(1, 2)
            into, outof = self.selected(y).chunk(2, -1)
            steps = nn.functional.softplus(self.step(y))[..., None]
            state, found = torch.zeros(len(x), 8, 4, dtype=x.dtype), []
            for at in range(x.shape[1]):
                kept = (-steps[:, at] * self.rates.exp()).exp()
                state = kept * state + steps[:, at] * y[:, at, :, None] * into[:, at, None]
                found.append((state * outof[:, at, None]).sum(-1))
            return self.out(torch.stack(found, 1) * nn.functional.silu(self.gate(x)) + x)

    return Net()


def spectral(is_complex=False):
    """A layer in the frequencies, whose complex weights are held as two real numbers each, or as they are."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lift, self.out = nn.Linear(1, 4), nn.Linear(4, 10)
            parts = torch.randn(4, 4, 5, 2) / 4
            self.weight = nn.Parameter(torch.view_as_complex(parts) if is_complex else parts)

        def forward(self, x):
            x = self.lift(x.flatten(1)[:, :8, None]).transpose(1, 2)
            found = torch.einsum(
                "bif,iof->bof", torch.fft.rfft(x), self.weight if is_complex else torch.view_as_complex(self.weight)
            )
            return self.out(torch.fft.irfft(found, n=8).mean(-1))

    return Net()


def convnext():
    """timm's block: a filter for each channel, channels last in between, and a scale of each."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.LayerNorm(4, eps=1e-6)
            self.up, self.down, self.scale = nn.Linear(4, 16), nn.Linear(16, 4), nn.Parameter(torch.full((4,), 0.5))

        def forward(self, x):
            y = self.norm(self.conv(x).permute(0, 2, 3, 1))
            return x + (self.scale * self.down(nn.functional.gelu(self.up(y)))).permute(0, 3, 1, 2)

    return nn.Sequential(
        nn.Conv2d(1, 4, 2, 2), Block(), Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
    )


def efficient():
    """torchvision's inverted residual, with squeezed channels and paths that are left out at random."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.expand, self.norm1 = nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8)
            self.depth, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8)
            self.squeeze, self.excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
            self.project, self.norm3 = nn.Conv2d(8, 4, 1, bias=False), nn.BatchNorm2d(4)

        def forward(self, x):
            y = nn.functional.silu(self.norm1(self.expand(x)))
            y = nn.functional.silu(self.norm2(self.depth(y)))
            y = y * self.excite(nn.functional.silu(self.squeeze(y.mean((2, 3), keepdim=True)))).sigmoid()
            y = self.norm3(self.project(y))
            if self.training:
                y = y * torch.empty(len(x), 1, 1, 1, dtype=x.dtype).bernoulli_(0.8) / 0.8
            return x + y

    return nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))


def segmenter():
    """A U-Net of convolutions, classes first: it goes down, up by a transposed convolution, and past that by a skip."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4)
            self.down, self.up = nn.Conv2d(4, 8, 2, 2), nn.ConvTranspose2d(8, 4, 2, 2)
            self.out = nn.Conv2d(8, 3, 1)

        def forward(self, x):
            skip = self.norm(self.first(x)).tanh()
            return self.out(torch.cat([self.up(self.down(skip).tanh()), skip], 1))

    return Net()


def parametrized():
    """A direction and a length in the place of a weight, and weights that are kept orthogonal."""
    from torch import nn
    from torch.nn.utils import parametrizations

    inner = parametrizations.weight_norm(nn.Linear(6, 8))
    return nn.Sequential(inner, nn.Tanh(), parametrizations.orthogonal(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, 2))


def limited():
    """The largest singular value of a layer is held at one by a power iteration, which is kept in buffers."""
    from torch import nn
    from torch.nn.utils import parametrizations

    return nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 8)), nn.Tanh(), nn.Linear(8, 2))


def centred():
    """A running mean of the user's own."""
    import torch
    from torch import nn

    class Centre(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(8))

        def forward(self, x):
            if self.training:
                with torch.no_grad():
                    self.mean.mul_(0.9).add_(0.1 * x.mean(0))
            return x - self.mean

    return nn.Sequential(nn.Linear(6, 8), Centre(), nn.Tanh(), nn.Linear(8, 2))


def noisy():
    """What a variational auto-encoder draws between its halves."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(6, 8), nn.Linear(4, 2)

        def forward(self, x):
            mean, log = self.encode(x).chunk(2, -1)
            return self.decode(mean + torch.randn_like(mean) * log.exp())

    return Net()


def mixing():
    """Takes from each example what all have in common."""
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = nn.Linear(6, 8), nn.Linear(8, 2)

        def forward(self, x):
            x = self.hidden(x)
            return self.out((x - x.mean(0)).tanh())

    return Net()


LLAMA, MIXTRAL, MAMBA = (samestep.Model(torch=each) for each in (llama, mixtral, mamba))
TRANSLATOR, SEGMENTER = samestep.Model(torch=translator), samestep.Model(torch=segmenter)
COMPLEX = samestep.Model(torch=functools.partial(spectral, is_complex=True))
SPECTRAL, CONVNEXT, EFFICIENT = (samestep.Model(torch=each) for each in (spectral, convnext, efficient))
PARAMETRIZED, LIMITED, CENTRED, NOISY, MIXING = (
    samestep.Model(torch=each, loss="mean_squared_error") for each in (parametrized, limited, centred, noisy, mixing)
)
