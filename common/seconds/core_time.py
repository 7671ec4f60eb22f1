"""The seconds of a step on the cores of a machine that was measured, for any model and any strategy with a ledger.

A process computes and exchanges on one core, so a step takes all of these, one after the other:

    matrices      three times the FLOPs of the forward pass (four where activations are computed again), at the rate that was
                  measured for matrices of their size; frozen layers have no gradient of their weights, and there is no backward
                  pass before the first trained layer
    elements      what the layers keep, each element at the measured seconds of an elementwise operation with its gradient
    overhead      what a step of the strategy takes besides arithmetic and bytes, as tiny models showed: a time for each step, and
                  one for each segment and each micro-batch that goes through it
    sends         those of the ledger: the measured seconds of a small one, and the bytes at the measured rate
    update        the bytes of parameters, gradients and optimizer state that are read and written, at the rate of the memory
    bubble        (p - 1) / v micro-batches of the slowest of p ranks with v stages each

References:
    Hockney 1994 (a message as latency and bandwidth); Narayanan et al., arXiv 2104.04473, section 2.2 (the bubble).
"""

import bisect
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

from samestep.common.costs.saved_activations.kept_torch import KEPT
from samestep.common.flags import FieldValues
from samestep.common.ledger import Ledger, Send
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.step_time import StepTime
from samestep.common.strategy import Run
from samestep.common.techniques.used import computed_twice
from samestep.common.workload.models.parameters import first_trained, num_trained
from samestep.common.workload.models.spec import Segment, parameters_of
from samestep.common.workload.pipeline_schedule import SCHEDULES, stages_of_ranks
from samestep.common.workload.saved import BEHIND

PART_OF_AXIS = {"tensor": "tensor_exchange", "pipe": "pipeline_sends", "data": "data_exchange"}
"""Axis -> the part of a step for what is exchanged along it; everything else counts as along `data`."""


@dataclasses.dataclass(frozen=True)
class Cores:
    """The measured rates of the cores of a machine.

    Attributes:
        matmul: Size of square matrices -> FLOP/s of their product on one core; the sizes ascend.
        element_seconds: The seconds of an elementwise operation and its gradient, for one element.
        latency_seconds: Operation of a send -> the seconds of a small one between two processes.
        exchange_bytes_per_second: Operation of a send -> the bytes per second of a large one.
        overhead_seconds: Strategy -> the seconds of a step besides everything else, and those of each segment and micro-batch.
    """

    matmul: Mapping[int, float]
    element_seconds: float
    latency_seconds: Mapping[str, float]
    exchange_bytes_per_second: Mapping[str, float]
    overhead_seconds: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)


def schedule_of(run: Run) -> str:
    """Returns the schedule of a run; without a pipeline, one that gives each rank one stage."""
    return run.asked.schedule or "gpipe"


def with_microbatches(run: Run, schedule: str, count: int) -> Run:
    """Returns the run with a number of micro-batches.

    Args:
        run: With its strategy and mesh.
        schedule: The schedule of its pipeline; "" for a row without schedules.
        count: The number of micro-batches.
    """
    if not schedule:
        return dataclasses.replace(run, techniques=run.techniques.in_passes(count))
    return dataclasses.replace(run, options=dataclasses.replace(run.options, schedule=schedule, microbatches=count))


def core_time(run: Run, backend: str, machine: Machine, cores: Cores) -> StepTime:
    """Predicts the parts of a step.

    Args:
        run: The run whose step is timed.
        backend: The backend that carries its exchanges.
        machine: The machine, for its rates of memory and links; links that are slower than measured slow down all
            sends.
        cores: The measured rates of its cores.
    """
    stages = stages_of_ranks(run.workload.model, schedule_of(run), run.mesh)
    held = [[*itertools.chain(*own)] for own in stages]
    fixed, each = cores.overhead_seconds.get(run.name, (0.0, 0.0))
    ahead = run.workload.model.segments()[: first_trained(run.workload.model)]
    slowest = max(_pass_seconds(run, segments, cores, ahead) + each * len(segments) for segments in held)
    microbatches = run.microbatches
    few = min(microbatches, len(held))
    ledger, exchanges = _exchanges(run, few, backend, machine, cores)
    if microbatches > 2 * few:  # exchanges grow linearly with the micro-batches
        _, twice = _exchanges(run, 2 * few, backend, machine, cores)
        exchanges = {name: each + (twice[name] - each) * (microbatches / few - 1) for name, each in exchanges.items()}
    elif microbatches > few:
        ledger, exchanges = _exchanges(run, microbatches, backend, machine, cores)
    fullest = max(ledger.footprints, key=lambda footprint: footprint.state_bytes)
    of_axes: FieldValues = {part: exchanges[axis] for axis, part in PART_OF_AXIS.items()}
    return StepTime(
        compute=fixed + microbatches * slowest,
        **of_axes,
        pipeline_bubble=(len(held) - 1) / SCHEDULES[schedule_of(run)].stages_per_rank * slowest,
        # parameters and optimizer state are read and written, gradients read
        optimizer=(2 * fullest.state_bytes - fullest.gradients_bytes) / machine.memory_bytes_per_second,
    )


