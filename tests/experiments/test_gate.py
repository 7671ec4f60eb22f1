"""A comparison is a gate that fails closed: 4 missed, 1 failed, 3 not there or not judged, 0; 130 after Ctrl-C."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import samestep
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, Diverged, ParityFailed, Unavailable, WorkerFailed
from samestep.common.judging.parity import not_judged
from samestep.experiments import compare
from samestep.experiments.cli import ending
from samestep.experiments.cli.ending import run_command
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from tests.experiments.comparisons import MISSED, TRAINED, UNJUDGED, Outcome, make_up

Gate = Callable[..., tuple[int, str, str]]
ABSENT = Unavailable("there is no such device here")
DIED = WorkerFailed("rank-1 died with exit code 9")
TWO = "torch:ddp,tf:mirrored"


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gate:
    """Compares on a small workload, each run ending as told; returns the exit code and what was printed."""

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(ending, "_leave", sys.exit)  # which would be the end of these tests

    def gate(line: str, outcomes: dict[str, Outcome] | None = None) -> tuple[int, str, str]:
        make_up(monkeypatch, outcomes or {})
        words = [] if "--resume" in line else ["--workload", "digits-mlp+width=32"]
        monkeypatch.setattr(sys, "argv", ["compare", *words, *line.split()])
        with pytest.raises(SystemExit) as ended:
            run_command(compare.main)
        told = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, told.out, (told.err.splitlines() or [""])[-1]

    return gate


@pytest.fixture
def without_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "tensorflow" else find(name, *rest)
    )


# --- the order of the exit codes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "outcomes", "code", "told"),
    [
        (f"--strategies {TWO}", {}, 0, ""),
        (f"--strategies {TWO} --parity", {}, 0, ""),
        (f"--strategies {TWO}", {"tf:mirrored": MISSED}, 4, "tf:mirrored did not take the same step"),
        (f"--strategies {TWO}", {"torch:ddp": DIED, "tf:mirrored": MISSED}, 4, "tf:mirrored did not"),
        (f"--strategies {TWO}", {"torch:ddp": DIED}, 1, "torch:ddp failed"),
        (f"--strategies {TWO}", {"torch:ddp": Diverged("step 3"), "tf:mirrored": ABSENT}, 1, "torch:ddp failed"),
        (f"--strategies {TWO}", {"tf:mirrored": ABSENT}, 3, f"tf:mirrored was unavailable: {ABSENT}"),
        (f"--strategies {TWO} --parity", {"torch:ddp": UNJUDGED, "tf:mirrored": UNJUDGED}, 3, "no row was judged"),
        (f"--strategies {TWO} --parity", {"torch:ddp": UNJUDGED}, 0, ""),
        (f"--strategies {TWO}", {"torch:ddp": UNJUDGED, "tf:mirrored": UNJUDGED}, 0, ""),
        ("--framework tf", {"tf:tpu": ABSENT}, 0, ""),
    ],
)
def test_the_first_that_applies(gate: Gate, line: str, outcomes: dict[str, Outcome], code: int, told: str) -> None:
    ended, printed, last = gate(line, outcomes)
    assert ended == code, last
    assert told in last
    assert "| numpy:oracle" in printed


@pytest.mark.usefixtures("without_tensorflow")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--strategies torch:ddp,tf:mirrored", 3),
        ("--framework tf", 0),
        ("--framework tf --parity", 3),
        ("--parity", 0),
    ],
)
def test_an_install_that_broke_is_not_green(gate: Gate, line: str, code: int) -> None:
    ended, printed, last = gate(line)
    assert ended == code, last
    assert "tf:mirrored" in printed
    assert "tensorflow is not installed: pip install 'samestep[tf]'" in printed


# --- a row that was named and did not run -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("torch:ddp+devices=3", "global batch 128 does not divide among 3 devices"),
        ("torch:pp+devices=64", "64 stages are more than the"),
        ("torch:rpc_parameter_server+clip_norm=1", "torch:rpc_parameter_server does not take --clip-norm"),
        ("torch:single+devices=2", "torch:single runs on one device, not on 2"),
        ("torch:hybrid+mesh=pipe=2,tensor=3", "does not split into 3 equal parts"),
        ("tf:dtensor+devices=3", "3"),
        ("torch:ddp+batch_size=100000", "global batch 100000 is more than the"),
    ],
)
def test_a_named_row_that_is_not_possible_lets_the_others_run_and_is_not_green(gate: Gate, cell: str, why: str) -> None:
    lines = (f"--strategies {cell},tf:mirrored", f"--strategies tf:mirrored --require {cell}")
    for out, line in zip("ab", lines, strict=True):
        code, printed, last = gate(f"{line} --out {out}")
        assert (code, f"{cell}" in last, "not possible: " in last) == (3, True, True), last
        assert why in last
        rows = {words[1]: words[3:] for words in map(str.split, printed.splitlines()) if words[:1] == ["|"]}
        assert (rows["tf:mirrored"][0][:3], rows[cell][:2]) == ("yes", ["not", "possible"])
        assert samestep.load(out).exit_code == 3
    assert gate(f"--strategies {cell}")[0] == 2, "nothing that was named is possible"
    assert gate(f"--strategies {cell},torch:c10d+devices=7")[0] == 2


@pytest.mark.parametrize("cell", ["torch:ddpp", "torch:pp+schedul=1f1b", "torch:pp+schedule=1f2b", "torch:ddp+seed=x"])
def test_a_cell_that_is_misspelled_is_refused_before_the_others_run(gate: Gate, tmp_path: Path, cell: str) -> None:
    code, printed, _ = gate(f"--strategies {cell},tf:mirrored --out out")
    assert (code, printed) == (2, "")
    assert not (tmp_path / "out").exists()


# --- rows that must be judged -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "outcomes", "code", "told"),
    [
        (f"--require {TWO}", {}, 0, ""),
        (f"--strategies {TWO} --require torch:ddp", {"tf:mirrored": UNJUDGED}, 0, ""),
        (f"--strategies {TWO} --require torch:ddp", {"torch:ddp": UNJUDGED}, 3, str(UNJUDGED.reason)),
        (
            f"--require {TWO}",
            {"tf:mirrored": ABSENT},
            3,
            f"tf:mirrored, which must be judged, was unavailable: {ABSENT}",
        ),
        (f"--require {TWO}", {"torch:ddp": DIED}, 1, "torch:ddp failed"),
        (f"--require {TWO}", {"torch:ddp": MISSED}, 4, "torch:ddp did not take the same step"),
        (
            "--strategies torch:ddp --require mirrored",
            {"tf:mirrored": not_judged("why")},
            3,
            "tf:mirrored, which must be judged, was not judged: why",
        ),
    ],
)
def test_a_required_row_must_be_judged(
    gate: Gate, line: str, outcomes: dict[str, Outcome], code: int, told: str
) -> None:
    ended, printed, last = gate(line, outcomes)
    assert ended == code, last
    assert told in last
    assert "tf:mirrored" in printed


@pytest.mark.usefixtures("without_tensorflow")
def test_every_required_row_that_was_not_judged_is_named(gate: Gate) -> None:
    code, _, last = gate("--require torch:ddp,torch:zero2,tf:mirrored", {"torch:zero2": UNJUDGED})
    assert code == 3
    assert "torch:zero2, which must be judged, was not judged: the oracle" in last
    assert "tf:mirrored, which must be judged, was unavailable: tensorflow is not installed" in last
    assert "torch:ddp" not in last


def test_the_reasons_of_two_rows_are_told_whole(gate: Gate) -> None:
    reasons = {
        cell: Unavailable(f"{cell} lacks {', '.join(f'thing {n}' for n in range(25))}") for cell in TWO.split(",")
    }
    code, _, last = gate(f"--strategies {TWO},torch:fsdp", reasons)
    assert code == 3
    assert [cell for cell, why in reasons.items() if f"{cell} was unavailable: {why}" not in last] == [], last


def test_a_required_row_is_added_and_judged_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    started = make_up(monkeypatch, {})
    compare.main(["--strategies", "torch:ddp", "--require", "torch:pp+schedule=1f1b"])
    assert [run.name for run, _ in started] == ["numpy:oracle", "torch:ddp", "torch:pp"]
    assert [launch.parity for _, launch in started] == [None, None, True]
    assert started[-1][0].options.schedule == "1f1b"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--strategies=", "--strategies '' has an empty cell; write it as in torch:ddp,tf:mirrored."),
        ("--strategies torch:ddp,", "--strategies 'torch:ddp,' has an empty cell"),
        (
            "--framework tf --strategies torch:ddp",
            "--framework and --strategies both choose the rows; give one of them.",
        ),
        ("--require=", "--require '' has an empty cell"),
        ("--require torch:ddpp", "unknown torch strategy 'ddpp'. Did you mean 'ddp'?"),
        ("--require torch:ddp --no-parity", "--require judges what --no-parity leaves unjudged; give one of them."),
        ("--require torch:ddp --devices 3", "global batch 128 does not divide among 3 devices"),
    ],
)
def test_what_cannot_be_gated_is_refused_before_anything_starts(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, line: str, told: str
) -> None:
    code, printed, last = gate(line)
    assert (code, printed) == (2, "")
    assert told in last


# --- as values --------------------------------------------------------------------------------------------------------

GOOD = Row.of(Cell.parse("torch:ddp"), TRAINED)
GONE = Row(Cell.parse("tf:mirrored"), "unavailable", "tensorflow is not installed")
REFUSED = Row(Cell.parse("torch:pp"), "not possible", "it has one segment")


@pytest.mark.parametrize(
    ("comparison", "cells", "error"),
    [
        (Comparison((GOOD, GONE)), (), None),
        (Comparison((GOOD, GONE)), ("torch:ddp",), None),
        (Comparison((GOOD, GONE)), ("torch:ddp", "tf:mirrored"), Unavailable),
        (Comparison((GOOD, GONE), named=("tf:mirrored",)), (), Unavailable),
        (Comparison((GOOD, REFUSED)), (), None),
        (Comparison((GOOD, REFUSED), named=("torch:pp",)), (), Unavailable),
        (Comparison((GOOD, GONE)), ("tf:mirorred",), ConfigError),
        (Comparison((GOOD, Row(Cell.parse("torch:pp"), "failed", "it died"))), (), WorkerFailed),
        (Comparison((GOOD, Row(Cell.parse("torch:pp"), "not the same step", "step 3"))), (), ParityFailed),
        (Comparison((), parity=True), (), Unavailable),
    ],
)
def test_a_comparison_is_a_gate_in_python_too(
    comparison: Comparison, cells: tuple[str, ...], error: type[Exception] | None
) -> None:
    if error is None:
        comparison.require(*cells)
    else:
        with pytest.raises(error):
            comparison.require(*cells)


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def test_an_interrupted_comparison_prints_the_rows_that_it_has(gate: Gate) -> None:
    outcomes: dict[str, Outcome] = {"torch:pp": KeyboardInterrupt(), "torch:zero2": MISSED}
    code, printed, last = gate("--strategies torch:ddp,torch:zero2,torch:pp,torch:tp", outcomes)
    assert code == 130
    assert last == "samestep: interrupted; nothing is left running."
    table = [line for line in printed.splitlines() if line.startswith("| ")]
    assert [line.split()[1] for line in table[1:]] == [
        "numpy:oracle",
        "torch:ddp",
        "torch:zero2",
        "torch:pp",
        "torch:tp",
    ]
    assert [("not run" in line) for line in table[1:]] == [False, False, False, True, True]
    assert "torch:pp, torch:tp were not run: interrupted" in printed


def test_what_the_file_of_a_comparison_does_not_hold_is_in_the_lines_that_continue_and_repeat_it(gate: Gate) -> None:
    flags = "--report --allow shared-cores --format github"
    line = f"torch:ddp torch:pp --out out {flags}"
    _, printed, _ = gate(line, {"torch:pp": KeyboardInterrupt()})
    assert f"1 of 3 runs is missing; continue with: samestep compare --resume out {flags}\n" in printed
    page = Path("out/report.html").read_text()
    for given, told in ((flags, flags), ("", "--report")):
        code, printed, _ = gate(f"--resume out {given}")
        assert code == 0 and f"samestep compare --file out/compare.toml {told}\n" in printed
        assert Path("out/report.html").read_text() != page
        Path("out/report.html").write_text(page)


def test_interrupted_before_the_first_row_it_says_so(gate: Gate) -> None:
    code, printed, _ = gate("--strategies torch:ddp", {"numpy:oracle": KeyboardInterrupt()})
    assert code == 130
    assert "numpy:oracle, torch:ddp were not run: interrupted" in printed
