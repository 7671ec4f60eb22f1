"""Devices, the group of processes, threads."""

import datetime
import os

import torch
import torch.distributed as dist

from common.config import RunConfig
from torch_impl.rendezvous import PATIENCE, meet


def use_device(config: RunConfig) -> torch.device:
    """The device of this process: its own GPU if the machine has one, else the CPU. Sets the threads, too."""
    torch.set_num_threads(config.threads)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available() and local_rank < torch.cuda.device_count():
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    return torch.device("cpu")


def join_group(config: RunConfig, device: torch.device) -> None:
    """Joins the group of processes that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe.

    Raises:
        WorkerFailed: They do not come together.
    """
    if os.environ["MASTER_ADDR"] in ("127.0.0.1", "localhost"):
        # Without it gloo looks the host's name up: 60-100 ms, and an outside address where the loopback will do.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.set_debug_level_from_env()  # read at import, which happened before this process was told anything
    backend = "nccl" if device.type == "cuda" and torch.cuda.device_count() >= dist_world_size() else "gloo"
    store = meet(config)
    # Under TORCH_DISTRIBUTED_DEBUG=DETAIL torch names the rank that hangs, if it comes to that before the launcher.
    detail = dist.get_debug_level() == dist.DebugLevel.DETAIL
    timeout = datetime.timedelta(seconds=config.timeout_seconds * (PATIENCE if detail else 1))
    rank, count = int(os.environ["RANK"]), dist_world_size()
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=timeout)


def dist_world_size() -> int:
    """The number of processes of the run, before and after joining."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leave_group() -> None:
    """Leaves the group, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def synchronize(device: torch.device) -> None:
    """Waits for what the device still has to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def describe(device: torch.device) -> str:
    """What a device is, in words."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU cores"
