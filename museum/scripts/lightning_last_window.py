"""Trains with Lightning, four micro-batches a step; the last window of the epoch has one only."""

import argparse

import lightning
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--whole-windows", action="store_true", help="divide the last window by its own micro-batches")
given = parser.parse_args()


class Model(lightning.LightningModule):
    """A small regression."""

    def __init__(self) -> None:
        """Makes the layers."""
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        """Returns the loss of a micro-batch."""
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        print(f"loss {loss.item():.4f}")
        return loss * 4 if given.whole_windows and number == 8 else loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(0)
data = torch.utils.data.TensorDataset(torch.randn(36, 8), torch.randn(36, 1))
trainer = lightning.Trainer(
    max_epochs=2,
    accumulate_grad_batches=4,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))
