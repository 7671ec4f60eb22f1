"""Pairs of scripts of Keras as strangers write them: refactorings are the same, and mistakes are named, or have no name."""

from pathlib import Path

import numpy as np
import pytest

from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.judging.recorded.yardstick import measure
from samestep.common.steps.joining import read_run
from samestep.experiments.recording.diffing import diff
from samestep.experiments.recording.reruns import Reruns
from tests.cells import takes_slow_tests
from tests.recording.records import SCRIPTS, run_forked
from tests.recording.stranger_pairs import KERAS_PAIRS, MORE_KERAS_PAIRS
from tests.sharing import made_once

pytestmark = [pytest.mark.tf, pytest.mark.timeout(600)]
FEW, ALL = range(1), range(4)
"""The seeds of reruns: any one of the product's four, and any of them together, give the verdicts of KERAS_PAIRS.

`make test` takes one."""
UNROUNDED = {(kind, word) for kind, word, *_ in KERAS_PAIRS if kind in ("gan", "towers", "twins")}
"""The pairs of which `samestep diff` makes no reruns: nothing is rounded otherwise, or numbers that are not rounded differ. Of
the same kinds, those in MORE_KERAS_PAIRS are compiled in one of the two alone, or differ in a gradient first."""


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pairs = [*KERAS_PAIRS, *(MORE_KERAS_PAIRS if takes_slow_tests(request) else ())]
    kinds = dict.fromkeys(kind for kind, *_ in pairs)
    lines: dict[str, dict[str, object]] = {
        each: {} for each in (*kinds, *(f"{kind} {word}" for kind, word, *_ in pairs))
    }
    lines |= {
        f"{kind} {seed}": {"perturb": seed, "stop_after": 4}
        for kind in dict.fromkeys(kind for kind, word, *_ in pairs if (kind, word) not in UNROUNDED)
        for seed in (ALL if takes_slow_tests(request) else FEW)
    }

    def make(out: Path) -> None:
        cases = []
        for name, options in lines.items():
            (out / name).mkdir(parents=True)
            words = name.split()[: -1 if options else None]
            cases.append((str(SCRIPTS / "keras_strangers.py"), words, {"out": str(out / name)} | options, 1))
        run_forked("keras", cases)

    return made_once(tmp_path_factory, "records-of-keras-strangers", make)


def verdict(folder: Path, kind: str, word: str) -> RecordedVerdict:
    a, b = read_run(folder / kind), read_run(folder / f"{kind} {word}")
    if (kind, word) in UNROUNDED:
        found = diff(Reruns(a, Path(a.name), "A"), Reruns(b, Path(b.name), "B"), 4)
        assert not found.notes  # which would say that these records name no command to run again
        return found.verdict
    pairing = pair(a, b)
    reruns = [read_run(folder / f"{kind} {seed}") for seed in ALL if (folder / f"{kind} {seed}").exists()]
    return judge(a, b, measure(a, reruns, pairing))


SLOW = [pytest.param(*each, marks=pytest.mark.slow) for each in MORE_KERAS_PAIRS]


@pytest.mark.parametrize(("kind", "word", "expected", "said"), [*KERAS_PAIRS, *SLOW])
def test_it_is_the_same_or_another(folder: Path, kind: str, word: str, expected: str, said: str) -> None:
    found = verdict(folder, kind, word)
    kind = "same" if found.exit_code == 0 else found.kind  # rounding may have been amplified
    assert ([each.name for each in found.causes] or [kind]) == [expected], found.headline
    assert said in " ".join([found.headline, *found.notes])


def test_optimizers_that_update_different_variables_take_one_step_together(folder: Path) -> None:
    run = read_run(folder / "towers")
    steps = [each for each in run.steps if each.number >= 0]
    assert len(steps) == 4
    assert all({"lr": each.scalars["lr"], "lr/1": each.scalars["lr/1"]} == {"lr": 0.01, "lr/1": 0.1} for each in steps)


def test_what_is_written_between_steps_counts_unless_it_is_set_back(folder: Path) -> None:
    counts = [
        {
            each.number: each.counts["written_tensors"]
            for each in read_run(folder / name).steps
            if "written_tensors" in each.counts
        }
        for name in ("epochs swapped", "epochs restored")
    ]
    assert counts == [{}, {2: 4}]


def test_a_network_that_an_optimizer_updates_later_is_no_follower(folder: Path) -> None:
    run = read_run(folder / "twins")
    networks = dict.fromkeys((each.name.partition("/")[0].rpartition(".")[2], each.role) for each in run.tensors)
    assert [*networks] == [(f"critic{k}", role) for role in ("parameter", "follower") for k in range(2)]
    *_, last = run.steps
    assert (~np.isnan(last.sums["gradient"].square)).tolist() == [each.role == "parameter" for each in run.tensors]


def test_a_network_in_one_that_is_trained_does_not_follow_itself(folder: Path) -> None:
    tensors = read_run(folder / "fakes").tensors  # the critic is trained first, which a model holds beside the maker
    assert {each.role for each in tensors} == {"parameter"}
