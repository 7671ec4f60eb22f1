"""Outputs and losses of torch models as they are in the wild."""

import numpy as np

import samestep

WEIGHTS = np.array([1.0, 2.0, 0.5])


def split(inputs, targets, train=96):
    def part(array, rows):
        return {name: one[rows] for name, one in array.items()} if isinstance(array, dict) else array[rows]

    kept, held_out = slice(train), slice(train, None)
    return part(inputs, kept), targets[kept], part(inputs, held_out), targets[held_out]


def vectors():
    inputs = np.random.default_rng(3).normal(size=(120, 6))
    return inputs, np.abs(inputs[:, :3]).argmax(axis=1)


def classes():
    return split(*vectors())


def labelled():
    """The targets are among the inputs as well, for models that compute their own loss."""
    inputs, targets = vectors()
    return split({"x": inputs, "labels": targets}, targets)


def padded():
    """Token ids; targets behind the end of a text are -100, as Hugging Face has them."""
    draw = np.random.default_rng(3)
    ids = np.cumsum(draw.integers(0, 5, (120, 7)), axis=1) % 16
    targets = np.where(np.arange(6) < draw.integers(2, 7, (120, 1)), ids[:, 1:], -100)
    return split(ids[:, :-1], targets)


def padded_and_labelled():
    arrays = padded()
    inputs = [{"input_ids": ids, "labels": labels} for ids, labels in (arrays[:2], arrays[2:])]
    return inputs[0], arrays[1], inputs[1], arrays[3]


def maps():
    """Images, and a class for each of their pixels."""
    inputs = np.random.default_rng(0).normal(size=(120, 1, 4, 4))
    return split(inputs, (inputs[:, 0] > 0).astype(int))


def sounds():
    """Sequences, and shorter ones of labels, padded with 0."""
    draw = np.random.default_rng(0)
    labels = draw.integers(1, 5, (120, 3)) * (np.arange(3) < draw.integers(1, 4, (120, 1)))
    return split(draw.normal(size=(120, 8, 4)), labels)


def mlp(outputs=3):
    from torch import nn

    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, outputs))


def language_model():
    from torch import nn

    return nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16))


def with_heads():
    """Deep supervision: a list of the outputs of every depth."""
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
            self.heads = nn.ModuleList(nn.Linear(6, 3) for _ in range(2))

        def forward(self, x):
            found = []
            for layer, head in zip(self.layers, self.heads, strict=True):
                x = layer(x).tanh()
                found.append(head(x))
            return found

    return Net()


def of_all_heads(outputs, targets):
    from torch.nn.functional import cross_entropy

    return sum(cross_entropy(each, targets, reduction="none") for each in outputs)


def with_dataclass():
    """Two of three outputs go into the loss; the third has parameters that therefore never get a gradient."""
    import dataclasses

    import torch
    from torch import nn

    @dataclasses.dataclass
    class Found:
        logits: torch.Tensor
        hidden: torch.Tensor
        aux_loss: torch.Tensor

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head, self.aux, self.unread = (nn.Linear(6, n) for n in (6, 3, 3, 4))

        def forward(self, x):
            x = self.body(x).tanh()
            return Found(self.head(x), self.unread(x), self.aux(x).square().mean())

    return Net()


def with_aux_loss(outputs, targets):
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs.logits, targets) + 0.1 * outputs.aux_loss


