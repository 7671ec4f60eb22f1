"""Finds out by experiment why a forward pass in training may be another function on a shard of a batch.

Causes are distinguished by what makes them disappear. Random draws: another seed, or holding draws still, changes the outputs.
Buffers that training updates: using the updated ones changes the outputs, unless their layers are in evaluation mode. Mixing of
examples: the outputs for half of a batch are not half of the outputs. Any other state: a second call gives different outputs.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.workload.models.findings import Habits
from samestep.common.workload.models.returned import Shaped
from samestep.common.workload.reductions import MEAN, SUM

EXAMPLES = 4
"""The number of examples that are tried: half of them still have a variance."""
HALVES = (0, EXAMPLES // 2), (EXAMPLES // 2, EXAMPLES)
FORWARD_PASS = "its forward pass"
"""The name that stands for the model itself if something happens outside of all layers."""
LOSS = "its loss"
_MIXED = 1e-5
"""How far apart the outputs for an example may be, relative to the largest, if other examples do not affect them. A forward pass
that computes partly in float32 is off by less."""
Rows = tuple[int, int]
Arrays = TypeVar("Arrays")


def cut(arrays: Arrays, rows: Rows) -> Arrays:
    """Returns some rows of a tensor, or of several tensors by name.

    Args:
        arrays: The tensor or tensors, of any framework.
        rows: The first row, and the row after the last.
    """
    if isinstance(arrays, Mapping):
        return {name: one[slice(*rows)] for name, one in arrays.items()}  # type: ignore[return-value]
    return arrays[slice(*rows)]  # type: ignore[index]


@dataclasses.dataclass(frozen=True, eq=False)
class ProbedPass:
    """A forward pass in training.

    Attributes:
        outputs: The outputs of every example.
        buffers: The buffers after the first call, by neutral name.
        drawing: The layers in which random numbers were drawn.
        losses: The user's own losses for the first call, for each target or for all; None if the loss is one of ours.
        again: The outputs of a second call with the same seed and buffers; None if there was none.
    """

    outputs: np.ndarray
    buffers: Mapping[str, np.ndarray]
    drawing: tuple[str, ...] = ()
    losses: np.ndarray | None = None
    again: np.ndarray | None = None

    @property
    def is_the_same_again(self) -> bool:
        """Whether there was a second call, with the same outputs."""
        return self.again is not None and _are_same(self.outputs, self.again)


@dataclasses.dataclass(frozen=True, eq=False)
class SeenLayer:
    """The first call of a layer in a forward pass.

    Attributes:
        path: The path of the layer in the model.
        tensors: The inputs of the layer, and its first result.
        again: Computes that result for some rows only.
    """

    path: str
    tensors: Sequence[Shaped]
    again: Callable[[Rows], np.ndarray]

    def is_of_examples(self) -> bool:
        """Returns whether it has tensors as inputs, and all of them and its result have a row for each example."""
        return len(self.tensors) > 1 and all(tuple(each.shape)[:1] == (EXAMPLES,) for each in self.tensors)


@dataclasses.dataclass(frozen=True, kw_only=True)
class How:
    """The options of a forward pass.

    Attributes:
        seed: The seed of all random numbers.
        rows: The first example, and the example after the last.
        is_still: Whether draws are held still.
        is_frozen: Whether batch normalizations, and the layers of `running`, are in evaluation mode.
        running: As in `Habits`.
        buffers: The buffers that differ from the initial ones, by neutral name.
        is_twice: Whether the model is called a second time from the same state.
    """

    seed: int = 0
    rows: Rows = (0, EXAMPLES)
    is_still: bool = True
    is_frozen: bool = False
    running: tuple[str, ...] = ()
    buffers: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    is_twice: bool = False


class ProbedModel(Protocol):
    """A user's model on a few examples, which is reset for every experiment."""

    initial: Mapping[str, np.ndarray]
    """The initial buffers, by neutral name."""
    normalizing: Collection[str]
    """The names of the buffers of batch normalizations."""
    reduction: str
    """How a batch's loss is computed from the user's own losses, as in `declaration.REDUCTIONS`."""
    losses_only: bool
    """Whether its only outputs are the loss that it computes for all examples."""

    def take(self, how: How) -> ProbedPass:
        """Passes the examples through the model.

        Args:
            how: The options of the pass.
        """

    def layers(self, how: How) -> Iterator[SeenLayer]:
        """Yields the layers whose first result consists of real numbers, innermost first, as long as they can be called alone."""


