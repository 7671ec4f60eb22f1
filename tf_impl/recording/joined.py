"""What an optimizer adds to a step that another one has ended, in any order of their updates."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from samestep.common.steps.record import Phase, absent
from samestep.tf_impl.recording.journal import Journal, Note
from samestep.tf_impl.recording.rings import Ring
from samestep.tf_impl.recording.tensors import TrackedTensor

if TYPE_CHECKING:  # its slots have notes of this kind
    from samestep.tf_impl.recording.plans import UpdatePlan

_WIDTH = 3


@dataclasses.dataclass(frozen=True)
class JoinedNote:
    """What an optimizer adds to the note of a step that another one has ended.

    Attributes:
        lr: The learning rate.
        loss: The sum of the scalars whose gradients were asked for since then.
        num_losses: Their number.
    """

    lr: float
    loss: float
    num_losses: int


class JoinedNotes:
    """The notes that one optimizer adds on one replica."""

    def __init__(self, journal: Journal) -> None:
        """Makes the ring.

        Args:
            journal: The journal of the replica.
        """
        self._journal, journal.is_joined = journal, True
        self._ring = Ring(journal.capacity, _WIDTH)

    def write(self, number: tf.Tensor, lr: tf.Tensor) -> None:
        """Writes, in a graph, what is added to the last note.

        Args:
            number: The number of the step.
            lr: The learning rate.
        """
        floats = tf.stack([tf.cast(lr, tf.float64), *tf.unstack(self._journal.take_loss())])
        with tf.control_dependencies([self._ring.write(number, tf.bitcast(floats, tf.int64), number)]):
            self._journal.clock.assign_add(0)  # TensorFlow always runs this, and so the write before it

    def read(self, number: int) -> JoinedNote | None:
        """Returns what was added to the note of a step; None if nothing was.

        Args:
            number: The number of the step.
        """
        if (row := self._ring.at(number)) is None:
            return None
        lr, loss, num_losses = row.view(np.float64).tolist()
        return JoinedNote(lr, loss, int(num_losses))


def joined_notes(plans: Sequence["UpdatePlan"], replica: int, note: Note) -> dict["UpdatePlan", JoinedNote]:
    """Returns what optimizers added to a note, by their plans.

    Args:
        plans: The plans of all optimizers.
        replica: The replica whose note it is.
        note: The note.
    """
    if len(plans) == 1:
        return {}
    found = {each: each.slots[replica].joined(note.number) for each in plans if replica in each.slots}
    return {plan: each for plan, each in found.items() if each is not None and plan.number != note.optimizer}


def in_order(rates: Mapping["UpdatePlan", float], recorded: Sequence[TrackedTensor]) -> dict["UpdatePlan", float]:
    """Returns the optimizers of a step in the order of their variables, since the order of their updates makes no difference.

    Args:
        rates: The learning rate of each optimizer.
        recorded: All tensors of the record.
    """
    places = {each.key: place for place, each in enumerate(recorded)}
    plans = sorted(
        rates, key=lambda plan: min((places[each] for each in plan.updated or () if each in places), default=0)
    )
    return {plan: rates[plan] for plan in plans}


def numbers_of(rates: Mapping["UpdatePlan", float]) -> dict[str, float]:
    """Returns the numbers of the optimizers of a step, by name.

    Args:
        rates: The learning rate of each optimizer, in order.
    """
    found = [plan.numbers(lr, place) for place, (plan, lr) in enumerate(rates.items())]
    return found[0] if len(found) == 1 else {name: value for each in found for name, value in each.items()}


def merged(
    found: Sequence[Mapping[Phase, np.ndarray]], places: Sequence[Sequence[int]], last: np.ndarray
) -> dict[Phase, np.ndarray]:
    """Returns the statistics of all tensors at a step; weights that no optimizer updated keep theirs.

    Args:
        found: The statistics that each optimizer has seen.
        places: The places of its tensors among all; -1 for one that another optimizer updates by now.
        last: The weights of all, which become those of this step.
    """
    stats: dict[Phase, np.ndarray] = {phase: absent(len(last), last.dtype) for phase in found[0]} | {"weight": last}
    for seen, own in zip(found, map(np.array, places), strict=True):
        for phase, rows in seen.items():
            is_there = (own >= 0) & ((rows["bits"] != 0) | ~np.isnan(rows["square"]))
            stats[phase][own[is_there]] = rows[is_there]
    return stats
