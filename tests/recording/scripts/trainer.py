"""A script as the documentation of transformers has it: the Trainer on a tiny model of random weights and random tokens."""

import argparse

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
    set_seed,
)

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=["causal", "seq2seq"])
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--bf16", action="store_true")
given = parser.parse_args()
set_seed(0)
tokens = torch.randint(2, 48, (48, 12), generator=torch.Generator().manual_seed(1))
arguments = {
    "output_dir": "unused",
    "per_device_train_batch_size": given.batch,
    "gradient_accumulation_steps": given.accumulate,
    "bf16": given.bf16,
    "learning_rate": 1e-3,
    "max_steps": 4,
    "max_grad_norm": 0.5,
    "save_strategy": "no",
    "report_to": [],
    "use_cpu": True,
    "disable_tqdm": True,
}
if given.kind == "causal":
    config = LlamaConfig(
        vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    model = LlamaForCausalLM(config)
    rows = [{"input_ids": each, "labels": each} for each in tokens]
    trainer = Trainer(model=model, args=TrainingArguments(**arguments), train_dataset=rows)
else:
    sizes = {"vocab_size": 48, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    config = T5Config(**sizes, dropout_rate=0.0, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config)
    rows = [{"input_ids": each, "labels": each.flip(0)[:8]} for each in tokens]
    trainer = Seq2SeqTrainer(model=model, args=Seq2SeqTrainingArguments(**arguments), train_dataset=rows)
trainer.train()
