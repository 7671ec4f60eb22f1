"""A worker whose hand-made data parallelism forgets a hundredth of what it sums."""

from samestep.common.runtime.worker import worker


def main(arguments: list[str]) -> int:
    from torch import distributed as dist

    plain = dist.all_reduce

    def forgetful(tensor, *others, **named):
        work = plain(tensor, *others, **named)
        if tensor.numel() > 100:
            tensor.mul_(0.99)
        return work

    dist.all_reduce = forgetful
    return worker.main(arguments)
