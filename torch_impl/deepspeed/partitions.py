"""The partitions of a model that DeepSpeed's engine keeps on this rank; written from whole tensors, and read as partitions.

The engine flattens the parameters and gives each rank a partition to update, its *masters*. The wrapped optimizer has its state
for the masters.

References:
    deepspeed.utils.safe_get_full_fp32_param and its siblings, of DeepSpeed 0.19.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import torch
import torch.distributed as dist
from deepspeed import DeepSpeedEngine, utils
from torch import nn


class PartitionLayout(Protocol):
    """How a ZeRO stage lays out what this rank keeps of the model between two steps.

    Attributes:
        masters: The partitions that this rank updates.
    """

    masters: list[torch.Tensor]

    def tensors(self, parameter: nn.Parameter) -> tuple[torch.Tensor, ...]:
        """Returns the tensors in which this rank has values of a parameter, in addition to the masters."""

    def link(self, states: Mapping[torch.Tensor, dict[str, torch.Tensor]]) -> None:
        """Links the parameters to their optimizer state, as the engine does after its first step."""

    def stretch(self, parameter: nn.Parameter, key: str | None = None) -> tuple[int, torch.Tensor]:
        """Returns where this rank's partition of a flattened parameter begins, and its memory.

        Args:
            parameter: A parameter that the engine manages.
            key: The key of the optimizer state to return instead, if any.
        """

    def write(self, parameter: nn.Parameter, value: torch.Tensor, key: str | None = None) -> None:
        """Sets this rank's partition of a parameter.

        Args:
            parameter: A parameter that the engine manages.
            value: The whole tensor.
            key: The key of the optimizer state to set instead, if any.
        """


class FlatLayout:
    """Stages 1 and 2: the parameters are whole on every rank; the masters are partitions of all of them, flattened."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self.masters: list[torch.Tensor] = engine.optimizer.single_partition_of_fp32_groups
        self._groups: list[list[nn.Parameter]] = engine.optimizer.bit16_groups

    def tensors(self, parameter: nn.Parameter) -> tuple[torch.Tensor, ...]:
        """Returns the parameter itself."""
        return (parameter,)

    def link(self, states: Mapping[torch.Tensor, dict[str, torch.Tensor]]) -> None:
        """Links the parameters of each group to the state of its master."""
        for parameters, master in zip(self._groups, self.masters, strict=True):
            utils.lazy_init_hp_params_optimizer_state(parameters, master, states)

    def stretch(self, parameter: nn.Parameter, key: str | None = None) -> tuple[int, torch.Tensor]:
        """Returns the part of the master, or of its optimizer state, that holds the parameter; empty if there is none."""
        if (mapping := parameter._hp_mapping) is None:
            return 0, self.masters[0][:0]
        return mapping.lp_fragment_address.start, mapping.get_hp_fragment(key)

    def write(self, parameter: nn.Parameter, value: torch.Tensor, key: str | None = None) -> None:
        """Sets the partition of the optimizer state, or that of the master together with the whole parameter."""
        if key is None:
            parameter.copy_(value)
            utils.safe_set_full_fp32_param(parameter, value)
        else:
            utils.safe_set_full_optimizer_state(parameter, value, key)


class ParameterLayout:
    """Stage 3: each parameter is cut into equal parts, the last one padded; a parameter is empty unless it is gathered."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self.masters: list[torch.Tensor] = engine.optimizer.fp32_partitioned_groups_flat

    def tensors(self, parameter: nn.Parameter) -> tuple[torch.Tensor, ...]:
        """Returns the parameter, and this rank's part of it."""
        return parameter, parameter.ds_tensor

    def link(self, states: Mapping[torch.Tensor, dict[str, torch.Tensor]]) -> None:
        """Does nothing, because stage 3 looks the optimizer state up."""

    def stretch(self, parameter: nn.Parameter, key: str | None = None) -> tuple[int, torch.Tensor]:
        """Returns this rank's part without its padding."""
        whole = key is None
        own = (
            utils.safe_get_local_fp32_param(parameter)
            if whole
            else utils.safe_get_local_optimizer_state(parameter, key)
        )
        start = dist.get_rank() * parameter.ds_tensor.numel()
        return start, own.flatten()[: max(0, parameter.ds_numel - start)]

    def write(self, parameter: nn.Parameter, value: torch.Tensor, key: str | None = None) -> None:
        """Sets this rank's part, padded, because DeepSpeed 0.19's safe_set_full_* fails on uneven parts."""
        size = parameter.ds_tensor.numel()
        own = value.flatten()[dist.get_rank() * size :][:size]
        part = nn.functional.pad(own, (0, size - own.numel()))
        if key is None:
            parameter.ds_tensor.copy_(part)
            utils.safe_set_local_fp32_param(parameter, part)
        else:
            utils.safe_set_local_optimizer_state(parameter, part, key)


LAYOUTS: Mapping[int, Callable[[DeepSpeedEngine], PartitionLayout]] = {1: FlatLayout, 2: FlatLayout, 3: ParameterLayout}
"""ZeRO stage -> its layout."""


Box = tuple[tuple[int, ...], tuple[int, ...]]
"""The offset of a part of an array in each dim, and its size in each dim."""


def boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Box]:
    """Cuts a contiguous range of a flattened array into boxes of the array, in the order of its elements.

    Args:
        shape: The shape of the array.
        start: Where the range begins.
        stop: Where the range ends.
    """
    if len(shape) < 2:
        if start < stop:
            yield (start,)[: len(shape)], (stop - start,)[: len(shape)]
        return
    row_size = math.prod(shape[1:])
    while start < stop:
        row, within = divmod(start, row_size)
        if not within and (rows := (stop - start) // row_size):
            yield (row, *[0] * (len(shape) - 1)), (rows, *shape[1:])
            start += rows * row_size
            continue
        end = min(stop, (row + 1) * row_size)
        yield from (((row, *at), (1, *sizes)) for at, sizes in boxes(shape[1:], within, within + end - start))
        start = end
