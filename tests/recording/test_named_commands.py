"""What a record says is chosen by whoever wrote it: its command is named before it runs, and no name in it is obeyed."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from samestep.common.errors import ConfigError
from samestep.common.steps.joining import read_run
from samestep.common.steps.record import RecordHeader, header_frame, rank_file
from samestep.experiments import diff, report
from tests.recording.numpy_script import Script, run

HOSTILE = "\n::error::x\x1b[31m\r</script><b>\x00]]>"


def forged(directory: Path, /, **changes: Any) -> Path:
    """Puts other values into the header of a record."""
    path = directory / rank_file(0)
    header, content = read_run(directory).header, path.read_bytes()
    start = header_frame(header)
    assert content.startswith(start)
    path.write_bytes(header_frame(dataclasses.replace(header, **changes)) + content[len(start) :])
    return directory


@pytest.fixture
def named(tmp_path: Path) -> list[str]:
    """Two records, of which the first one names a program that is no script at all."""
    command = sys.executable, "-c", "open('ran', 'w')"
    a = forged(run(Script(), tmp_path / "a"), command=command, directory=str(tmp_path))
    return [str(a), str(run(Script(flipped=True), tmp_path / "b"))]


def test_a_command_that_a_record_names_is_said_before_it_runs(
    named: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    diff.main(named)
    errors = capfd.readouterr().err
    said = [line for line in errors.splitlines() if line.startswith("samestep: runs ")]
    assert len(said) == 2  # one of each side, however often it is run again
    assert (
        f"-c 'open('\"'\"'ran'\"'\"', '\"'\"'w'\"'\"')'' in {tmp_path}, which {named[0]}/rank-0.steps names" in said[0]
    )
    assert f"is cleared of what its rerun made: {tmp_path / 'ran'}." in errors  # so it ran


def test_a_report_of_records_runs_nothing(named: list[str], tmp_path: Path) -> None:
    report.main([*named, "-o", str(tmp_path / "page.html")])
    assert (tmp_path / "page.html").exists() and not (tmp_path / "ran").exists()


@pytest.mark.parametrize("format_", ["github", "csv", "junit", "json"])
def test_nothing_that_a_record_names_is_obeyed(tmp_path: Path, capfd: pytest.CaptureFixture[str], format_: str) -> None:
    def hostile(header: RecordHeader) -> dict[str, Any]:
        tensors = [dataclasses.replace(each, name=each.name + HOSTILE, layer=HOSTILE) for each in header.tensors]
        of_python = {"python": HOSTILE, HOSTILE: "1"}
        return {"tensors": tuple(tensors), "versions": of_python, "environment": of_python, "products": HOSTILE}

    a, b = run(Script(), tmp_path / "a"), run(Script(mistake="forgotten_exchange", passes=2), tmp_path / "b")
    for number, each in enumerate((a, b)):
        changes = hostile(read_run(each).header)
        forged(each, **changes, command=("no-such", HOSTILE, str(number)))
    assert diff.main([str(a), str(b), "--format", format_]) in (3, 4)
    said = capfd.readouterr()
    assert not any(line.startswith("::") for line in (said.out + said.err).splitlines())
    assert not {"\x1b", "\r", "\x00"} & {*said.out, *said.err}


@pytest.mark.parametrize("operator", ["|", "&&", "2>&1"])
def test_what_only_a_shell_obeys_is_no_argument_of_a_script(tmp_path: Path, operator: str) -> None:
    with pytest.raises(ConfigError, match="no shell reads it; give that to one: bash -c '"):
        diff.main([str(tmp_path), f"{sys.executable} train.py {operator} tee"])


@pytest.mark.parametrize("quoted", ["';'", '">"', r"\|", """ "it's" '&&' """, '"say \\" > \\"" ";"'])
def test_what_is_quoted_is_an_argument_as_in_a_shell(tmp_path: Path, quoted: str) -> None:
    with pytest.raises(ConfigError, match="is not a record"):  # of A: the command of B has passed
        diff.main([str(tmp_path), f"{sys.executable} train.py {quoted} 1"])
