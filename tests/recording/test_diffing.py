"""What `samestep diff` runs again, with scripts that take no time."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from samestep.common.errors import Unavailable, WorkerFailed
from samestep.common.judging.recorded.differences import roundoff
from samestep.common.judging.recorded.verdict import FirstDifference, RecordedVerdict, TensorRow
from samestep.common.mistakes.mistake import of_norm
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.cli import github_actions
from samestep.experiments.printing.column_table import cells
from samestep.experiments.printing.diff_report import _COLUMNS, diff_document, next_step
from samestep.experiments.printing.formats import write
from samestep.experiments.recording.diffing import diff, in_float64, judge_as_kept
from tests.recording.judged import Fake, side
from tests.recording.numpy_script import Script


def test_reruns_are_kept_and_as_long_as_needed(tmp_path: Path) -> None:
    rerun = Fake()
    a, b = side(Script(), tmp_path, "A", rerun), side(Script(flipped=True), tmp_path, "B", rerun)
    short = diff(a, b, 3).verdict
    assert short.kind == "same"
    assert short.notes == ("from step 3 on, rounding is taken to grow as before; --steps 6 measures it",)
    assert rerun.runs == ["unchanged-0", *(f"perturbed-{seed}-0" for seed in range(4))]
    diff(a, b, 2)
    assert len(rerun.runs) == 5
    assert diff(a, b, 20).verdict.kind == "same"
    assert rerun.runs[5:] == ["unchanged-0", *(f"perturbed-{seed}-1" for seed in range(4))]


def test_an_interrupted_rerun_is_left_and_another_made(tmp_path: Path) -> None:
    rerun = Fake()
    a, b = side(Script(), tmp_path, "A", rerun), side(Script(flipped=True), tmp_path, "B", rerun)
    diff(a, b, 6)
    path = a.directory / "reruns" / "perturbed-2-0" / "rank-0.steps"
    path.write_bytes(path.read_bytes()[:900])
    assert diff(a, b, 6).verdict.kind == "same"
    assert rerun.runs[5:] == ["perturbed-2-1"]


@pytest.mark.parametrize("mistake", ["", "dropped_shard", "other_seed", "other_hyperparameter"])
def test_nothing_is_run_again_for_what_needs_no_yardstick(tmp_path: Path, mistake: str) -> None:
    rerun = Fake()
    a, b = side(Script(), tmp_path, "A", rerun), side(Script(mistake=mistake), tmp_path, "B", rerun)
    assert diff(a, b, 20).verdict.exit_code == (4 if mistake else 0)
    assert rerun.runs == []


def test_what_has_no_name_is_tried_with_more_seeds(tmp_path: Path) -> None:
    """Rounding of one run in twenty may tip a threshold: then it is none."""

    class Tipping(Fake):
        def __call__(self, command: list[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
            self.changes = {"mistake": "gradients_off_at_random"} if options.perturb == 9 else {}
            super().__call__(command, options, directory, is_quiet)

    rerun = Tipping()
    a = side(Script(optimizer="sgd"), tmp_path, "A", rerun)
    b = side(Script(optimizer="sgd", mistake="gradients_off_at_random"), tmp_path, "B", rerun)
    assert diff(a, b, 20).verdict.exit_code == 0
    few, more = ([f"perturbed-{seed}-0" for seed in seeds] for seeds in (range(4), range(4, 10)))
    assert rerun.runs == ["unchanged-0", *few, "weights", *more, "perturbed-9-1"]
    plain = Fake()
    a, b = dataclasses.replace(a, rerun=plain), dataclasses.replace(b, rerun=plain)
    for path in (a.directory / "reruns").glob("perturbed-9-*"):
        path.rename(tmp_path / path.name)
    found = diff(a, b, 20).verdict
    assert (found.kind, found.first.step, found.first.phase) == ("unnamed", 1, "gradient")


@pytest.mark.parametrize(
    ("ratio", "names", "is_open"),
    [
        (None, "ab", True),
        (0.99999, "a", True),  # what tips over moves a bias by a factor, if by little
        (1.0001, "ab", False),
        (2.0, "a", False),
    ],
)
def test_what_may_have_tipped_over_is_tried_with_more_seeds(ratio: float | None, names: str, is_open: bool) -> None:
    first = FirstDifference(2, "gradient", "net", (), "", ratio)
    off = abs((ratio or 1.001) - 1)
    rows = tuple(TensorRow(name, ratio or 1.0, off, 11.0, True) for name in names)
    assert RecordedVerdict("unnamed", 3, first, rows=rows).may_be_tipped is is_open


@pytest.mark.parametrize(("worst", "is_open"), [(10.1, True), (25.0, False)])
def test_a_difference_that_is_close_to_the_threshold_is_tried_with_more_seeds(worst: float, is_open: bool) -> None:
    """In few digits, a unit that tips over makes most of the gradients of a small batch."""
    rows = (TensorRow("a", 1.0, 0.8, worst, True), TensorRow("b", 0.8, 0.8, 5.5, False))
    first = FirstDifference(3, "gradient", "lstm")
    assert RecordedVerdict("unnamed", 4, first, rows=rows, worst=worst).may_be_tipped is is_open


def test_what_looks_like_a_tipped_unit_is_left_to_float64(tmp_path: Path) -> None:
    """The loss and all gradients above one layer agree, and below it they are a little off: no rerun shows it."""
    a, b = (side(Script(optimizer="sgd", mistake=m), tmp_path, "A", Fake()) for m in ("", "tipped_unit"))
    verdict = diff(a, b, 20).verdict
    assert (verdict.kind, verdict.exit_code, verdict.need) == ("unknown", 3, "float64")
    assert (verdict.first.step, verdict.first.phase, verdict.first.layer) == (1, "gradient", "net.embed")
    decided = diff(*in_float64((a, b)), 20).verdict
    assert (decided.kind, decided.first.step, decided.first.layer) == ("unnamed", 1, "net.embed")


def test_what_is_kept_judges_a_run_of_fewer_digits_only_with_its_own_reruns(tmp_path: Path) -> None:
    """As `samestep report` does, which runs nothing: B computed its products in bfloat16, and A did not."""
    rerun = Fake()
    a, b = (side(Script(flipped=flipped), tmp_path, "AB"[flipped], rerun) for flipped in (False, True))
    header = dataclasses.replace(b.run.header, products="bfloat16")
    b = dataclasses.replace(b, run=dataclasses.replace(b.run, header=header))
    for holder, lacks in ((a, "A"), (b, "B")):
        found, yardstick = judge_as_kept(a, b)
        assert not yardstick.is_measured and found.verdict.kind == "unknown"
        assert found.notes == (f"{lacks} holds no reruns, so the effect of rounding was not measured but estimated",)
        holder.perturbed(range(4), 6)
    found, yardstick = judge_as_kept(a, b)
    assert yardstick.is_measured and not found.notes
    assert yardstick.unit.min() == roundoff("bfloat16") and found.verdict.need == "float64"
    assert len(rerun.runs) == 10


def test_a_command_that_fails_leaves_what_can_be_said_without_it(tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise WorkerFailed("'python train.py' ended with exit code 1")

    a, b = (side(Script(mistake=m), tmp_path, "A", fail) for m in ("", "off_by_a_little"))
    found = diff(a, b, 20)
    assert (found.verdict.exit_code, found.verdict.need) == (3, "command")
    assert "ended with exit code 1" in found.notes[0]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"directory": "/gone", "command": ("python", "gone.py")}, "its script is neither in /gone nor here"),
        ({"is_from_input": True}, "its program came through standard input or a pipe, and is gone; save it as a file"),
        ({"command": ("python", "/dev/fd/63")}, "its program came through standard input or a pipe"),
    ],
)
def test_what_cannot_be_run_again_is_not_tried(tmp_path: Path, changes: dict[str, object], why: str) -> None:
    rerun = Fake()
    sides = [side(Script(mistake=m), tmp_path, name, rerun) for m, name in (("", "A"), ("off_by_a_little", "B"))]
    headers = [dataclasses.replace(each.run.header, **changes) for each in sides]
    a, b = (
        dataclasses.replace(each, run=dataclasses.replace(each.run, header=header))
        for each, header in zip(sides, headers, strict=True)
    )
    found = diff(a, b, 20)
    assert why in found.notes[0] and not rerun.runs


def test_a_script_that_is_in_float64_is_run_again_as_it_is(tmp_path: Path) -> None:
    """Float64 mode draws in float32: it would have other random numbers, and seem not to repeat itself."""
    rerun, script = Fake(), Script(dtype="float64")
    a, b = (
        side(dataclasses.replace(script, mistake=each), tmp_path, "A", rerun) for each in ("", "gradients_not_cleared")
    )
    assert [cause.name for cause in diff(a, b, 6).verdict.causes] == ["gradients_not_cleared"]
    assert len(rerun.runs) == 5 and not any(each.header.is_cast for each in a.kept().values())  # one of them unchanged


def test_float64_decides(tmp_path: Path) -> None:
    rerun = Fake()
    sides = [side(Script(flipped=flipped), tmp_path, name, rerun) for name, flipped in (("A", False), ("B", True))]
    a, b = in_float64(sides)
    cast = dataclasses.replace(
        a, run=dataclasses.replace(a.run, header=dataclasses.replace(a.run.header, is_cast=True))
    )
    assert "bfloat16 and float16 mean float64" in write(diff_document(diff(cast, b, 20), ["A", "B"]), "github")
    assert a.run.header.is_cast and a.run.header.is_float64 and rerun.runs == ["unchanged-0", "float64-0"] * 2
    assert diff(a, b, 20).verdict.kind == "same"
    assert len(rerun.runs) == 4 and in_float64(sides)[0].run.name == a.run.name
    gone = dataclasses.replace(sides[0].run.header, command=())
    (tmp_path / "other").mkdir()
    without = dataclasses.replace(
        sides[0], run=dataclasses.replace(sides[0].run, header=gone), directory=tmp_path / "other"
    )
    with pytest.raises(Unavailable, match="A cannot be run again in float64: the record holds no command"):
        in_float64([without])


def test_every_format_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    a, b = (side(Script(world=world, mistake=m), tmp_path, "A", Fake()) for world, m in ((1, ""), (2, "sum_for_mean")))
    found = diff(a, b, 20)
    document = diff_document(found, ["A", "B"])
    text = write(document, "github")
    line = "not the same: step 0, gradient, layer net.head: every gradient of B is 2.000 times A's"
    assert " ".join(text.split()).startswith(line)
    assert "| net.head.weight" in text and "tensorflow/tensorflow#25806" in text
    record = json.loads(write(document, "json"))
    assert (record["exit_code"], record["verdict"]["causes"][0]["name"]) == (4, "sum_for_mean")
    assert '<failure message="not the same' in write(document, "junit")
    assert "\nnet.head.weight," in write(document, "csv")
    capsys.readouterr()
    github_actions.show(document)
    assert capsys.readouterr().err.startswith("::error title=samestep diff::not the same: step 0")


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.996, "0.99600 of"), (1.0, "1 times"), (1.0004, "1.00040 times"), (0.02, "0.02 of"), (13.2, "13 times")],
)
def test_what_is_not_1_is_not_said_to_be(share: float, words: str) -> None:
    assert of_norm(share) == f"{words} its norm"


@pytest.mark.parametrize(
    ("need", "words"),
    [
        ("", ""),
        ("weights", "samestep diff A B --weights-from A"),
        ("float64", "samestep diff A B --float64"),
        ("steps", "samestep diff A B --steps 31"),
        ("command", "record A again"),
        ("seed", "set A's seeds"),
        ("model", "give both scripts the same model"),
    ],
)
def test_what_to_do_next_can_be_typed(need: str, words: str) -> None:
    verdict = RecordedVerdict("unknown", 40, FirstDifference(30, "gradient"), need=need)
    assert words in next_step(verdict, ["A", "B"])


def test_amplified_rounding_is_the_same(tmp_path: Path) -> None:
    """A rate at which the loss jumps about: rounding grows until nothing of the curves agrees."""
    script = Script(optimizer="sgd", rate=3.0, decay=0.0, steps=40)
    a, b = (side(dataclasses.replace(script, flipped=f), tmp_path, "A", Fake()) for f in (False, True))
    verdict = diff(a, b, 40).verdict
    assert verdict.exit_code == 0, verdict.headline
    assert verdict.kind == "amplified" and verdict.growth > 100 and math.isfinite(verdict.growth)
    assert verdict.headline.startswith("same, rounding amplified ")


def test_multiples_of_rounding_are_short_and_of_one_kind() -> None:
    rows = [TensorRow("weight", 2.0, 1.0, times, True) for times in (1.94, 999.4, 813_010.7, 4e6)]
    assert [row[3] for row in cells(_COLUMNS, rows)[1]] == ["1.9", "999.4", "8e+05", "4e+06"]
