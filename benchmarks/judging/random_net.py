"""The data, the model and the loss of `random_script.py`."""

import math

import torch
from torch import nn
from torch.nn import functional

from benchmarks.judging.random_settings import Settings

EXAMPLES, FEATURES, CLASSES, WORDS, LENGTH, SIDE = 56, 10, 5, 23, 6, 8
IGNORED = -100
_ACTIVATIONS = {
    "relu": (nn.ReLU, nn.LeakyReLU),
    "gelu": (nn.GELU, lambda: nn.GELU("tanh")),
    "silu": (nn.SiLU, nn.GELU),
    "tanh": (nn.Tanh, nn.Softsign),
    "elu": (nn.ELU, nn.SELU),
    "leaky": (nn.LeakyReLU, nn.ReLU),
}
"""Activation -> the activation that replaces it by mistake."""


def data(s: Settings) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns inputs and targets; the targets of texts are their next words, and the last are padding.

    Args:
        s: The settings.
    """
    own = torch.Generator().manual_seed(s.seed)
    if s.kind == "texts":
        inputs = torch.randint(1, WORDS, (EXAMPLES, LENGTH), generator=own)
        lengths = torch.randint(3, LENGTH + 1, (EXAMPLES, 1), generator=own)
        return inputs, inputs.roll(-1, 1).where(torch.arange(LENGTH) < lengths, IGNORED)
    shape = {"images": (SIDE * SIDE,), "series": (7, FEATURES)}.get(s.kind, (FEATURES,))
    inputs = torch.randn(EXAMPLES, *shape, generator=own)
    if s.kind == "regression":
        return inputs, torch.randn(EXAMPLES, 1, generator=own)
    if s.kind == "multilabel":
        return inputs, (torch.rand(EXAMPLES, CLASSES, generator=own) > 0.5).float()
    return inputs, torch.randint(CLASSES, (EXAMPLES,), generator=own)


def _activation(s: Settings, variant: str) -> nn.Module:
    return _ACTIVATIONS[s.activation][variant == "other_activation"]()


def _norm(s: Settings, variant: str, width: int) -> nn.Module:
    epsilon = 1e-3 if variant == "norm_epsilon" else 1e-5
    if s.norm == "none":
        return nn.Identity()
    if s.has_batch_norm:
        kind = nn.BatchNorm2d if s.kind == "images" else nn.BatchNorm1d
        return kind(width, eps=epsilon, momentum=0.01 if variant == "norm_momentum" else 0.1)
    if s.kind == "images":
        return nn.GroupNorm(2, width, eps=epsilon)
    return (nn.RMSNorm if s.norm == "rms" else nn.LayerNorm)(width, eps=epsilon)


class _Block(nn.Module):
    def __init__(self, s: Settings, variant: str) -> None:
        super().__init__()
        self.variant = variant
        self.norms = nn.ModuleList(_norm(s, variant, s.width) for _ in range(2))
        self.qkv, self.mix = nn.Linear(s.width, 3 * s.width), nn.Linear(s.width, s.width)
        self.up, self.down = nn.Linear(s.width, 2 * s.width), nn.Linear(2 * s.width, s.width)
        self.activation, self.dropout = _activation(s, variant), nn.Dropout(s.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, -1)
        x = x + self.dropout(self.mix(self._attend(q, k, v)))
        hidden = self.up(self.norms[1](x))
        return x + self.dropout(self.down(self.activation(hidden.detach() if self.variant == "detached" else hidden)))

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.variant == "attention_by_hand":
            future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            return scores.masked_fill(future, -math.inf).softmax(-1) @ v
        scale = 1 / q.shape[-1] if self.variant == "attention_scale" else None
        return functional.scaled_dot_product_attention(q, k, v, is_causal=self.variant != "no_mask", scale=scale)


def _images(s: Settings, variant: str) -> nn.Module:
    layers: list[nn.Module] = [nn.Unflatten(1, (1, SIDE, SIDE))]
    for level in range(s.depth):
        convolution = nn.Conv2d(8 if level else 1, 8, 3, padding=1)
        layers += [convolution, _norm(s, variant, 8), _activation(s, variant)]
    return nn.Sequential(*layers, (nn.MaxPool2d if s.is_tied else nn.AvgPool2d)(2), nn.Flatten())


def _perceptron(s: Settings, variant: str) -> nn.Module:
    layers: list[nn.Module] = []
    for level in range(s.depth):
        layers += [nn.Linear(s.width if level else FEATURES, s.width), _norm(s, variant, s.width)]
        layers += [_activation(s, variant), nn.Dropout(s.dropout)]
    return nn.Sequential(*layers)


class Net(nn.Module):
    """A model for one kind of data.

    Args:
        s: The settings.
        variant: The variant of the script.
    """

    def __init__(self, s: Settings, variant: str) -> None:
        super().__init__()
        self.kind, self.variant = s.kind, variant
        if s.kind == "texts":
            self.table, self.places = nn.Embedding(WORDS, s.width), nn.Parameter(torch.randn(LENGTH, s.width) / 10)
            self.body = nn.Sequential(*(_Block(s, variant) for _ in range(s.depth)))
            self.head = nn.Linear(s.width, WORDS, bias=False)
            if s.is_tied:
                own = self.table.weight
                self.head.weight = nn.Parameter(own.detach().clone()) if variant == "untied" else own
        elif s.kind == "series":
            self.body = (nn.LSTM if s.is_tied else nn.GRU)(FEATURES, s.width, s.depth, batch_first=True)
            self.head = nn.Linear(s.width, CLASSES)
        else:
            self.body = _images(s, variant) if s.kind == "images" else _perceptron(s, variant)
            width = 2 * SIDE * SIDE if s.kind == "images" else s.width
            self.head = nn.Linear(width, 1 if s.kind == "regression" else CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns logits, or numbers for a regression.

        Args:
            x: A batch of examples.
        """
        if self.kind == "texts":
            return self.head(self.body(self.table(x) + self.places))
        hidden = self.body(x)
        if self.kind == "series":
            hidden = hidden[0][:, 0 if self.variant == "first_state" else -1]
        return self.head(hidden.detach() if self.variant == "detached" else hidden)


