"""A log keeps every step that was written whole, and another attempt goes on below it."""

import dataclasses
import json
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.common.steps.log import METRICS, Header, Log, Step, TensorInfo, Window, read_log
from samestep.common.steps.writing import LogWriter, write_log

HEADER = Header(
    {"seed": 0, "mesh": ["data", 2]}, {"numpy": "2.0"}, (TensorInfo("kernel", (2, 3), "float32", "kernel"),)
)
RATE = {"learning_rate": (0.1, 0.2)}
FIRST = Window(2, 0.5, (1.0, 0.9), batches=(2**64 - 1, 7), scalars=RATE)
SECOND = Window(4, 0.25, (0.8, 0.7), batches=(1, 2), scalars=RATE)


def write(directory: Path, *windows: Window, header: Header = HEADER) -> None:
    with LogWriter(directory, header) as writer:
        for window in windows:
            writer.add(window)


def test_a_log_reads_as_what_it_was(tmp_path: Path) -> None:
    write(tmp_path, FIRST, SECOND)
    log = read_log(tmp_path)
    assert log == Log(dataclasses.replace(HEADER), (FIRST, SECOND))
    assert (log.first, log.losses, log.seconds) == (0, (1.0, 0.9, 0.8, 0.7), 0.75)
    assert list(log.steps())[1] == Step(1, 0.9, 7)


def test_every_line_has_what_users_read_of_it(tmp_path: Path) -> None:
    write(tmp_path, FIRST, SECOND)
    for line, window in zip((tmp_path / METRICS).read_text().splitlines(), (FIRST, SECOND), strict=True):
        values = json.loads(line)
        assert (values["step"], values["seconds"], tuple(values["losses"])) == (
            window.step,
            window.seconds,
            window.losses,
        )
        assert values["learning_rates"] == [0.1, 0.2]


def test_a_log_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('{"step": 2, "seconds": 0.5, "losses": [1.0, 0.9], "learning_rates": [0.1, 0.2]}\n')
    assert read_log(tmp_path) == Log(None, (dataclasses.replace(FIRST, batches=()),))


@pytest.mark.parametrize("lost", [2, 10, 100])
def test_a_killed_run_keeps_all_but_the_line_that_it_was_writing(tmp_path: Path, lost: int) -> None:
    write(tmp_path, FIRST, SECOND)
    whole = (tmp_path / METRICS).read_bytes()
    (tmp_path / METRICS).write_bytes(whole[:-lost])
    assert read_log(tmp_path).windows == (FIRST,)


def test_a_damaged_line_before_the_last_is_refused(tmp_path: Path) -> None:
    write(tmp_path, FIRST, SECOND)
    text = (tmp_path / METRICS).read_text()
    (tmp_path / METRICS).write_text(text.replace('"losses"', "", 1))
    with pytest.raises(ConfigError, match=f"{METRICS} cannot be read"):
        read_log(tmp_path)


@pytest.mark.parametrize("is_torn", [True, False])
def test_an_attempt_goes_on_where_it_starts_and_the_file_keeps_what_was_before(tmp_path: Path, is_torn: bool) -> None:
    write(tmp_path, FIRST, SECOND)
    before = (tmp_path / METRICS).read_bytes()
    if is_torn:
        (tmp_path / METRICS).write_bytes(before + b'{"step": 6, "sec')
    again = Window(5, 0.75, (0.85, 0.75, 0.65, 0.6), batches=(3, 4, 5, 6))
    write(tmp_path, again)
    assert (tmp_path / METRICS).read_bytes().startswith(before)
    log = read_log(tmp_path)
    assert log.losses == (1.0, 0.85, 0.75, 0.65, 0.6)
    assert [window.attempt for window in log.windows for _ in window.losses] == [1, 2, 2, 2, 2]
    assert [step.batch for step in log.steps()] == [2**64 - 1, 3, 4, 5, 6]
    assert log.seconds == 0.25 + 0.75


def test_an_attempt_may_start_again_from_the_first_step(tmp_path: Path) -> None:
    write(tmp_path, FIRST, SECOND)
    write(tmp_path, FIRST)
    assert read_log(tmp_path).windows == (dataclasses.replace(FIRST, attempt=2),)


@pytest.mark.parametrize("end", [1, 7])
def test_an_attempt_that_leaves_a_gap_or_starts_too_early_is_refused(tmp_path: Path, end: int) -> None:
    write(tmp_path, SECOND)
    write(tmp_path, Window(end, 0.1, (0.5,)))
    with pytest.raises(ConfigError, match="does not continue where the one before ends"):
        read_log(tmp_path)


def test_another_program_does_not_continue_a_log(tmp_path: Path) -> None:
    write(tmp_path, FIRST)
    with pytest.raises(ConfigError, match="the log of another program"):
        write(tmp_path, FIRST, header=dataclasses.replace(HEADER, program={"seed": 1}))


def test_a_log_that_is_written_as_a_whole_reads_as_what_it_was(tmp_path: Path) -> None:
    log = Log(HEADER, (FIRST, dataclasses.replace(SECOND, attempt=2)))
    write_log(tmp_path, log)
    assert read_log(tmp_path) == Log(HEADER, log.windows)
