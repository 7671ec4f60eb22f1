"""Devices, threads, and how ranks join and leave the process group.

Ranks that are missing or were given a different run are found before anything is sent. torch's own rendezvous does not name a
missing rank, and sends tensors of mismatched shapes without an error.
"""

import datetime
import errno
import json
import os
import socket
import time

import torch
import torch.distributed as dist

from samestep.common.batch import BatchPart
from samestep.common.errors import WorkerFailed
from samestep.common.program import Hardware
from samestep.common.runtime.topology import LAUNCHED_AT, RESTARTS, TIMEOUT
from samestep.common.strategy import Run
from samestep.torch_impl.upstream import absent_store

PATIENCE = 0.8
"""The share of the run's timeout after which ranks stop waiting. They know which rank is missing, so they must report
before the launcher ends them."""

ABSENT = "SAMESTEP_ABSENT_RANKS"
"""The environment variable that is set when a step of rank 0 is observed without the other ranks."""


def use_device(run: Run, may_share: bool = False) -> torch.device:
    """Chooses the device of this process, a GPU if its machine has one for each rank, else the CPU; sets the number of threads.

    Args:
        run: The run.
        may_share: Whether ranks share GPUs if there are fewer GPUs than ranks. gloo can all-reduce and broadcast the tensors of
            a GPU, but has no other exchange of them (torch 2.13).
    """
    torch.set_num_threads(run.threads)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus == 0 or (gpus < local_world_size() and not may_share):
        return torch.device("cpu")
    index = int(os.environ.get("LOCAL_RANK", "0")) % gpus
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def join_group(run: Run, device: torch.device) -> Hardware:
    """Joins the process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe.

    Args:
        run: The run, the same on every rank.
        device: The device of this process.

    Returns:
        What the ranks run on, with the backend of the group.

    Raises:
        WorkerFailed: The ranks do not all join, or were given different runs.
    """
    if meets_on_loopback():
        # Otherwise gloo looks up the host's name, which takes 60-100 ms and yields an external address.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    dist.set_debug_level_from_env()  # torch read it at import, before this process was given its environment
    if ABSENT in os.environ:
        dist.init_process_group("fake", rank=0, world_size=dist_world_size(), store=absent_store())
        return Hardware(note="ranks that are not there", backend="gloo")
    shared = is_shared(device)
    backend = "nccl" if device.type == "cuda" and not shared else "gloo"
    store = meet(run)
    # Under TORCH_DISTRIBUTED_DEBUG=DETAIL, torch names the rank that hangs, if it times out before the launcher does.
    detail = dist.get_debug_level() == dist.DebugLevel.DETAIL
    seconds = PATIENCE * timeout_seconds() if detail else peer_seconds()
    rank, count = int(os.environ["RANK"]), dist_world_size()
    timeout = datetime.timedelta(seconds=seconds)
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=timeout)
    return Hardware(note="processes that share a GPU" if shared else "one process per device", backend=backend)


def meets_on_loopback() -> bool:
    """Returns whether all processes of the run meet on the loopback device, i.e. are on one machine."""
    return os.environ["MASTER_ADDR"] in ("127.0.0.1", "localhost")


def is_shared(device: torch.device) -> bool:
    """Returns whether ranks of one machine have to share its GPUs."""
    return device.type == "cuda" and torch.cuda.device_count() < local_world_size()


def own_part(run: Run) -> BatchPart:
    """Returns the part of the global batch that this process takes, which depends on its place on the mesh."""
    return BatchPart.of(run.mesh, dist.get_rank() if dist.is_initialized() else 0, run.asked.is_zigzag)


def dist_world_size() -> int:
    """Returns the number of processes of the run, before and after joining."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_world_size() -> int:
    """Returns the number of processes of the run on this machine; all of them, unless LOCAL_WORLD_SIZE says otherwise."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", dist_world_size()))


