"""The timeline of a rank in a pipeline's step: the events of its stages, and its busy and idle time."""

import collections
import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from samestep.torch_impl.observing.recorder import SendRecorder
from samestep.torch_impl.profiling import named_pass
from samestep.torch_impl.step import KEPT_STEPS

if TYPE_CHECKING:
    from torch.distributed.pipelining import PipelineStage


@dataclasses.dataclass(frozen=True)
class Event:
    """One computation of a stage.

    Attributes:
        kind: "F" for forward, "B" for the whole backward, "I" for its part for the inputs, "W" for its part for the weights.
        stage: The index of the stage.
        microbatch: The number of the micro-batch.
        start: The start, in seconds since the step's start.
        end: The end, in seconds since the step's start.
    """

    kind: str
    stage: int
    microbatch: int
    start: float
    end: float


_BEGIN = {
    "forward_one_chunk": "forward",
    "get_fwd_send_ops": "forward",
    "backward_one_chunk": "backward",
    "get_bwd_send_ops": "backward",
}
"""Method of torch's `PipelineStage` -> the phase of the step to which messages sent in it or after it belong."""


class Timeline:
    """The events of the last step, and the busy and whole seconds of the last `KEPT_STEPS` steps."""

    def __init__(self, recorder: SendRecorder) -> None:
        self._recorder = recorder
        self.events: list[Event] = []
        self._steps: collections.deque[tuple[float, float]] = collections.deque(maxlen=KEPT_STEPS)
        self._start = 0.0

    def watch(self, stage: "PipelineStage") -> None:
        """Records the computations of a stage as events from now on.

        A schedule computes through three methods of torch's `PipelineStage` (the same in torch 2.6 to 2.13).
        """
        for kind, name in (("F", "forward"), ("B", "backward"), ("W", "backward_weight")):
            method = f"{name}_one_chunk"
            setattr(stage, method, self._timed(getattr(stage, method), stage.stage_index, kind))
        # torch asks for a message before it sends it, and asks for no other in between.
        for method, phase in _BEGIN.items():
            setattr(stage, method, self._recorder.entering(phase, getattr(stage, method)))

    def _timed(self, compute: Callable[..., object], stage: int, kind: str) -> Callable[..., object]:
        def timed(microbatch: int, *arguments: object, **options: object) -> object:
            chosen = kind if options.get("full_backward", True) else "I"  # schedules pass it by keyword
            start = time.perf_counter()
            with named_pass(chosen, stage, microbatch):
                result = compute(microbatch, *arguments, **options)
            end = time.perf_counter()
            self.events.append(Event(chosen, stage, microbatch, start - self._start, end - self._start))
            return result

        return timed

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Returns the context in which all micro-batches pass through the stages."""
        self.events.clear()
        self._start = time.perf_counter()
        yield
        whole = time.perf_counter() - self._start
        self._steps.append((sum(event.end - event.start for event in self.events), whole))

    def measures(self) -> Mapping[str, float]:
        """Returns the medians over the last steps, without the first step of a run, which also prepares the stages."""
        steps = list(self._steps)[1:] or self._steps
        return {
            "busy_seconds": statistics.median(busy for busy, _ in steps),
            "idle_seconds": statistics.median(whole - busy for busy, whole in steps),
        }
