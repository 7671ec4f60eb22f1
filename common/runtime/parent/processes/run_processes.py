"""Starts the processes of a run: all of them, or none."""

from collections.abc import Mapping
from pathlib import Path

from samestep.common.request import Launch
from samestep.common.runtime.parent.processes.following import Progress
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.runtime.parent.processes.network import meet
from samestep.common.runtime.parent.processes.watch import ProcessWatch
from samestep.common.runtime.process_file import forget
from samestep.common.runtime.topology import fill_in
from samestep.common.strategy import Run


def start(
    directory: Path,
    run: Run,
    launch: Launch,
    server: ForkClient,
    environment: Mapping[str, str],
    progress: Progress | None,
) -> ProcessWatch:
    """Starts the processes of a run; returns what watches them.

    Args:
        directory: The run directory.
        run: The run.
        launch: How to start it.
        server: Starts each process.
        environment: Added to every process's.
        progress: Called at every window's end.
    """
    specs = run.strategy.topology(run)
    meeting = meet(server, run.strategy.danger_of_open_ports, specs, launch.bandwidth)
    independent = not run.strategy.synchronous(run.options)
    for spec in specs:
        forget(directory, spec.role)
    watch = ProcessWatch(directory, run.framework, launch.timeout_seconds, server, {}, progress, independent)
    try:
        for place, spec in enumerate(specs):
            own = {**meeting.environment, **environment, **fill_in(spec, meeting.addresses)}
            log = directory / f"{spec.role}.log"
            watch.processes[server.start_worker(directory, log, own, place if meeting.private else None)] = spec
    except BaseException:
        watch.stop()
        raise
    return watch