def find_habits(probe: ProbedModel) -> Habits:
    """Finds what a forward pass depends on besides an example and the weights."""
    plain, still = probe.take(How(is_still=False, is_twice=True)), probe.take(How(is_twice=True))
    if not still.is_the_same_again:
        return Habits(is_steady=False)  # its other state could be taken for any habit
    others = [probe.take(How(seed=1, is_still=is_still)).outputs for is_still in (False, True)]
    is_random = not (_are_same(plain.outputs, others[0]) and plain.is_the_same_again)
    # The forward pass has its own seed.
    is_random |= bool(plain.drawing) and not _are_same(plain.outputs, still.outputs)
    running, restless = _find_running(probe, still)
    return Habits(
        randoms=(plain.drawing or (FORWARD_PASS,)) if is_random else (),
        are_stilled=_are_same(still.outputs, others[1]),
        running=running,
        restless=restless,
        mixing=_find_mixing(probe, How(is_frozen=True, running=running)),
    )


def _find_running(probe: ProbedModel, still: ProbedPass) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the buffers that a pass updates and its outputs depend on: those that evaluation leaves unchanged, and others."""
    moved = {
        n: v for n, v in still.buffers.items() if n not in probe.normalizing and not _are_same(v, probe.initial[n])
    }
    if not moved or _are_same(probe.take(How(buffers=moved)).outputs, still.outputs):
        return (), ()
    found = [n for n, v in moved.items() if not _are_same(probe.take(How(buffers={n: v})).outputs, still.outputs)]
    frozen = probe.take(How(is_frozen=True, running=tuple(found)))
    kept = [name for name in found if _are_same(frozen.buffers[name], probe.initial[name])]
    return tuple(kept), tuple(name for name in found if name not in kept)


def _find_mixing(probe: ProbedModel, how: How) -> tuple[str, ...]:
    """Returns the layers that mix examples; only the loss, if it does and they do not."""
    whole = probe.take(how)
    if len(whole.outputs) != EXAMPLES or not np.isfinite(whole.outputs).all():
        return ()  # too few to be halved, or without a row for each example
    halves = [probe.take(dataclasses.replace(how, rows=half)) for half in HALVES]
    if not probe.losses_only and not _are_halves(whole.outputs, [half.outputs for half in halves]):
        return _mixing_layers(probe, how) or (FORWARD_PASS,)
    parts = [half.losses for half in halves if half.losses is not None]
    if whole.losses is None or _are_parts(whole.losses, parts, probe.reduction):
        return ()
    return (_mixing_layers(probe, how) if probe.losses_only else ()) or (LOSS,)


def _mixing_layers(probe: ProbedModel, how: How) -> tuple[str, ...]:
    """Returns the innermost layers whose outputs for an example depend on others, as far as they can be called alone."""
    found: list[str] = []
    for layer in probe.layers(how):
        if not layer.is_of_examples() or any(name.startswith((f"{layer.path}.", f"{layer.path}/")) for name in found):
            continue
        if not _are_halves(np.asarray(layer.tensors[-1]), [layer.again(half) for half in HALVES]):
            found.append(layer.path)
    return tuple(found)


def _are_parts(whole: np.ndarray, parts: list[np.ndarray], reduction: str) -> bool:
    """Returns whether losses are those of the halves, or a single number is their mean or their sum, as declared.

    Raises:
        ConfigError: The number is the mean where the sum was declared, or the other way round.
    """
    if whole.ndim and whole.shape == np.concatenate(parts).shape:
        return _are_halves(whole, parts)
    total = float(np.sum([part.sum() for part in parts]))
    is_sum, is_mean = (abs(each - whole.sum()) <= _MIXED * abs(whole.sum()) for each in (total, total / len(parts)))
    if whole.any() and is_sum != is_mean and is_sum != (reduction != MEAN):
        found, wanted = ("a sum over", SUM) if is_sum else ("a mean over", MEAN)
        raise ConfigError(f"the loss is {found} the examples that it is given; say reduction='{wanted}'.")
    return is_sum or is_mean


def _are_same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _are_halves(whole: np.ndarray, parts: list[np.ndarray]) -> bool:
    joined = np.concatenate(parts)
    if joined.shape != whole.shape:
        return False
    return bool(np.abs(joined - whole).max(initial=0.0) <= _MIXED * np.abs(whole).max(initial=0.0))
