"""The group of RPC workers, one per process, named as the roles of the run."""

import contextlib
import os

import torch.distributed as dist
from torch.distributed import rpc

from samestep.torch_impl.rendezvous import timeout_seconds


def worker_name(rank: int) -> str:
    """The name that calls go to."""
    return f"rank-{rank}"


def own_rank() -> int:
    """This process's number."""
    return int(os.environ["RANK"])


def join_rpc() -> None:
    """Joins the group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe; returns when all have come."""
    if os.environ["MASTER_ADDR"] in ("127.0.0.1", "localhost"):
        os.environ.setdefault("TP_SOCKET_IFNAME", "lo")  # else TensorPipe looks the host's name up
    rank, world_size = own_rank(), int(os.environ["WORLD_SIZE"])
    # Over TCP even on one machine, where it would pass by the wire through shared memory. (Private names, torch 2.13.)
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=8, rpc_timeout=timeout_seconds(), _transports=["uv"], _channels=["basic"]
    )
    rpc.init_rpc(worker_name(rank), rank=rank, world_size=world_size, rpc_backend_options=options)


def leave_rpc() -> None:
    """Leaves once every process wants to."""
    # Rank 0 has the store through which they agree. It may be gone by the time another asks for the outcome, which can
    # only be that all have agreed (torch 2.13).
    with contextlib.suppress(dist.DistNetworkError) if own_rank() else contextlib.nullcontext():
        rpc.shutdown()
