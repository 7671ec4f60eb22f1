"""What is excused as amplified rounding: a run each of whose steps is the oracle's, from the first on."""

import itertools

import pytest

from samestep.common.batch import batches
from samestep.common.judging import rounding
from samestep.common.judging.reference_run import Curve
from samestep.common.program import TrainState
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import Run
from tests.common.judging.curves import curve_of

ASKED = RunConfig(workload="synthetic-mlp+width=8", optimizer="sgd", dtype="float64", batch_size=16, steps=3)


@pytest.mark.parametrize("wrong", [None, 0, 1, 2])
def test_a_wrong_step_is_found_even_if_it_is_the_first(wrong: int | None) -> None:
    run = parse(ASKED)
    split = run.workload.data.load()

    class Again:
        def steps(self, run: Run, start: TrainState | None = None) -> Curve:
            program = TrainingProgram(run)
            for batch in itertools.islice(batches(split.train_inputs, split.train_targets, 16, 0), run.steps):
                program.step(batch)
                if batch.step == wrong:
                    program.params["layers/0/bias"] += 1e-4
            return curve_of(program.losses(), program.state())

    assert rounding._steps_agree(run, 2, TrainingProgram(run).state(), Again()) == (wrong is None)
