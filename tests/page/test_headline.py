"""The headline of a page is the sentence that the exit code stands for, its cause first, as the terminal has it."""

import dataclasses
import html
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import Unavailable, WorkerFailed, count
from samestep.common.judging.attribution import blame_model
from samestep.common.judging.conclusion import conclude_missed, explain_missed
from samestep.common.judging.parity import Attribution
from samestep.experiments import compare, report
from samestep.experiments.cli.ending import run_command
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from samestep.experiments.page.loaded import Loaded, make_group
from samestep.experiments.page.page import page
from tests.experiments.comparisons import MISSED, TRAINED, UNJUDGED, Outcome, make_up
from tests.page import runs
from tests.results import leave, made

BATCH_NORM = blame_model(
    "on shards: the local statistics of 1 BatchNorm layer (1)",
    "2.0e-02",
    "with these frozen (--batch-norm frozen), by 3e-16",
)
DROPOUT = blame_model(
    "on shards: the random numbers of 4 layers (h.0.drop, h.1.drop, its forward pass, ...), and nothing else",
    "1.5e-02",
    "with these switched off (--no-dropout), by 2e-16",
)
PORT = blame_model(
    "as torch's",
    "9.0e-11",
    "the run's distance from tf:single is 2e-16, and `samestep port` with the same --model and --data says which layer "
    "differs from torch's",
)
MIXED = Attribution(
    "not the same function: the losses are off by 1.0e-02, and without the random numbers of 1 layer (1) still by 4e-03: "
    "the loss of step 0 is 2"
)
WRONG = Attribution("step 12: every gradient is 2.000 x the oracle's")
POSITIVE = re.compile(r"took the same step as")


def headline(text: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", re.findall(r'class="headline">(.*?)</p>', text)[0]))


# --- the sentence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("causes", "said"),
    [
        (
            [BATCH_NORM],
            "a is right; your model is not the same function on shards: the local statistics of 1 BatchNorm layer (1)",
        ),
        (
            [BATCH_NORM] * 2,
            "a, b are right; your model is not the same function on shards: the local statistics of 1 Batch",
        ),
        (
            [DROPOUT],
            "a is right; your model is not the same function on shards: the random numbers of 4 layers (h.0.drop, h.1",
        ),
        ([PORT], "a is right; your model is not the same function as torch's"),
        ([WRONG], f"a did not take the same step: {WRONG.reason}"),
        ([WRONG] * 3, f"a, b, c did not take the same step: {WRONG.reason}"),
        ([WRONG, MIXED], "a, b did not take the same step"),
        (
            [BATCH_NORM, WRONG],
            f"b did not take the same step: {WRONG.reason}; a is right; your model is not the same function on",
        ),
        ([MIXED], f"a did not take the same step: {MIXED.reason}"),
    ],
)
def test_a_strategy_that_is_right_is_said_to_be_before_anything_else(causes: list[Attribution], said: str) -> None:
    told = conclude_missed(zip("abc", causes, strict=False))
    assert told.startswith(said)
    assert not re.search(r"\de-\d\d", told.removesuffix(MIXED.reason)), "what shows it comes below"


@pytest.mark.parametrize("cause", [BATCH_NORM, DROPOUT, PORT])
def test_the_cause_comes_before_what_shows_it_and_nothing_is_lost(cause: Attribution) -> None:
    told = explain_missed(["torch:ddp", "torch:fsdp"], cause)
    assert told.startswith("torch:ddp, torch:fsdp are right; your model is not the same function ")
    for number in re.findall(r"\d\S*e-\d\d", cause.reason):
        assert number in told
    assert told.count("right") == 1
    for flag in re.findall(r"--[a-z-]+", cause.reason):
        assert flag in told


# --- on the page and in the terminal ----------------------------------------------------------------------------------

TWO = "--strategies torch:ddp,tf:mirrored"


