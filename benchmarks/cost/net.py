"""The user model of `benchmarks.cost.overhead --model`, a typical GPT about as large as prose-gpt."""

import numpy as np

import samestep

CONTEXT, VOCABULARY, WIDTH, LAYERS = 64, 256, 64, 2


def torch_model():
    """Returns a decoder with tied embeddings."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x, mask):
            y = self.norm1(x)
            x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], dtype=x.dtype, device=x.device)
            for layer in self.layers:
                x = layer(x, mask)
            return self.head(self.norm(x))

    return GPT()


def tokens():
    """Returns random tokens, because it does not matter what is learned."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (600, CONTEXT))
    targets = np.roll(ids, -1, axis=1)
    return ids[:512], targets[:512], ids[512:], targets[512:]


model = samestep.Model(torch=torch_model)
