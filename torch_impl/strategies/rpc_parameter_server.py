"""Parameter server: one process holds the parameters; workers pull them, compute, and push gradients back.

Replicated: nothing at rest; each worker has a copy of the parameters while it computes. Split: the batch.
Sent: all parameters to each worker and all gradients back, in every step; of the ranker's tables, only the rows that are looked
up, while the layers above the tables stay on the workers under DDP.
Use it for tables far larger than what a step touches, or, asynchronously, where workers come and go.
"""

import torch.distributed as dist

from samestep.common.program import Hardware
from samestep.common.strategy import Run
from samestep.common.workload.pipeline_schedule import server_segments
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.observing.exchanges import AXIS_PREFIX
from samestep.torch_impl.parameter_server import server
from samestep.torch_impl.parameter_server.modes import PullEverything, PullRows
from samestep.torch_impl.parameter_server.worker_program import WorkerProgram
from samestep.torch_impl.pipeline.stages import build_stage
from samestep.torch_impl.rows.options import ConsistencyOptions
from samestep.torch_impl.rpc.group import CPU, Served, ServingProgram, join_rpc
from samestep.torch_impl.step_context import StepContext

HARDWARE = Hardware(note="one process per worker, and one more that serves", backend="tensorpipe")


def build(run: Run[ConsistencyOptions]) -> WorkerProgram | ServingProgram:
    """Builds the program of a worker or, on the last rank, of the server."""
    use_device(run)  # sets the number of threads
    join_group(run, CPU)
    among_workers = dist.new_group(range(run.num_devices), group_desc=f"{AXIS_PREFIX}data")
    program = _build_server(run) if dist.get_rank() == run.num_devices else _build_worker(run, among_workers)
    join_rpc(run)
    return program


def _build_worker(run: Run[ConsistencyOptions], among_workers: dist.ProcessGroup) -> WorkerProgram:
    served, stays = server_segments(run.workload.model)
    context = StepContext(run.mesh.only_axis)
    stage = build_stage(run, CPU, context, stays or served)
    mode = PullRows(run, stage, among_workers) if stays else PullEverything(stage)
    return WorkerProgram(run, mode, context, among_workers, HARDWARE)


def _build_server(run: Run[ConsistencyOptions]) -> ServingProgram:
    synchronous = run.options.is_sync
    context = StepContext(run.mesh.only_axis)
    stage = build_stage(run, CPU, context, server_segments(run.workload.model)[0])
    served = Served(run, stage, context.recorder, updates_per_step=1 if synchronous else run.num_devices)
    server.serve(server.Server(served, run.num_devices, synchronous))  # before a worker can call it
    return ServingProgram(served, HARDWARE)
