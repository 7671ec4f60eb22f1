"""Measures how a row scales over emulated hosts, which are network namespaces on this machine with one process each.

`python -m benchmarks.measuring.hosts [torch:ddp ...] [--hosts 1,2,4] [--bandwidth 1gbit] [--steps 200]` trains each row on
these numbers of hosts and prints its scaling like a comparison, with the bytes sent within and between hosts next to their
prediction. Bytes are those of real hosts, but seconds are those of hosts that share this machine's cores. It needs root and
iproute2.

Below are the seconds of a step, next to those that `samestep advise --machine here --bandwidth` predicts for hosts of one core
each that compute as fast as measured with the first number of hosts. Links are what emulated hosts do not share. So on slow
links, where little else takes time, the two can be compared.
"""

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.flag_words import read_bandwidth
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.attempts import prepare
from samestep.common.runtime.records import RunResult, load_result
from samestep.common.seconds.host_links import busiest, over_hosts, with_links
from samestep.common.seconds.machine import REFERENCE, load_machine
from samestep.common.seconds.step_time import StepTime
from samestep.experiments.comparing.row import Row
from samestep.experiments.comparing.scaling import find_scaling
from samestep.experiments.printing.scaling_report import write_scaling
from samestep.experiments.printing.text import github, percent_off
from tests.engines.host_box import limit, started, switched
from tests.engines.keeper import kept

ASKED = RunConfig(workload="digits-mlp+width=256", dtype="float64", batch_size=192, steps=200, timeout_seconds=90.0)


def main() -> None:
    """Trains every row on every number of hosts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=["torch:ddp"])
    parser.add_argument("--hosts", default="1,2,4", help="how many, as in 1,2,4")
    parser.add_argument("--bandwidth", default="1gbit", help="of the link of each host")
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    numbers = [int(number) for number in given.hosts.split(",")]
    with kept(), switched(max(numbers)) as hosts, tempfile.TemporaryDirectory() as scratch:
        for host in hosts:
            limit(host, read_bandwidth(given.bandwidth))
        results = [
            take(cell, hosts[:number], given.steps, Path(scratch) / f"{place}-{number}")
            for place, cell in enumerate(given.cells)
            for number in numbers
        ]
    print(write_scaling(find_scaling([Row.of(Cell.of(each.config), each) for each in results], ())))
    print(f"\n{links(results, given.bandwidth)}")


def links(results: Sequence[RunResult], bandwidth: str) -> str:
    """Returns a table of measured and predicted seconds of a step.

    Args:
        results: The results of the runs.
        bandwidth: The bandwidth of each link.
    """
    machine, rows = with_links(dataclasses.replace(load_machine(REFERENCE), gpus_per_node=1), bandwidth), []
    alone = {each.strategy: each.step_seconds_median or 0.0 for each in reversed(results)}
    for each in results:
        run = parse(each.config)
        computing = StepTime(alone[each.strategy], 0.0, 0.0, 0.0, 0.0, 0.0)
        predicted = over_hosts(computing, busiest(run, 1), machine).total
        most = max((host.predicted_sent_bytes or 0.0 for host in each.by_host), default=0.0)
        assert each.step_seconds_median is not None
        cells = [f"{most / 1024:,.0f}", f"{predicted:.3f}", f"{each.step_seconds_median:.3f}"]
        error = percent_off(predicted, each.step_seconds_median)
        rows.append([run.name, str(len(each.by_host) or 1), *cells, error])
    return github(["strategy", "hosts", "sent by a host KiB", "predicted s", "step s", "error"], rows)


def take(cell: str, hosts: list[str], steps: int, out: Path) -> RunResult:
    """Trains a row with one device on each host.

    Args:
        cell: The row.
        hosts: The names of the namespaces.
        steps: The number of steps.
        out: The directory of the run.
    """
    own = {"out": str(out), "devices": len(hosts), "steps": steps}
    run = parse(config := Cell.parse(cell).apply_to(RunConfig(**vars(ASKED) | own)))
    directory = prepare(run, launch_of(config))
    begun = started(hosts, directory, len(run.strategy.topology(run)), 1)
    told = [process.communicate()[0] for process in begun]
    if any(process.returncode for process in begun):
        sys.exit("\n".join(told))
    return load_result(directory)


if __name__ == "__main__":
    main()
