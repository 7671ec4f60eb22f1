"""Local steps of each rank, and the joint step of each period; the counterpart of `common/techniques/local_steps/statement.py`.

DDP never sums a gradient here: each pass is in its `no_sync`. Only the weights are sent, once a period.

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
    """The steps of one rank, and its part in those of all; the state of a process whose ranks take steps alone.

    Attributes:
        run: With its periods.
        model: The model as DDP wrapped it.
        held: Parameters, optimizer state and buffers of this rank.
        shared: The weights that the present period began with, by name; empty where nobody needs them.
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
        """Keeps what the outer step needs: what a state has of it, otherwise the present weights and zeros."""
        self.shared, self.momentum = {}, {}
        for name, weight in self.held.trained.items():
            own, techniques = weight.parameter.detach(), self.run.techniques
            if techniques.keeps_shared:
                self.shared[name] = weight.from_neutral(shared[name]) if name in shared else own.clone()
            if techniques.outer_momentum:
                has = name in momentum
                self.momentum[name] = weight.from_neutral(momentum[name]) if has else torch.zeros_like(own)

    def exchange(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Makes the context of a forward and backward pass: DDP sums nothing.

        Args:
            last: Ignored: the last pass of a step is like any other.
        """
        return self.model.no_sync()

    def after_update(self, step: int) -> None:
        """Takes the step of all ranks if a period ends.

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
        """Copies everything; what every rank has is gathered on the first."""
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
        """Returns None: no part of the state is one rank's alone."""

    def restore(self, state: TrainState) -> None:
        """Continues from this rank's own state, or from the means where it has none."""
        self.held.restore(of_rank(state, dist.get_rank()))
        self._begin(state.params | kept(state, SHARED), kept(state, OUTER))

    def footprint(self, device: torch.device, gradients_bytes: int, gathered_bytes: int) -> Footprint:
        """Adds up the tensors of this process, as `LocalState.footprint` does."""
        own = self.held.footprint(device, gradients_bytes, gathered_bytes)
        held = (*self.shared.values(), *self.momentum.values())
        return dataclasses.replace(own, residuals_bytes=weights.nbytes(held))


def take_apart(run: Run, model: DistributedDataParallel, held: LocalState) -> RankSteps | None:
    """Makes the ranks of a run take local steps; returns None if the run does not ask for that.

    Args:
        run: The run.
        model: The model as DDP wrapped it.
        held: What the process holds.
    """
    return None if run.techniques.local_steps is None else RankSteps(run, model, held)
