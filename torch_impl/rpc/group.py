"""The group of RPC workers, one per process and named after the roles of the run, and what a worker serves to its callers."""

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
"""RPC workers exchange tensors in CPU memory."""


class Served:
    """The parameters of a stage with their optimizer, in the process that holds them.

    Attributes:
        recorder: Records what calls send from this process.
        parameters: The parameters, in the order of their neutral names.
        optimizer: The optimizer of these parameters.
        local_state: The local state of parameters and optimizer.
        restored: Set once the state from which the run continues is in place. No caller may start its steps before.
        updated: Released after each update.
        updates_per_step: The number of updates in a step.
        sends: What calls sent from this process between the last update and the one before it.
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
        self.recorder.start()  # calls may arrive before this process itself has started the step

    def _begin_step(self, *_: object) -> None:
        set_rate(self.optimizer, self._run.optimizer_at(self._updates // self.updates_per_step + 1).learning_rate)
        self._updates += 1
        self._gradients_bytes = weights.nbytes(parameter.grad for parameter in self.parameters)

    def _end_step(self, *_: object) -> None:
        self.optimizer.zero_grad()  # distributed autograd sets only the gradients that its context has (torch 2.13)
        self.sends = self.recorder.stop()
        self.recorder.start()
        self.updated.release()

    def snapshot(self, step: int) -> TrainState:
        """Returns a copy of this process's part of the state."""
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
    """A process whose part of every step is done by calls of other processes; it keeps pace by waiting for the updates."""

    # It is a Program, rather than a server that runs until it is stopped, because it leaves the group together with the
    # others, its traffic counts in the same windows as theirs, and it measures its own footprint.

    def __init__(self, served: Served, hardware: Hardware) -> None:
        self.hardware = hardware
        self._served = served

    def step(self, batch: Batch) -> None:
        """Waits until the updates of the step have been applied."""
        for _ in range(self._served.updates_per_step):
            self._served.updated.acquire()

    def losses(self) -> list[float]:
        """Returns no losses, because the callers have them."""
        return []

    def agree(self, value: float) -> float:
        """Returns the value unchanged, because this process has no losses."""
        return value

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Returns the inputs, which nobody reads, because the callers predict."""
        return inputs

    def state(self) -> TrainState:
        """Returns an empty state, because rank 0 fetches this process's part by a call."""
        return TrainState(0, {}, {})

    def shards(self) -> None:
        """Returns None, because rank 0 saves the whole state."""

    def restore(self, state: TrainState) -> None:
        """Copies this process's part of a state in place; its callers wait for that."""
        self._served.restore(state)

    def observe(self, batch: Batch) -> None:
        """Takes part in the observed step."""
        self.step(batch)

    def sends(self) -> tuple[Send, ...]:
        """Returns what calls sent from this process."""
        return self._served.sends

    def footprint(self) -> tuple[Footprint, ...]:
        """Returns the tensors of this process."""
        return (self._served.footprint(),)

    def measures(self) -> Mapping[str, float]:
        """Returns no quantities, because the callers measure them."""
        return {}

    def sync(self) -> None:
        """Returns at once, because a step is over when its updates have been applied."""

    def close(self) -> None:
        """Leaves the group together with all other processes."""
        leave_rpc()
        devices.leave_group()


def worker_name(rank: int) -> str:
    """Returns the name by which a rank is called."""
    return f"rank-{rank}"


def own_rank() -> int:
    """Returns the rank of this process."""
    return int(os.environ["RANK"])


def join_rpc(run: Run) -> None:
    """Joins the group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe; returns when all processes have joined.

    Args:
        run: The run, the same in every process.
    """
    store = None if dist.is_initialized() else devices.meet(run)
    if devices.meets_on_loopback():
        os.environ.setdefault("TP_SOCKET_IFNAME", "lo")  # otherwise TensorPipe looks up the host's name
    rank, world_size = own_rank(), int(os.environ["WORLD_SIZE"])
    # TCP even on one machine, where TensorPipe would use shared memory and bypass the wire. (Private names, torch 2.13.)
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=8, rpc_timeout=devices.peer_seconds(), _transports=["uv"], _channels=["basic"]
    )
    rpc.init_rpc(worker_name(rank), rank=rank, world_size=world_size, rpc_backend_options=options)
    del store  # up to here torch finds the store at its port, and opens no other


def leave_rpc() -> None:
    """Leaves the group once every process wants to."""
    # Rank 0 has the store through which the ranks agree. It may be gone by the time another rank asks for the outcome,
    # which can only be that all have agreed (torch 2.13).
    with contextlib.suppress(dist.DistNetworkError) if own_rank() else contextlib.nullcontext():
        rpc.shutdown()
