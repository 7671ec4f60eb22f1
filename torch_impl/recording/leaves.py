"""The tensors of a script with neither modules nor optimizers: the leaves from which its losses were computed.

They are named as in the script. A script may also create new tensors in each step under the old names.
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
    """Collects the leaves of all backward passes, by name."""

    def __init__(self) -> None:
        """Starts with no leaves."""
        self._tensors: dict[str, torch.Tensor] = {}

    def note(self, named: Mapping[str, torch.Tensor]) -> None:
        """Adds tensors under the names that the script has for them.

        Args:
            named: The tensors by name.
        """
        for name, each in named.items():
            before = self._tensors.get(name)
            if before is None or before.shape == each.shape:
                self._tensors[name] = each

    def follow(self, losses: Sequence[torch.Tensor]) -> None:
        """Adds the leaves of a backward pass that begins.

        Args:
            losses: The losses from which it begins.
        """
        known = {id(each) for each in self._tensors.values()}
        new = [each for each in _leaves_of(losses) if id(each) not in known]
        names = _names_in_frames({id(each) for each in new}) if new else {}
        for each in new:
            self.note({names.get(id(each), f"leaf.{len(self._tensors)}"): each})

    def held(self) -> list[TrackedTensor]:
        """Returns the tensors; each reads the tensor that has its name when it is read."""
        return [self._held(name, each) for name, each in self._tensors.items()]

    def _held(self, name: str, tensor: torch.Tensor) -> TrackedTensor:
        info = RecordedTensor(name, dtype_of(tensor), piece_of(tensor))
        tensors = self._tensors
        return TrackedTensor(info, tensor, lambda: as_real(tensors[name].data), lambda: gradient_as_real(tensors[name]))


def _leaves_of(losses: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yields the leaves that a backward pass from some losses reaches, in the order of the graph."""
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
    """Returns the names of tensors in the running functions, innermost first, leaving out functions of torch and ours."""
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
    """Yields the values of variables, the items of lists and mappings among them, and the attributes of `self`."""
    for name, value in list(scope.items()):
        yield name, value
        if isinstance(value, list | tuple):
            yield from ((f"{name}.{place}", each) for place, each in enumerate(value))
        elif isinstance(value, dict):
            yield from ((f"{name}.{key}", each) for key, each in value.items())
        elif name == "self":
            yield from vars(value).items() if hasattr(value, "__dict__") else ()
