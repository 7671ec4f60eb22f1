"""Measures how much of DDP's exchange overlaps the backward pass.

DDP logs the times of some steps (torch 2.13: of the first ten, then of every hundredth). For DDP, the backward pass ends when
autograd is done. On CPU cores that includes handing over the last bucket, which is 0.2 ms of work, but takes much longer because
gloo's thread meanwhile occupies the core to exchange that bucket. So DDP counts waiting as overlap, even with a single bucket,
which is full only when nothing is left to compute. Here the overlap ends with the last gradient.
"""

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping

import torch
from torch.nn.parallel import DistributedDataParallel

from samestep.torch_impl.upstream import ddp_logging_data


class DdpExchange:
    """DDP's exchange on the last micro-batch. The first steps are measured; later steps have no overhead."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self._model = model
        # On other devices, a gradient is not yet computed when its hook runs.
        self._on_cpu = next(model.parameters()).device.type == "cpu"
        self._steps: list[tuple[float, float]] = []
        self._logged = self._arrived = self._arrived_before = 0
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad and self._on_cpu]
        self._hooks = [parameter.register_post_accumulate_grad_hook(self._arrive) for parameter in trained]

    def _arrive(self, parameter: torch.Tensor) -> None:
        self._arrived = time.time_ns()

    @contextlib.contextmanager
    def __call__(self, last: bool) -> Iterator[None]:
        """Makes the context of a forward and backward pass; DDP all-reduces only in the last one of a step."""
        with contextlib.nullcontext() if last else self._model.no_sync():
            yield
        if last and self._hooks:
            self._read()

    def _read(self) -> None:
        """Reads what DDP has logged in its forward pass, which is about the previous step."""
        logged = ddp_logging_data(self._model)
        number, begun = int(logged.get("iteration", 0)), logged.get("backward_comm_time_start")
        if number > 1 and number == self._logged:  # DDP now logs only every hundredth step
            for hook in self._hooks:
                hook.remove()
            self._hooks = []
        elif begun is not None and logged["has_rebuilt_buckets"]:
            # In the first step there is one bucket, even if more were asked for.
            took = logged["backward_comm_time"]
            self._steps.append((took, min(max(0, self._arrived_before - begun), took)))
        self._logged, self._arrived_before = number, self._arrived

    def measures(self) -> Mapping[str, float]:
        """Returns the medians over the logged steps; on devices other than CPU cores, DDP's own averages."""
        names = ("communication_seconds", "overlap_seconds")
        if self._on_cpu:
            columns = zip(*self._steps, strict=True) if self._steps else ([0], [0])
            return {name: statistics.median(column) / 1e9 for name, column in zip(names, columns, strict=True)}
        logged = ddp_logging_data(self._model)  # it lacks the times if no bucket was ever sent
        averages = ("avg_backward_comm_time", "avg_backward_compute_comm_overlap_time")
        return {name: logged.get(average, 0.0) / 1e9 for name, average in zip(names, averages, strict=True)}
