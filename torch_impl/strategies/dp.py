"""DataParallel: one process, a master and its replicas, made anew in every forward pass.

Replicated: the parameters, from the master's, for the length of a step. Split: the batch; the optimizer is the master's.
Sent, five times a batch: mini-batches out, parameters out, outputs back, output gradients out, gradients back.
Use it to see why nobody does it any more: the master's work grows with the number of devices, and `ddp` sends less.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping

import torch
from torch import nn

from common.config import RunConfig
from common.ledger import Footprint
from common.mesh import Mesh
from common.workload.table import Workload
from torch_impl.devices import use_device
from torch_impl.optimizers import build_optimizer
from torch_impl.program import Parts, TrainingProgram, fresh_model
from torch_impl.replicate import CountedDataParallel, Replicas


class MasterClock:
    """Tells the time in which all replicas compute from that in which the master alone works."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._seconds = self._together_seconds = 0.0

    @contextlib.contextmanager
    def __call__(self, last: bool) -> Iterator[None]:
        """Around forward and backward."""
        start, together = time.perf_counter(), self._replicas.together_seconds
        yield
        self._seconds += time.perf_counter() - start
        self._together_seconds += self._replicas.together_seconds - together

    def measures(self) -> Mapping[str, float]:
        """Over all steps."""
        return {"master_share": 1 - self._together_seconds / self._seconds}


def on_threads(workload: Workload, config: RunConfig, model: nn.Module, device: torch.device, count: int) -> Parts:
    """The algorithm itself, where nn.DataParallel would silently run one module."""
    replicas = Replicas(model, count, config.threads)
    clock = MasterClock(replicas)
    return Parts(
        model=replicas,
        bare=model,
        optimizer=build_optimizer(workload.optimizer(config), model.parameters()),
        device=device,
        exchange=clock,
        exchanged=replicas.counts.exchanged,
        replicas=lambda: tuple(
            Footprint(f"{device} (thread {number})", 0, replicas.copied_bytes, 0, 0, "tensors")
            for number in range(1, count)
        ),
        measures=clock.measures,
        device_note="one process, a thread per replica",
    )


def on_gpus(workload: Workload, config: RunConfig, model: nn.Module, device: torch.device, count: int) -> Parts:
    """The real class; it needs two GPUs, and has never been run."""
    parallel = CountedDataParallel(model, list(range(count)))
    return Parts(
        model=parallel,
        bare=model,
        optimizer=build_optimizer(workload.optimizer(config), model.parameters()),
        device=device,
        exchanged=parallel.counts.exchanged,
        device_note="one process, a replica per GPU",
    )


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of the one process there is."""
    device = use_device(config)
    count = Mesh.parse(config.mesh or "data=1").size
    model = fresh_model(workload, config, device)
    parts = on_gpus if torch.cuda.device_count() >= max(2, count) else on_threads
    return TrainingProgram(workload, config, parts(workload, config, model, device, count))
