"""Checks whether the gradients that optimizers get are the means of the ranks' gradients."""

from collections.abc import Iterator, Sequence

import numpy as np

from samestep.common.steps.record import RecordedStep

_CLOSE = 1e-2
"""The share of the gradient that counts as equal: a wire in bf16 rounds to 0.4 %."""


class ExchangeFacts:
    """Finds gradients that were not exchanged. Each step is added once."""

    def __init__(self, names: Sequence[str], is_whole: np.ndarray) -> None:
        """Starts without a step.

        Args:
            names: The names of the tensors.
            is_whole: Which of them are parameters that every rank holds whole.
        """
        self._names, self._is_whole = names, is_whole
        self._seen = 0
        self._alone = dict[str, int]()  # name -> first step
        self._left_out = dict[int, dict[str, int]]()  # rank -> the same

    def add(self, ranks: Sequence[RecordedStep]) -> None:
        """Adds one step.

        Args:
            ranks: The step as each rank recorded it.
        """
        stats = [step.stats or {} for step in ranks]
        if len(ranks) < 2 or ranks[0].is_skipped or not all({"local", "gradient"} <= {*each} for each in stats):
            return
        self._seen += 1
        shared = min(len(each["weight"]) for each in stats)  # one rank alone may keep an average of the weights
        own, given = (
            np.array([each[phase]["projections"][:shared] for each in stats], float) for phase in ("local", "gradient")
        )
        bits, is_known = np.array([each["weight"]["bits"][:shared] for each in stats]), np.isfinite(own).any((0, 2))
        for place in np.flatnonzero(self._is_whole[:shared] & np.isfinite(given).all((0, 2)) & is_known).tolist():
            differ = (bits[:, place] != bits[0, place]).any()
            self._add_tensor(ranks[0].number, self._names[place], np.nan_to_num(own[:, place]), given[:, place], differ)

    def _add_tensor(self, number: int, name: str, own: np.ndarray, given: np.ndarray, differ: bool) -> None:
        if _are_multiples(given, own.mean(0)[None]):
            return
        if differ and _are_multiples(given, own):  # else an optimizer may have exchanged them itself
            self._alone.setdefault(name, number)
        for rank in range(len(own)):
            if _are_multiples(given, np.delete(own, rank, 0).mean(0)[None]):
                self._left_out.setdefault(rank, {}).setdefault(name, number)

    def lines(self) -> Iterator[str]:
        """Yields the findings, as lines."""
        if self._alone:
            yield f"gradients were not exchanged: {_first(self._alone)} of each rank was updated with its own gradient alone."
        for rank, found in self._left_out.items():
            yield f"the gradient of rank {rank} was left out: {_first(found)} was updated on all ranks without it."


def _are_multiples(given: np.ndarray, other: np.ndarray) -> bool:
    """Returns whether the gradient of each rank is a positive multiple of another.

    Args:
        given: [ranks, PROJECTIONS].
        other: [ranks, PROJECTIONS], or [PROJECTIONS] for all ranks.
    """
    square = (other * other).sum(1)
    ratio = (given * other).sum(1) / np.where(square == 0, 1, square)
    left = np.linalg.norm(given - ratio[:, None] * other, axis=1)
    return bool((ratio > 0).all() and (left <= _CLOSE * np.linalg.norm(given, axis=1)).all())


def _first(found: dict[str, int]) -> str:
    (name, step), *others = found.items()
    more = f" and {len(others)} more" if others else ""
    return f"since step {step}, {name}{more}"
