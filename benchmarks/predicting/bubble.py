"""Measures how much of a pipeline's step is idle, and compares it with the prediction.

`python -m benchmarks.predicting.bubble` prints a row per size and schedule.

Stages sleep instead of computing, so ranks do not contend for cores and only the schedule is measured. The prediction is
the longest path through the events that the schedule orders (see tests/torch_impl/test_schedules.py). Each event is as long as
its stage sleeps plus a fixed cost per micro-batch, which is measured first with stages that do not sleep. Results are sent to
the next rank as soon as they are ready; if DualPipeV pairs a forward and a backward, when both are ready.
"""

import argparse
import dataclasses
import multiprocessing
import os
import statistics
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from samestep.common.runtime.parent.processes.network import free_ports
from samestep.common.workload.pipeline_schedule import SCHEDULES
from samestep.experiments.printing.text import github
from samestep.torch_impl.observing.recorder import SendRecorder
from samestep.torch_impl.pipeline.stage_events import Event, Timeline

SIZES = ((2, 2), (2, 4), (2, 8), (4, 4), (4, 8), (4, 16))
SECONDS = 0.03
"""The seconds that a rank sleeps per micro-batch in each of forward, backward for inputs, and backward for weights."""
STEPS = 5
Key = tuple[str, int, int]
"""Kind, stage and micro-batch of an event."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measurements of a rank.

    Attributes:
        steps: For each step, its events and its seconds.
        pairs: Forward -> the backward together with which its result is sent.
    """

    steps: list[tuple[list[Event], float]]
    pairs: dict[Key, Key]


class _Sleep(torch.autograd.Function):
    """The identity, which sleeps in the forward and in the backward pass."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor, ahead: float, back: float) -> torch.Tensor:
        ctx.back = back
        time.sleep(ahead)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        time.sleep(ctx.back)
        return gradient, None, None


class SleepingStage(nn.Module):
    """A stage that sleeps once forward, once for the gradient of its inputs and once for that of its weight.

    The inputs of the first stage have no gradient. Its weight sleeps twice, so all stages take the same time.
    """

    def __init__(self, seconds: float, first: bool) -> None:
        super().__init__()
        self.seconds = seconds
        self.weight_seconds = 2 * seconds if first else seconds
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the inputs after sleeping."""
        return _Sleep.apply(x, self.seconds, self.seconds) + _Sleep.apply(self.weight, 0.0, self.weight_seconds)


