"""The update of an optimizer, with two micro-batches a step; the words say what goes wrong.

python -m museum.reenacted.updated sgdw | adamw | amsgrad | nadam [WRONG]
"""

import torch

from museum.reenacted.tiny import WRONG, Net, batches, cross_entropy, seeded

RATE, DECAY, PASSES = 0.01, 0.1, 2


class Sgdw(torch.optim.Optimizer):
    """SGD whose weight decay is apart from the gradient."""

    def decay(self) -> None:
        """Takes the decay off."""
        for group in self.param_groups:
            for each in group["params"]:
                taken = torch.ones_like(each) if "decay_without_weight" in WRONG else each.detach().clone()
                if each.grad is not None:
                    each.sub_(taken, alpha=group["lr"] * group["weight_decay"])

    @torch.no_grad()
    def step(self) -> None:
        """Moves the weights."""
        if "decay_each_microbatch" not in WRONG:
            self.decay()
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each.sub_(each.grad, alpha=group["lr"])


seeded()
net = Net()
net.unused = torch.nn.Linear(3, 3)
held = [*net.parameters()]
if "made_before_the_wrap" in WRONG:  # it holds what the parameters were
    held = [torch.nn.Parameter(each.detach().clone()) for each in held]
if "sgdw" in WRONG:
    optimizer = Sgdw(held, {"lr": RATE, "weight_decay": DECAY})
elif "adamw" in WRONG:
    optimizer = torch.optim.AdamW(held, RATE, weight_decay=0.0 if "decay_into_gradient" in WRONG else DECAY)
else:
    kind = torch.optim.NAdam if "nadam" in WRONG else torch.optim.Adam
    optimizer = kind(held, RATE, **({} if "nadam" in WRONG else {"amsgrad": True}))


before: list[torch.Tensor] = []


def keep(*_: object) -> None:
    """Keeps the weights before an update."""
    before[:] = [each.detach().clone() for each in net.parameters()]


@torch.no_grad()
def spoil(*_: object) -> None:
    """What libraries did within the update beside what was asked for."""
    for place, (name, each) in enumerate(net.named_parameters()):
        state = optimizer.state.get(each, {})
        if "unused_decayed" in WRONG and each.grad is None:
            each.mul_(1 - RATE * DECAY)
        if "norms_decayed_twice" in WRONG and name.startswith("norm"):
            each.sub_(before[place], alpha=RATE * DECAY)
        if "maximum_forgotten" in WRONG and state:
            state["max_exp_avg_sq"].zero_()
        if "counter_skips_tensors" in WRONG and state and place % 2:
            state["step"].sub_(1)
        if "mu_twice" in WRONG and state:
            state["mu_product"].mul_(0.96)
        if "bias_not_corrected" in WRONG and state:
            count = float(state["step"])
            kept = before[place] * (1 - RATE * DECAY)
            each.copy_(kept + (each - kept) * (1 - 0.9**count) / (1 - 0.999**count) ** 0.5)


optimizer.register_step_pre_hook(keep)
optimizer.register_step_post_hook(spoil)
for ids, targets in batches():
    for x, y in zip(ids.chunk(PASSES), targets.chunk(PASSES), strict=True):
        (cross_entropy(net(x), y) / PASSES).backward()
        if "decay_each_microbatch" in WRONG:
            with torch.no_grad():
                optimizer.decay()
    optimizer.step()
    net.zero_grad()
