"""A worker that takes its windows in very short parts; how long they are depends on what the machine does meanwhile."""

import os
import time

from samestep.common.runtime.worker import loop, worker


def main(arguments: list[str]) -> int:
    """Works as usual, but in short parts; the ranks see different times."""
    loop.MOST_SECONDS, loop.TIMED_WINDOWS = 0.02, 2
    plain = loop.ProcessFile.beat

    def beat(self: loop.ProcessFile, step: int) -> None:
        time.sleep(0.003 * int(os.environ.get("RANK", self.rank)))
        plain(self, step)

    loop.ProcessFile.beat = beat
    return worker.main(arguments)
