"""Local steps of each rank, and the joint step of each period; the counterpart of `common/techniques/local_steps/statement.py`.

DDP never sums gradients here, because each pass runs in its `no_sync`. Only the weights are sent, once per period.

References:
    torch.nn.parallel.DistributedDataParallel.no_sync; torch's own `PeriodicModelAverager` (2.13) averages after the first step
    of a period, and has no outer optimizer.
"""

import contextlib
import dataclasses
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from samestep.common.ledger import Footprint
from samestep.common.program import OUTER, SHARED, Arrays, TrainState
from samestep.common.strategy import Run
from samestep.common.techniques.local_steps.ranks import averaged, kept, of_rank, pack
from samestep.torch_impl import weights
from samestep.torch_impl.local_state import LocalState, gather_states


@dataclasses.dataclass
class RankSteps:
    """The local steps of one rank and its part in the joint steps, with the state of its process.

    Attributes:
        run: The run, which has the periods.
        model: The model wrapped in DDP.
        held: Parameters, optimizer state and buffers of this rank.
        shared: The weights with which the current period began, by name; empty if they are not needed.
        momentum: The running sum of the outer steps, by name; empty without momentum.
    """

    run: Run
    model: DistributedDataParallel
    held: LocalState
    shared: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    momentum: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begin({}, {})

    def _begin(self, shared: Arrays, momentum: Arrays) -> None:
        """Sets what the outer step needs, from a state or, without one, to the current weights and zeros."""
        self.shared, self.momentum = {}, {}
        for name, weight in self.held.trained.items():
            own, techniques = weight.parameter.detach(), self.run.techniques
            if techniques.keeps_shared:
                self.shared[name] = weight.from_neutral(shared[name]) if name in shared else own.clone()
            if techniques.outer_momentum:
                has = name in momentum
                self.momentum[name] = weight.from_neutral(momentum[name]) if has else torch.zeros_like(own)

    def exchange(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Returns the context of a forward and backward pass, in which DDP sums nothing.

        Args:
            last: Ignored, because the last pass of a step is like any other.
        """
        return self.model.no_sync()

    def after_update(self, step: int) -> None:
        """Takes the joint step of all ranks if a period ends.

        Args:
            step: The number of the step that was taken, counted from 1.
        """
        if step % self.run.techniques.steps_of_period == 0:
            self._meet({name: weight.parameter.detach() for name, weight in self.held.trained.items()})

    def _meet(self, own: Mapping[str, torch.Tensor]) -> None:
        techniques = self.run.techniques
        flat = torch.cat([value.reshape(-1) for value in own.values()])
        dist.all_reduce(flat)
        means = (flat / dist.get_world_size()).split([value.numel() for value in own.values()])
        for (name, value), mean in zip(own.items(), means, strict=True):
            value.copy_(mean.view_as(value))
            if name not in self.shared:
                continue
            gradient = self.shared[name] - value
            if name in self.momentum:
                self.momentum[name].mul_(techniques.outer_momentum).add_(gradient)
                gradient.add_(self.momentum[name], alpha=techniques.outer_momentum)
            value.copy_(self.shared[name].sub_(gradient, alpha=techniques.outer_rate))

    def snapshot(self, step: int) -> TrainState:
        """Returns a copy of the state; the states of all ranks are gathered on the first."""
        own = self.held.snapshot(step)
        device = next(iter(self.held.named.values())).parameter.device
        states = gather_states(own, device)
        if not states:
            return own
        named = self.held.trained
        shared, momentum = (
            {name: named[name].to_neutral(value) for name, value in values.items()}
            for values in (self.shared, self.momentum)
        )
        return averaged(dataclasses.replace(own, local=pack(states, shared, momentum)))

    def pieces(self) -> None:
        """Returns None, because no part of the state lies on only one rank."""

    def restore(self, state: TrainState) -> None:
        """Continues from this rank's own state, or from the means if there is none."""
        self.held.restore(of_rank(state, dist.get_rank()))
        self._begin(state.params | kept(state, SHARED), kept(state, OUTER))

    def footprint(self, device: torch.device, gradients_bytes: int, gathered_bytes: int) -> Footprint:
        """Returns the bytes of the tensors of this process; see `LocalState.footprint`."""
        own = self.held.footprint(device, gradients_bytes, gathered_bytes)
        held = (*self.shared.values(), *self.momentum.values())
        return dataclasses.replace(own, residuals_bytes=weights.nbytes(held))


def take_apart(run: Run, model: DistributedDataParallel, held: LocalState) -> RankSteps | None:
    """Makes the ranks of a run take local steps; returns None if the run does not ask for them.

    Args:
        run: The run.
        model: The model wrapped in DDP.
        held: What the process holds.
    """
    return None if run.techniques.local_steps is None else RankSteps(run, model, held)
