"""RPC: the stages of a model live on RPC workers, one of which drives them; autograd runs across the calls.

Replicated: nothing. Split: the layers, into contiguous stages of about equal FLOPs.
Sent: activations from worker to worker as arguments, gradients back by distributed autograd, calls for every update.
Use it to see how model parallelism was written before pipelines had an API; one batch at a time, like `mp`.
"""

from collections.abc import Mapping

import numpy as np
import torch
import torch.distributed.autograd as dist_autograd
from torch.distributed import rpc
from torch.distributed.optim import DistributedOptimizer

from common.batch import Batch
from common.config import RunConfig
from common.evidence.laws.pipelined import holders_of
from common.ledger import Exchange, Footprint
from common.strategy import TrainState
from common.workload.models.spec import stages
from common.workload.table import Workload
from torch_impl import devices, rpc_stages, stage_state
from torch_impl.optimizers import SLOT_KEYS, build_optimizer
from torch_impl.pipeline_program import mean_loss
from torch_impl.rpc_group import join_rpc, leave_rpc, own_rank, worker_name
from torch_impl.stages import stage_of


class RpcProgram:
    """Rank 0 drives; on the other ranks a step is over once the update there has been called for."""

    def __init__(self, config: RunConfig, drives: bool) -> None:
        self.device_note = "one process per device"
        self.workers = [worker_name(rank) for rank in holders_of(config)]
        self.micro_batches = config.techniques.micro_batches
        self.device, self.drives, self.held = torch.device("cpu"), drives, rpc_stages.HERE[0]
        self._step = 0
        self._losses: list[torch.Tensor] = []
        if drives:
            params = [rref for worker in self.workers for rref in rpc.rpc_sync(worker, rpc_stages.parameters)]
            self.optimizer = DistributedOptimizer(rpc_stages.local_optimizer, params)

    def step(self, batch: Batch) -> None:
        """Forward from worker to worker, backward the same way, update everywhere."""
        self._step += 1
        if not self.drives:
            self.held.stepped.acquire()
            return
        with dist_autograd.context() as context:
            losses = [self._loss(*batch.rows(i, self.micro_batches)) for i in range(self.micro_batches)]
            dist_autograd.backward(context, losses)
            self.optimizer.step(context)
        self._losses.append(torch.stack([loss.detach() for loss in losses]).sum())

    def _loss(self, inputs: np.ndarray, targets: np.ndarray) -> torch.Tensor:
        x, y = rpc.RRef(torch.from_numpy(inputs)), torch.from_numpy(targets)
        for worker in self.workers[:-1]:
            x = rpc.remote(worker, rpc_stages.forward, (x,))
        return rpc.rpc_sync(self.workers[-1], rpc_stages.forward_loss, (x, y))

    def losses(self) -> list[float]:
        """The driver has them all."""
        taken, self._losses = self._losses, []
        return torch.stack(taken).tolist() if taken else []

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits, stage by stage."""
        x = torch.from_numpy(inputs)
        for worker in self.workers if self.drives else []:
            x = rpc.rpc_sync(worker, rpc_stages.predict, (x,))
        return x.numpy()

    def state(self) -> TrainState:
        """The driver fetches every worker's part."""
        workers = self.workers if self.drives else []
        return stage_state.merged(rpc.rpc_sync(worker, rpc_stages.state, (self._step,)) for worker in workers)

    def restore(self, state: TrainState) -> None:
        """The driver tells every worker, so that none begins before it."""
        self._step = state.step
        for worker in self.workers if self.drives else []:
            rpc.rpc_sync(worker, rpc_stages.restore, (state,))

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """One more step; RPC has no collectives to count."""
        self.step(batch)
        return ()

    def footprint(self) -> tuple[Footprint, ...]:
        """The tensors of this process."""
        held, own = self.held, self.held.stage.parameters()
        return (stage_state.footprint(self.device, own, held.optimizer, held.keys, held.gradients_bytes),)

    def measures(self) -> Mapping[str, float]:
        """None of its own."""
        return {}

    def sync(self) -> None:
        """A step is over when its calls have returned."""

    def close(self) -> None:
        """Leaves once all do."""
        leave_rpc()


def build(workload: Workload, config: RunConfig) -> RpcProgram:
    """The program of one process."""
    devices.use_device(config)  # for its threads: between workers RPC moves tensors of the CPU
    device = torch.device("cpu")
    cuts = stages(workload.model.cuts(), len(holders_of(config)))[own_rank()]
    stage = stage_of(workload, config, device, cuts, laid_out=False)
    spec = workload.optimizer(config)
    optimizer = build_optimizer(spec, stage.parameters())
    rpc_stages.HERE[:] = [rpc_stages.Held(stage, mean_loss(workload, config), optimizer, SLOT_KEYS[spec.name])]
    join_rpc(config)
    return RpcProgram(config, drives=own_rank() == 0)
