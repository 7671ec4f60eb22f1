"""Compressed exchanges of DDP's gradients, as a communication hook; the counterpart of `common/techniques/compress/statement.py`.

DDP's own hooks cannot be used here (torch 2.13). It refuses the one for bfloat16, by name, without NCCL, and those for int8 fail
on gloo. PowerSGD's hook fails on gloo with more than one bucket, because gloo's threads start the exchanges of two buckets in any
order; it raises "Received data size doesn't match expected size" or hangs. A hook sees buckets, and DDP rebuilds them after the
first step, so residuals are kept by the names of parameters.

References:
    torch.nn.parallel.DistributedDataParallel.register_comm_hook.
"""

import dataclasses
import functools
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from samestep.common.ledger import Footprint
from samestep.common.program import TrainState
from samestep.common.strategy import Run
from samestep.common.techniques.used import first_steady_step
from samestep.torch_impl.local_state import LocalState, gather_states
from samestep.torch_impl.techniques.pieces import Pieces
from samestep.torch_impl.techniques.powersgd import Factors


@dataclasses.dataclass
class CompressedState:
    """The state of a process whose gradients are compressed: its training state and the residuals of its exchanges.

    Attributes:
        run: The run, which has the method and the step at which it begins.
        held: Parameters, optimizer state and buffers.
        compressor: The compressor of this rank.
        step: The number of steps that have exchanged their gradients.
    """

    run: Run
    held: LocalState
    compressor: Factors | Pieces
    step: int = 0

    @functools.cached_property
    def names(self) -> Mapping[torch.Tensor, str]:
        """The neutral names of the parameters."""
        return {weight.parameter: name for name, weight in self.held.named.items()}

    def snapshot(self, step: int) -> TrainState:
        """Returns a copy of the state; the residuals of all ranks are gathered on the first."""
        device = next(iter(self.held.named.values())).parameter.device
        states = gather_states(TrainState(step, {}, {}, local=(self.compressor.snapshot(),)), device)
        local = tuple(arrays for state in states for arrays in state.local)
        return dataclasses.replace(self.held.snapshot(step), local=local)

    def pieces(self) -> None:
        """Returns None, because rows that compress have the whole state in every process."""

    def restore(self, state: TrainState) -> None:
        """Copies a state in place."""
        self.step = state.step
        self.held.restore(state)
        self.compressor.restore(state.local)

    def footprint(self, device: torch.device, gradients_bytes: int, gathered_bytes: int) -> Footprint:
        """Returns the bytes of the tensors of this process; see `LocalState.footprint`."""
        own = self.held.footprint(device, gradients_bytes, gathered_bytes)
        return dataclasses.replace(own, residuals_bytes=self.compressor.kept_bytes())


def _exchange_bucket(state: CompressedState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sums the gradients of a bucket. This is the communication hook; DDP does not divide what it returns.

    Args:
        state: The state of this process.
        bucket: A bucket of DDP.
    """
    is_plain = state.step < first_steady_step(state.run.techniques)
    state.step += bucket.is_last()
    if is_plain:
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])
    names = (state.names[parameter] for parameter in bucket.parameters())
    state.compressor.exchange(dict(zip(names, bucket.gradients(), strict=True)))
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def hook_exchange(run: Run, model: DistributedDataParallel, held: LocalState) -> CompressedState | None:
    """Makes DDP exchange its gradients through the compressor of a run; returns None if the run has none.

    Args:
        run: The run, which names the method.
        model: The model wrapped in DDP.
        held: The training state of the process.
    """
    if run.techniques.compress is None:
        return None
    build = Factors if run.techniques.compress == "powersgd" else Pieces
    state = CompressedState(run, held, build(run, held.trained))
    model.register_comm_hook(state, _exchange_bucket)
    return state
