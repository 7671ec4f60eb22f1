"""Runs scripts in processes that are forked off one which has imported their framework: the import takes longer than they run."""

import functools
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

_POLL_SECONDS = 0.02


def run_forked(run: Callable[[int], object], num: int, is_group: bool, timeout_seconds: float = float("inf")) -> bool:
    """Runs a function in new processes; returns whether all ended well. Where one does not, the others are killed.

    Args:
        run: Is given the rank of its process, and may do with the process what it likes. What it returns is not freed.
        num: How many processes there are.
        is_group: Whether they have the variables that torchrun sets.
        timeout_seconds: After that, all are killed.
    """
    group: dict[str, str] = {}
    if is_group:
        with socket.create_server(("127.0.0.1", 0)) as free:
            group = {"WORLD_SIZE": str(num), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        group |= {"LOCAL_WORLD_SIZE": str(num), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
    children = set()
    for rank in range(num):
        child = os.fork()
        if not child:
            own = group | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if is_group else {}
            _end_with(functools.partial(run, rank), own)
        children.add(child)
    return _are_well(children, time.monotonic() + timeout_seconds)


def _are_well(children: set[int], deadline: float) -> bool:
    while children:
        ended = [os.waitpid(each, os.WNOHANG) for each in children]
        children -= {child for child, _ in ended}
        if any(status for _, status in ended) or time.monotonic() > deadline:
            for each in children:  # they would wait for the one that failed
                is_leader = os.getpgid(each) == each  # of processes of its own
                (os.killpg if is_leader else os.kill)(each, signal.SIGKILL)
                os.waitpid(each, 0)
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _end_with(run: Callable[[], object], environment: dict[str, str]) -> NoReturn:
    """Runs a function in this process, and ends it."""
    code = 1
    try:
        os.environ.update(environment)
        _kept = run()  # DDP's reducer waits for Gloo's thread if it is freed, and that thread may wait for Python
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
