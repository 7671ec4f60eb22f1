"""Data parallelism by hand: what DistributedDataParallel does, but without buckets and without overlap.

Replicated: parameters, gradients, optimizer state. Split: the batch.
Sent: after the backward pass, the flattened gradient in one all-reduce; each rank sends 2(N-1)/N of its bytes.
Use it to read the algorithm, and as the control for `ddp`: here, communication never overlaps computation.
"""

import collections
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
import torch.distributed as dist
from torch import nn

from samestep.common.strategy import Run
from samestep.torch_impl.building import build_fresh_model
from samestep.torch_impl.devices import join_group, synchronize, use_device
from samestep.torch_impl.gradient_reach import agree
from samestep.torch_impl.program import Parts, TrainingProgram
from samestep.torch_impl.rows.options import C10dOptions
from samestep.torch_impl.sharded import local_part
from samestep.torch_impl.step import KEPT_STEPS
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.techniques.applied import summing


def ring_all_reduce(flat: torch.Tensor) -> None:
    """Sums a flat tensor over all ranks, in place, using only messages between neighbors.

    After N - 1 messages to the right, each rank has the complete sum of one of N chunks (a reduce-scatter); N - 1 more
    messages pass the sums around the ring (an all-gather). Each message is 1/N of the tensor.

    References:
        Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
    """
    rank, count = dist.get_rank(), dist.get_world_size()
    padded = nn.functional.pad(flat, (0, -len(flat) % count))
    chunks = list(padded.chunk(count))
    received = torch.empty_like(chunks[0])
    for hop in range(2 * (count - 1)):
        sending = dist.isend(chunks[(rank - hop) % count], (rank + 1) % count)
        dist.recv(received, (rank - 1) % count)
        sending.wait()  # pyrefly: ignore[missing-attribute]  # the chunk must not change before it is sent
        arrived = chunks[(rank - hop - 1) % count]
        if hop < count - 1:
            arrived += received
        else:
            arrived.copy_(received)
    flat.copy_(padded[: len(flat)])


class FlatExchange:
    """Sums the gradients of all ranks after the backward pass, and measures how long that takes."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        device: torch.device,
        all_reduce: Callable[[torch.Tensor], object],
        may_skip: bool = False,
    ) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._device = device
        self._all_reduce = all_reduce
        self._may_skip = may_skip
        self._seconds: collections.deque[float] = collections.deque(maxlen=KEPT_STEPS)

    @contextlib.contextmanager
    def __call__(self, last: bool) -> Iterator[None]:
        """Returns the context of a forward and backward pass; after the last micro-batch, it exchanges the gradients."""
        yield
        if last:
            synchronize(self._device)
            start = time.perf_counter()
            self._exchange()
            synchronize(self._device)
            self._seconds.append(time.perf_counter() - start)

    def _exchange(self) -> None:
        """Sums all gradients in one flat tensor, with zeros for parameters that this rank's examples did not reach."""
        whole = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        own = [local_part(gradient) for gradient in whole]
        flat = torch.cat([gradient.flatten() for gradient in own])
        self._all_reduce(flat)
        reached = [parameter.grad is not None for parameter in self._parameters]
        agreed = agree(reached, self._device) if self._may_skip else reached
        for gradient, part in zip(own, flat.split([each.numel() for each in own]), strict=True):
            gradient.copy_(part.view(gradient.shape))
        for parameter, gradient, is_reached in zip(self._parameters, whole, agreed, strict=True):
            parameter.grad = gradient if is_reached else None

    def measures(self) -> Mapping[str, float]:
        """Returns the median over the last steps; a mean would include the time in which the first step connects the ranks."""
        return {"communication_seconds": sorted(self._seconds)[len(self._seconds) // 2], "overlap_seconds": 0.0}


def build(run: Run[C10dOptions]) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run, may_share=not run.options.ring)
    hardware = join_group(run, device)
    context = StepContext(run.mesh.only_axis)
    model = build_fresh_model(run, device, context)
    all_reduce = ring_all_reduce if run.options.ring else summing(run)
    exchange = FlatExchange(model.parameters(), device, all_reduce, run.workload.model.facts.may_skip)
    parts = Parts(bare=model, hardware=hardware, context=context, exchange=exchange, measures=exchange.measures)
    return TrainingProgram(run, parts)
