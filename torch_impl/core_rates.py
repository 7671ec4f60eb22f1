"""Measures the speed of a core and of exchanges between two processes: `python -m samestep.torch_impl.core_rates RANK STORE`.

Rank 0 prints JSON: the fields of `Cores`, and the memory rate. Every figure is the median of repetitions, so a moment of load
does not change it.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping

import torch
from torch import distributed as dist
from torch.nn import functional

SIZES = (16, 32, 64, 128, 256, 512, 1024)
"""The sizes of the square matrices."""
ELEMENTS = 2**16
"""The number of elements of a tensor that fits in the cache of a core."""
COPIED_BYTES = 2**26
"""More bytes than fit in the caches of a core."""
LARGE = 2**21
"""The number of elements of a large message, 8 MiB."""
REPEATS, SECONDS = 15, 0.02
RANKS = 2


def main() -> None:
    """Runs one of the two processes of the measurement."""
    rank, store = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    cores: dict[str, object] = {
        "matmul": {size: 2 * size**3 / _median(_matmul(size)) for size in SIZES},
        "element_seconds": _median(_gelu()) / ELEMENTS,
    }
    memory_bytes_per_second = 2 * COPIED_BYTES / _median(_copy())
    cores["latency_seconds"], cores["exchange_bytes_per_second"] = exchanges(rank)
    if rank == 0:
        print(json.dumps([cores, memory_bytes_per_second]))
    dist.barrier()
    os._exit(0)  # gloo's threads may crash during teardown


def exchanges(rank: int) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Measures each operation that the ledger counts: its seconds for a small message, and its bytes per second for a large one.

    Args:
        rank: The rank of this process.
    """

    def send(tensor: torch.Tensor) -> None:
        dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
        dist.recv(tensor, 1) if rank == 0 else dist.send(tensor, 0)

    latencies, rates = dict[str, float](), dict[str, float]()
    operations: dict[str, Callable[[torch.Tensor], object]] = {
        "all_reduce": dist.all_reduce,
        "all_gather": lambda tensor: dist.all_gather_into_tensor(tensor.new_empty(RANKS * tensor.numel()), tensor),
        "reduce_scatter": lambda tensor: dist.reduce_scatter_tensor(tensor.new_empty(tensor.numel() // RANKS), tensor),
        "broadcast": lambda tensor: dist.broadcast(tensor, 0),
        "send": send,
    }
    for name, operation in operations.items():
        each = 2 if name == "send" else 1  # it goes there and back
        small, large = (_together(operation, torch.zeros(count)) / each for count in (RANKS, LARGE))
        latencies[name], rates[name] = small, 4 * LARGE / max(large - small, 1e-9)
    return latencies, rates


def _matmul(size: int) -> Callable[[], object]:
    left, right = torch.randn(size, size), torch.randn(size, size)
    return lambda: left @ right


def _gelu() -> Callable[[], object]:
    inputs = torch.randn(ELEMENTS, requires_grad=True)
    ones = torch.ones(ELEMENTS)
    return lambda: functional.gelu(inputs).backward(ones)


def _copy() -> Callable[[], object]:
    source, target = torch.zeros(COPIED_BYTES // 4), torch.zeros(COPIED_BYTES // 4)
    return lambda: target.copy_(source)


def _median(operation: Callable[[], object]) -> float:
    """Returns the seconds per call, while the other process does the same."""
    dist.barrier()
    operation()
    start = time.perf_counter()
    operation()
    calls = max(1, round(SECONDS / (time.perf_counter() - start)))
    return _repeat(operation, calls)


def _together(operation: Callable[[torch.Tensor], object], tensor: torch.Tensor) -> float:
    """Returns the seconds per call of an operation that both processes have to call equally often."""
    operation(tensor)
    return _repeat(lambda: operation(tensor), 4 if tensor.numel() == LARGE else 40)


def _repeat(operation: Callable[[], object], calls: int) -> float:
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(calls):
            operation()
        taken.append((time.perf_counter() - start) / calls)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
