"""The server of a parameter server: parameters and optimizer in one process, which workers pull from and push to."""

import threading
from collections.abc import Sequence

import torch
from torch.distributed import rpc

from samestep.common.program import TrainState
from samestep.torch_impl.rpc.group import Served

Wanted = Sequence[torch.Tensor | None]
"""For each parameter the ids of the rows, or None for all of it."""
Pushed = tuple[Wanted, Sequence[torch.Tensor | None], int]
"""What was pulled, its gradients (None for what is frozen or was not reached), and the version of the parameters used."""


class Server:
    """The state of the server's process, on which remote calls act.

    Synchronous, an update waits for the gradients of all workers and sums them in the order of their ranks.
    Asynchronous, every gradient is applied as it comes.

    Attributes:
        served: The parameters and their optimizer.
    """

    def __init__(self, served: Served, num_workers: int, synchronous: bool) -> None:
        self.served = served
        self._lock = threading.Lock()
        self._version = 0
        self._workers_per_update = num_workers if synchronous else 1
        self._pushed: dict[int, Pushed] = {}
        self._waiting: list[torch.futures.Future[int]] = []

    def pull(self, wanted: Wanted) -> tuple[list[torch.Tensor], int]:
        """Copies the parameters or rows that are wanted; returns them, and the number of updates so far."""
        with self._lock:
            pairs = zip(self.served.parameters, wanted, strict=True)
            return [p.detach().clone() if ids is None else p.detach()[ids] for p, ids in pairs], self._version

    def push(self, rank: int, pushed: Pushed) -> torch.futures.Future[int]:
        """Takes a worker's gradients.

        Args:
            rank: The rank of the worker.
            pushed: The gradients of the worker.

        Returns:
            Their staleness, once they have been applied: the number of updates since the worker pulled.
        """
        future: torch.futures.Future[int] = torch.futures.Future()
        with self._lock:
            self._pushed[rank] = pushed
            self._waiting.append(future)
            if len(self._pushed) < self._workers_per_update:
                return future
            staleness = self._update([self._pushed[each] for each in sorted(self._pushed)])
            waiting, self._waiting, self._pushed = self._waiting, [], {}
        for each in waiting:
            each.set_result(staleness)
        return future

    def _update(self, pushed: list[Pushed]) -> int:
        for index, parameter in enumerate(self.served.parameters):
            there = [(wanted[index], gradients[index]) for wanted, gradients, _ in pushed]
            parameter.grad = None if all(gradient is None for _, gradient in there) else torch.zeros_like(parameter)
            for ids, gradient in there:
                if gradient is not None:
                    parameter.grad = (
                        parameter.grad + gradient if ids is None else parameter.grad.index_add_(0, ids, gradient)  # pyrefly: ignore[unsupported-operation, missing-attribute]
                    )
        self.served.optimizer.step()
        self._version += 1
        return self._version - 1 - pushed[0][2]  # those that are applied together were pulled together


_LOCAL: list[Server] = []
"""The server, in the server's process: RPC calls functions by name, and these need to find it."""


def serve(server: Server) -> None:
    """Makes a server the one that remote calls use in this process; call it before any other process can call."""
    _LOCAL[:] = [server]


def pull(wanted: Wanted) -> tuple[list[torch.Tensor], int]:
    """See `Server.pull`."""
    return _LOCAL[0].pull(wanted)


@rpc.functions.async_execution
def push(rank: int, pushed: Pushed) -> torch.futures.Future[int]:
    """See `Server.push`; no thread of the server waits meanwhile."""
    return _LOCAL[0].push(rank, pushed)


def await_restored() -> None:
    """Returns once the state that the run continues from is in place."""
    _LOCAL[0].served.restored.wait()


def snapshot(step: int) -> TrainState:
    """Copies the server's part of the state."""
    return _LOCAL[0].served.snapshot(step)
