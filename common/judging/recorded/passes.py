"""Counts examples that came more than once within one pass over the data, by a DataLoader or in Keras."""

import collections
import dataclasses
from collections.abc import Iterable

import numpy as np

from samestep.common.flags import FieldValues
from samestep.common.judging.recorded.past import Past
from samestep.common.judging.recorded.walk import Walk
from samestep.common.mistakes.evidence import Evidence
from samestep.common.steps.recorded_run import RunStep, own_rows

MOST_EXAMPLES = 10**6
"""The largest number of examples whose repetitions are counted, at 100 bytes each."""


class DataPasses:
    """The passes of a run, step by step. A step that accumulates across the end of a pass also has examples of the next."""

    def __init__(self, number: int = 0) -> None:
        """Starts with no examples.

        Args:
            number: The step after which the rest of a pass is kept.
        """
        self._number, self._is_rest = number, True
        self.rest = set[int]()  # the examples after that step, until the next pass
        self._seen: set[int] | None = None
        # How many examples were repeated, and how many more models were given than the pass has yielded.
        self._counts, self._of_last, self._has_begun = np.zeros(2, int), np.zeros(2, int), False
        self._is_loaded, self._is_called_again = False, False

    def add(self, step: RunStep) -> None:
        """Adds the examples of a step."""
        counts, rows = step.counts, step.rows or {}
        is_first = bool(counts.get("data_passes"))
        if step.number > self._number:
            self._is_rest &= not is_first
            self.rest.update(step.examples or () if self._is_rest else ())
        if is_first and self._seen is not None and step.passes > 1:
            # What this pass has not yielded belongs to the one before. If nothing is counted, e.g. next to a validation loader
            # that Lightning leaves open, it is unknown which examples belong to which pass.
            loaded = counts.get("loaded_examples", 0)
            before = {rank: each[: max(0, len(each) - loaded)] for rank, each in rows.items()}
            self._count(own_rows(before) if loaded else ())
            rows = {rank: each[-loaded:] if loaded else () for rank, each in rows.items()}
        if is_first:
            self._seen, self._has_begun, self._is_loaded = set(), True, bool(counts.get("loaded_examples"))
        if counts.get("passes_over"):
            self._seen, self._counts, self._of_last = None, self._counts - self._of_last, np.zeros(2, int)
        if self._seen is not None and rows:
            before = self._counts.copy()
            self._count(own_rows(rows))
            more = max(map(len, rows.values())) - counts.get("loaded_examples", 0)
            self._counts[1] += more if self._is_loaded else 0
            self._of_last = (self._counts - before) * (step.passes > 1 and not is_first)
            self._is_called_again |= "more_calls" in counts

    def _count(self, rows: Iterable[int]) -> None:
        rows, seen = [*rows], set() if self._seen is None else self._seen
        self._counts[0] += len(rows) - len({*rows} - seen)
        seen.update(rows)

    @property
    def repeated(self) -> int | None:
        """The number of examples that were repeated within a pass; None if no pass is known, or models are given more."""
        is_more = self._is_called_again or self._counts[1] > 0
        return int(self._counts[0]) if self._has_begun and not is_more else None


def with_whole_runs(walk: Walk, evidence: Evidence) -> Evidence:
    """Adds what only later steps show: whether all examples of the runs are the same, and how rates and data continue.

    Args:
        walk: The walk over both runs.
        evidence: The evidence of the step.
    """
    past = Past(walk.pairing, 0), Past(walk.pairing, 1)
    given = collections.Counter[int](), collections.Counter[int]()
    passes = DataPasses(evidence.step), DataPasses(evidence.step)
    is_known, following = True, [None, None]  # type: bool, list[collections.Counter[int] | None]
    for one, other in walk.steps():
        if one.number == evidence.step + 1:
            following = [one.examples, other.examples]
        past[0].note(one)
        past[1].note(other)
        is_known &= one.number < 0 or (None not in (one.rows, other.rows) and len(given[0]) < MOST_EXAMPLES)
        for counts, own, step in zip(given, passes, (one, other), strict=True):
            counts.update(step.examples if is_known and step.examples else {})
            if is_known:
                own.add(step)
    before, sides = (evidence.a, evidence.b), []
    for number, side in enumerate(before):
        own, others = given[number], given[1 - number]
        known: FieldValues = {"later": past[number].digests[len(side.digests) :], "distinct": len(own)}
        if is_known:
            only, after = side.examples - before[1 - number].examples, passes[1 - number]
            more, most = own - others, max(others.values(), default=0)
            alone = sum(count for row, count in more.items() if row not in others)
            known |= {"again": more.total() - alone, "alone": alone, "repeated": passes[number].repeated}
            known["comes_more_often"] = all(own[row] > most for row in only)
            known["is_elsewhere"] = after.repeated is not None and not after.rest.isdisjoint(only)
        sides.append(dataclasses.replace(side, rates=past[number].rates, following=following[number], **known))
    return dataclasses.replace(evidence, a=sides[0], b=sides[1])
