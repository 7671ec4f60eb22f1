"""A worker whose real program has one of the silent bugs: the one that MUTANT names."""

import dataclasses
import os
from collections.abc import Iterator

import numpy as np

from samestep.common.batch import WHOLE, Batch, BatchPart, Chunk
from samestep.common.runtime.worker import loop, worker
from samestep.torch_impl.planted import PLANTED
from tests.parity import silent_local_steps


def torch_divided_by_microbatches() -> None:
    from samestep.torch_impl.axes import pipe

    right = pipe.get_schedule_class
    pipe.get_schedule_class = lambda name: (
        lambda *stages, **asked: right(name)(*stages, **asked | {"scale_grads": True})
    )


def torch_clip_counts_replicas() -> None:
    from samestep.torch_impl.techniques import clip_norm

    right = clip_norm.clip
    clip_norm.clip = lambda gradients, norm, bound: right(gradients, norm * 2**0.5, bound)


def torch_local_positions() -> None:
    from samestep.torch_impl.axes import context

    right = context.place_positions
    context.place_positions = lambda model, part: right(model, Chunk(0, part.count))


def torch_local_attention() -> None:
    from samestep.torch_impl.axes import context

    context.HeadExchange = lambda group: context.causal_attention


def torch_shifted_in_parts() -> None:
    right = Batch.rows

    def rows(self: Batch, part: BatchPart = WHOLE) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets = right(self, part)
        if part.positions.index < part.positions.count - 1:
            targets[:, -1] = -1
        return inputs, targets

    def num_targets(self: Batch) -> int:
        unnoted = dataclasses.replace(self, gathering=None)
        parts = (BatchPart(positions=Chunk(index, 2)) for index in range(2))
        return sum(int((unnoted.rows(part)[1] >= 0).sum()) for part in parts)

    Batch.rows, Batch.num_targets = rows, property(num_targets)


def torch_position_lost() -> None:
    right = loop.batches

    def batches(inputs: np.ndarray, targets: np.ndarray, size: int, seed: int, first: int) -> Iterator[Batch]:
        for batch in right(inputs, targets, size, seed):
            yield dataclasses.replace(batch, step=batch.step + first)

    loop.batches = batches


def torch_running_statistics_lost() -> None:
    from samestep.torch_impl.local_state import LocalState

    def restore_buffers(self: LocalState, state: object) -> None:
        for (
            name,
            buffer,
        ) in self.buffers.items():  # those of a new model, whatever a step that only compiles has made of them
            buffer.fill_(float(name.endswith("running_var")))

    LocalState.restore_buffers = restore_buffers


def torch_statistics_of_last_microbatch() -> None:
    from torch.nn.modules.batchnorm import _BatchNorm

    from samestep.torch_impl import program

    right = program.TrainingProgram._exchanged_pass

    def exchanged_pass(self: object, inputs: np.ndarray, targets: np.ndarray, last: bool) -> object:
        for each in self.parts.bare.modules():
            if isinstance(each, _BatchNorm):
                each.momentum = 0.1 if last else 0.0
        return right(self, inputs, targets, last)

    program.TrainingProgram._exchanged_pass = exchanged_pass


def torch_statistics_moved_twice() -> None:
    from samestep.torch_impl import program

    right = program.TrainingProgram._forward_backward

    def forward_backward(self: object, x: object, y: object) -> object:
        self.parts.bare(x)
        return right(self, x, y)

    program.TrainingProgram._forward_backward = forward_backward


def tf_local_statistics() -> None:
    from samestep.tf_impl.features.batch_norm import BatchNorm

    right = BatchNorm.__init__

    def init(self: BatchNorm, variable: object, name: str) -> None:
        right(self, variable, name)
        self._statistics = "local"

    BatchNorm.__init__ = init


def tf_ignored_counted() -> None:
    PLANTED["ignored_counted"]()


def tf_clip_forgotten() -> None:
    from samestep.tf_impl import program

    program.transform_replicas = lambda strategy, summed, techniques, add_up: summed


def tf_same_mask_on_every_shard() -> None:
    PLANTED["same_mask_on_every_shard"]()


def torch_masters_in_two_bytes() -> None:
    import torch

    from samestep.torch_impl.program import TrainingProgram

    right = TrainingProgram.apply

    def apply(self: object) -> None:
        right(self)
        with torch.no_grad():
            for parameter in self.parts.bare.parameters():
                parameter.copy_(parameter.bfloat16())

    TrainingProgram.apply = apply


def torch_clip_before_unscaling() -> None:
    from samestep.torch_impl import program

    _take_fp16()
    scaler, transform = program.scaler_of, program.transform

    contexts = []

    def scaler_of(run: object, context: object) -> object:
        contexts.append(context)
        made = scaler(run, context)
        made.unscale = lambda gradients, step: True
        return made

    def transform_first(gradients: list, norm: object, techniques: object) -> None:
        transform(gradients, norm, techniques)
        for gradient in gradients:
            gradient /= contexts[-1].seed_gradient

    program.scaler_of, program.transform = scaler_of, transform_first


def torch_loss_scale_differs_by_rank() -> None:
    import torch.distributed as dist

    from samestep.torch_impl.program import TrainingProgram

    _take_fp16()
    right = TrainingProgram.gradients

    def gradients(self: object, batch: Batch) -> object:
        self.context.seed_gradient = 2.0 ** (16 - dist.get_rank())
        return right(self, batch)

    TrainingProgram.gradients = gradients


def torch_skipped_on_one_rank() -> None:
    import torch.distributed as dist

    from samestep.torch_impl.techniques.precision import LossScaler

    _take_fp16()
    right = LossScaler.unscale

    def unscale(self: LossScaler, gradients: list, step: int) -> bool:
        return right(self, gradients, step) and (step == 0 or dist.get_rank() > 0)

    LossScaler.unscale = unscale


def _take_fp16() -> None:
    """Takes fp16 on CPU cores, which are far too slow in it for anything else."""
    from samestep.torch_impl.techniques import precision

    precision.require = lambda run, device: None


def torch_error_feedback_dropped() -> None:
    from samestep.torch_impl.techniques.pieces import Pieces

    right = Pieces.exchange

    def exchange(self: object, gradients: object) -> None:
        right(self, gradients)
        self._residuals.clear()

    Pieces.exchange = exchange


def torch_scale_by_rank() -> None:
    import torch

    from samestep.torch_impl.techniques.pieces import Pieces

    right = Pieces._largest

    def largest(self: object, parts: list[torch.Tensor]) -> torch.Tensor:
        own = torch.stack([part.abs().max() for part in parts])
        return right(self, parts) if parts[0].ndim == 1 else own  # a sum has one dim

    Pieces._largest = largest


def tf_error_feedback_dropped() -> None:
    from samestep.common.program import RESIDUAL
    from samestep.tf_impl.techniques.pieces import Pieces

    right = Pieces.exchange

    def exchange(self: object, gradients: object) -> object:
        total = right(self, gradients)
        self.kept[RESIDUAL].assign(0 * self.kept[RESIDUAL])
        return total

    Pieces.exchange = exchange


def main(arguments: list[str]) -> int:
    """Does what every worker does, after breaking one thing."""
    bug = os.environ["MUTANT"]
    ({**globals(), **vars(silent_local_steps)}.get(bug) or PLANTED[bug.removeprefix("torch_")])()
    return worker.main(arguments)