def rank_main(
    rank: int, ranks: int, port: int, schedule: str, microbatches: int, seconds: float, results: object
) -> None:
    """Takes a few steps, and reports the events and the seconds of each."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    placement = SCHEDULES[schedule]
    stage_ranks = placement.stage_ranks(ranks)
    timeline = Timeline(SendRecorder("pipe"))
    chunks = []
    for index in (index for index, holder in enumerate(stage_ranks) if holder == rank):
        stage = SleepingStage(seconds / placement.stages_per_rank, first=index == 0)
        chunks.append(PipelineStage(stage, index, len(stage_ranks), torch.device("cpu")))
        timeline.watch(chunks[-1])
    runs = get_schedule_class(schedule.replace("_", ""))(
        chunks if placement.stages_per_rank > 1 else chunks[0],
        n_microbatches=microbatches,
        loss_fn=lambda out, target: out.sum(),
        scale_grads=False,
    )
    steps: list[tuple[list[Event], float]] = []
    for _ in range(STEPS + 1):
        dist.barrier()
        start = time.perf_counter()
        with timeline.step():
            inputs = (torch.zeros(microbatches, 1),) if stage_ranks[0] == rank else ()
            runs.step(
                *inputs, target=torch.zeros(microbatches, 1) if stage_ranks[-1] == rank else None, return_outputs=False
            )
        steps.append((list(timeline.events), time.perf_counter() - start))
    results.put((rank, Measured(steps[1:], _pairs(runs, rank))))
    dist.destroy_process_group()


def _pairs(schedule: object, rank: int) -> dict[Key, Key]:
    """Returns the pairs of a forward and a backward that DualPipeV computes as one action (torch 2.13)."""
    actions = getattr(schedule, "pipeline_order_with_comms", {}).get(rank, [])
    pairs = [action.sub_actions for action in actions if action.sub_actions]
    return {
        ("F", ahead.stage_index, ahead.microbatch_index): ("B", back.stage_index, back.microbatch_index)
        for ahead, back in pairs
    }


def measure(ranks: int, schedule: str, microbatches: int, seconds: float) -> list[Measured]:
    """Returns the measurements of every rank, after one step that prepares the stages."""
    context = multiprocessing.get_context("fork")
    results, (port,) = context.Queue(), free_ports(1)
    arguments = [(rank, ranks, port, schedule, microbatches, seconds, results) for rank in range(ranks)]
    workers = [context.Process(target=rank_main, args=each) for each in arguments]
    for worker in workers:
        worker.start()
    found = dict(results.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    return [found[rank] for rank in range(ranks)]


def fixed_seconds() -> float:
    """Returns the cost of an event besides its sleep (receiving, dispatching, sending), on two ranks with a core each."""
    idle = [measure(2, "gpipe", 8, 0.0) for _ in range(3)]
    return min(whole / len(events) for run in idle for rank in run for events, whole in rank.steps)


def measured_bubble(ranks: Sequence[Measured]) -> float:
    """Returns the share of time in which ranks did not compute, as the median over the steps."""
    shares = []
    for each in zip(*(rank.steps for rank in ranks), strict=True):
        whole = max(seconds for _, seconds in each)
        busy = statistics.mean(sum(event.end - event.start for event in events) for events, _ in each)
        shares.append(1 - busy / whole)
    return statistics.median(shares)


def predicted_bubble(ranks: Sequence[Measured], seconds: float, fixed: float) -> float:
    """Returns the share of idle time on the longest path through the events in the order of each rank.

    Args:
        ranks: The ranks; only the orders of their events count, not their times.
        seconds: The seconds of a forward, of an input part or of a weight part; a whole backward takes twice as long.
        fixed: The additional seconds of every event.
    """
    orders = [rank.steps[0][0] for rank in ranks]
    partners = {key: partner for rank in ranks for key, partner in rank.pairs.items()}
    holder = {event.stage: rank for rank, order in enumerate(orders) for event in order}
    takes = {"F": seconds, "B": 2 * seconds, "I": seconds, "W": seconds}
    ended: dict[Key, float] = {}
    free = [0.0] * len(orders)
    left = [list(order) for order in orders]
    busy = 0.0

    def arrival(key: Key, rank: int) -> float | None:
        return ended.get(key if holder[key[1]] == rank else partners.get(key, key))

    while any(left):
        for rank, queue in enumerate(left):
            while queue:
                event = queue[0]
                arrivals = [[arrival(key, rank) for key in each] for each in _needs(event, max(holder))]
                ready = [next((time for time in each if time is not None), None) for each in arrivals]
                if None in ready:
                    break
                queue.pop(0)
                duration = 2 * seconds if event.kind == "W" and event.stage == 0 else takes[event.kind]
                duration = 0.0 if event.kind == "I" and event.stage == 0 else duration  # torch computes all of it in W
                busy += duration
                free[rank] = max([free[rank], *(time for time in ready if time is not None)]) + duration + fixed
                ended[event.kind, event.stage, event.microbatch] = free[rank]
    return 1 - busy / len(orders) / max(free)


def _needs(event: Event, last: int) -> list[list[Key]]:
    """Returns lists of events for which an event waits; one of each list is enough."""
    needs: list[list[Key]] = []
    if event.kind == "F" and event.stage:
        needs.append([("F", event.stage - 1, event.microbatch)])
    if event.kind in "BI":
        needs.append([("F", event.stage, event.microbatch)])
        if event.stage < last:
            needs.append([(kind, event.stage + 1, event.microbatch) for kind in "BI"])
    return needs


def main() -> None:
    """Prints one row per size and schedule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, help="only this many")
    parser.add_argument("--schedule", choices=list(SCHEDULES), help="only this one")
    asked = parser.parse_args()
    fixed = fixed_seconds()
    print(f"fixed cost per event: {1000 * fixed:.2f} ms")
    rows = []
    for ranks, microbatches in SIZES:
        for schedule, placement in SCHEDULES.items():
            too_few = placement.fills_stages and microbatches < placement.stages_per_rank * ranks
            if too_few or asked.ranks not in (None, ranks) or asked.schedule not in (None, schedule):
                continue
            done = measure(ranks, schedule, microbatches, SECONDS)
            measured = 100 * measured_bubble(done)
            predicted = 100 * predicted_bubble(done, SECONDS / placement.stages_per_rank, fixed)
            textbook = 100 * (ranks - 1) / (placement.stages_per_rank * microbatches + ranks - 1)
            shown = "" if "zero" in schedule or schedule == "dualpipev" else f"{textbook:.1f}"
            columns = [f"{measured:.1f}", f"{predicted:.1f}", f"{measured - predicted:+.1f}", shown]
            rows.append([ranks, microbatches, schedule, *columns])
            print(rows[-1], flush=True)
    headers = ["ranks", "micro-batches", "schedule", "idle %", "predicted %", "apart", "textbook %"]
    print(github(headers, [[*map(str, row)] for row in rows]))


if __name__ == "__main__":
    main()
