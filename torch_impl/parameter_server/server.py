"""The process that holds the parameters and the optimizer; workers pull from it and push to it."""

import threading
from collections.abc import Sequence

import torch
from torch.distributed import rpc

from samestep.common.program import TrainState
from samestep.torch_impl.rpc.group import Served

Wanted = Sequence[torch.Tensor | None]
"""For each parameter, the ids of the wanted rows, or None for the whole parameter."""
Pushed = tuple[Wanted, Sequence[torch.Tensor | None], int]
"""What was pulled, its gradients (None if frozen or not reached), and the version of the parameters that were used."""


class Server:
    """The state of the server's process, on which remote calls act.

    If it is synchronous, an update waits for the gradients of all workers and sums them in the order of their ranks.
    If it is asynchronous, each gradient is applied when it arrives.

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
        """Returns copies of the wanted parameters or rows, and the number of updates so far."""
        with self._lock:
            pairs = zip(self.served.parameters, wanted, strict=True)
            return [p.detach().clone() if ids is None else p.detach()[ids] for p, ids in pairs], self._version

    def push(self, rank: int, pushed: Pushed) -> torch.futures.Future[int]:
        """Accepts the gradients of a worker.

        Args:
            rank: The rank of the worker.
            pushed: The gradients of the worker.

        Returns:
            The staleness of the gradients once they have been applied, i.e. the number of updates since the worker pulled.
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
        return self._version - 1 - pushed[0][2]  # gradients that are applied together were pulled together


_LOCAL: list[Server] = []
"""The server, if this is the server's process. RPC calls functions by name, and they have to find it."""


def serve(server: Server) -> None:
    """Makes a server the one that remote calls use in this process; call it before any other process can call."""
    _LOCAL[:] = [server]


def pull(wanted: Wanted) -> tuple[list[torch.Tensor], int]:
    """See `Server.pull`; outside of a step."""
    return _LOCAL[0].pull(wanted)


def pull_for_step(wanted: Wanted) -> tuple[list[torch.Tensor], int]:
    """Does the same as the first part of a worker's step, once the server has begun the step too."""
    _LOCAL[0].served.await_step()
    return _LOCAL[0].pull(wanted)


@rpc.functions.async_execution
def push(rank: int, pushed: Pushed) -> torch.futures.Future[int]:
    """See `Server.push`; no thread of the server is blocked while a worker waits."""
    return _LOCAL[0].push(rank, pushed)


def await_restored() -> None:
    """Waits until the state from which the run continues is in place."""
    _LOCAL[0].served.restored.wait()


def snapshot(step: int) -> TrainState:
    """Returns a copy of the server's part of the state."""
    return _LOCAL[0].served.snapshot(step)
