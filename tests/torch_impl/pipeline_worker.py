"""A worker that keeps its timeline, or to which something happens: `TROUBLE` names one of the functions below."""

import dataclasses
import json
import os
import signal
from pathlib import Path

from samestep.common.runtime.worker import worker


def _before_chunk_in_step_3(happens) -> None:
    from samestep.torch_impl.pipeline import stage_events as scheduled

    plain, steps = scheduled.Timeline.step, []

    def step(timeline):
        steps.append(timeline)
        return plain(timeline)

    watch = scheduled.Timeline.watch

    def watched(timeline, stage):
        watch(timeline, stage)
        forward = stage.forward_one_chunk

        def forward_one_chunk(microbatch, *arguments, **options):
            if len(steps) == 3 and microbatch == 2:
                happens()
            return forward(microbatch, *arguments, **options)

        stage.forward_one_chunk = forward_one_chunk

    scheduled.Timeline.step, scheduled.Timeline.watch = step, watched


def second_rank_is_killed() -> None:
    if os.environ["RANK"] == "1":
        _before_chunk_in_step_3(lambda: os.kill(os.getpid(), signal.SIGKILL))


def sixth_rank_has_no_memory() -> None:
    if os.environ["RANK"] == "5":
        import torch

        _before_chunk_in_step_3(lambda: torch.empty(1 << 46, dtype=torch.uint8))


def second_rank_never_comes() -> None:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGSTOP)


def server_is_killed() -> None:
    if os.environ["RANK"] == "2":
        from samestep.torch_impl.parameter_server.server import Server

        plain = Server.push

        def push(server, rank, pushed):
            *_, version = pushed
            if version == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(server, rank, pushed)

        Server.push = push


def keeps_its_timeline(run: Path) -> None:
    from samestep.torch_impl.pipeline.stage_events import Timeline

    plain = Timeline.measures

    def measures(timeline):
        events = [dataclasses.asdict(event) for event in timeline.events]
        (run / f"timeline-{os.environ['RANK']}.json").write_text(json.dumps(events))
        return plain(timeline)

    Timeline.measures = measures


def main(arguments: list[str]) -> int:
    """Lets it happen, then does what every worker does."""
    trouble = os.environ.get("TROUBLE")
    if trouble:
        globals()[trouble]()
    else:
        keeps_its_timeline(Path(arguments[0]))
    return worker.main(arguments)
