"""THE training step, in NumPy float64."""

import numpy as np

from common.batch import Batch
from common.config import RunConfig
from common.ledger import Exchange, Footprint
from common.reference.models import build_model
from common.reference.models.losses import LOSSES
from common.reference.optimizers import UPDATES, empty_slots
from common.strategy import TrainState
from common.workload.models.spec import init
from common.workload.table import Workload


class TrainingProgram:
    """One replica, one process, nothing to exchange: what every other program is judged against."""

    def __init__(self, workload: Workload, config: RunConfig) -> None:
        self.model = build_model(workload.model)
        self.loss = LOSSES[workload.model.loss]
        self.params = init(workload.model, config.seed)
        self.optimizer = workload.optimizer(config)
        self.update = UPDATES[self.optimizer.name]
        self.slots = empty_slots(self.optimizer, self.params)
        self.micro_batches = config.techniques.micro_batches
        self.clip_norm = config.techniques.clip_norm
        self._step = 0
        self._losses: list[float] = []
        self.device_note = "one core"

    def step(self, batch: Batch) -> None:
        """One optimizer step."""
        loss, gradients = self.gradients(batch)
        self._losses.append(loss)
        self.apply(gradients)

    def gradients(self, batch: Batch) -> tuple[float, dict[str, np.ndarray]]:
        """Loss and gradients of the global mean loss, accumulated over the micro-batches."""
        total_loss = 0.0
        total: dict[str, np.ndarray] = {}
        count = batch.targets[batch.indices].size
        for micro in range(self.micro_batches):
            inputs, targets = batch.rows(micro, self.micro_batches)
            logits, saved = self.model.forward(self.params, inputs)
            loss, dlogits = self.loss(logits, targets)
            gradients: dict[str, np.ndarray] = {}
            self.model.backward(self.params, saved, dlogits / count, gradients)
            total_loss += loss / count
            total = {name: total[name] + value for name, value in gradients.items()} if total else gradients
        return total_loss, total

    def apply(self, gradients: dict[str, np.ndarray]) -> None:
        """Clips by the global norm, then updates every parameter."""
        if self.clip_norm is not None:
            norm = np.sqrt(sum(float((g * g).sum()) for g in gradients.values()))
            scale = min(1.0, self.clip_norm / norm) if norm else 1.0
            gradients = {name: g * scale for name, g in gradients.items()}
        self._step += 1
        for name, value in self.params.items():
            slots = {slot: arrays[name] for slot, arrays in self.slots.items()}
            self.update(self.optimizer, self._step, value, gradients[name], slots)

    def losses(self) -> list[float]:
        """The losses since the last call."""
        taken, self._losses = self._losses, []
        return taken

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits."""
        return self.model.forward(self.params, inputs)[0]

    def state(self) -> TrainState:
        """Copies of everything."""
        slots = {slot: _copied(arrays) for slot, arrays in self.slots.items()}
        return TrainState(self._step, _copied(self.params), slots)

    def restore(self, state: TrainState) -> None:
        """Takes everything over, in float64."""
        self._step = state.step
        self.params = _copied(state.params)
        self.slots = {slot: _copied(arrays) for slot, arrays in state.slots.items()}

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """There is no one to exchange anything with."""
        self.step(batch)
        return ()

    def footprint(self) -> tuple[Footprint, ...]:
        """Every array there is."""
        params = sum(value.nbytes for value in self.params.values())
        slots = sum(value.nbytes for arrays in self.slots.values() for value in arrays.values())
        return (Footprint("cpu", params, params, params, slots, "tensors"),)

    def measures(self) -> dict[str, float]:
        """None."""
        return {}

    def sync(self) -> None:
        """NumPy never runs ahead."""

    def close(self) -> None:
        """Nothing to leave."""


def _copied(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.array(value, np.float64) for name, value in arrays.items()}
