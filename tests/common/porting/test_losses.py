"""How the losses of two functions differ is recognized from what they return for single targets, or from their means."""

import numpy as np
import pytest
from scipy import special

from samestep.common.porting.training.losses import explain_each, known_losses

RNG = np.random.default_rng(0)
OUTPUTS, TARGETS = RNG.normal(size=(32, 4)), RNG.integers(0, 4, 32)
OWN = -np.take_along_axis(special.log_softmax(OUTPUTS, -1), TARGETS[:, None], -1)[:, 0]
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.5])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (OWN * WEIGHTS[TARGETS], "classes have different weights: in {b} the loss is 1 times that of class 0, 2 times"),
        (OWN * (TARGETS != 0), "{b} leaves out the targets that are 0"),
        (OWN * (1 - np.exp(-OWN)) ** 2, "the loss is focal in {b}, with a gamma of 2"),
        (OWN + 1e-3 * special.logsumexp(OUTPUTS, -1) ** 2, "{b} adds 0.001 times the square of the logarithm"),
        (OWN + 0.25, "each loss is 0.25 more in {b} than in {a}"),
        (RNG.uniform(size=32), ""),
        (OWN[:8], ""),
    ],
)  # fmt: skip
def test_the_losses_of_single_targets(other: np.ndarray, said: str) -> None:
    found = explain_each((OWN, other), OUTPUTS, TARGETS)
    assert found.startswith(said) and bool(found) == bool(said), found


def names(outputs: np.ndarray, targets: np.ndarray, loss: float) -> list[str]:
    return [name for name, value in known_losses(outputs, targets, loss) if abs(value - loss) < 1e-12]


def test_means_of_losses_are_known() -> None:
    assert "cross-entropy" in names(OUTPUTS, TARGETS, OWN.mean())
    tempered = -np.take_along_axis(special.log_softmax(OUTPUTS / 2, -1), TARGETS[:, None], -1).mean()
    assert names(OUTPUTS, TARGETS, tempered)[0] == "cross-entropy of outputs divided by 2"
    ignored = np.where(np.arange(32) < 8, -100, TARGETS)
    assert names(OUTPUTS, ignored, OWN[8:].mean()) == ["cross-entropy, the mean over the others"]
    off = OUTPUTS - 1
    huber = np.where(np.abs(off) < 0.5, off**2 / 2, 0.5 * (np.abs(off) - 0.25)).mean()
    assert names(OUTPUTS, np.ones((32, 4)), huber) == ["Huber's with a delta of 0.5"]
