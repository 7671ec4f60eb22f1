"""Parameter server: one process holds the parameters, workers pull them, compute, and push gradients back.

Replicated: nothing at rest; each worker has a copy while it computes. Split: the batch; parameters from computation.
Sent: all parameters to each worker and all gradients back, every step; of the ranker's tables only the rows that are
looked up, while the layers above them stay on the workers under DDP.
Use it for tables that are far larger than what a step touches, or, asynchronous, where workers come and go.
"""

import torch.distributed as dist

from common.config import RunConfig
from common.evidence.laws.served import served_cuts
from common.workload.table import Workload
from torch_impl import devices, parameter_server, weights
from torch_impl.optimizers import SLOT_KEYS, build_optimizer
from torch_impl.pipeline_program import mean_loss
from torch_impl.rpc_group import join_rpc
from torch_impl.server_programs import CPU, EverythingPulled, Front, RowsPulled, ServerProgram, WorkerProgram
from torch_impl.stages import stage_of


def build(workload: Workload, config: RunConfig) -> WorkerProgram | ServerProgram:
    """The program of a worker, or, on the last rank, of the server."""
    devices.use_device(config)  # for its threads: between workers RPC moves tensors of the CPU
    devices.join_group(config, CPU)
    workers = dist.get_world_size() - 1
    among_workers = dist.new_group(range(workers))
    if dist.get_rank() == workers:
        return _server(workload, config, workers)
    program = _worker(workload, config, among_workers)
    join_rpc(config)
    return program


def _worker(workload: Workload, config: RunConfig, among_workers: dist.ProcessGroup) -> WorkerProgram:
    served, stays = served_cuts(workload.model)
    stage = stage_of(workload, config, CPU, stays or served)
    spec = workload.optimizer(config)
    front: Front = EverythingPulled(stage)
    if stays:
        front = RowsPulled(stage, build_optimizer(spec, stage.parameters()), among_workers)
    return WorkerProgram(config, front, mean_loss(workload, config), SLOT_KEYS[spec.name])


def _server(workload: Workload, config: RunConfig, workers: int) -> ServerProgram:
    stage = stage_of(workload, config, CPU, served_cuts(workload.model)[0])
    spec = workload.optimizer(config)
    optimizer = build_optimizer(spec, stage.parameters())
    synchronous = config.options["consistency"] == "sync"
    named = weights.named_weights(stage.model)
    server = parameter_server.Server(named, optimizer, SLOT_KEYS[spec.name], workers, synchronous)
    parameter_server.HERE[:] = [server]  # before anyone can call
    join_rpc(config)
    return ServerProgram(server, updates_per_step=1 if synchronous else workers)
