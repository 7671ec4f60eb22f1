"""Records of an earlier samestep beside today's, which hash padding in another way."""

import dataclasses

import pytest

from samestep.common.judging.recorded.hashes import HASHED_OTHERWISE
from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.repeating import repeats_itself
from samestep.common.judging.recorded.yardstick import measure
from samestep.common.steps.recorded_run import RecordedRun
from tests.recording.judged import run_of
from tests.recording.numpy_script import Script


def _earlier(run: RecordedRun, framework: str = "torch", schema: int = 3) -> RecordedRun:
    """A run whose recorder hashed every other example of step 1 in another way."""
    steps = [
        dataclasses.replace(step, rows={0: tuple(row + place % 2 for place, row in enumerate(step.rows[0]))})
        if step.number == 1
        else step
        for step in run.steps
    ]
    return RecordedRun(run.name, dataclasses.replace(run.header, schema=schema, framework=framework), steps)


@pytest.mark.parametrize("is_a", [True, False])
def test_other_hashes_of_the_same_examples_are_no_difference(is_a: bool) -> None:
    run = run_of(Script())
    pair = (_earlier(run), run) if is_a else (run, _earlier(run))
    assert repeats_itself(*pair)
    verdict = judge(*pair)
    assert verdict.kind == "same" and HASHED_OTHERWISE in verdict.notes


@pytest.mark.parametrize(("schema", "expected"), [(3, set()), (4, {1})])
def test_reruns_that_hash_the_same_examples_otherwise_have_no_computed_ones(schema: int, expected: set[int]) -> None:
    run = run_of(Script())
    earlier = _earlier(run, schema=schema)
    assert measure(earlier, [run], pair(earlier, run)).computed == expected


def test_what_is_computed_of_other_examples_differs_and_gets_no_name() -> None:
    a, b = (run_of(Script(mistake=mistake, world=2)) for mistake in ("", "padded_sample_twice"))
    names = [{cause.name for cause in judge(_with_schema(a, schema), b).causes} for schema in (3, 4)]
    assert names == [set(), {"padded_sample_twice"}]


def _with_schema(run: RecordedRun, schema: int) -> RecordedRun:
    return RecordedRun(run.name, dataclasses.replace(run.header, schema=schema), run.steps)


@pytest.mark.parametrize(("framework", "schema"), [("tf", 3), ("torch", 4)])
def test_hashes_that_have_not_changed_are_compared(framework: str, schema: int) -> None:
    run = run_of(Script())
    earlier = _earlier(run, framework, schema)
    assert not repeats_itself(earlier, run)
    assert judge(earlier, run).exit_code == 0, "no loss and no gradient differs"
    steps = [dataclasses.replace(step, loss=1.5 * step.loss) if step.number == 1 else step for step in run.steps]
    assert judge(earlier, dataclasses.replace(run, steps=steps)).first.phase == "data"
