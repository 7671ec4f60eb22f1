"""Finds examples that were used more often than others within one pass through the data, if all examples are from the data set.

The noise for a GAN and the single words of a sentence are not examples of a data set. So models must not get more examples than
the DataLoader has yielded; in Keras, where this number is not known, one model must be called once in a step.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from samestep.common.errors import count
from samestep.common.steps.record import RecordedStep


class PassFacts:
    """The passes of a record. Each step is added once."""

    def __init__(self, framework: str) -> None:
        """Starts without a step.

        Args:
            framework: The framework in the header of the record.
        """
        self._is_keras = framework == "tf"
        self._counts, self._num_loaded = list[Counter[int]](), list[int]()
        self._is_in_pass = False

    def add(self, ranks: Sequence[RecordedStep]) -> None:
        """Adds one step.

        Args:
            ranks: The step as each rank recorded it.
        """
        first = ranks[0].counts
        if first.get("data_passes"):
            self._counts.append(Counter())
            self._num_loaded.append(0)
            self._is_in_pass = "more_calls" not in first
        if first.get("passes_over"):
            self._is_in_pass = False
        if not self._is_in_pass or not all(step.rows for step in ranks):
            return
        each = {step.rows or () for step in ranks}  # ranks that share their examples count once
        self._num_loaded[-1] += max(step.counts.get("loaded_examples", 0) for step in ranks) * len(each)
        for rows in each:
            self._counts[-1].update(rows)

    def lines(self) -> Iterator[str]:
        """Yields the finding about the first pass in which some examples were used more often than others."""
        for each, num_loaded in zip(self._counts, self._num_loaded, strict=True):
            least, most = min(each.values(), default=0), max(each.values(), default=0)
            if most > least and (self._is_keras or each.total() <= num_loaded):
                twice = sum(times > least for times in each.values())
                a_pass = "epoch of Keras" if self._is_keras else "pass of a DataLoader"
                yield (
                    f"within one {a_pass}, {twice} of {count(len(each), 'example')} {'was' if twice == 1 else 'were'} used "
                    f"{count(most, 'time')}, and others {count(least, 'time')}; examples with equal inputs count as one."
                )
                return
