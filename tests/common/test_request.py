import dataclasses
import math

import pytest

from samestep.common.errors import ConfigError
from samestep.common.flags import check_fields, read_value, split_spelling
from samestep.common.request import RunConfig
from samestep.common.techniques import Techniques

POSITIVE = ("devices", "steps", "batch_size", "learning_rate", "threads", "timeout_seconds")
NO_TECHNIQUE = [
    {"accumulation_steps": 0},
    {"accumulation_steps": -1},
    {"clip_norm": 0.0},
    {"clip_norm": -1.0},
    {"clip_norm": math.nan},
]


@dataclasses.dataclass(frozen=True)
class Options:
    schedule: str = "gpipe"
    microbatches: int | None = 4
    threshold: float = 0.5
    overlap: bool = True


def test_the_defaults_are_a_run():
    check_fields(RunConfig())


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", POSITIVE)
def test_a_number_that_no_run_can_have_is_refused_by_its_flag(name, value):
    with pytest.raises(ConfigError) as caught:
        check_fields(dataclasses.replace(RunConfig(), **{name: value}))
    if name in ("learning_rate", "timeout_seconds"):
        value, wanted = float(value), f"a finite number {'above 0' if name == 'learning_rate' else 'from 1 up'}"
    else:
        wanted = "a whole number" if isinstance(value, float) else "a whole number from 1 up"
    assert str(caught.value) == f"--{name.replace('_', '-')} is {value}; give {wanted}."


@pytest.mark.parametrize("name", POSITIVE)
def test_one_is_a_number_that_every_run_can_have(name):
    check_fields(dataclasses.replace(RunConfig(), **{name: 1}))


def test_a_seed_may_be_zero_but_not_negative():
    check_fields(RunConfig(seed=0))
    with pytest.raises(ConfigError, match="--seed is -1; give a whole number from 0 up"):
        check_fields(RunConfig(seed=-1))


@pytest.mark.parametrize(
    ("field", "value", "nearest"),
    [("dtype", "float46", "float64"), ("optimizer", "adam", "adamw"), ("framework", "pytorch", "torch")],
)
def test_a_word_that_is_no_choice_is_answered_with_the_nearest(field, value, nearest):
    with pytest.raises(ConfigError, match=f"unknown {field} '{value}'. Did you mean '{nearest}'"):
        check_fields(dataclasses.replace(RunConfig(), **{field: value}))


@pytest.mark.parametrize("fields", NO_TECHNIQUE)
def test_a_technique_with_a_number_that_no_run_can_have_is_refused(fields):
    with pytest.raises(ConfigError):
        check_fields(Techniques(**fields))


def test_a_spelling_is_a_name_and_its_fields_in_order():
    name, fields = split_spelling("synthetic-gpt+layers=12+width=768")
    assert name == "synthetic-gpt"
    assert list(fields.items()) == [("layers", "12"), ("width", "768")]
    assert split_spelling("digits-mlp") == ("digits-mlp", {})


def test_only_the_first_equals_sign_of_a_part_separates():
    assert split_spelling("pp+schedule=a=b") == ("pp", {"schedule": "a=b"})


@pytest.mark.parametrize("part", ["width", "width=", "=3", "", "="])
def test_a_part_that_is_no_field_and_value_is_named(part):
    with pytest.raises(ConfigError) as caught:
        split_spelling(f"digits-mlp+{part}")
    message = f"'{part}' in 'digits-mlp+{part}' is not field=value; write it as in digits-mlp+width=128."
    assert str(caught.value) == message


def test_a_field_given_twice_is_refused():
    with pytest.raises(ConfigError, match="gives 'width' twice"):
        split_spelling("digits-mlp+width=3+width=3")


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("schedule", "1f1b", "1f1b"),
        ("microbatches", "8", 8),
        ("threshold", "1e-3", 0.001),
        ("overlap", "True", True),
        ("overlap", "false", False),
    ],
)
def test_a_value_is_read_as_the_type_its_field_declares(field, text, value):
    read = read_value(Options, field, text)
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("field", "text", "wanted"),
    [
        ("microbatches", "1.5", "a whole number"),
        ("microbatches", "many", "a whole number"),
        ("threshold", "half", "a finite number"),
        ("overlap", "1", "true or false"),
    ],
)
def test_a_value_of_another_type_is_named_with_the_type_wanted(field, text, wanted):
    with pytest.raises(ConfigError) as caught:
        read_value(Options, field, text)
    assert str(caught.value) == f"--{field} is '{text}'; give {wanted}."
