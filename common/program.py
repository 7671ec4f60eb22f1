"""The contract of what runs inside a process: Program, and the TrainState that it saves and restores."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from samestep.common.ledger import Footprint, Send

if TYPE_CHECKING:
    import numpy as np

    from samestep.common.batch import Batch

Arrays = dict[str, "np.ndarray"]
"""Arrays by neutral name."""
RESIDUAL, SUM_RESIDUAL = "residual", "sum_residual"
"""Prefixes of parameter names in the local state: what an exchange left out of the rank's own gradient, and of a sum."""
WEIGHT, SHARED, OUTER = "weight", "shared", "outer"
"""The same for local steps: the rank's own weights, those with which its period began, and the outer optimizer's momentum."""
OF_PARAMETERS = (RESIDUAL, SUM_RESIDUAL, WEIGHT, SHARED, OUTER)
"""The local arrays that have the shape of the parameter."""
SKIPPED = "skipped_steps"
"""The name in the local state of the steps whose updates a loss scaler skipped."""


@dataclasses.dataclass(frozen=True, eq=False)
class TrainState:
    """A training run between two steps: whole, unsharded, in neutral names and layout.

    Attributes:
        step: How many steps have been taken.
        params: Parameter name -> array.
        slots: Optimizer state: its name (as in `OptimizerSpec.state`) -> parameter name -> array.
        buffers: What the model keeps in addition to its parameters, such as running statistics: neutral name -> array.
        local: What each rank keeps for itself, such as residuals or a scaler: one mapping name -> array for each rank, or none.
            It is restored only on the same number of devices and otherwise reset.
        skipped: How many of the steps took no update, because their gradients overflowed in fp16.
        counts: Parameter name -> how many updates it has taken, for parameters that some updates left out.
    """

    step: int
    params: Arrays
    slots: dict[str, Arrays]
    buffers: Arrays = dataclasses.field(default_factory=dict)
    local: tuple[Arrays, ...] = ()
    skipped: int = 0
    counts: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def updates(self) -> int:
        """How many updates the optimizer has taken; AdamW's bias correction depends on it."""
        return self.step - self.skipped

    def updates_of(self, name: str) -> int:
        """Returns how many updates a parameter has taken."""
        return self.counts.get(name, self.updates)


@dataclasses.dataclass(frozen=True, eq=False)
class StatePiece:
    """A rectangular part of an array of a TrainState.

    Attributes:
        path: Where the array is in the state, as in `params/hidden/kernel` or `slots/momentum/hidden/kernel`.
        offset: Where the part begins, in each dim.
        shape: The shape of the whole array.
        array: The part.
    """

    path: str
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    array: "np.ndarray"


def whole(path: str, array: "np.ndarray") -> StatePiece:
    """Makes a piece that is a whole array.

    Args:
        path: The path of the array in the state.
        array: The array.
    """
    return StatePiece(path, (0,) * array.ndim, array.shape, array)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hardware:
    """The hardware on which a program actually ran, as the program found out itself.

    Attributes:
        note: Its devices, in words.
        backend: What carried its exchanges: "memory" (within one process), "gloo", "nccl", "grpc" or "tensorpipe".
        emulation: What ran instead of the strategy's own API, in words; "" if nothing did.
    """

    note: str
    backend: str = "memory"
    emulation: str = ""


class Program(Protocol):
    """A model in training, seen from one process.

    Every method is collective: all processes call it in the same order. Only what rank 0 returns counts.

    Attributes:
        hardware: The hardware on which it actually ran.
    """

    hardware: Hardware

    def step(self, batch: "Batch") -> None:
        """Takes one optimizer step on a GLOBAL batch; sends nothing just for reporting."""

    def losses(self) -> list[float]:
        """Returns the GLOBAL mean loss of every step since the last call; reduced once, outside the timed part."""

    def agree(self, value: float) -> float:
        """Returns the mean of a number over the processes that train, so all of them decide alike; also synchronizes them."""

    def predict(self, inputs: "np.ndarray") -> "np.ndarray":
        """Returns the logits [global_batch_size, ...] of a full global batch of inputs."""

    def state(self) -> TrainState:
        """Returns step, parameters and optimizer state: whole, unsharded, with neutral names and layout."""

    def shards(self) -> Sequence[StatePiece] | None:
        """Returns this process's part of the state to save, each number once; None if rank 0 saves what `state` returns."""

    def restore(self, state: TrainState) -> None:
        """Restores what `state` returned under any strategy of any framework; every process gets the whole state."""

    def observe(self, batch: "Batch") -> None:
        """Takes one more step, untimed and under observation: `sends` and `footprint` report it."""

    def sends(self) -> tuple[Send, ...]:
        """Returns what this process sent in the observed step, in order; must be called before `footprint`."""

    def footprint(self) -> tuple[Footprint, ...]:
        """Returns one footprint for each device that this process knows of: a chief also reports its servers."""

    def measures(self) -> Mapping[str, float]:
        """Returns the strategy's own quantities, as declared in its row."""

    def sync(self) -> None:
        """Returns when all requested work is done; timing windows start and end here."""

    def close(self) -> None:
        """Leaves the group of processes."""


class PlainProgram:
    """What a `Program` does unless it has a reason to do something else."""

    def agree(self, value: float) -> float:
        """Returns the value, as no other process has losses."""
        return value

    def shards(self) -> Sequence[StatePiece] | None:
        """Returns None, as rank 0 saves the whole state."""

    def observe(self: Program, batch: "Batch") -> None:
        """Takes the observed step, like any other."""
        self.step(batch)

    def measures(self) -> Mapping[str, float]:
        """Returns no quantities."""
        return {}

    def sync(self) -> None:
        """Returns at once, as nothing is left to be done when a step returns."""

    def close(self) -> None:
        """Does nothing, as there is no group to leave, or it ends with the process."""
