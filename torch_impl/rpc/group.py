"""The group of RPC workers, one per process, named as the roles of the run; and what a worker serves to its callers."""

import contextlib
import dataclasses
import os
import threading
from collections.abc import Mapping

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import rpc

from samestep.common.batch import Batch
from samestep.common.ledger import Footprint, Send
from samestep.common.program import Hardware, TrainState
from samestep.common.strategy import Run
from samestep.torch_impl import devices, weights
from samestep.torch_impl.local_state import build_local_state
from samestep.torch_impl.observing.recorder import SendRecorder
from samestep.torch_impl.optimizers import build_optimizer, matrices_of, set_rate
from samestep.torch_impl.pipeline.stages import Stage

CPU = torch.device("cpu")
"""Between workers RPC moves tensors of the CPU."""


class Served:
    """A stage's parameters with their optimizer, in the process that holds them.

    Attributes:
        recorder: Records what calls send from this process.
        parameters: The parameters, in the order of their neutral names.
        optimizer: The optimizer of these parameters.
        local_state: The local state of parameters and optimizer.
        restored: Set once a state that is continued is in place. Until then no caller may begin with its steps.
        updated: Released after each update.
        updates_per_step: The number of updates that make a step.
        sends: What calls sent from this process up to the last update, from the one before it.
    """

    def __init__(self, run: Run, stage: Stage, recorder: SendRecorder, updates_per_step: int = 1) -> None:
        self.recorder = recorder
        self._run, self._updates, self._skipped = run, 0, 0
        self.updates_per_step = updates_per_step
        self.parameters = list(stage.parameters())
        self.optimizer = build_optimizer(run.optimizer, self.parameters, matrices_of(run, stage.model))
        self.local_state = build_local_state(run, self.optimizer, stage.model)
        self.restored = threading.Event()
        self.updated = threading.Semaphore(0)
        self.sends: tuple[Send, ...] = ()
        self._gradients_bytes = 0
        self.optimizer.register_step_pre_hook(self._begin_step)
        self.optimizer.register_step_post_hook(self._end_step)
        self.recorder.start()  # calls may come before this process itself has begun with the step

    def _begin_step(self, *_: object) -> None:
        set_rate(self.optimizer, self._run.optimizer_at(self._updates // self.updates_per_step + 1).learning_rate)
        self._updates += 1
        self._gradients_bytes = weights.nbytes(parameter.grad for parameter in self.parameters)

    def _end_step(self, *_: object) -> None:
        self.optimizer.zero_grad()  # a context of distributed autograd sets those alone that it has (torch 2.13)
        self.sends = self.recorder.stop()
        self.recorder.start()
        self.updated.release()

    def snapshot(self, step: int) -> TrainState:
        """Copies this process's part of the state."""
        return dataclasses.replace(self.local_state.snapshot(step), skipped=self._skipped)

    def restore(self, state: TrainState) -> None:
        """Copies this process's part of a state in place."""
        self._updates, self._skipped = state.step * self.updates_per_step, state.skipped
        self.local_state.restore(state)
        self.restored.set()

    def footprint(self) -> Footprint:
        """Returns the tensors of this process, with the gradients of the last update."""
        return self.local_state.footprint(CPU, self._gradients_bytes)


class ServingProgram:
    """A process whose part of every step is done by the calls of others; it keeps in step by waiting for the updates."""

    # It stays a Program, and does not just serve until it is stopped: it leaves the group together with the others,
    # its traffic counts in the same windows as theirs, and its footprint is measured by itself.

    def __init__(self, served: Served, hardware: Hardware) -> None:
        self.hardware = hardware
        self._served = served

    def step(self, batch: Batch) -> None:
        """Returns when the step's updates have been applied."""
        for _ in range(self._served.updates_per_step):
            self._served.updated.acquire()

    def losses(self) -> list[float]:
        """Returns nothing, because the callers have the losses."""
        return []

    def agree(self, value: float) -> float:
        """Returns the value: the losses are elsewhere."""
        return value

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Returns its inputs, because the callers predict."""
        return inputs

    def state(self) -> TrainState:
        """Returns an empty state, because rank 0 fetches this process's part by a call."""
        return TrainState(0, {}, {})

    def shards(self) -> None:
        """Returns None: rank 0 saves what it fetches."""

    def restore(self, state: TrainState) -> None:
        """Copies this process's part in place, for which its callers wait."""
        self._served.restore(state)

    def observe(self, batch: Batch) -> None:
        """Takes part in one more step."""
        self.step(batch)

    def sends(self) -> tuple[Send, ...]:
        """Returns what calls sent from here."""
        return self._served.sends

    def footprint(self) -> tuple[Footprint, ...]:
        """Returns the tensors of this process."""
        return (self._served.footprint(),)

    def measures(self) -> Mapping[str, float]:
        """Returns nothing, because the callers measure."""
        return {}

    def sync(self) -> None:
        """Returns at once: a step is over when its updates have been applied."""

    def close(self) -> None:
        """Leaves the group when every process does."""
        leave_rpc()
        devices.leave_group()


def worker_name(rank: int) -> str:
    """Returns the name that calls go to."""
    return f"rank-{rank}"


def own_rank() -> int:
    """The rank of this process."""
    return int(os.environ["RANK"])


def join_rpc(run: Run) -> None:
    """Joins the group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe; returns when all have come.

    Args:
        run: The same in every process.
    """
    store = None if dist.is_initialized() else devices.meet(run)
    if devices.meets_on_loopback():
        os.environ.setdefault("TP_SOCKET_IFNAME", "lo")  # else TensorPipe looks the host's name up
    rank, world_size = own_rank(), int(os.environ["WORLD_SIZE"])
    # Over TCP even on one machine, where it would pass by the wire through shared memory. (Private names, torch 2.13.)
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=8, rpc_timeout=devices.peer_seconds(), _transports=["uv"], _channels=["basic"]
    )
    rpc.init_rpc(worker_name(rank), rank=rank, world_size=world_size, rpc_backend_options=options)
    del store  # until here torch finds it at its port, and opens none of its own


def leave_rpc() -> None:
    """Leaves once every process wants to."""
    # Rank 0 has the store through which they agree. It may be gone by the time another asks for the outcome, which can
    # only be that all have agreed (torch 2.13).
    with contextlib.suppress(dist.DistNetworkError) if own_rank() else contextlib.nullcontext():
        rpc.shutdown()
