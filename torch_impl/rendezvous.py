"""Where ranks first meet: who is missing, and whether all were given the same run, is found before anything is sent.

torch's own rendezvous names no rank that does not come, and hands tensors of other shapes on without a word.
"""

import datetime
import json
import os
import time

import torch.distributed as dist

from samestep.common.errors import WorkerFailed
from samestep.common.runtime.topology import TIMEOUT
from samestep.common.strategy import Run

PATIENCE = 0.8
"""The share of the run's timeout after which ranks stop waiting. They report before the launcher ends them, since they
have the name of the rank that is missing."""


def timeout_seconds() -> float:
    """The run's timeout, which the worker puts into the environment before it builds a program."""
    return float(os.environ.get(TIMEOUT, "60"))


def meet(run: Run) -> dist.Store:
    """Waits for every rank at MASTER_ADDR and MASTER_PORT; returns the store through which they found each other.

    Raises:
        WorkerFailed: The port is taken, nobody answers there, a rank does not come, or one was given another run.
    """
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    seconds = PATIENCE * timeout_seconds()
    deadline = time.monotonic() + seconds
    store = _store(rank, count, seconds)
    description = json.dumps(run.described())
    own = json.loads(description)  # as the others read it: JSON has no tuples
    store.set(f"here/{rank}", description)
    for other in range(count):
        left = max(0.001, deadline - time.monotonic())
        try:
            store.wait([f"here/{other}"], datetime.timedelta(seconds=left))
        except dist.DistStoreError:
            missing = [str(r) for r in range(count) if not store.check([f"here/{r}"])]
            raise WorkerFailed(
                f"rank {' and rank '.join(missing)} did not join the {count} ranks at {_address()} within "
                f"{seconds:g} s; give more time with --timeout-seconds, or see its log"
            ) from None
        theirs = json.loads(store.get(f"here/{other}"))
        if theirs != own:
            different = [f"{n} {theirs.get(n)!r} instead of {own.get(n)!r}" for n in own if theirs.get(n) != own.get(n)]
            raise WorkerFailed(f"rank {other} was given another run than rank {rank}: {', '.join(different)}")
    return store


def _store(rank: int, count: int, seconds: float) -> dist.TCPStore:
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun listens there already
    try:
        return dist.TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            count,
            is_master=rank == 0 and not agent,
            timeout=datetime.timedelta(seconds=seconds),
            wait_for_workers=False,
            multi_tenant=not agent,
        )
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        if "EADDRINUSE" in str(error):
            what = f"rank 0 cannot listen at {_address()}: the port is taken; choose another MASTER_PORT"
        else:
            what = f"rank {rank} found no rank 0 at {_address()} within {seconds:g} s"
        raise WorkerFailed(f"{what} ({str(error).splitlines()[0][:200]})") from None


def _address() -> str:
    return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
