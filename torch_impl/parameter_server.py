"""The server of a parameter server: parameters and optimizer in one process, which workers pull from and push to."""

import threading
from collections.abc import Sequence

import torch
from torch.distributed import rpc

from common.strategy import TrainState
from torch_impl import stage_state, weights
from torch_impl.weights import Weight

Wanted = Sequence[torch.Tensor | None]
"""For each parameter the ids of the rows that are meant, or None for all of it."""


class Server:
    """What the server's process holds.

    Synchronous, an update waits for the gradients of all workers and sums them in the order of their ranks, so that the
    result does not depend on who came first. Asynchronous, every gradient is applied as it comes.
    """

    def __init__(
        self,
        named: dict[str, Weight],
        optimizer: torch.optim.Optimizer,
        keys: stage_state.SlotKeys,
        workers: int,
        synchronous: bool,
    ) -> None:
        self.named = named
        self.optimizer = optimizer
        self.keys = keys
        self.gradients_bytes = 0
        self.applied = threading.Semaphore(0)
        self.opened = threading.Event()
        self._parameters = [weight.parameter for weight in named.values()]
        self._needed = workers if synchronous else 1
        self._lock = threading.Lock()
        self._pushed: dict[int, tuple[Wanted, Sequence[torch.Tensor]]] = {}
        self._waiting: list[torch.futures.Future[int]] = []
        self._version = 0
        self._losses: list[torch.Tensor] = []
        self._loss_waiting: list[torch.futures.Future[torch.Tensor]] = []
        self._workers = workers

    def pull(self, wanted: Wanted) -> tuple[list[torch.Tensor], int]:
        """Copies of the parameters or of the rows that are wanted, and how many updates they have seen."""
        self.opened.wait()  # a state that is to be continued has been put in place
        with self._lock:
            pairs = zip(self._parameters, wanted, strict=True)
            values = [p.detach().clone() if ids is None else p.detach()[ids] for p, ids in pairs]
            return values, self._version

    def push(
        self, rank: int, wanted: Wanted, gradients: Sequence[torch.Tensor], version: int
    ) -> torch.futures.Future[int]:
        """Takes a worker's gradients; answers when they have been applied, with their staleness.

        Staleness is the number of updates since the worker pulled.
        """
        answer: torch.futures.Future[int] = torch.futures.Future()
        with self._lock:
            self._pushed[rank] = (wanted, gradients)
            self._waiting.append(answer)
            staleness = self._version - version
            if len(self._pushed) < self._needed:
                return answer
            self._update([self._pushed[each] for each in sorted(self._pushed)])
            self._pushed.clear()
            waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.set_result(staleness)
        self.applied.release()
        return answer

    def _update(self, pushed: Sequence[tuple[Wanted, Sequence[torch.Tensor]]]) -> None:
        for index, parameter in enumerate(self._parameters):
            total = torch.zeros_like(parameter)
            for wanted, gradients in pushed:
                ids, gradient = wanted[index], gradients[index]
                total = total + gradient if ids is None else total.index_add_(0, ids, gradient)
            parameter.grad = total
        self.gradients_bytes = weights.nbytes(parameter.grad for parameter in self._parameters)
        self.optimizer.step()
        self._version += 1

    def add_losses(self, losses: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Sums the losses of all workers; answers each with the sum."""
        answer: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        with self._lock:
            self._losses.append(losses)
            self._loss_waiting.append(answer)
            if len(self._losses) < self._workers:
                return answer
            total = torch.stack(self._losses).sum(dim=0)
            waiting, self._loss_waiting, self._losses = self._loss_waiting, [], []
        for each in waiting:
            each.set_result(total)
        return answer


HERE: list[Server] = []
"""The server, in the server's process: RPC calls functions by name, and they have to find it."""


def pull(wanted: Wanted) -> tuple[list[torch.Tensor], int]:
    """See `Server.pull`."""
    return HERE[0].pull(wanted)


@rpc.functions.async_execution
def push(rank: int, wanted: Wanted, gradients: Sequence[torch.Tensor], version: int) -> torch.futures.Future[int]:
    """See `Server.push`; no thread of the server waits meanwhile."""
    return HERE[0].push(rank, wanted, gradients, version)


@rpc.functions.async_execution
def add_losses(losses: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """See `Server.add_losses`."""
    return HERE[0].add_losses(losses)


def state(step: int) -> TrainState:
    """The server's part of the state."""
    return stage_state.taken(step, HERE[0].named, HERE[0].optimizer, HERE[0].keys)