@pytest.mark.parametrize(
    ("line", "outcomes", "code"),
    [
        (TWO, {"tf:mirrored": MISSED}, 4),
        (TWO, {"torch:ddp": WorkerFailed("rank-1 died with exit code 9")}, 1),
        (TWO, {"tf:mirrored": Unavailable("there is no such device")}, 3),
        (f"{TWO} --parity", {"torch:ddp": UNJUDGED, "tf:mirrored": UNJUDGED}, 3),
        (f"{TWO} --require torch:ddp", {"torch:ddp": UNJUDGED}, 3),
        (f"{TWO},torch:c10d+devices=7", {}, 3),
        (f"{TWO} --against old", {}, 3),
    ],
)
def test_the_page_and_the_terminal_say_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    outcomes: Mapping[str, Outcome],
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    leave(tmp_path / "old", made("torch:ddp"))
    make_up(monkeypatch, outcomes)
    arguments = [*line.split(), "--steps", "12", "--batch-size", "32", "--out", "out", "--report"]
    monkeypatch.setattr(sys, "argv", ["compare", *arguments])
    with pytest.raises(SystemExit) as ended:
        run_command(compare.main)
    sentence = capsys.readouterr().err.splitlines()[-1].removeprefix("samestep: ").removesuffix(".")
    said = headline(Path("out/report.html").read_text())
    assert ended.value.code == code
    assert sentence in said
    assert not POSITIVE.search(said)
    assert ("exit code 3" in said) is (code == 3)
    if "--against" not in line:  # which a report of its directory knows nothing of
        report.main(["out"])
        assert headline(Path("report.html").read_text()) == said


def test_ended_by_a_signal_it_says_so() -> None:
    comparison = Comparison((Row.of(Cell.parse("torch:ddp"), TRAINED),), interrupt=KeyboardInterrupt("SIGTERM"))
    text = page(Loaded((make_group("some", comparison, {}, 0),)))
    assert headline(text) == "As a gate this ends with exit code 143: interrupted before its last row."


def test_the_cause_is_the_first_line_and_what_is_well_comes_after() -> None:
    missed = made("torch:ddp")
    missed = dataclasses.replace(
        missed, parity=dataclasses.replace(missed.parity, passed=False, **BATCH_NORM._asdict())
    )
    rows = (
        Row.of(Cell.parse("torch:single"), made("torch:single")),
        Row.of(Cell.parse("torch:ddp"), missed),
    )
    text = page(Loaded((make_group("some", Comparison(rows), {}, 0),)))
    assert headline(text).startswith("torch:ddp is right; your model is not the same function on shards: the local")
    assert text.index("The losses are off by") < text.index('class="verdict"')
    assert text.index("ends with exit code 4") < text.index('class="verdict"')


def test_every_comparison_that_is_not_green_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs.comparison(tmp_path / "red")
    runs.scaling(tmp_path / "green")
    report.main(["red", "green"])
    assert headline(Path("report.html").read_text()).startswith(
        "red: torch:c10d did not take the same step: step 12: every"
    )
    report.main(["green"])
    assert headline(Path("report.html").read_text()) == "Every row took the same step as its reference."


def test_a_green_page_says_what_could_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs.single(tmp_path / "good", runs.trained("torch:ddp", 10.0))
    (tmp_path / "empty").mkdir()
    report.main(["good", "empty"])
    assert headline(Path("report.html").read_text()).endswith(
        "took the same step as its reference. 1 directory could not be read."
    )


def test_the_title_says_what_was_trained_and_on_what() -> None:
    """The directory's name says nothing to whoever gets the page; it stands below."""
    cells = ["numpy:oracle", "torch:ddp", "tf:mirrored"]
    rows = [Row.of(Cell.parse(cell), made(cell)) for cell in cells]
    both = page(Loaded((make_group("nightly", Comparison(tuple(rows)), {}, 0),)))
    alone = page(Loaded((make_group("nightly", Comparison(tuple(rows[:2])), {}, 0),)))
    titles = [re.findall(r"<h1>(.*?)</h1>\n<p>(.*?)</p>", text)[0] for text in (both, alone)]
    first = rows[1].result
    assert first is not None
    where = f"on {count(first.cores, 'core')} of {first.machine['cpu']}"
    assert [title.partition(" train")[0] for title, _ in titles] == ["2 strategies", "torch:ddp"]
    assert all(title.endswith(where) for title, _ in titles)
    assert titles[0][1] == "nightly: 3 rows, 3 finished runs"
