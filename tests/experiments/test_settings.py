"""`samestep/settings.py` is what the flags are."""

import typing

from documenting import settings
from samestep.settings import CompareSettings, PredictSettings, RunSettings


def test_the_file_is_what_the_command_writes() -> None:
    """If this fails, run `python -m documenting.settings`."""
    assert settings.FILE.read_text() == settings.text()


def test_each_command_has_its_own_fields() -> None:
    run, compare, predict = map(typing.get_type_hints, (RunSettings, CompareSettings, PredictSettings))
    assert run["steps"] == int | None and run["microbatches"] is int
    assert run.keys() - compare.keys() >= {"mesh", "start_from", "zero_stage"}
    assert not {"framework", "strategy", "prepare"} & run.keys()
    assert predict.keys() - run.keys() >= {"backend", "weights"}
    assert "steps" not in predict
