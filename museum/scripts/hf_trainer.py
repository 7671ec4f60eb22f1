"""Trains a small Llama on sentences of uneven lengths with the Trainer of transformers, four micro-batches a step or one."""

import argparse
import os
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=4)
parser.add_argument("--even", action="store_true", help="sentences of one length")
parser.add_argument(
    "--own-model", action="store_true", help="a model whose forward pass takes no keywords of the Trainer"
)
parser.add_argument("--smooth", type=float, default=0.0, help="label smoothing")
parser.add_argument("--sentences", type=int, default=96)
given = parser.parse_args()

torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)


def sentence() -> dict[str, torch.Tensor]:
    """Returns the tokens of a sentence, padded to 16; padding has no target."""
    length = int(torch.randint(3, 17, (), generator=generator))
    tokens = torch.randint(1, 64, (16,), generator=generator)
    is_text = torch.arange(16) < (16 if given.even else length)
    return {
        "input_ids": tokens * is_text,
        "attention_mask": is_text.long(),
        "labels": torch.where(is_text, tokens, -100),
    }


sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)


class OwnModel(LlamaForCausalLM):
    """A model as users write them."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> dict:
        """Returns the loss, which is a mean over the tokens of the micro-batch."""
        logits = super().forward(input_ids, attention_mask=attention_mask).logits
        flat = logits[:, :-1].flatten(0, 1)
        return {"loss": torch.nn.functional.cross_entropy(flat, labels[:, 1:].flatten()), "logits": logits}


model = (OwnModel if given.own_model else LlamaForCausalLM)(LlamaConfig(**sizes))
world = int(os.environ.get("WORLD_SIZE", "1"))
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=6,
    per_device_train_batch_size=16 // given.accumulate // world,
    gradient_accumulation_steps=given.accumulate,
    learning_rate=1e-3,
    max_grad_norm=0,
    label_smoothing_factor=given.smooth,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    seed=0,
    disable_tqdm=True,
)
Trainer(model, arguments, train_dataset=[sentence() for _ in range(given.sentences)]).train()
