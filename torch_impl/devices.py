"""Devices, the group of processes, threads."""

import datetime
import os

import torch
import torch.distributed as dist

from common.config import RunConfig
from torch_impl.rendezvous import PATIENCE, meet


def use_device(config: RunConfig, may_share: bool = False) -> torch.device:
    """The device of this process: a GPU of its own if its machine has one for each rank, else the CPU. Sets the threads.

    Args:
        config: A checked configuration.
        may_share: With fewer GPUs than ranks, ranks share them: gloo all-reduces and broadcasts a GPU's tensors, but
            knows no other exchange of them (torch 2.13).
    """
    torch.set_num_threads(config.threads)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus == 0 or (gpus < local_world_size() and not may_share):
        return torch.device("cpu")
    index = int(os.environ.get("LOCAL_RANK", "0")) % gpus
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def join_group(config: RunConfig, device: torch.device) -> None:
    """Joins the group of processes that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe.

    Raises:
        WorkerFailed: They do not come together.
    """
    if os.environ["MASTER_ADDR"] in ("127.0.0.1", "localhost"):
        # Without it gloo looks the host's name up: 60-100 ms, and an outside address where the loopback will do.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.set_debug_level_from_env()  # read at import, which happened before this process was told anything
    backend = "nccl" if device.type == "cuda" and torch.cuda.device_count() >= local_world_size() else "gloo"
    store = meet(config)
    # Under TORCH_DISTRIBUTED_DEBUG=DETAIL torch names the rank that hangs, if it comes to that before the launcher;
    # otherwise the launcher knows better, and torch's word is only for runs without one.
    detail = dist.get_debug_level() == dist.DebugLevel.DETAIL
    timeout = datetime.timedelta(seconds=config.timeout_seconds * (PATIENCE if detail else 1 / PATIENCE))
    rank, count = int(os.environ["RANK"]), dist_world_size()
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=timeout)


def dist_world_size() -> int:
    """The number of processes of the run, before and after joining."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_world_size() -> int:
    """How many of them are on this machine; all, unless LOCAL_WORLD_SIZE says otherwise."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", dist_world_size()))


def leave_group() -> None:
    """Leaves the group, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def describe_ranks(device: torch.device) -> str:
    """What stands behind the ranks, in words."""
    shared = device.type == "cuda" and torch.cuda.device_count() < local_world_size()
    return "processes that share a GPU" if shared else "one process per device"


def synchronize(device: torch.device) -> None:
    """Waits for what the device still has to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def describe(device: torch.device) -> str:
    """What a device is, in words."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU cores"
