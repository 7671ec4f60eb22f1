"""One of countless small training scripts. It is correct in each layout, unless the variant is a mistake.

python benchmarks/judging/random_script.py --config 7 --layout ddp --variant no_zero

`random_settings.py` draws its settings and lists its variants. `benchmarks.judging.random_scripts` records it.
"""

import argparse
import contextlib
import copy
import dataclasses
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from benchmarks.judging.random_net import CLASSES, EXAMPLES, IGNORED, WORDS, Net, data, loss_of, penalty_of
from benchmarks.judging.random_settings import LAYOUTS, STEPS, Settings, draw
from benchmarks.judging.random_updates import clip, optimizers_of, schedule_of


def _prepare(net: Net, s: Settings, variant: str) -> None:
    """Freezes some parameters, and corrupts initial weights if the variant says so."""
    with torch.no_grad():
        if variant == "initial_head":
            net.head.weight.mul_(0.5)
        if variant == "initial_number":
            next(net.parameters()).view(-1)[0] += 1e-3
    body = list(net.body.parameters())
    for each in body[-2:] if variant == "frozen" else body[:2] if s.is_frozen and variant != "unfrozen" else []:
        each.requires_grad_(False)


def _shared(net: Net, layout: str, world: int, variant: str) -> nn.Module:
    if world == 1 or variant == "no_exchange":
        return net
    if layout == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        return fully_shard(net, mesh=init_device_mesh("cpu", (world,)))
    return nn.parallel.DistributedDataParallel(net)


