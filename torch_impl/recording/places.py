"""Which of how many processes this one is."""

import os
import sys


def rank_and_world() -> tuple[int, int]:
    """The rank of this process and their number: the default group's, or the launcher's."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
