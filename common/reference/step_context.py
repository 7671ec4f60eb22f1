"""What a pass needs of the whole batch: held by the model that was built with it, and set before each pass."""

import dataclasses

import numpy as np

Statistics = tuple[np.ndarray, np.ndarray]
"""Mean and unbiased variance of each channel."""


@dataclasses.dataclass
class StepContext:
    """The present micro-batch, as a part of its step.

    Attributes:
        keys: The key of each example, which decides what dropout keeps; None in evaluation.
        examples: How many neighbouring examples a batch normalisation takes its statistics of; 0 if it takes the running
            ones, as in evaluation.
        added: What layers add to the mean loss of this pass.
        statistics: For each batch normalisation, what it saw in this step, in the order of the examples.
    """

    keys: np.ndarray | None = None
    examples: int = 0
    added: float = 0.0
    statistics: dict[str, list[Statistics]] = dataclasses.field(default_factory=dict)

    def note(self, name: str, means: np.ndarray, variances: np.ndarray) -> None:
        """Notes what a batch normalisation saw.

        Args:
            name: Its path.
            means: [parts, channels].
            variances: [parts, channels], unbiased.
        """
        self.statistics.setdefault(name, []).extend(zip(means, variances, strict=True))
