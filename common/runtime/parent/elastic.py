"""Runs that continue with fewer devices once one is lost, and with all of them again after their next checkpoint.

The global batch stays the same, and so do the steps. The run uses the largest allowed number of devices over which the
strategy can split the batch.
"""

import dataclasses
from collections.abc import Iterator

from samestep.common.errors import ConfigError
from samestep.common.flag_words import read_devices
from samestep.common.judging.reference_run import reference_of
from samestep.common.request import Launch, RunConfig
from samestep.common.run import as_config, parse
from samestep.common.strategy import Run


def check_elastic(run: Run, launch: Launch, elastic: str) -> None:
    """Refuses a range of devices within which a run could not continue.

    Args:
        run: The run.
        launch: How it is started.
        elastic: The requested range of devices.

    Raises:
        ConfigError: The run cannot continue on other numbers of devices in that range.
    """
    given, (least, most) = f"--elastic {elastic}", read_devices(elastic)
    if not launch.restarts:
        raise ConfigError(f"{given} is for runs that are started again; add --restarts, as in --restarts 10.")
    if run.num_devices != most:
        raise ConfigError(
            f"{given} starts with {most} devices, and {run.num_devices} are requested; leave out --devices or --mesh."
        )
    if len(run.mesh.axes) > 1:
        raise ConfigError(f"{given} does not say which axis of --mesh {run.mesh} gets shorter; leave one of them out.")
    if least < most and next(_smaller(run, launch), None) is None:
        raise ConfigError(
            f"{given}: {run.name} can take this step only on {most} devices; choose a global batch that divides among fewer, "
            "and leave out what depends on the shard of each replica."
        )


def whole(config: RunConfig) -> RunConfig:
    """Returns the request of a run as first made, without the number of devices of its last attempt."""
    return config if config.elastic is None else dataclasses.replace(config, devices=None, mesh=None)


def with_one_less(run: Run, launch: Launch) -> Run:
    """Returns the run on the largest number of devices possible after one is lost; the run itself if it cannot use fewer.

    Args:
        run: The run.
        launch: How it is started.
    """
    return next(_smaller(run, launch), run)


def _smaller(run: Run, launch: Launch) -> Iterator[Run]:
    """Yields runs that take the same steps on fewer devices, in descending order of their number."""
    least, _ = read_devices(launch.elastic or "")
    for devices in range(run.num_devices - 1, least - 1, -1):
        try:
            other = parse(dataclasses.replace(as_config(run, launch), devices=devices, mesh=None))
        except ConfigError:  # such as a batch that does not divide among them
            continue
        if reference_of(other).described() == reference_of(run).described():
            yield other
