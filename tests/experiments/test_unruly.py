"""`samestep run` and `samestep model` on files that do what no file should: one line, the exit code, nothing left running."""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from samestep.common.runtime.parent import launcher as launching
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments import model, run
from samestep.experiments.cli.ending import run_command
from tests.cells import slow
from tests.own import unruly, unruly_calls
from tests.processes import all_end, descendants

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]
Command = Callable[[str, str, float], tuple[int, list[str]]]
COMMANDS = {
    "run": [*["{row}", "--devices", "2", "--steps", "2", "--batch-size", "12", "--model", "{file}"]],
    "model": ["{file}"],
}
FEW = (
    *("another encoding", "exits at once", "an error without words", "a loss that is constant", "many errors", "a set"),
    *("a layer later", "a script", "a parameter that comes", "one call of many"),
)
"""Of each kind, for `make test`; `make test-slow` takes every one."""
REFUSED = {**unruly.REFUSED, **unruly_calls.REFUSED}
ONLY_RUN = (*unruly.ONLY_RUN, *unruly_calls.ONLY_RUN)


@pytest.fixture
def command(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Gives a command with a file in this process; returns its exit code and what it says of errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launching, "Launcher", lambda **_: contextlib.nullcontext(launcher))
    launcher.warm(["torch"])
    numbers = itertools.count()

    def give(name: str, text: str, seconds: float) -> tuple[int, list[str]]:
        folder = tmp_path / str(next(numbers))  # a launcher describes a file once
        folder.mkdir()
        (file := folder / "net.py").write_text(text)
        before = descendants()
        row = "tf:mirrored" if "tf=net" in text else "torch:ddp"
        given = [word.format(file=file, row=row) for word in COMMANDS[name]]
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run_command(
                {"run": run, "model": model}[name].main,
                [*given, "--data", f"{file}:load", "--timeout-seconds", str(seconds)],
            )
        lines = capsys.readouterr().err.splitlines()
        assert all_end(descendants() - before, seconds=10) == set()
        assert isinstance(ended.value.code, int)
        return ended.value.code, [line for line in lines if line.startswith("samestep: ")]

    return give


def check(command: Command, texts: Mapping[str, str], names: Iterable[str], seconds: float = 60.0) -> None:
    """A line, which names the file unless a run shows it; 1 for what ends a process that trains, 2 for the rest."""
    found = {}
    for name in names:
        for which in COMMANDS:
            code, lines = command(which, texts[name], seconds)
            wanted = {1} if which == "run" and name in unruly.FAILING else {2}
            wanted |= {0} if which == "model" and name in ONLY_RUN else set()
            if code not in wanted or (
                code and not (len(lines) == 1 and ("net" in lines[0] or name in ONLY_RUN) and len(lines[0]) < 600)
            ):
                found[f"{name}, {which}"] = (code, lines)
    assert found == {}


def test_a_few_files(command: Command) -> None:
    check(command, REFUSED, FEW)


@pytest.mark.parametrize("name", ["a loss that writes what is kept later", *slow("writes what is kept later")])
def test_what_an_error_only_hints_at_is_called_most_likely(command: Command, name: str) -> None:
    """The backward pass raises it, with no line of the file in its stack; the log has the whole of it."""
    code, (line,) = command("run", REFUSED[name], 60.0)
    assert code == 2
    log = re.search(r": most likely the forward pass or the loss writes into .*; log: (\S+/rank-\d\.log)$", line)
    assert log, line
    assert "modified by an inplace operation" in Path(log[1]).read_text()


@pytest.mark.slow
def test_every_file(command: Command) -> None:
    check(command, unruly.REFUSED, unruly.REFUSED)


@pytest.mark.slow
def test_every_call(command: Command) -> None:
    check(command, unruly_calls.REFUSED, [n for n in unruly_calls.REFUSED if n not in unruly_calls.KERAS_ALONE])


@pytest.mark.slow
@pytest.mark.tf
def test_every_file_of_keras(command: Command) -> None:
    check(command, unruly_calls.REFUSED, unruly_calls.KERAS_ALONE)


@pytest.mark.slow
def test_what_does_not_end(command: Command) -> None:
    check(command, unruly.ENDLESS, unruly.ENDLESS, seconds=6.0)


@pytest.mark.slow
def test_what_is_rude_does_no_harm(command: Command) -> None:
    """What it prints goes to the logs of the run."""
    found = {}
    for name, text in unruly.RUDE.items():
        for which in COMMANDS:
            code, lines = command(which, text, 60.0)
            if code not in (0, 2) or len(lines) != bool(code):
                found[f"{name}, {which}"] = (code, lines)
    assert found == {}


def test_there_are_enough_of_them() -> None:
    assert len(REFUSED) + len(unruly.ENDLESS) + len(unruly.RUDE) >= 120
