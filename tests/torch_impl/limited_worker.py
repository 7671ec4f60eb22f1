"""The worker of a run, under an enforced limit of memory: what it has once its framework is imported, and so much more."""

import os
import re
import resource
from pathlib import Path

from samestep.common.runtime.worker import worker

MORE_BYTES = "MORE_BYTES"


def own_data_bytes() -> int:
    """The memory of this process that RLIMIT_DATA counts."""
    found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def main(arguments: list[str]) -> int:
    """Does what the worker does, under the limit."""
    limit = own_data_bytes() + int(os.environ[MORE_BYTES])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    print(f"baseline {own_data_bytes()}, limit {limit}", flush=True)
    return worker.main(arguments)