def leave_group() -> None:
    """Leaves the group, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def synchronize(device: torch.device) -> None:
    """Waits until the device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def describe(device: torch.device) -> str:
    """Returns a description of a device in words."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU cores"


def timeout_seconds() -> float:
    """Returns the run's timeout, which the worker puts into the environment before it builds a program."""
    return float(os.environ.get(TIMEOUT, "60"))


def peer_seconds() -> float:
    """Returns how long the framework itself waits for a peer.

    Under a launcher it waits longer than the launcher's own timeout. The launcher has the better message, and the framework
    would count time in which the whole machine was suspended.
    """
    return timeout_seconds() * (10 if LAUNCHED_AT in os.environ else 1 / PATIENCE)


def meet(run: Run) -> dist.Store:
    """Waits for every rank at MASTER_ADDR and MASTER_PORT; returns the store through which they found each other.

    Raises:
        WorkerFailed: The port is taken, nothing answers there, a rank does not join or was started twice, or a rank was given a
            different run.
    """
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    seconds = PATIENCE * timeout_seconds()
    deadline = time.monotonic() + seconds
    # torchrun's own store outlives its workers, so it still has the addresses of workers that were since restarted.
    store = dist.PrefixStore(os.environ.get(RESTARTS, "0"), _store(rank, count, seconds))
    _claim(store, rank)
    description = json.dumps(run.described())
    own = json.loads(description)  # as other ranks read it, because JSON has no tuples
    store.set(f"here/{rank}", description)
    for other in range(count):
        left = max(0.001, deadline - time.monotonic())
        try:
            store.wait([f"here/{other}"], datetime.timedelta(seconds=left))
        except dist.DistStoreError:
            _refuse_twice(store)
            missing = [str(r) for r in range(count) if not store.check([f"here/{r}"])]
            raise WorkerFailed(
                f"rank {' and rank '.join(missing)} did not join the {count} ranks at {_address()} within "
                f"{seconds:g} s; give more time with --timeout-seconds, or see its log"
            ) from None
        theirs = json.loads(store.get(f"here/{other}"))
        if theirs != own:
            different = [f"{n} {theirs.get(n)!r} instead of {own.get(n)!r}" for n in own if theirs.get(n) != own.get(n)]
            raise WorkerFailed(f"rank {other} was given another run than rank {rank}: {', '.join(different)}")
    _refuse_twice(store)
    return store


def _claim(store: dist.Store, rank: int) -> None:
    """Claims a rank for this process, or tells all ranks that another process already has it."""
    own = _own_name()
    holder = store.compare_set(f"rank/{rank}", "", own).decode()
    if holder != own:
        store.set("twice", f"rank {rank} was started twice, as {holder} and as {own}; start each rank once")
        _refuse_twice(store)


def _refuse_twice(store: dist.Store) -> None:
    if store.check(["twice"]):
        raise WorkerFailed(store.get("twice").decode())


def _own_name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _is_agents() -> bool:
    """Returns whether torchrun's agent listens at the address where ranks meet."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _store(rank: int, count: int, seconds: float) -> dist.TCPStore:
    listens = rank == 0 and not _is_agents()
    try:
        return dist.TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            count,
            is_master=listens,
            timeout=datetime.timedelta(seconds=seconds),
            wait_for_workers=False,
            multi_tenant=not _is_agents(),
            master_listen_fd=_listen_on_loopback() if listens and meets_on_loopback() else None,
        )
    except (OSError, dist.DistNetworkError, dist.DistStoreError) as error:
        if "EADDRINUSE" in str(error) or (isinstance(error, OSError) and error.errno == errno.EADDRINUSE):
            advice = "choose another MASTER_PORT, or start rank 0 only once"
            what = f"rank 0 cannot listen at {_address()}: the port is taken; {advice}"
        else:
            what = f"rank {rank} found no rank 0 at {_address()} within {seconds:g} s"
        raise WorkerFailed(f"{what} ({str(error).splitlines()[0][:200]})") from None


def _listen_on_loopback() -> int:
    """Listens on the loopback address; torch would listen at every address of the machine, without authentication (2.13).

    Returns:
        The file descriptor.
    """
    return socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))).detach()


def _address() -> str:
    return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
