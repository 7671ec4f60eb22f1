"""Learning-rate schedules: the shares by hand, and what a request may ask for."""

import dataclasses
import math

import numpy as np
import pytest

from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import as_config, parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.techniques import Techniques
from samestep.common.techniques.schedule.statement import rate_share

ORACLE = RunConfig("numpy", "oracle", "synthetic-mlp", dtype="float64", steps=12)
COSINE = Techniques(learning_rate_schedule="cosine", warmup_steps=2)


def shares(techniques: Techniques, steps: int) -> list[float]:
    return [rate_share(techniques, step) for step in range(1, steps + 1)]


def test_a_warm_up_rises_in_equal_parts_to_the_full_rate() -> None:
    assert shares(Techniques(warmup_steps=4), 6) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_a_linear_decay_falls_in_equal_parts_and_stays_at_zero() -> None:
    linear = Techniques(learning_rate_schedule="linear", warmup_steps=2, decay_steps=6)
    assert shares(linear, 8) == [0.5, 1, 1, 0.75, 0.5, 0.25, 0, 0]


def test_a_cosine_decay_is_half_a_period() -> None:
    found = shares(dataclasses.replace(COSINE, decay_steps=6), 7)
    np.testing.assert_allclose(
        found, [0.5, 1, 1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0], atol=1e-16
    )


def test_a_decay_ends_with_the_run_unless_told_otherwise() -> None:
    assert parse(dataclasses.replace(ORACLE, techniques=COSINE)).techniques.decay_steps == 12
    later = dataclasses.replace(COSINE, decay_steps=100)
    assert parse(dataclasses.replace(ORACLE, techniques=later)).techniques == later


@pytest.mark.parametrize(
    ("decay", "said"),
    [
        (9, "--decay-steps 9: the learning rate is 0 from step 10 on, where nothing is trained; give 12 to"),
        (11, "--decay-steps 11: the learning rate is 0 in step 12, where nothing is trained; give 12 to"),
        (12, ""),
        (None, ""),
    ],
)
def test_steps_after_the_decay_are_named_before_they_are_taken(decay: int | None, said: str) -> None:
    asked = dataclasses.replace(ORACLE, techniques=dataclasses.replace(COSINE, decay_steps=decay))
    note = check_launch(parse(asked), launch_of(asked))
    assert note.startswith(said) and bool(note) == bool(said)


def test_a_complete_request_keeps_its_decay_when_its_steps_change() -> None:
    asked = dataclasses.replace(ORACLE, techniques=COSINE)
    complete = as_config(parse(asked), launch_of(asked))
    shorter = parse(dataclasses.replace(complete, steps=6))
    assert [shorter.optimizer_at(t) for t in range(1, 7)] == [parse(asked).optimizer_at(t) for t in range(1, 7)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decay_steps": 9}, "--decay-steps 9 ends a decay, and the learning rate is constant"),
        ({"learning_rate_schedule": "cosine", "warmup_steps": 12}, "--warmup-steps 12 leaves none of 12 steps"),
        ({"learning_rate_schedule": "linear", "warmup_steps": 3, "decay_steps": 3}, "give at most 2."),
        ({"learning_rate_schedule": "cosin"}, "Did you mean 'cosine'"),
    ],
)
def test_what_no_schedule_can_do_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(dataclasses.replace(ORACLE, techniques=Techniques(**fields)))
