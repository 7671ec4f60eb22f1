"""What one record tells on its own, with scripts that take no time."""

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import FOLLOWER, RecordedStep, RecordHeader, rank_files
from samestep.experiments.recording.facts import RecordFacts, _of_training, facts_of
from tests.recording.numpy_script import Script, run


@pytest.mark.parametrize("mistake", ["", "updated_again"])
def test_an_update_without_a_backward_pass_is_told(tmp_path: Path, mistake: str) -> None:
    found = [line for line in facts_of(run(Script(mistake=mistake), tmp_path / "record")) if "backward pass" in line]
    told = [
        "1 step had no backward pass, the first at step 1: the optimizer updated again with the gradients of the step before."
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
    said = "had no gradient at any update: net.unused.weight."
    assert said in [*_of_training(still)] and said not in [*_of_training(moving)]


def of_two_ranks(mistake: str, below: Path) -> tuple[list[RecordHeader], list[list[RecordedStep]]]:
    with contextlib.ExitStack() as stack:
        out = run(Script(world=2, mistake=mistake), below / "record")
        files = [stack.enter_context(path.open("rb")) for path in rank_files(out)]
        read = [(header, [*steps]) for header, steps in (read_rank(file, str(below)) for file in files)]
    return [header for header, _ in read], [steps for _, steps in read]


@pytest.mark.parametrize("kept", ["net", "", "norm", "embed.weight"])
def test_stages_of_a_pipeline_are_no_replicas(tmp_path: Path, kept: str) -> None:
    """Their tensors may have the same names and shapes; those of norms also start from the same numbers."""
    headers, (ours, theirs) = of_two_ranks("forgotten_exchange", tmp_path)
    facts, first = RecordFacts(headers), theirs[0].stats["weight"].copy()
    names = [each.name for each in headers[0].tensors]
    first["bits"] += np.array([not kept or kept not in name for name in names], np.uint64)
    theirs[0] = dataclasses.replace(theirs[0], stats={"weight": first})
    for pair in zip(ours, theirs, strict=True):
        alone = [{"local": each.stats["gradient"]} if "gradient" in each.stats else {} for each in pair]
        stats = [dict(each.stats) | own for each, own in zip(pair, alone, strict=True)]
        facts.add([dataclasses.replace(each, stats=own) for each, own in zip(pair, stats, strict=True)])
    assert any("net.embed.weight" in line for line in facts.exchange.lines()) == (kept in ("net", "embed.weight"))
    assert bool([*facts.exchange.lines()]) == (kept in ("net", "embed.weight"))


def test_ranks_that_drift_are_told_where_one_alone_keeps_an_average_of_the_weights(tmp_path: Path) -> None:
    headers, steps = of_two_ranks("replicas_drift", tmp_path)
    average = dataclasses.replace(headers[0].tensors[0], name="follower.weight", role=FOLLOWER)
    keeps = dataclasses.replace(headers[0], tensors=(*headers[0].tensors, average))
    facts = [RecordFacts(headers), RecordFacts([keeps, headers[1]])]
    for one, other in zip(*steps, strict=True):
        stats = {phase: np.concatenate([each, each[:1]]) for phase, each in one.stats.items()}
        facts[0].add([one, other])
        facts[1].add([dataclasses.replace(one, stats=stats), other])
    assert facts[0].drifted and facts[1].drifted == facts[0].drifted
    assert [*facts[1].exchange.lines()] == [*facts[0].exchange.lines()]
