"""What happens between two steps of a PyTorch script: passes through its data begin and end, and weights are written."""

from pathlib import Path

import pytest

from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.judging.recorded.yardstick import measure
from samestep.common.steps.joining import read_run
from samestep.common.steps.record import MOVED, UPDATED, Phase
from samestep.experiments.recording.facts import facts_of
from tests.recording.records import read, recorded_once
from tests.recording.stranger_pairs import BETWEEN

pytestmark = pytest.mark.torch
LOADERS = {"": 4, "ahead": 4, "left": 2, "kept": 4, "checked": 4}
"""A way to use a DataLoader, and the first step after its pass."""
TWICE = {
    "twice": ["1 of 31 examples was used 2 times, and others 1 time"],
    "ahead twice": ["1 of 31 examples was used 2 times, and others 1 time"],
    "checked twice": [],  # a pass within which another one begins
    "words": [],
    "noise": [],
    "noise checked": [],
}
"""What a script trains on beside the data of a DataLoader, and what is said of examples."""
SEEDS = range(2)
"""The seeds of reruns: any two of the product's four give these verdicts, as all of them do."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [f"loaders {word}".strip() for word in (*LOADERS, *TWICE)]
    cases: dict[str, tuple[str, dict[str, object]]] = {line: (f"between.py {line}", {}) for line in lines}
    for kind in dict.fromkeys(kind for kind, *_ in BETWEEN):
        options = {"every": 10} if "seldom" in kind else {}
        for words in [kind, *(f"{kind} {word}" for own, word, *_ in BETWEEN if own == kind)]:
            cases[words] = f"between.py {words}", options | ({"world": 2} if words.endswith("ranks") else {})
        cases |= {f"{kind} {seed}": (f"between.py {kind}", options | {"perturb": seed}) for seed in SEEDS}
    return recorded_once(tmp_path_factory, "records-between", cases)


def test_what_a_run_writes_when_it_ends_is_no_difference_from_one_that_goes_on(folder: Path) -> None:
    long, short = (read_run(folder / name) for name in ("written", "written short averaged"))
    for a, b, said in ((long, short, "the script of B wrote"), (short, long, "the script of A wrote")):
        verdict = judge(a, b)
        assert verdict.kind == "same" and f"{said} weights after its last step" in " ".join(verdict.notes)


def judged(folder: Path, kind: str, word: str) -> RecordedVerdict:
    a, b = read_run(folder / kind), read_run(folder / f"{kind} {word}")
    pairing = pair(a, b)
    yardstick = measure(a, [read_run(folder / f"{kind} {seed}") for seed in SEEDS], pairing)
    return judge(a, b, yardstick)


@pytest.mark.parametrize(("kind", "word", "expected", "said"), BETWEEN)
def test_what_a_script_writes_to_its_weights_is_told_from_another_update(
    folder: Path, kind: str, word: str, expected: str, said: str
) -> None:
    verdict = judged(folder, kind, word)
    assert ([cause.name for cause in verdict.causes] or [verdict.kind]) == [expected], verdict.headline
    assert said in verdict.headline


@pytest.mark.parametrize(
    ("line", "phase", "steps"),
    [
        ("written averaged", UPDATED, [2]),
        ("written loosely", UPDATED, []),
        ("written late vector", UPDATED, [12]),
        ("sharpness", MOVED, [0, 1, 2, 3]),
        ("sharpness hidden", MOVED, [0, 1, 2, 3]),
    ],
)
def test_weights_are_recorded_twice_only_where_a_script_has_changed_them(
    folder: Path, line: str, phase: Phase, steps: list[int]
) -> None:
    ((_, found),) = read(folder / line)
    assert [each.number for each in found if phase in (each.stats or {})] == steps


@pytest.mark.parametrize("word", ["averaged", "hidden averaged", "assigned"])
def test_what_a_script_writes_to_its_weights_after_the_first_steps_is_told(folder: Path, word: str) -> None:
    ((_, found),) = read(folder / f"written late {word}")
    assert {each.number: each.counts["written_after"] for each in found if "written_after" in each.counts} == {12: 6}
    notes = judged(folder, "written late", word).notes
    assert any("after the update, the script of B wrote 6 tensors" in each for each in notes), notes


@pytest.mark.parametrize(("word", "after"), LOADERS.items())
def test_a_pass_through_a_loader_is_over_before_steps_on_other_data(folder: Path, word: str, after: int) -> None:
    ((_, steps),) = read(record := folder / f"loaders {word}".strip())
    assert [each.number for each in steps if each.counts.get("passes_over")] == [after]
    begun = [each.number for each in steps if each.counts.get("data_passes")]
    assert begun == ([0, 2] if word == "checked" else [0])
    assert not [line for line in facts_of(record) if "DataLoader" in line]


@pytest.mark.parametrize(("word", "said"), TWICE.items())
def test_what_is_no_example_of_the_data_does_not_count_as_one(folder: Path, word: str, said: list[str]) -> None:
    found = [line for line in facts_of(folder / f"loaders {word}") if line.startswith("within one")]
    start = "within one pass of a DataLoader, "
    assert found == [f"{start}{each}; examples with equal inputs count as one." for each in said]
