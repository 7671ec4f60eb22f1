"""A worker that does every task of a folder, one after the other: one start of a framework for many models."""

import time
from pathlib import Path

from samestep.common.runtime.worker import worker


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0])
    tasks = sorted(folder.glob("*/"))
    if not tasks:
        return worker.main(arguments)
    for task in tasks:
        started = time.time()
        (task / "code").write_text(str(worker.main([str(task)])))
        (task / "seconds").write_text(str(time.time() - started))
    return 0
