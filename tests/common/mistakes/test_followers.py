"""A network that no optimizer updates is a cause only where a script wrote it before the step, and not after its update."""

import dataclasses

import numpy as np
import pytest

from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.seen_tensor import SeenTensor
from samestep.common.mistakes.table import causes

SIDE = Side(1, 1, 1, 1.0, (1.0,), {0: (1, 2)}, {}, (), (), False, ())
MOVE = np.random.default_rng(0).normal(size=(2, 8))


@pytest.mark.parametrize(
    ("of_follower", "of_weights", "expected"),
    [
        (2.0, 1.1, "have moved 2.000 times as far in B"),
        (0.0, 1.1, "stand still in B"),
        (2.0, 2.0, None),
        (1.0, 1.1, None),
    ],
)
def test_followers_are_named_where_they_alone_have_their_factor(
    of_follower: float, of_weights: float, expected: str | None
) -> None:
    moves = [
        SeenTensor(name, "kernel", role, 64, move, ratio * move, 1e-7, 10.0)
        for name, role, move, ratio in zip(
            ("w", "copy"), ("parameter", "follower"), MOVE, (of_weights, of_follower), strict=True
        )
    ]
    gradient = SeenTensor("w", "kernel", "parameter", 64, MOVE[0], MOVE[0] + MOVE[1], 1e-7, 10.0)
    evidence = Evidence("loss", 1, SIDE, dataclasses.replace(SIDE, loss=1.1), (gradient,), moves)
    for given, names in ((evidence, ("A", "B")), (evidence.swapped(), ("B", "A"))):
        said = [each.sentence for each in causes(given) if each.name == "followed_otherwise"]
        assert bool(said) == (expected is not None)
        if said and of_follower == 0:
            assert f"stand still in {names[1]}" in said[0]
        elif said and given is evidence:
            assert expected in said[0]
