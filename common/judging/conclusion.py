"""Writes the sentence about missed parity: the cause, and whether it lies in the strategy or in the model."""

import itertools
from collections.abc import Iterable, Sequence

from samestep.common.errors import name_some
from samestep.common.judging.parity import Attribution

_SHOWN = 20
"""The largest number of rows that a sentence names."""


def explain_missed(names: Sequence[str], cause: Attribution) -> str:
    """Says why rows did not take the reference's steps. The cause comes before the numbers that show it.

    Args:
        names: The names of the rows.
        cause: The cause that all of their verdicts name.
    """
    if cause.blame:
        return _clear(names, cause.reason)
    return f"{name_some(names, _SHOWN)} did not take the same step: {cause.reason}"


def conclude_missed(missed: Iterable[tuple[str, Attribution]]) -> str:
    """Writes one clause for each cause, without its evidence, about the rows that did not take the same step.

    Args:
        missed: The name of each row and the attribution of its verdict.
    """
    wrong: dict[str, list[str]] = {}
    cleared: dict[str, list[str]] = {}
    for name, cause in missed:
        causes = cleared if cause.blame else wrong
        causes.setdefault(cause.blame or cause.reason, []).append(name)
    said = [f"{name_some([*itertools.chain(*wrong.values())], _SHOWN)} did not take the same step"] if wrong else []
    if len(wrong) == 1 and (reason := next(iter(wrong))):
        said = [f"{said[0]}: {reason}"]
    return "; ".join([*said, *(_clear(names, blame) for blame, names in cleared.items())])


def _clear(names: Sequence[str], model: str) -> str:
    return f"{name_some(names, _SHOWN)} {'are' if names[1:] else 'is'} right; {model}"