def balanced_experts():
    """A mixture of experts with the usual loss of its balance, which is of the whole batch."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(6, 4)
            self.experts = nn.Parameter(torch.randn(4, 6, 3))

        def forward(self, x):
            shares = self.gate(x).softmax(-1)
            return torch.einsum("be,bi,eio->bo", shares, x, self.experts), shares.mean(0).square().sum()

    return Net()


def with_balance(outputs, targets):
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs[0], targets) + outputs[1]


def with_own_loss():
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = mlp()

        def forward(self, x, labels=None):
            outputs = self.mlp(x)
            return outputs, nn.functional.cross_entropy(outputs, labels)

    return Net()


def of_a_batch():
    """Takes one mapping, and returns another with its own loss, in which padding does not count."""
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = language_model()

        def forward(self, batch):
            outputs = self.inner(batch["input_ids"])
            loss = nn.functional.cross_entropy(outputs.flatten(0, 1), batch["labels"].flatten())
            return {"loss": loss, "logits": outputs}

    return Net()


def classes_first():
    from torch import nn

    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GELU(), nn.Conv2d(4, 3, 1))


def listener():
    from torch import nn

    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 5))


def mean(outputs, targets):
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, targets)


def total(outputs, targets):
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, targets, reduction="sum")


def weighted(outputs, targets, reduction="sum"):
    import torch
    from torch.nn.functional import cross_entropy

    weights = torch.from_numpy(WEIGHTS).to(outputs.dtype)
    return cross_entropy(outputs, targets, weight=weights, reduction=reduction)


def weighted_mean(outputs, targets):
    return weighted(outputs, targets, "mean")


def contrastive(outputs, targets):
    """Tells each example from all others of the batch."""
    import torch
    from torch.nn.functional import cross_entropy, normalize

    like = normalize(outputs) @ normalize(outputs).T
    return cross_entropy(like.fill_diagonal_(-9.0), torch.arange(len(like)).roll(1))


def gathered(outputs, targets):
    """Keeps each example apart from all others, those of other devices among them."""
    import torch
    import torch.distributed as dist
    from torch.distributed.nn.functional import all_gather
    from torch.nn.functional import normalize

    is_shared = dist.is_initialized() and outputs.requires_grad  # one rank alone looks at held-out examples
    whole = torch.cat(all_gather(outputs)) if is_shared else outputs
    like = normalize(whole) @ normalize(whole).T
    return (like - 9.0 * torch.eye(len(like), dtype=like.dtype)).logsumexp(1).mean()


def ctc(outputs, targets):
    import torch
    from torch.nn.functional import ctc_loss

    lengths = torch.full((len(targets),), outputs.shape[1])
    spoken = outputs.log_softmax(-1).transpose(0, 1)
    return ctc_loss(spoken, targets, lengths, (targets > 0).sum(1), reduction="none")


def counted(targets):
    return (targets >= 0).sum()


HEADS = samestep.Model(torch=with_heads, loss={"torch": of_all_heads})
DATACLASS = samestep.Model(torch=with_dataclass, loss={"torch": with_aux_loss}, reduction="mean")
EXPERTS = samestep.Model(torch=balanced_experts, loss={"torch": with_balance}, reduction="mean")
RETURNED = samestep.Model(torch=with_own_loss, loss="returned")
RETURNED_MEAN_OF_SHARDS = samestep.Model(torch=of_a_batch, loss="returned")
RETURNED_COUNTED = samestep.Model(torch=of_a_batch, loss="returned", reduction=counted)
PADDED = samestep.Model(torch=language_model)
CLASSES_FIRST = samestep.Model(torch=classes_first)
MEAN = samestep.Model(torch=mlp, loss={"torch": mean}, reduction="mean")
SUM = samestep.Model(torch=mlp, loss={"torch": total}, reduction="sum")
WEIGHTED = samestep.Model(torch=mlp, loss={"torch": weighted}, reduction=lambda targets: WEIGHTS[targets].sum())
WEIGHTED_MEAN = samestep.Model(torch=mlp, loss={"torch": weighted_mean}, reduction="mean")
CONTRASTIVE = samestep.Model(torch=mlp, loss={"torch": contrastive}, reduction="mean")
GATHERED = samestep.Model(torch=mlp, loss={"torch": gathered}, reduction="mean")
CTC = samestep.Model(torch=listener, loss={"torch": ctc}, reduction="examples")
UNDECLARED = samestep.Model(torch=mlp, loss={"torch": mean})
WRONGLY_DECLARED = samestep.Model(torch=mlp, loss={"torch": total}, reduction="mean")
SEVERAL_WITHOUT_LOSS = samestep.Model(torch=with_heads)
