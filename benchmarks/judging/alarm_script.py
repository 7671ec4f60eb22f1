"""One of ten small training scripts, in one of five layouts. It is correct in each of them, unless `--mistake` is given.

python benchmarks/judging/alarm_script.py --model relu --layout ddp --seed 3 [--bf16] [--mistake wire]

`benchmarks.judging.alarms` records it without a mistake, and `benchmarks.judging.power` with one.
"""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

VOCABULARY, LENGTH, FEATURES, CLASSES, BATCH, STEPS = 29, 8, 12, 5, 16, 20


class _Block(nn.Module):
    def __init__(self, width: int, activation: nn.Module, norm: type[nn.Module]) -> None:
        super().__init__()
        self.norms = nn.ModuleList([norm(width), norm(width)])
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), activation, nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))


class _Tokens(nn.Module):
    def __init__(self, layers: int, activation: nn.Module, norm: type[nn.Module], width: int = 16) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(VOCABULARY, width), nn.Parameter(torch.randn(LENGTH, width) / 10)
        self.blocks = nn.Sequential(*(_Block(width, activation, norm) for _ in range(layers)))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.table(x) + self.places))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.cell, self.head = (
            nn.Embedding(VOCABULARY, 12),
            nn.LSTM(12, 16, batch_first=True),
            nn.Linear(16, VOCABULARY),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(self.table(x))[0])


def _perceptron(activation: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 32), activation, nn.LayerNorm(32), nn.Linear(32, 32), activation, nn.Linear(32, CLASSES)
    )


def _images(norm: bool, activation: nn.Module) -> nn.Module:
    middle = [nn.GroupNorm(2, 8)] if norm else []
    shape = nn.Unflatten(1, (1, 3, 4))
    return nn.Sequential(
        shape, nn.Conv2d(1, 8, 3, padding=1), *middle, activation, nn.Flatten(), nn.Linear(96, CLASSES)
    )


MODELS = {
    "tanh": lambda: _perceptron(nn.Tanh()),
    "relu": lambda: _perceptron(nn.ReLU()),
    "conv": lambda: _images(False, nn.ReLU()),
    "groups": lambda: _images(True, nn.SiLU()),
    "autoencoder": lambda: nn.Sequential(nn.Linear(FEATURES, 6), nn.ReLU(), nn.Linear(6, FEATURES)),
    "gelu": lambda: _Tokens(1, nn.GELU(), nn.LayerNorm),
    "silu": lambda: _Tokens(2, nn.SiLU(), nn.RMSNorm),
    "relu-tokens": lambda: _Tokens(2, nn.ReLU(), nn.LayerNorm),
    "deep": lambda: _Tokens(4, nn.GELU(), nn.LayerNorm, 24),
    "lstm": _Recurrent,
}
LAYOUTS = {"permuted": 1, "accumulated": 1, "ddp": 2, "ddp4": 4, "fsdp2": 2}
"""Layout -> its number of processes."""
MISTAKES = {
    "off": "all gradients are off by 0.01 %",
    "target": "one target of the batch is wrong",
    "twice": "one example is there twice, and another one is missing",
    "wire": "gradients are bf16 on the wire",
}


def _optimizer(name: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if name in ("relu", "groups", "silu"):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)
    return torch.optim.AdamW(parameters, lr=3e-3)


def _loss(name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if name == "autoencoder":
        return functional.mse_loss(outputs, targets)
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def _shared(net: nn.Module, layout: str, is_bf16_wire: bool) -> nn.Module:
    if layout.startswith("ddp"):
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        net = nn.parallel.DistributedDataParallel(net)
        if is_bf16_wire:  # wrapped, because the hook is refused by name without NCCL
            net.register_comm_hook(None, lambda state, bucket: bf16_compress_hook(state, bucket))
    if layout == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if is_bf16_wire else None)
        fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)), mp_policy=policy)
    return net


def _spoiled(mistake: str | None, batch: torch.Tensor, targets: torch.Tensor, classes: int) -> torch.Tensor:
    """Returns the examples of a step and corrupts their targets, according to a mistake."""
    if mistake == "target":
        target = targets[int(batch[3])].view(-1)
        target[0] = target[0] + 1 if targets.is_floating_point() else (target[0] + 1) % classes
    return torch.cat([batch[:3], batch[4:5], batch[4:]]) if mistake == "twice" else batch


def _spoil_gradients(mistake: str | None, by: float, net: nn.Module, is_sent: bool) -> None:
    for each in net.parameters():
        if mistake == "off":
            each.grad.mul_(1 + by)
        if mistake == "wire" and not is_sent:
            each.grad.copy_(each.grad.bfloat16())


def main() -> None:
    """Trains the chosen model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--layout", choices=["plain", *LAYOUTS], default="plain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--mistake", choices=MISTAKES)
    parser.add_argument("--by", type=float, default=1e-4, help="how far gradients are off")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.bf16 and given.model == "lstm":
        torch.backends.mkldnn.enabled = False  # oneDNN has no bf16 kernel for an LSTM on some CPUs
    torch.manual_seed(given.seed)
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if world > 1:
        dist.init_process_group("gloo")
    net = MODELS[given.model]()
    is_tokens = given.model in ("gelu", "silu", "relu-tokens", "deep", "lstm")
    inputs = torch.randint(VOCABULARY, (64, LENGTH)) if is_tokens else torch.randn(64, FEATURES)
    targets = torch.roll(inputs, -1, 1) if is_tokens else torch.randint(CLASSES, (64,))
    targets = inputs.clone() if given.model == "autoencoder" else targets
    model = _shared(net, given.layout, given.mistake == "wire")
    optimizer = _optimizer(given.model, [*model.parameters()])
    for step in range(STEPS):
        batch = torch.arange(step * BATCH, (step + 1) * BATCH) % 64
        batch = _spoiled(given.mistake, batch, targets, VOCABULARY if is_tokens else CLASSES)
        batch = batch.flip(0) if given.layout == "permuted" else batch[rank::world]
        optimizer.zero_grad()
        parts = batch.chunk(2) if given.layout == "accumulated" else (batch,)
        for part in parts:
            with torch.autocast("cpu", torch.bfloat16) if given.bf16 else contextlib.nullcontext():
                loss = _loss(given.model, model(inputs[part]), targets[part]) / len(parts)
            loss.backward()
        _spoil_gradients(given.mistake, given.by, net, world > 1)
        optimizer.step()


if __name__ == "__main__":
    main()
