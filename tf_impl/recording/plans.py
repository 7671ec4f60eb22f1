"""What is recorded of each optimizer: its tensors, and the slots of its replicas."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from samestep.common.steps.keras_scalars import scalars_of, written
from samestep.common.steps.record import Phase
from samestep.tf_impl.recording.slots import Slots
from samestep.tf_impl.recording.statistics import Statistics
from samestep.tf_impl.recording.tensors import Held, container_of


class UpdatePlan:
    """What is recorded of one optimizer."""

    def __init__(
        self,
        number: int,
        optimizer: Any,
        held: Sequence[Held],
        updated: frozenset[int],
        num_replicas: int,
        is_scaled: bool,
    ) -> None:
        """Prepares the statistics.

        Args:
            number: Its own, from 0.
            optimizer: Keras'; of one that scales the loss, the one within; None where the script has none.
            held: The tensors that it updates, and those that no optimizer does.
            updated: The ids of the variables of TensorFlow that it updates.
            num_replicas: In sync.
            is_scaled: Whether another optimizer scales the loss, and leaves out updates.
        """
        self.number, self.optimizer, self.held, self.num_replicas = number, optimizer, held, num_replicas
        self.is_float64 = is_wide(held)
        self.statistics = Statistics([each.layout for each in held], self.is_float64)
        self.slots: dict[int, Slots] = {}
        self.scalars = {} if optimizer is None else scalars_of(optimizer)
        self.num_batches = 1 if optimizer is None else optimizer.gradient_accumulation_steps or 1
        self.updated = updated if self.num_batches == 1 and not is_scaled else None
        self._places = {id(each.container): place for place, each in enumerate(held)}

    def numbers(self, lr: float, place: int) -> dict[str, float]:
        """Returns the numbers of the optimizer: "lr" of the first one of a step, "lr/1" of the second, as of groups in torch.

        Args:
            lr: The learning rate; NaN where there is none.
            place: The place of the optimizer among those that take the step.
        """
        rates = {} if math.isnan(lr) else {"lr": lr if self.is_float64 else written(lr)}
        found = rates | self.scalars
        return {f"{name}/{place}": value for name, value in found.items()} if place else found

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Those of gradients that can be seen."""
        return ("local", "gradient") if self.num_replicas > 1 else ("gradient",)

    def ordered(self, gradients: Iterable[Any], variables: Iterable[Any]) -> list[Any]:
        """Returns the gradients in the order of the tensors; None for those that are not there.

        Args:
            gradients: The gradients of some of the variables.
            variables: These.
        """
        found: list[Any] = [None] * len(self.held)
        for gradient, variable in zip(gradients, variables, strict=True):
            place = self._places.get(id(container_of(variable)))
            if place is not None:
                found[place] = gradient
        return found


def is_wide(held: Iterable[Held]) -> bool:
    """Returns whether all tensors are float64."""
    return all(each.tensor.dtype == "float64" for each in held)
