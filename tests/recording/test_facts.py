"""What one record tells on its own, with scripts that take no time."""

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import FOLLOWER, rank_files
from samestep.experiments.recording.facts import RecordFacts, _of_training, facts_of
from tests.recording.numpy_script import Script, run


@pytest.mark.parametrize("mistake", ["", "updated_again"])
def test_an_update_without_a_backward_pass_is_told(tmp_path: Path, mistake: str) -> None:
    found = [line for line in facts_of(run(Script(mistake=mistake), tmp_path / "record")) if "backward pass" in line]
    told = [
        "1 step had no backward pass, first step 1: the optimizer updated again with the gradients of the step before."
    ]
    assert found == (told if mistake else [])


def test_what_moves_without_a_gradient_is_not_said_to_lack_one(tmp_path: Path) -> None:
    """As a target network that is a part of what is trained."""
    out = run(Script(), tmp_path / "record")
    (path,) = rank_files(out)
    with path.open("rb") as file:
        header, steps = read_rank(file, path.name)
        still, moving = RecordFacts([header]), RecordFacts([header])
        place = [each.name for each in header.tensors].index("net.unused.weight")
        for number, step in enumerate(steps):
            still.add([step])
            weights = step.stats["weight"].copy()
            weights["bits"][place] += number
            moving.add([dataclasses.replace(step, stats={**step.stats, "weight": weights})])
    said = "never got a gradient: net.unused.weight."
    assert said in [*_of_training(still)] and said not in [*_of_training(moving)]


def test_ranks_that_drift_are_told_where_one_alone_keeps_an_average_of_the_weights(tmp_path: Path) -> None:
    script = Script(world=2, mistake="replicas_drift")
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in rank_files(run(script, tmp_path / "record"))]
        readers = [read_rank(file, str(tmp_path)) for file in files]
        headers, steps = zip(*((header, [*steps]) for header, steps in readers), strict=True)
    average = dataclasses.replace(headers[0].tensors[0], name="follower.weight", role=FOLLOWER)
    keeps = dataclasses.replace(headers[0], tensors=(*headers[0].tensors, average))
    facts = [RecordFacts(headers), RecordFacts([keeps, headers[1]])]
    for one, other in zip(*steps, strict=True):
        stats = {phase: np.concatenate([each, each[:1]]) for phase, each in one.stats.items()}
        facts[0].add([one, other])
        facts[1].add([dataclasses.replace(one, stats=stats), other])
    assert facts[0].drifted and facts[1].drifted == facts[0].drifted
    assert [*facts[1].exchange.lines()] == [*facts[0].exchange.lines()]
