"""The tensors of a script that has neither modules nor optimizers: the leaves of what its losses were computed with.

They are named as in the script. A script may also make new tensors in each step, and give them the old names.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

import torch

from samestep.common.steps.record import RecordedTensor
from samestep.torch_impl.recording.pieces import as_real, dtype_of, gradient_as_real, piece_of
from samestep.torch_impl.recording.tracked_tensor import TrackedTensor

_OURS = ("torch", "samestep")


class Leaves:
    """The leaves of each backward pass in turn."""

    def __init__(self) -> None:
        """Has seen none."""
        self._tensors: dict[str, torch.Tensor] = {}

    def note(self, named: Mapping[str, torch.Tensor]) -> None:
        """Looks at tensors that a script names.

        Args:
            named: The tensors by their names.
        """
        for name, each in named.items():
            before = self._tensors.get(name)
            if before is None or before.shape == each.shape:
                self._tensors[name] = each

    def follow(self, losses: Sequence[torch.Tensor]) -> None:
        """Looks at the tensors of a backward pass that begins.

        Args:
            losses: Where it begins.
        """
        known = {id(each) for each in self._tensors.values()}
        new = [each for each in _leaves_of(losses) if id(each) not in known]
        names = _names_in_frames({id(each) for each in new}) if new else {}
        for each in new:
            self.note({names.get(id(each), f"leaf.{len(self._tensors)}"): each})

    def held(self) -> list[TrackedTensor]:
        """Returns the tensors; each reads the one that has its name at the time."""
        return [self._held(name, each) for name, each in self._tensors.items()]

    def _held(self, name: str, tensor: torch.Tensor) -> TrackedTensor:
        info = RecordedTensor(name, dtype_of(tensor), piece_of(tensor))
        tensors = self._tensors
        return TrackedTensor(info, tensor, lambda: as_real(tensors[name].data), lambda: gradient_as_real(tensors[name]))


def _leaves_of(losses: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yields what a backward pass from some losses reaches, in the order of the graph."""
    waiting = [each.grad_fn for each in reversed(losses) if each.grad_fn is not None]
    seen = {*waiting}
    while waiting:
        node = waiting.pop()
        if isinstance(leaf := getattr(node, "variable", None), torch.Tensor):
            yield leaf
        for each, _ in reversed(node.next_functions):
            if each is not None and each not in seen:
                seen.add(each)
                waiting.append(each)


def _names_in_frames(wanted: set[int]) -> dict[int, str]:
    """Finds what the functions that are running call some tensors: the innermost that is neither torch's nor ours comes first."""
    found: dict[int, str] = {}
    frame: FrameType | None = sys._getframe()
    while frame is not None and len(found) < len(wanted):
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _OURS:
            for scope in (frame.f_locals, frame.f_globals):
                for name, each in _tensors_in(scope):
                    if id(each) in wanted:
                        found.setdefault(id(each), name)
        frame = frame.f_back
    return found


def _tensors_in(scope: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yields the values of variables, of lists and mappings, and of the attributes of objects."""
    for name, value in list(scope.items()):
        yield name, value
        if isinstance(value, list | tuple):
            yield from ((f"{name}.{place}", each) for place, each in enumerate(value))
        elif isinstance(value, dict):
            yield from ((f"{name}.{key}", each) for key, each in value.items())
        elif name == "self":
            yield from vars(value).items() if hasattr(value, "__dict__") else ()
