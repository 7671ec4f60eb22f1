"""Models of packages that the tests do not need: unmodified, from their configuration."""

import numpy as np

import samestep


def tokens() -> dict[str, object]:
    ids = np.random.default_rng(0).integers(0, 31, (72, 8))
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    targets = np.roll(ids, -1, axis=1)
    rows = {"train": slice(48), "test": slice(48, None)}
    found = {f"{part}_targets": targets[each] for part, each in rows.items()}
    return found | {f"{part}_inputs": {n: a[each] for n, a in inputs.items()} for part, each in rows.items()}


def pictures() -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(20, 3, 32, 32)), draw.integers(0, 5, 20)
    return inputs[:16], targets[:16], inputs[16:], targets[16:]


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 31, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def resnet18():
    from torchvision.models import resnet18

    return resnet18(num_classes=5)


GPT2 = samestep.Model(torch=gpt2)
RESNET18 = samestep.Model(torch=resnet18)
