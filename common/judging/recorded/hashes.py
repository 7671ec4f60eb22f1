"""Handles records of different versions of samestep, which hash some examples differently."""

import dataclasses

from samestep.common.steps.record import RecordHeader
from samestep.common.steps.recorded_run import RunStep

_PADDED = 4
"""The first schema with new hashes of padded and packed batches of PyTorch."""
_IGNORED = 5
"""The first schema that distinguishes PyTorch's targets of class 0 from ignored ones."""
HASHED_OTHERWISE = (
    "one of the two records was made by a version of samestep that hashes padded and packed batches differently: where their "
    "hashes differ, examples are not compared; record it again"
)


def are_other(a: RecordHeader, b: RecordHeader, since: int = _PADDED) -> bool:
    """Returns whether the same examples may have different hashes in two records.

    Args:
        a: The header of one record.
        b: The header of the other record.
        since: The schema that introduced new hashes.
    """
    return len({each.schema >= since for each in (a, b) if each.framework != "tf"}) > 1


def comparable(
    headers: tuple[RecordHeader, RecordHeader], one: RunStep, other: RunStep, asides: dict[str, None]
) -> tuple[RunStep, RunStep]:
    """Returns a step of two runs, without examples or targets that differ if the two records hash them differently.

    Args:
        headers: The headers of A and B.
        one: A's step.
        other: B's.
        asides: Notes on the verdict; receives one if examples were left out.
    """
    if one.targets != other.targets and are_other(*headers, _IGNORED):
        one, other = (dataclasses.replace(each, targets=None) for each in (one, other))
    if one.rows == other.rows or not are_other(*headers):
        return one, other
    asides[HASHED_OTHERWISE] = None
    one, other = (dataclasses.replace(each, rows=None, targets=None) for each in (one, other))
    return one, other
