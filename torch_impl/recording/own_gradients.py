"""The gradient of each rank before it is exchanged, which is the phase "local" of a record.

A hook of a parameter is given what a backward pass adds to its gradient. The reduction runs later and is not disturbed. A step
may have several passes, so their projections are added. This costs a call for each tensor, so only few steps are looked at.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from samestep.common.steps.projections import Piece, stored_bits
from samestep.common.steps.record import absent, stats_dtype
from samestep.common.steps.recording import DENSE_STEPS, Recorder
from samestep.torch_impl.recording.places import is_of_many, layouts
from samestep.torch_impl.recording.statistics import Pending, Statistics

_SELDOM = 10
"""After the first steps, one in this many recorded steps has the gradients of each rank."""


class OwnGradients:
    """Collects the gradients of this rank in each step."""

    def __init__(self, recorder: Recorder) -> None:
        """Starts without modules.

        Args:
            recorder: Keeps our errors from the script.
        """
        self._recorder = recorder
        self.passes: dict[int, list[Pending]] = {}
        self.scale: torch.Tensor | None = None  # the loss scale of this pass

    def follow(self, module: nn.Module) -> None:
        """Follows the parameters of a module, if other ranks have replicas of it."""
        trained = (each for each in module.parameters() if each.requires_grad and not is_lazy(each))
        parameters = [each for each in trained if not each.is_complex()]
        if is_of_many() and not {"fsdp1", "fsdp2", "tp"} & {*layouts(parameters, [module])}:
            for each in parameters:
                each.register_hook(self._follower(each))

    def _follower(self, parameter: torch.Tensor) -> Callable[[torch.Tensor], None]:
        key, statistics = id(parameter), Statistics([Piece.whole(tuple(parameter.shape))], is_float64=True)
        return self._recorder.guarded(functools.partial(self._see, key, parameter.numel(), statistics))

    def _see(self, key: int, size: int, statistics: Statistics, gradient: torch.Tensor) -> None:
        number, every = self._recorder.number, self._recorder.options.every
        is_whole = gradient.numel() == size and gradient.layout == torch.strided
        if is_whole and (number < DENSE_STEPS or number % (_SELDOM * every) == 0):
            with torch.no_grad():
                pending = statistics([gradient])
            pending.scale = self.scale
            self.passes.setdefault(key, []).append(pending)

    def taken(self, parameters: Sequence[torch.Tensor], is_float64: bool) -> np.ndarray | None:
        """Returns the gradients of the step in the form of a record; None if there are none.

        Args:
            parameters: All tensors of the record.
            is_float64: Whether the record keeps float64.
        """
        if not self.passes:
            return None
        stats = absent(len(parameters), stats_dtype(is_float64))
        for row, parameter in zip(stats, parameters, strict=True):
            passes = [each.resolve()[0] for each in self.passes.get(id(parameter), ())]
            if passes:
                row["projections"] = sum(each["projections"] for each in passes)
                row["square"] = passes[0]["square"] if len(passes) == 1 else np.mean(row["projections"] ** 2)
                row["bits"] = stored_bits(passes[0]["bits"] if len(passes) == 1 else np.uint64(0), row["square"])
        return stats
