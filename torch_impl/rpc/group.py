"""The group of RPC workers, one per process and named after the roles of the run, and what a worker serves to its callers."""

import contextlib
import dataclasses
import math
import os
import threading

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import rpc

from samestep.common.batch import Batch
from samestep.common.ledger import Footprint, Send
from samestep.common.program import Hardware, PlainProgram, TrainState
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
        self._begun, self._steps_begun = threading.Condition(), math.inf  # nothing waits
        self.optimizer.register_step_pre_hook(self._begin_update)
        self.optimizer.register_step_post_hook(self._end_update)
        self.recorder.start()  # calls may arrive before this process itself has started the step

    def pace(self) -> None:
        """Lets the calls of a step wait, from now on, until this process has begun that step itself."""
        self._steps_begun = 0

    def end_pace(self) -> None:
        """Lets all calls in, once no bytes are counted any more."""
        with self._begun:
            self._steps_begun = math.inf
            self._begun.notify_all()

    def begin_step(self) -> None:
        """Begins the next step, and lets its calls in."""
        with self._begun:
            self._steps_begun += 1
            self._begun.notify_all()

    def await_step(self) -> None:
        """Waits until this process has begun the step that a call belongs to.

        Its bytes are counted between two steps. What a call sends of the next step must not count in the one before.
        """
        with self._begun:
            self._begun.wait_for(lambda: self._steps_begun > self._updates // self.updates_per_step)

    def _begin_update(self, *_: object) -> None:
        set_rate(self.optimizer, self._run.optimizer_at(self._updates // self.updates_per_step + 1).learning_rate)
        self._updates += 1
        self._gradients_bytes = weights.nbytes(parameter.grad for parameter in self.parameters)

    def _end_update(self, *_: object) -> None:
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
        if self._steps_begun != math.inf:
            self._steps_begun = state.step
        self.local_state.restore(state)
        self.restored.set()

    def footprint(self) -> Footprint:
        """Returns the tensors of this process, with the gradients of the last update."""
        return self.local_state.footprint(CPU, self._gradients_bytes)


class ServingProgram(PlainProgram):
    """A process whose part of every step is done by calls of other processes; it keeps pace by waiting for the updates."""

    # It is a Program, rather than a server that runs until it is stopped, because it leaves the group together with the
    # others, its traffic counts in the same windows as theirs, and it measures its own footprint.

    def __init__(self, served: Served, hardware: Hardware) -> None:
        self.hardware = hardware
        self._served = served
        served.pace()

    def step(self, batch: Batch) -> None:
        """Lets the calls of the step in, and waits until its updates have been applied."""
        self._served.begin_step()
        for _ in range(self._served.updates_per_step):
            self._served.updated.acquire()

    def losses(self) -> list[float]:
        """Returns no losses, because the callers have them."""
        return []

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Returns the inputs, which nobody reads, because the callers predict."""
        return inputs

    def state(self) -> TrainState:
        """Returns an empty state, because rank 0 fetches this process's part by a call."""
        return TrainState(0, {}, {})

    def restore(self, state: TrainState) -> None:
        """Copies this process's part of a state in place; its callers wait for that."""
        self._served.restore(state)

    def observe(self, batch: Batch) -> None:
        """Takes part in the observed step, after which processes may take different numbers of steps."""
        self._served.end_pace()
        self.step(batch)

    def sends(self) -> tuple[Send, ...]:
        """Returns what calls sent from this process."""
        return self._served.sends

    def footprint(self) -> tuple[Footprint, ...]:
        """Returns the tensors of this process."""
        return (self._served.footprint(),)

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