def _batches(s: Settings, variant: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields a batch for each step; each epoch has its own order."""
    inputs, targets = data(s)
    if variant == "shifted_targets":
        targets = inputs.roll(-2, 1).where(targets != IGNORED, IGNORED) if s.kind == "texts" else targets.roll(1, 0)
    order, step = torch.Generator().manual_seed(7), 0
    while True:
        if variant == "same_order":
            order.manual_seed(7)
        for rows in torch.randperm(EXAMPLES, generator=order).split(s.batch_size):
            if variant == "last_dropped" and len(rows) < s.batch_size:
                continue
            step += 1
            if variant == "skipped_batch" and step == 5:
                continue
            if variant == "example_twice":
                rows = torch.cat([rows[:-1], rows[:1]])
            if variant == "reversed":
                rows = rows.flip(0)
            yield inputs[rows], _spoiled(targets[rows], s, variant if step == 3 else "")


def _spoiled(targets: torch.Tensor, s: Settings, mistake: str) -> torch.Tensor:
    if mistake == "one_target":
        first = targets[1].view(-1)[:1]
        first.copy_(1 - first if first.is_floating_point() else (first + 1) % (WORDS if s.kind == "texts" else CLASSES))
    return targets.roll(1, 0) if mistake == "rolled_targets" else targets


def _backward(loss: torch.Tensor, net: Net, variant: str) -> None:
    if variant != "grad":
        return loss.backward()
    trained = [each for each in net.parameters() if each.requires_grad]
    for each, gradient in zip(trained, torch.autograd.grad(loss, trained), strict=True):
        each.grad = gradient if each.grad is None else each.grad + gradient


def _spoil_gradients(net: Net, variant: str) -> None:
    for each in net.parameters():
        if each.grad is not None and variant == "gradients_off":
            each.grad.mul_(1.0001)
        if each.grad is not None and variant == "gradients_in_bf16":
            each.grad.copy_(each.grad.bfloat16())
    if variant == "gradient_of_head":
        net.head.weight.grad.mul_(1.5)


def _evaluate(net: Net, model: nn.Module, inputs: torch.Tensor, is_left: bool) -> None:
    net.eval()
    with torch.no_grad():
        model(inputs)
    net.train(not is_left)


@dataclasses.dataclass(frozen=True)
class _Script:
    """A script with its settings, its model and its rank."""

    s: Settings
    variant: str
    layout: str
    net: Net
    model: nn.Module
    rank: int
    world: int

    def call(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns the outputs of the model."""
        if self.variant == "functional":
            tensors = dict(self.net.named_parameters()) | dict(self.net.named_buffers())
            return torch.func.functional_call(self.net, tensors, (inputs,))
        if self.variant == "checkpoint":
            return checkpoint(self.model, inputs, use_reentrant=False)
        return self.model(inputs)

    def pass_back(self, inputs: torch.Tensor, targets: torch.Tensor, optimizers: list[torch.optim.Optimizer]) -> float:
        """Accumulates the gradients of a batch, and returns its loss."""
        s, variant, total = self.s, self.variant, 0.0
        count = (targets != IGNORED).sum() if s.kind == "texts" else torch.tensor(len(targets))
        parts = torch.arange(len(inputs)).tensor_split(s.parts)
        for number, rows in enumerate(parts, 1):
            own = rows[self.rank :: self.world]
            is_sent = number == len(parts) or not isinstance(self.model, nn.parallel.DistributedDataParallel)
            with contextlib.nullcontext() if is_sent else self.model.no_sync():
                loss = self._loss(inputs[own], targets[own], count)
                _backward(loss, self.net, variant)
            total += float(loss.detach())
            if variant == "clip_each_part":
                clip(self.net, s, "")
            if variant == "step_each_part" and number < len(parts):
                for each in optimizers:
                    each.step()
        return total

    def _loss(self, inputs: torch.Tensor, targets: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        s, variant, outputs = self.s, self.variant, self.call(inputs)
        divisor = count / self.world * (CLASSES if s.kind == "multilabel" else 1)
        is_mean = s.parts == self.world == 1 or variant in ("undivided", "mean_of_means", "mean_of_ranks")
        loss = loss_of(s, variant, outputs, targets, None if is_mean else divisor)
        loss = loss / s.parts if variant == "mean_of_means" else loss
        loss = loss + penalty_of(s, variant, self.net, outputs, targets, count / self.world)
        return 2 * loss if variant == "loss_twice" else loss

    def train(self) -> None:
        """Takes all steps."""
        s, variant, net = self.s, self.variant, self.net
        optimizers = optimizers_of(net, s, variant)
        schedules = [schedule_of(each, s, variant) for each in optimizers]
        average = copy.deepcopy(net).requires_grad_(False) if s.is_averaged and self.layout != "fsdp2" else None
        batches = _batches(s, variant)
        if variant == "loader":
            batches = iter(DataLoader([next(batches) for _ in range(STEPS)], batch_size=None))
        net.train(variant != "evaluation_mode")
        for module in net.modules() if variant == "no_dropout" else ():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        for step in range(STEPS):
            inputs, targets = next(batches)
            if variant == "skipped_step" and step == 3:
                continue
            if variant != "no_zero" and (variant != "late_zero" or step % 2 == 0):
                for each in optimizers:
                    each.zero_grad(set_to_none=variant != "zeros")
            loss = self.pass_back(inputs, targets, optimizers)
            _spoil_gradients(net, variant)
            clip(net, s, variant)
            self._update(optimizers, average)
            for move in schedules:
                move(loss)
            if variant == "evaluates_more" or (s.evaluates and step % 4 == 3):
                _evaluate(net, self.model, inputs, variant == "left_in_evaluation")

    def _update(self, optimizers: list[torch.optim.Optimizer], average: nn.Module | None) -> None:
        for each in optimizers * (1 + (self.variant == "updated_twice")):
            each.step()
        with torch.no_grad():
            for each in self.net.parameters() if self.variant == "clamped" else ():
                each.clamp_(-0.25, 0.25)
            if average is not None and self.variant != "no_average":
                for old, new in zip(average.parameters(), self.net.parameters(), strict=True):
                    old.lerp_(new, 0.1 if self.variant == "average_decay" else 0.01)


def main() -> None:
    """Trains the chosen configuration."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=int, required=True)
    parser.add_argument("--layout", choices=["plain", *LAYOUTS], default="plain")
    parser.add_argument("--variant", default="")
    given = parser.parse_args()
    torch.set_num_threads(1)
    s = draw(given.config)
    parts = {"twice_the_parts": 2 * s.parts, "one_part": 1}.get(given.variant, s.parts)
    s = dataclasses.replace(s, parts=parts)
    torch.manual_seed(s.seed)
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if world > 1:
        dist.init_process_group("gloo")
    net = Net(s, given.variant)
    _prepare(net, s, given.variant)
    if given.variant == "channels_last":
        net = net.to(memory_format=torch.channels_last)
    model = _shared(net, given.layout, world, given.variant)
    _Script(s, given.variant, given.layout, net, model, rank, world).train()


if __name__ == "__main__":
    main()