def _exchanges(
    run: Run, microbatches: int, backend: str, machine: Machine, cores: Cores
) -> tuple[Ledger, dict[str, float]]:
    """Returns the ledger of a step with that many micro-batches, and the seconds of its sends along each axis."""
    run = dataclasses.replace(run, batch_size=run.batch_size // run.microbatches * microbatches)
    run = with_microbatches(run, run.asked.schedule, microbatches)
    ledger, seconds = run.strategy.cost(run, backend), dict.fromkeys(PART_OF_AXIS, 0.0)
    for send in ledger.sends:
        seconds[axis_of(send)] += _send_seconds(send, machine, cores) / run.techniques.steps_of_period
    return ledger, seconds


def axis_of(send: Send) -> str:
    """Returns the axis to which a send belongs, a key of `PART_OF_AXIS`.

    Args:
        send: The send.
    """
    return send.group if send.group in PART_OF_AXIS and send.phase != "update" else "data"


def _pass_seconds(run: Run, segments: Sequence[Segment], cores: Cores, ahead: Sequence[Segment]) -> float:
    """Returns the seconds of a micro-batch's arithmetic on one rank; segments `ahead` of all trained ones only go forward."""
    model, parts = run.workload.model, run.mesh.parts("features")
    rows = run.batch_size // (run.mesh.replicas * run.microbatches)
    kept = KEPT[model.name](model, run.item_bytes) if model.name in KEPT else {}
    seconds = 0.0
    for segment in segments:
        params = parameters_of(model, segment).values()
        goes_back = segment not in ahead
        sizes = sum(param.size for param in params if param.role == "kernel")
        learning = num_trained(param for param in params if param.role == "kernel") / sizes if sizes else 1.0
        products = max(1, sum(param.role == "kernel" for param in params))
        size = (rows * segment.flops / parts / 2 / products) ** (1 / 3)
        seconds += (1 + goes_back + goes_back * learning) * rows * segment.flops / parts / _matmul_rate(cores, size)
        here = [kept[name] for name in (segment.name, f"{segment.name}{BEHIND}") if name in kept]
        elements = sum(each.on_rank(parts, False)[0] for each in here) or len(params) * math.prod(segment.outputs)
        seconds += rows * elements * cores.element_seconds * (1 if goes_back else 0.5)
    return seconds * (4 / 3 if computed_twice(run) else 1)


def _matmul_rate(cores: Cores, size: float) -> float:
    """Returns the rate for matrices of a size, interpolated between the two nearest sizes that were measured."""
    sizes = list(cores.matmul)
    place = bisect.bisect(sizes, size)
    if place in (0, len(sizes)):
        return cores.matmul[sizes[min(place, len(sizes) - 1)]]
    below, above = sizes[place - 1], sizes[place]
    share = (size - below) / (above - below)
    return (1 - share) * cores.matmul[below] + share * cores.matmul[above]


def _send_seconds(send: Send, machine: Machine, cores: Cores) -> float:
    """Returns the seconds of a record of sends. They were measured between two ranks: rings of n ranks take n - 1 turns."""
    turns = 1 if send.operation == "send" else send.ranks - 1
    share = {"all_reduce": 2 / send.ranks, "reduce_scatter": 2 / send.ranks, "broadcast": 1 / turns}.get(
        send.operation, 1.0
    )
    slower = cores.exchange_bytes_per_second["all_reduce"] / machine.node_bytes_per_second
    large = turns * share * send.bytes / cores.exchange_bytes_per_second[send.operation]
    return slower * (send.count * turns * cores.latency_seconds[send.operation] + large)