def loss_of(
    s: Settings, variant: str, outputs: torch.Tensor, targets: torch.Tensor, count: torch.Tensor | None
) -> torch.Tensor:
    """Returns the loss.

    Args:
        s: The settings.
        variant: The variant of the script.
        outputs: The outputs of the model.
        targets: The targets of the same examples.
        count: The divisor of the sum over the targets; None stands for their number.
    """
    reduction = "sum" if count is not None else "mean"
    if s.kind == "regression":
        wanted = targets.squeeze(1) if variant == "squeezed" else targets
        loss = (functional.l1_loss if variant == "other_loss" else functional.mse_loss)(
            outputs, wanted, reduction=reduction
        )
    elif s.kind == "multilabel":
        loss = _loss_of_labels(variant, outputs, targets, reduction)
    else:
        loss = _loss_of_classes(s, variant, outputs.flatten(0, -2), targets.flatten(), reduction)
    return loss if count is None else loss / count


def _loss_of_labels(variant: str, outputs: torch.Tensor, targets: torch.Tensor, reduction: str) -> torch.Tensor:
    if variant == "other_loss":
        return functional.mse_loss(outputs.sigmoid(), targets, reduction=reduction)
    if variant == "loss_by_hand":
        each = targets * functional.logsigmoid(outputs) + (1 - targets) * functional.logsigmoid(-outputs)
        return -getattr(each, reduction)()
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction=reduction)


def _loss_of_classes(
    s: Settings, variant: str, outputs: torch.Tensor, targets: torch.Tensor, reduction: str
) -> torch.Tensor:
    smoothing = 0.0 if variant == "no_smoothing" else s.smoothing
    if variant == "softmax_twice":
        outputs = outputs.softmax(-1)
    if variant == "padding_counts":
        targets = targets.clamp(min=0)
    if variant == "loss_by_hand":
        logs = outputs.log_softmax(-1)
        each = (1 - smoothing) * logs.gather(1, targets[:, None])[:, 0] + smoothing * logs.mean(-1)
        return -getattr(each, reduction)()
    weights = torch.tensor([1.0, 2, 1, 1, 3]) if variant == "class_weights" else None
    return functional.cross_entropy(outputs, targets, weights, reduction=reduction, label_smoothing=smoothing)


def penalty_of(
    s: Settings, variant: str, net: nn.Module, outputs: torch.Tensor, targets: torch.Tensor, count: torch.Tensor
) -> torch.Tensor | float:
    """Returns the penalty that is added to the loss of a micro-batch.

    Args:
        s: The settings.
        variant: The variant of the script.
        net: The model.
        outputs: The outputs of the model.
        targets: The targets of the same examples.
        count: The number of targets in the batch.
    """
    factor = {"penalty_twice": 2.0, "no_penalty": 0.0}.get(variant, 1.0)
    trained = [each for each in net.parameters() if each.requires_grad]
    if s.penalty == "l2":
        return factor * 1e-2 / s.parts * sum(each.square().sum() for each in trained)
    if s.penalty == "l1":
        return factor * 1e-3 / s.parts * sum(each.abs().sum() for each in trained)
    if s.penalty == "entropy" and s.kind != "regression":
        each = (outputs.softmax(-1) * outputs.log_softmax(-1)).sum(-1)
        return factor * 0.05 * (each * (targets != IGNORED).float() if s.kind == "texts" else each).sum() / count
    return 0.0
