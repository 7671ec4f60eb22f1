"""Mistakes that `samestep demo` plants in the real programs of PyTorch; each changes one thing in a process before it trains.

They are mistakes that people report in public threads, made in the same places: in a hook of DDP, in the clipping of a step, or
in the rows that a rank takes. `common/reference/known.py` has the name of each, and the cell in which it matters.
"""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `samestep demo --help` names the mistakes, but must not import NumPy
    import numpy as np

    from samestep.common.batch import Batch, BatchPart

MISTAKE = "SAMESTEP_MISTAKE"
"""The environment variable that names the mistake of a process."""


def _sum_for_mean() -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    right = DistributedDataParallel.__init__

    def summed(state, bucket):  # without annotations, because torch would insist on its own types
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])

    def init(self: DistributedDataParallel, *args: object, **kwargs: object) -> None:
        right(self, *args, **kwargs)
        self.register_comm_hook(None, summed)

    DistributedDataParallel.__init__ = init


def _forgotten_exchange() -> None:
    from samestep.torch_impl import program

    right = program.Parts.__init__

    def init(self: program.Parts, *args: object, **kwargs: object) -> None:
        right(self, *args, **kwargs)
        object.__setattr__(self, "exchange", lambda last: self.model.no_sync())

    program.Parts.__init__ = init


def _stale_gradient() -> None:
    from samestep.torch_impl import program

    right, last = program.TrainingProgram.apply, {}

    def apply(self: program.TrainingProgram) -> None:
        for parameter in self.parts.bare.parameters():
            new = parameter.grad.clone()
            parameter.grad.copy_(last.get(parameter, new))
            last[parameter] = new
        right(self)

    program.TrainingProgram.apply = apply


def _tanh_gelu() -> None:
    from torch.nn import functional

    from samestep.torch_impl.models import layers

    layers.ACTIVATIONS["gelu"] = lambda x: functional.gelu(x, approximate="tanh")


def _times_microbatches() -> None:
    from samestep.torch_impl import program

    def forward_backward(self: object, x: object, y: object) -> object:
        loss, share = self._loss(self._model(x), y), self._target_share()
        scale = self.part.count if self.parts.averages_gradients else 1
        loss.backward(share * scale * self.run.passes)
        return loss.detach() * share

    program.TrainingProgram._forward_backward = forward_backward


def _last_microbatch_only() -> None:
    from samestep.torch_impl import program

    right = program.TrainingProgram._exchanged_pass

    def exchanged_pass(self: object, inputs: "np.ndarray", targets: "np.ndarray", last: bool) -> object:
        self._optimizer.zero_grad()
        return right(self, inputs, targets, last)

    program.TrainingProgram._exchanged_pass = exchanged_pass


def _clip_forgotten() -> None:
    from samestep.torch_impl import program

    program.transform = lambda *arguments: None


def _clip_by_local_norm() -> None:
    from samestep.torch_impl.techniques import clip_norm

    right = clip_norm.clip
    clip_norm.clip = lambda gradients, norm, bound: right(gradients, norm / 2**0.5, bound)


def _clip_each_parameter() -> None:
    from samestep.torch_impl.techniques import clip_norm

    right = clip_norm.clip
    clip_norm.clip = lambda gradients, norm, bound: [right([g], g.norm(), bound) for g in gradients]


def _clip_on_one_rank() -> None:
    import torch.distributed as dist

    from samestep.torch_impl.techniques import clip_norm

    right = clip_norm.clip
    clip_norm.clip = lambda gradients, norm, bound: right(gradients, norm, bound) if dist.get_rank() == 0 else None


def _unscaled_dropout() -> None:
    from samestep.torch_impl.features.dropout import Dropout

    right = Dropout.forward
    Dropout.forward = lambda self, x: right(self, x) * (1 - self.rate) if x.requires_grad else right(self, x)


def _same_mask_on_every_shard() -> None:
    from samestep.common.batch import WHOLE, Batch

    right = Batch.keys
    Batch.keys = lambda self, seed, part=WHOLE: right(self, seed, WHOLE.split(0, part.examples.count))


def _same_data_on_every_worker() -> None:
    from samestep.common.batch import WHOLE, Batch

    right = Batch.rows
    Batch.rows = lambda self, part=WHOLE: right(self, WHOLE.split(0, part.examples.count))


def _padded_sample_twice() -> None:
    from samestep.common.batch import WHOLE, Batch

    right = Batch.rows

    def rows(self: Batch, part: "BatchPart" = WHOLE) -> "tuple[np.ndarray, np.ndarray]":
        padded = self.indices[[*range(len(self.indices) - 1), 0]]
        return right(dataclasses.replace(self, indices=padded), part)

    Batch.rows = rows


def _loss_summed() -> None:
    from samestep.torch_impl.program import TrainingProgram

    right = TrainingProgram.losses
    TrainingProgram.losses = lambda self: [2 * loss for loss in right(self)]


def _ignored_counted() -> None:
    from samestep.common.batch import Batch

    Batch.num_targets = property(lambda self: self.targets[self.indices].size)


def _same_order_each_epoch() -> None:
    from samestep.common.runtime.worker import loop

    right = loop.batches

    def batches(inputs: "np.ndarray", targets: "np.ndarray", size: int, seed: int, first: int) -> "Iterator[Batch]":
        for step in itertools.count(first):
            again = next(right(inputs, targets, size, seed, step % (len(inputs) // size)))
            yield dataclasses.replace(again, step=step)

    loop.batches = batches


def _local_statistics() -> None:
    from samestep.torch_impl.features import applied

    applied.synchronize = lambda model, device: model


def _balance_of_shards() -> None:
    import types

    import torch.distributed as dist

    from samestep.torch_impl.features import experts

    experts.dist = types.SimpleNamespace(all_reduce=lambda tokens: tokens.mul_(dist.get_world_size()))


def _expert_gradients_over_replicas() -> None:
    from samestep.torch_impl import program
    from samestep.torch_impl.models.experts import Stacked

    right = program.TrainingProgram.apply

    def apply(self: program.TrainingProgram) -> None:
        for module in self.parts.bare.modules():
            for parameter in module.parameters() if isinstance(module, Stacked) else ():
                parameter.grad.mul_(self.run.num_devices)
        right(self)

    program.TrainingProgram.apply = apply


PLANTED: Mapping[str, Callable[[], None]] = {
    plant.__name__.removeprefix("_"): plant
    for plant in (
        _sum_for_mean,
        _forgotten_exchange,
        _stale_gradient,
        _tanh_gelu,
        _times_microbatches,
        _last_microbatch_only,
        _clip_forgotten,
        _clip_by_local_norm,
        _clip_each_parameter,
        _clip_on_one_rank,
        _unscaled_dropout,
        _same_mask_on_every_shard,
        _same_data_on_every_worker,
        _padded_sample_twice,
        _loss_summed,
        _ignored_counted,
        _same_order_each_epoch,
        _local_statistics,
        _balance_of_shards,
        _expert_gradients_over_replicas,
    )
}
"""Name of each mistake in `common/reference/known.py` -> the function that plants it in this process."""


def main(arguments: list[str]) -> int:
    """Plants the mistake that the variable MISTAKE names, if it is set, then runs the worker as usual."""
    from samestep.common.runtime.worker import worker

    if name := os.environ.get(MISTAKE):
        PLANTED[name]()
    return worker.main(arguments)
