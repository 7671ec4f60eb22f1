"""Checks that the links of `--bandwidth` have that bandwidth, by comparing an all-reduce with its textbook time.

`python -m benchmarks.measuring.fabric` all-reduces 4 MiB with gloo between 2 and 4 processes over links of 200 and 800 Mbit/s.
It prints the median seconds, the time of a ring, which is 2 (N - 1) / N x bytes over bandwidth, and the difference, which should
be at most 10 %. `samestep run --bandwidth` makes links in the same way.

References:
    Thakur et al., Optimization of Collective Communication Operations in MPICH, 2005, section 4: the ring.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from samestep.common.flag_words import read_bandwidth
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.runtime.parent.processes.network import link
from samestep.experiments.printing.text import percent_off

MESSAGE_BYTES = 4 * 2**20
BANDWIDTHS, COUNTS = ("200mbit", "800mbit"), (2, 4)
REPEATS, SECONDS = 9, 60.0


def measure(bandwidth: str, count: int) -> float:
    """Returns the median seconds of an all-reduce between processes that each have a link.

    Args:
        bandwidth: The bandwidth of each link, such as 200mbit.
        count: The number of processes.

    Raises:
        Unavailable: This machine allows no links.
    """
    with tempfile.TemporaryDirectory() as scratch:
        client = ForkClient("torch", 1, "benchmarks.measuring.fabric", scratch)
        try:
            rendezvous = link(client, count, read_bandwidth(bandwidth))
            (host, port), *_ = rendezvous.addresses
            group = {"MASTER_ADDR": host, "MASTER_PORT": str(port), "WORLD_SIZE": str(count), **rendezvous.environment}
            for rank in range(count):
                log = Path(scratch, f"{rank}.log")
                client.start_worker(Path(scratch), log, {"RANK": str(rank), **group}, rank)
            ended, deadline = 0, time.monotonic() + SECONDS
            while ended < count and time.monotonic() < deadline:
                ended += sum("ended" in answer for answer in client.poll(0.1))
            return statistics.median(json.loads(Path(scratch, "seconds.json").read_text()))
        finally:
            client.close()


def main(arguments: list[str]) -> int:
    """Runs one process: it all-reduces, and the first process writes how long each call took."""
    import torch
    import torch.distributed as dist

    (directory,) = arguments
    dist.init_process_group("gloo")
    message, seconds = torch.ones(MESSAGE_BYTES // 4), []
    for _ in range(1 + REPEATS):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(message)
        seconds.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        Path(directory, "seconds.json").write_text(json.dumps(seconds[1:]))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's teardown would wait for peers that are gone


def table() -> None:
    """Prints a row for every bandwidth and number of processes."""
    print("| link | processes | all-reduce of 4 MiB | ring's time | off by |\n|---|---|---|---|---|")
    for bandwidth in BANDWIDTHS:
        for count in COUNTS:
            seconds = measure(bandwidth, count)
            ideal = 2 * (count - 1) / count * MESSAGE_BYTES * 8 / read_bandwidth(bandwidth)
            off = percent_off(seconds, ideal, 1)
            print(f"| {bandwidth} | {count} | {seconds * 1e3:.0f} ms | {ideal * 1e3:.0f} ms | {off} |", flush=True)


if __name__ == "__main__":
    table()
