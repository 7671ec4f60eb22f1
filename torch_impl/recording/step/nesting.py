"""Whether an optimizer steps within the step of another one, or of its own class's parent, and not after one that has raised."""

import sys
from types import FrameType

import torch.optim.optimizer as optimizers


class Nesting:
    """The steps that have begun, by the frames of torch that run them, the outermost first."""

    def __init__(self) -> None:
        """No step has begun."""
        self.frames: list[FrameType] = []  # in public, since a call costs more than to look

    def enter(self) -> bool:
        """A hook is called before a step; returns whether that is within no other one."""
        running = frame = _frame_above(sys._getframe())
        if self.frames:  # else one has raised
            found = {running}
            while running.f_back is not None:
                found.add(running := _frame_above(running))
            self.frames = [each for each in self.frames if each in found]
        self.frames.append(frame)
        return len(self.frames) == 1

    def leave(self) -> None:
        """A hook is called after a step."""
        if len(self.frames) > 1 and (frame := _frame_above(sys._getframe())) in self.frames:
            self.frames = self.frames[: self.frames.index(frame)]
        else:
            self.frames = []


def _frame_above(frame: FrameType) -> FrameType:
    """Returns the frame of torch above one that runs a step now; the outermost frame of all if there is none."""
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == optimizers.__file__:
            break
    return frame
