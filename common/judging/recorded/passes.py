"""Which examples came more than once within one pass through the data: of a DataLoader, or an epoch of Keras."""

from samestep.common.steps.recorded_run import RunStep, own_rows


class DataPasses:
    """The passes of a run, one step after the other."""

    def __init__(self) -> None:
        """Has seen none."""
        self._seen: set[int] | None = None
        self._repeated, self._has_begun = 0, False

    def add(self, step: RunStep) -> None:
        """Adds the examples of a step.

        Args:
            step: The step.
        """
        if step.counts.get("data_passes"):
            self._seen, self._has_begun = set(), True
        if step.counts.get("passes_over"):
            self._seen = None
        if self._seen is not None and step.rows is not None:
            rows = own_rows(step.rows)
            self._repeated += len(rows) - len({*rows} - self._seen)
            self._seen.update(rows)

    @property
    def repeated(self) -> int | None:
        """How many examples came again in a pass; None if no pass was seen."""
        return self._repeated if self._has_begun else None
