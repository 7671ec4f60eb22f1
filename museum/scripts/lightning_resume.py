"""Trains two epochs with Lightning on two processes; between them it may stop and go on from its checkpoint."""

import argparse
import os
import tempfile

import lightning
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--resume", action="store_true")
given = parser.parse_args()


class Model(lightning.LightningModule):
    """A classifier."""

    def __init__(self) -> None:
        """Makes the layer."""
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        """Returns the loss of a batch."""
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer_of(epochs: int) -> lightning.Trainer:
    """Returns a trainer of so many epochs."""
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    return lightning.Trainer(max_epochs=epochs, accelerator="cpu", devices=2, strategy="ddp", **quiet)


lightning.seed_everything(0)
data = torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randint(2, (32,)))
model = Model()
checkpoint = None
if given.resume:
    first = trainer_of(1)
    first.fit(model, torch.utils.data.DataLoader(data, batch_size=4, shuffle=True))
    checkpoint = os.path.join(tempfile.gettempdir(), f"museum-{os.getppid()}.ckpt")
    first.save_checkpoint(checkpoint)
trainer_of(2).fit(model, torch.utils.data.DataLoader(data, batch_size=4, shuffle=True), ckpt_path=checkpoint)
