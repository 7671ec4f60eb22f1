"""Trains on sentences of uneven lengths with Lightning: batches of 16 at once, or four micro-batches of 4."""

import argparse

import lightning
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=4)
given = parser.parse_args()


class Model(lightning.LightningModule):
    """Predicts the next token from the present one."""

    def __init__(self) -> None:
        """Makes the layers."""
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Embedding(32, 16), torch.nn.Tanh(), torch.nn.Linear(16, 32))

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        """Returns the mean loss of the tokens of a micro-batch."""
        (tokens,) = batch
        targets = tokens[:, 1:].masked_fill(tokens[:, 1:] == 0, -100)
        return torch.nn.functional.cross_entropy(self.layers(tokens[:, :-1]).flatten(0, 1), targets.flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=0.01)


lightning.seed_everything(0)
lengths = torch.randint(3, 17, (96, 1))
tokens = torch.randint(1, 32, (96, 16)) * (torch.arange(16) < lengths)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens), batch_size=16 // given.accumulate)
trainer = lightning.Trainer(
    max_epochs=1,
    accumulate_grad_batches=given.accumulate,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Model(), loader)
