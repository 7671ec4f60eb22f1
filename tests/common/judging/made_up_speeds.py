"""Speeds as a machine with other users gives them: what a run, a round and a stranger do to them."""

import dataclasses
import functools

import numpy as np

WINDOWS = 20


@dataclasses.dataclass(frozen=True)
class Noise:
    """How speeds scatter; standard deviations are of logarithms.

    Attributes:
        run: Between runs: where processes were placed.
        round: Between rounds: what all runs of a round share.
        window: Between windows of a run.
        alike: The correlation of a window with the next one.
        disturbed: How often another process slows a whole run down, by 5 to 30 %.
    """

    run: float
    round: float = 0.03
    window: float = 0.05
    alike: float = 0.6
    disturbed: float = 0.0


def draw(noise: Noise, rounds: int, rows: int, random: np.random.Generator) -> np.ndarray:
    """Draws the median of the windows of every run of a comparison whose rows are equally fast.

    Args:
        noise: How they scatter.
        rounds: Of the comparison.
        rows: Of the comparison.
        random: Where the draws come from.

    Returns:
        Examples per second, [rounds, rows].
    """
    fresh = random.normal(size=(rounds, rows, WINDOWS))
    logs = np.median(noise.window * (fresh @ _following(noise.alike)), axis=-1) + noise.run * random.normal(
        size=(rounds, rows)
    )
    logs += noise.round * random.normal(size=(rounds, 1))
    logs -= (random.random((rounds, rows)) < noise.disturbed) * random.uniform(0.05, 0.3, (rounds, rows))
    return 1000 * np.exp(logs)


@functools.cache
def _following(alike: float) -> np.ndarray:
    """What each fresh number adds to each window: windows are so alike to the one before, and all scatter as the first."""
    later = np.subtract.outer(np.arange(WINDOWS), np.arange(WINDOWS)).T
    shares = np.where(later < 0, 0.0, alike ** np.maximum(later, 0))
    shares[1:] *= np.sqrt(1 - alike**2)
    return shares
