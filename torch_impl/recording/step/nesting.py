"""Whether an optimizer steps within the step of another one, or of its own class's parent, and not after one that has raised."""

import sys
from collections.abc import Iterator
from types import FrameType

import torch.optim.optimizer as optimizers


class Nesting:
    """The steps that have begun, by the frames of torch that run them, the outermost first."""

    def __init__(self) -> None:
        """None has."""
        self._frames: list[FrameType] = []

    def __bool__(self) -> bool:
        """Whether any has begun."""
        return bool(self._frames)

    def enter(self) -> bool:
        """A hook is called before a step; returns whether that is within no other one."""
        running = [*_frames_above()] if self._frames else []  # else one has raised
        self._frames = [each for each in self._frames if each in running]
        self._frames.append(next(_frames_above()))
        return len(self._frames) == 1

    def leave(self) -> None:
        """A hook is called after a step."""
        frame = next(_frames_above())
        self._frames = self._frames[: self._frames.index(frame)] if frame in self._frames else []


def _frames_above() -> Iterator[FrameType]:
    """Yields the frames of torch that run steps now, the innermost first; at last the outermost frame of all."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == optimizers.__file__:
            yield frame
    yield frame
