"""Tells whether an optimizer steps within the step of another one or of its own parent class, rather than after a failed one."""

import sys
from types import FrameType

import torch.optim.optimizer as optimizers


class Nesting:
    """The steps in progress, as the frames of torch that run them, outermost first."""

    def __init__(self) -> None:
        """Starts with no step."""
        self.frames: list[FrameType] = []  # public, because a call costs more than a look

    def enter(self) -> bool:
        """Handles the start of a step; returns whether it is the outermost."""
        running = frame = _frame_above(sys._getframe())
        if self.frames:  # one of them may have raised
            found = {running}
            while running.f_back is not None:
                found.add(running := _frame_above(running))
            self.frames = [each for each in self.frames if each in found]
        self.frames.append(frame)
        return len(self.frames) == 1

    def leave(self) -> None:
        """Handles the end of a step."""
        if len(self.frames) > 1 and (frame := _frame_above(sys._getframe())) in self.frames:
            self.frames = self.frames[: self.frames.index(frame)]
        else:
            self.frames = []


def _frame_above(frame: FrameType) -> FrameType:
    """Returns the next frame above that runs a step in torch; the outermost frame if there is none."""
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == optimizers.__file__:
            break
    return frame
