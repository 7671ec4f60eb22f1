"""Packs the states of ranks with their own weights and optimizer state into one state, and unpacks it.

The packed state has the means of the ranks' weights and optimizer state. A run with another number of ranks continues from them.
"""

import dataclasses
from collections.abc import Sequence

from samestep.common.program import OUTER, SHARED, WEIGHT, Arrays, TrainState


def pack(ranks: Sequence[TrainState], shared: Arrays, momentum: Arrays) -> tuple[Arrays, ...]:
    """Makes the local state of all ranks; the first rank also holds what is the same for all.

    Args:
        ranks: The weights and the optimizer state of each.
        shared: The weights with which the current period began; empty if they are not needed.
        momentum: The running sum of the outer optimizer; empty if it has none.
    """
    local = tuple(
        {
            f"{kind}/{name}": value
            for kind, arrays in (*own.slots.items(), (WEIGHT, own.params))
            for name, value in arrays.items()
        }
        for own in ranks
    )
    for kind, arrays in ((SHARED, shared), (OUTER, momentum)):
        local[0].update({f"{kind}/{name}": value for name, value in arrays.items()})
    return local


def kept(state: TrainState, kind: str, rank: int = 0) -> Arrays:
    """Returns the arrays of one kind that a rank keeps, by the names of parameters; none if it keeps none.

    Args:
        state: A whole state.
        kind: One of `OF_PARAMETERS`, or a name of optimizer state.
        rank: The rank that keeps them.
    """
    return of_kind(state.local[rank], kind) if state.local else {}


def of_kind(own: Arrays, kind: str) -> Arrays:
    """Returns the arrays of one kind, by the names of parameters; none if there are none.

    Args:
        own: The local state of a rank.
        kind: One of `OF_PARAMETERS`, or a name of optimizer state.
    """
    opening = f"{kind}/"
    return {key[len(opening) :]: value for key, value in own.items() if key.startswith(opening)}


def num_apart(state: TrainState) -> int:
    """Returns how many ranks have their own weights; 1 if none has."""
    return len(state.local) if kept(state, WEIGHT) else 1


def of_rank(state: TrainState, rank: int) -> TrainState:
    """Returns the state with the weights and the optimizer state of one rank, if it has its own.

    Args:
        state: A whole state.
        rank: The rank.
    """
    if not (weights := kept(state, WEIGHT, rank)):
        return state
    slots = {slot: arrays | kept(state, slot, rank) for slot, arrays in state.slots.items()}
    return dataclasses.replace(state, params=state.params | weights, slots=slots)


def averaged(state: TrainState) -> TrainState:
    """Returns the state with the means of the weights and the optimizer state of its ranks, if they have their own."""
    first, *others = (of_rank(state, rank) for rank in range(num_apart(state)))
    if not others:
        return state

    def mean(own: Arrays, of_others: Sequence[Arrays]) -> Arrays:
        # The mean of equal numbers is that number, whatever their count.
        return {n: v + sum(other[n] - v for other in of_others) / (len(others) + 1) for n, v in own.items()}

    slots = {slot: mean(own, [each.slots[slot] for each in others]) for slot, own in first.slots.items()}
    return dataclasses.replace(state, params=mean(first.params, [each.params for each in others]), slots=slots)


def find_flaw(state: TrainState) -> str:
    """Returns a message that names a parameter that differs between ranks; "" if none does.

    Args:
        state: The state at the end of a period, after which all ranks have the same weights.
    """
    first = kept(state, WEIGHT)
    for rank in range(1, num_apart(state)):
        for name, value in kept(state, WEIGHT, rank).items():
            if (value != first[name]).any():
                return f"after the last period {name} differs between rank 0 and rank {rank}"
    return ""
