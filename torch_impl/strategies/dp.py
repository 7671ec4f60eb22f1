"""DataParallel: one process with a master and its replicas, which are created anew in every forward pass.

Replicated: the parameters, copied from the master for the length of a step. Split: the batch. Only the master has an optimizer.
Sent, in five transfers per batch: mini-batches out, parameters out, outputs back, output gradients out, gradients back.
Use it to see why nobody does this anymore: the master's work grows with the number of devices, and `ddp` sends less.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping

import torch
from torch import nn

from samestep.common.batch import WHOLE
from samestep.common.ledger import Footprint
from samestep.common.program import Hardware
from samestep.common.strategy import Run
from samestep.torch_impl.building import build_fresh_model
from samestep.torch_impl.devices import use_device
from samestep.torch_impl.program import Parts, TrainingProgram
from samestep.torch_impl.replicas import CountedDataParallel, Replicas
from samestep.torch_impl.step_context import StepContext


class MasterClock:
    """Separates the time in which all replicas compute from the time in which only the master works."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._seconds = self._together_seconds = 0.0

    @contextlib.contextmanager
    def __call__(self, last: bool) -> Iterator[None]:
        """Returns a context that times a forward and backward pass."""
        start, together = time.perf_counter(), self._replicas.together_seconds
        yield
        self._seconds += time.perf_counter() - start
        self._together_seconds += self._replicas.together_seconds - together

    def measures(self) -> Mapping[str, float]:
        """Returns the share of all steps in which only the master worked."""
        return {"master_share": 1 - self._together_seconds / self._seconds}


def build_on_threads(run: Run, model: nn.Module, context: StepContext, device: torch.device) -> Parts:
    """Builds the parts of a program that runs the algorithm on threads; there nn.DataParallel would silently run one module.

    Args:
        run: The run.
        model: The master.
        context: The context that the model was built with.
        device: The device that all replicas share.
    """
    replicas = Replicas(model, context, run.num_devices, run.threads)
    clock = MasterClock(replicas)

    def footprint(number: int) -> Footprint:
        alone = Footprint.uniform(f"{device} (thread {number})", 0, 0, "tensors")
        return dataclasses.replace(alone, params_peak_bytes=replicas.copied_bytes)

    return Parts(
        bare=model,
        hardware=Hardware(
            note="one process, a thread per replica", emulation="threads; nn.DataParallel needs two GPUs"
        ),
        context=context,
        model=replicas,
        part=WHOLE,
        exchange=clock,
        replicas=lambda: tuple(footprint(number) for number in range(1, run.num_devices)),
        saves_here=False,
        measures=clock.measures,
    )


def build_on_gpus(run: Run, model: nn.Module, context: StepContext) -> Parts:
    """Builds the parts of a program that runs nn.DataParallel itself. It needs two GPUs, and has never been run.

    Args:
        run: The run.
        model: The master, on the first GPU.
        context: The context that the model was built with.
    """
    parallel = CountedDataParallel(model, list(range(run.num_devices)), context.recorder)
    hardware = Hardware(note="one process, a replica per GPU")
    return Parts(bare=model, hardware=hardware, context=context, model=parallel, part=WHOLE, saves_here=False)


def build(run: Run) -> TrainingProgram:
    """Builds the program of the only process."""
    device = use_device(run)
    context = StepContext(run.mesh.only_axis)
    model = build_fresh_model(run, device, context)
    has_gpus = torch.cuda.device_count() >= max(2, run.num_devices)
    parts = build_on_gpus(run, model, context) if has_gpus else build_on_threads(run, model, context, device)
    return TrainingProgram(run, parts)
