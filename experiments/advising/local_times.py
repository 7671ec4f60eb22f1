"""The seconds of a run on this machine, from what calibration measured."""

import dataclasses
import sys
from collections.abc import Mapping

from samestep.common.catalog import require
from samestep.common.flags import FieldValues
from samestep.common.seconds.core_time import PART_OF_AXIS, core_time, schedule_of
from samestep.common.seconds.host_links import busiest, over_hosts, with_links
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.step_time import StepTime
from samestep.common.strategy import Run
from samestep.common.workload.pipeline_schedule import SCHEDULES, stages_of_ranks
from samestep.experiments.advising.candidate_meshes import FRAMEWORK, Candidate
from samestep.experiments.advising.local_machine import LocalMachine, load_here, store
from samestep.experiments.advising.step_times import Timer


def seconds_here(run: Run, here: LocalMachine) -> StepTime:
    """Predicts the parts of a step on this machine.

    Args:
        run: The run whose step is timed.
        here: The measured machine.
    """
    return core_time(run, run.strategy.backend, here.machine, here.cores)


def time_here(bandwidth: str | None) -> tuple[Timer, Machine]:
    """Returns a timer for this machine, and the machine, which is measured first if necessary.

    Args:
        bandwidth: The bandwidth of each machine's link; None if there is only one machine.

    Raises:
        Unavailable: torch, with which the machine is measured, is not installed.
    """
    require(FRAMEWORK)
    from samestep.experiments.calibrate import calibrate  # here: this module is part of it

    if (here := load_here()) is None:
        print("Measuring this machine first, in about a minute; samestep calibrate does so again.", file=sys.stderr)
        store(here := calibrate())

    timer = on_one(here)
    if bandwidth is None:
        return timer, here.machine
    return over_links(timer), with_links(here.machine, bandwidth)


def on_one(here: LocalMachine) -> Timer:
    """Returns a timer for machines that differ from the measured one in the rate of the links inside them, if at all.

    Args:
        here: The measured machine.
    """
    known: dict[tuple[str, int], StepTime] = {}

    def alone(candidate: Candidate, machine: Machine) -> StepTime:
        key = (candidate.cell, candidate.run.batch_size)  # each is timed again with other rates
        if key not in known:
            known[key] = seconds_here(candidate.run, here)
        slower, parts = here.machine.node_bytes_per_second / machine.node_bytes_per_second, known[key].parts()
        exchanges: FieldValues = {name: slower * parts[name] for name in PART_OF_AXIS.values()}
        return dataclasses.replace(known[key], **exchanges)

    return alone


def over_links(timer: Timer) -> Timer:
    """Returns a timer for several machines with links to each other.

    Args:
        timer: Times a candidate as if all its processes were on one machine.
    """
    passed: dict[tuple[str, int], Mapping[str, float]] = {}

    def linked(candidate: Candidate, machine: Machine) -> StepTime:
        key = (candidate.cell, candidate.run.batch_size)
        if key not in passed:
            passed[key] = busiest(candidate.run, machine.gpus_per_node)
        return over_hosts(timer(candidate, machine), passed[key], machine)

    return linked


def passes(run: Run) -> float:
    """Returns how often a rank passes a micro-batch through a segment in a step, bubble included; overhead is counted by it."""
    schedule = schedule_of(run)
    by_rank, each = stages_of_ranks(run.workload.model, schedule, run.mesh), SCHEDULES[schedule].stages_per_rank
    largest = max(len(stage) for stages in by_rank for stage in stages)
    return largest * (run.microbatches * each + len(by_rank) - 1)
