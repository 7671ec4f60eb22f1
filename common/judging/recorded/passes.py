"""Which examples came more than once within one pass through the data: of a DataLoader, or an epoch of Keras."""

from collections.abc import Iterable

from samestep.common.steps.recorded_run import RunStep, own_rows


class DataPasses:
    """The passes of a run, one step after the other. A step that accumulates over the end of a pass has some of the next."""

    def __init__(self) -> None:
        """Has seen none."""
        self._seen: set[int] | None = None
        self._repeated, self._of_last, self._has_begun = 0, 0, False

    def add(self, step: RunStep) -> None:
        """Adds the examples of a step.

        Args:
            step: The step.
        """
        counts, rows = step.counts, step.rows or {}
        is_first = bool(counts.get("data_passes"))
        if (
            is_first and self._seen is not None and step.passes > 1
        ):  # what the pass has not yielded is of the one before
            loaded = counts.get("loaded_examples", 0)
            self._count(own_rows({rank: each[: max(0, len(each) - loaded)] for rank, each in rows.items()}))
            rows = {rank: each[-loaded:] if loaded else () for rank, each in rows.items()}
        if is_first:
            self._seen, self._has_begun = set(), True
        if counts.get("passes_over"):
            self._seen, self._repeated, self._of_last = None, self._repeated - self._of_last, 0
        if self._seen is not None and rows:
            before = self._repeated
            self._count(own_rows(rows))
            self._of_last = self._repeated - before if step.passes > 1 and not is_first else 0

    def _count(self, rows: Iterable[int]) -> None:
        rows, seen = [*rows], set() if self._seen is None else self._seen
        self._repeated += len(rows) - len({*rows} - seen)
        seen.update(rows)

    @property
    def repeated(self) -> int | None:
        """How many examples came again in a pass; None if no pass was seen."""
        return self._repeated if self._has_begun else None
