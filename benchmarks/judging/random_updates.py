"""The optimizers, the schedule and the clipping of `random_script.py`."""

from collections.abc import Callable

import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import lr_scheduler

from benchmarks.judging.random_net import Net
from benchmarks.judging.random_settings import STEPS, Settings

BOUND = 0.3
"""The bound for clipping the norm of all gradients."""


def _groups(net: Net, s: Settings, variant: str, rate: float) -> list[dict]:
    trained = [each for each in net.parameters() if each.requires_grad]
    if variant == "head_left_out":
        trained = [each for each in trained if each is not net.head.weight]
    is_own = None
    if s.groups == "undecayed" and variant != "all_decayed":
        is_own, own = (lambda each: each.ndim <= 1), {"weight_decay": 0.0}
    if s.groups == "head" and variant != "no_head_rate":
        head = {id(each) for each in net.head.parameters()}
        is_own, own = (lambda each: id(each) in head), {"lr": 3 * rate}
    if is_own is None:
        return [{"params": trained}]
    groups = [
        {"params": [each for each in trained if not is_own(each)]},
        {"params": [each for each in trained if is_own(each)], **own},
    ]
    return [group for group in groups if group["params"]]


def optimizers_of(net: Net, s: Settings, variant: str) -> list[torch.optim.Optimizer]:
    """Returns the optimizers of a model.

    Args:
        net: The model.
        s: The settings.
        variant: The variant of the script.
    """
    rate = 0.05 if s.optimizer in ("sgd", "momentum", "nesterov", "adagrad") else 5e-3
    rate = (1.0 if s.optimizer == "adadelta" else rate) * {"rate_twice": 2, "rate_off": 1.01}.get(variant, 1)
    decay = s.weight_decay * {"no_decay": 0, "decay_twice": 2}.get(variant, 1)
    momentum = 0.8 if variant == "momentum" else 0.9
    adam = {"betas": {"betas": (0.9, 0.99)}, "epsilon": {"eps": 1e-4}}.get(variant, {})
    groups, optim = _groups(net, s, variant, rate), torch.optim
    if s.optimizer == "two":
        flat = [each for group in groups for each in group["params"]]
        matrices, others = ([each for each in flat if (each.ndim > 1) == is_matrix] for is_matrix in (True, False))
        first = optim.SGD(matrices, lr=0.05, momentum=momentum, weight_decay=decay)
        return [first, *([optim.AdamW(others, lr=rate, **adam)] if others and variant != "one_of_two" else [])]
    more = {"single_tensor": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}.get(
        variant, {}
    )
    more |= {"lr": rate, "weight_decay": decay}
    if s.optimizer in ("adam", "adamw"):
        swapped = {"adam": optim.AdamW, "adamw": optim.Adam} if variant == "adam_for_adamw" else {}
        kind = swapped.get(s.optimizer, {"adam": optim.Adam, "adamw": optim.AdamW}[s.optimizer])
        return [kind(groups, amsgrad=variant == "amsgrad", **adam, **more)]
    if s.optimizer in ("momentum", "nesterov"):
        is_nesterov, dampening = s.optimizer == "nesterov" and variant != "no_nesterov", 0.9 * (variant == "dampening")
        return [optim.SGD(groups, momentum=momentum, nesterov=is_nesterov, dampening=dampening, **more)]
    if s.optimizer == "rmsprop":
        return [optim.RMSprop(groups, momentum=0.9 * (variant == "momentum"), **more)]
    names = {"sgd": "SGD", "nadam": "NAdam", "radam": "RAdam"}
    return [getattr(optim, names.get(s.optimizer, s.optimizer.capitalize()))(groups, **more)]


def schedule_of(optimizer: torch.optim.Optimizer, s: Settings, variant: str) -> Callable[[float], None]:
    """Returns a function that adjusts the learning rate after a step, given its loss.

    Args:
        optimizer: The optimizer.
        s: The settings.
        variant: The variant of the script.
    """
    steps, late = STEPS * (1 + (variant == "schedule_twice_as_long")), variant != "warmup_off"
    made = {
        "step": lambda: lr_scheduler.StepLR(optimizer, 3, 0.5),
        "cosine": lambda: lr_scheduler.CosineAnnealingLR(optimizer, steps),
        "warmup": lambda: lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + late) / 5)),
        "onecycle": lambda: lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=2 * steps + 2, cycle_momentum=False),
        "plateau": lambda: lr_scheduler.ReduceLROnPlateau(optimizer, patience=1),
    }
    if s.schedule == "none" or variant == "no_schedule":
        return lambda loss: None
    schedule = made[s.schedule]()

    def move(loss: float) -> None:
        for _ in range(1 + (variant == "schedule_twice")):
            schedule.step(*[loss] * (s.schedule == "plateau"))

    return move


def clip(net: Net, s: Settings, variant: str) -> None:
    """Clips the gradients of a model.

    Args:
        net: The model.
        s: The settings.
        variant: The variant of the script.
    """
    gradients = [each.grad for each in net.parameters() if each.grad is not None]
    if s.clip == "none" or variant == "no_clip":
        return
    if s.clip == "value" or variant == "clip_by_value":
        clip_grad_value_(net.parameters(), 0.02)
    elif variant == "clip_by_hand":
        norm = torch.sqrt(sum((each * each).sum() for each in gradients))
        for each in gradients:
            each.mul_(torch.clamp(BOUND / (norm + 1e-6), max=1.0))
    elif variant == "clip_each_tensor":
        for each in net.parameters():
            clip_grad_norm_(each, BOUND)
    else:
        part = net.head if variant == "clip_head" else net
        clip_grad_norm_(part.parameters(), BOUND * (1 + (variant == "clip_twice")))
