"""What a rank computed when in a pipeline's step: the events of its stages, and its busy and idle time."""

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol


class ChunkedStage(Protocol):
    """The part of torch's `PipelineStage` through which a schedule computes (the same in torch 2.6 to 2.13)."""

    stage_index: int
    forward_one_chunk: Callable[..., object]
    backward_one_chunk: Callable[..., object]
    backward_weight_one_chunk: Callable[..., object]


@dataclasses.dataclass(frozen=True)
class Event:
    """One computation.

    Attributes:
        kind: "F" forward, "B" whole backward, "I" the part for the inputs, "W" the part for the weights.
        stage: Its index.
        microbatch: Its number.
        start: In seconds since the step's start.
        end: Likewise.
    """

    kind: str
    stage: int
    microbatch: int
    start: float
    end: float


class Timeline:
    """The events of the last step, and the sums of all."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._steps: list[tuple[float, float]] = []
        self._start = 0.0

    def watch(self, stage: ChunkedStage) -> None:
        """Records the stage's computations as events from now on."""
        stage.forward_one_chunk = self._timed(stage.forward_one_chunk, stage.stage_index, "F")
        stage.backward_weight_one_chunk = self._timed(stage.backward_weight_one_chunk, stage.stage_index, "W")
        whole = self._timed(stage.backward_one_chunk, stage.stage_index, "B")
        inputs = self._timed(stage.backward_one_chunk, stage.stage_index, "I")

        def backward_one_chunk(
            bwd_chunk_id: int, loss: object = None, full_backward: bool = True, last_backward: bool = False
        ) -> object:
            chosen = whole if full_backward else inputs
            return chosen(bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward)

        stage.backward_one_chunk = backward_one_chunk

    def _timed(self, compute: Callable[..., object], stage: int, kind: str) -> Callable[..., object]:
        def timed(microbatch: int, *arguments: object, **options: object) -> object:
            start = time.perf_counter()
            result = compute(microbatch, *arguments, **options)
            end = time.perf_counter()
            self.events.append(Event(kind, stage, microbatch, start - self._start, end - self._start))
            return result

        return timed

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Makes the context of a pass of all micro-batches."""
        self.events.clear()
        self._start = time.perf_counter()
        yield
        whole = time.perf_counter() - self._start
        self._steps.append((sum(event.end - event.start for event in self.events), whole))

    def measures(self) -> Mapping[str, float]:
        """The medians over all steps but the first, which also prepares the stages."""
        steps = self._steps[1:] or self._steps
        return {
            "busy_seconds": statistics.median(busy for busy, _ in steps),
            "idle_seconds": statistics.median(whole - busy for busy, whole in steps),
        }
