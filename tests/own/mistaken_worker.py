"""A worker whose updates are mistaken in the way that the environment names."""

import os

from samestep.common.runtime.worker import worker


def main(arguments: list[str]) -> int:
    import torch
    from torch import distributed as dist
    from torch.optim.optimizer import register_optimizer_step_post_hook

    plain, kind = dist.all_reduce, os.environ.get("MISTAKE")

    def enlarged(tensor, *others, **named):
        work = plain(tensor, *others, **named)
        return work if tensor.numel() < 100 else (tensor.mul_(1.001), work)[1]

    def moved(optimizer, *_):
        optimizer.taken = getattr(optimizer, "taken", 0) + 1
        if optimizer.taken == 6:
            with torch.no_grad():
                optimizer.param_groups[0]["params"][0][0, :3] += 2**-8

    if kind == "factor":
        dist.all_reduce = enlarged
    elif kind == "update" and os.environ.get("WORLD_SIZE", "1") != "1":
        register_optimizer_step_post_hook(moved)
    return worker.main(arguments)
