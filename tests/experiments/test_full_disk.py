"""What goes wrong with the files of a row while it runs makes it a failed row, wherever it strikes; the others run on."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import samestep
from samestep.common.errors import ConfigError
from samestep.common.judging.parity import not_judged
from samestep.common.request import Launch
from samestep.common.runtime.parent.judging import finishing
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.steps.log import Log
from samestep.common.strategy import Run
from samestep.experiments import compare
from samestep.experiments.comparing import execution, rounds
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.comparison_request import describe
from samestep.experiments.comparing.row import NOT_RUN
from tests.experiments.comparisons import PASSED, TRAINED, result_of
from tests.results import leave

STRUCK, SPARED = "torch:ddp", "tf:mirrored"
WRITES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EACCES)
EVERYWHERE = (errno.ENOSPC, errno.EMFILE)
"""Those that strike at each place in `make test`: one that fails what writes, and the one that fails what reads as well. Words
are all that the others decide, so of the places each takes one in so many as they are; `make test-slow` takes all pairs."""


class Faults:
    """Lets no file be opened or changed from one operation on, as a disk that is full stays full."""

    def __init__(self) -> None:
        self.is_on, self.seen, self.first, self.number = False, 0, sys.maxsize, errno.ENOSPC

    def __call__(self, event: str, arguments: tuple) -> None:
        if not self.is_on or not (event in WRITES or (event == "open" and self._counts(*arguments))):
            return
        self.seen += 1
        if self.seen >= self.first:
            raise OSError(self.number, os.strerror(self.number), str(arguments[0]))

    def _counts(self, path: object, mode: str | None, flags: int) -> bool:
        """Whether opening a file fails: where no descriptor is left each does, elsewhere those that are written."""
        return self.number == errno.EMFILE or bool(flags & (os.O_WRONLY | os.O_RDWR))

    @contextlib.contextmanager
    def on(self, is_on: bool = True) -> Iterator[None]:
        before, self.is_on = self.is_on, is_on
        try:
            yield
        finally:
            self.is_on = before


FAULTS = Faults()
sys.addaudithook(FAULTS)  # for good: there is no way to remove one


@pytest.fixture(autouse=True)
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything of a run is real but its processes and what they measure; faults strike while the chosen row runs."""
    monkeypatch.chdir(tmp_path)
    take = rounds._take

    def struck(launcher: Launcher, comparison: Path, ready: rounds.Ready, *rest: object) -> float:
        with FAULTS.on(ready[0].name == STRUCK):
            return take(launcher, comparison, ready, *rest)

    def execute(launcher: Launcher, directory: Path, run: Run, launch: Launch, *rest: object) -> None:
        with FAULTS.on(False):  # processes of their own
            leave(directory, result_of(run, launch, PASSED))
            (directory / "result.json").unlink()

    def judged(finished: finishing.Finished, *rest: object) -> object:
        return PASSED if finished.run.framework != "numpy" else not_judged("the oracle is the reference")

    monkeypatch.setattr(rounds, "_take", struck)
    monkeypatch.setattr(Launcher, "warm", lambda *_: None)
    monkeypatch.setattr(Launcher, "execute", execute)
    monkeypatch.setattr(finishing, "read_measured", lambda *_: TRAINED)
    monkeypatch.setattr(finishing, "_read_log", lambda *_: Log(None, ()))
    monkeypatch.setattr(finishing, "_judge", judged)
    monkeypatch.setattr(finishing, "merge", lambda run, launch, measured, parity: result_of(run, launch, parity))
    monkeypatch.setattr(finishing, "keep_curve", lambda *_: None)
    monkeypatch.setattr(finishing, "read_state", lambda *_: None)


def compared(out: str, first: int = sys.maxsize, number: int = errno.ENOSPC, repeats: int = 1) -> Comparison:
    FAULTS.seen, FAULTS.first, FAULTS.number = 0, first, number
    return samestep.compare([STRUCK, SPARED], out=out, batch_size=48, repeats=repeats, steps=12)


OTHERS = [number for number in ERRORS if number not in EVERYWHERE]


PLACES = [
    *(pytest.param(number, True, id=os.strerror(number)) for number in EVERYWHERE),
    *(pytest.param(number, False, id=f"{os.strerror(number)}, at some places") for number in OTHERS),
    *(pytest.param(number, True, id=os.strerror(number), marks=pytest.mark.slow) for number in OTHERS),
]


@pytest.mark.parametrize(("number", "every"), PLACES)
def test_a_row_that_cannot_write_failed_wherever_that_begins(number: int, every: bool) -> None:
    assert compared("good", number=number).exit_code == 0
    operations = FAULTS.seen
    assert operations >= 6, "config.json, error.json and result.json, each made and put into place"
    start, apart = (1, 1) if every else (1 + OTHERS.index(number), len(OTHERS))
    for first in range(start, operations + 1, apart):
        comparison = compared(f"out-{first}", first, number)
        _, struck, spared = comparison.rows
        loaded = samestep.load(f"out-{first}")
        assert isinstance(loaded, Comparison)
        if struck.status == "same step":  # all that was left to do is to remove what nobody needs
            assert Path(f"out-{first}", "torch-ddp", "1", "result.json").exists()
            continue
        assert (struck.status, spared.status) == ("failed", "same step"), (first, struck)
        assert os.strerror(number) in struck.reason
        assert comparison.exit_code == 1
        assert "Traceback" not in struck.reason
        assert loaded.exit_code in (1, 3), "failed as it was, or missing where the disk held not even that"
        assert loaded.rows[1].status in ("failed", NOT_RUN)


def test_a_directory_that_is_gone_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def removed(launcher: Launcher, directory: Path, run: Run, *rest: object) -> None:
        if run.name == STRUCK:
            for file in directory.iterdir():
                file.unlink()
            directory.rmdir()

    monkeypatch.setattr(Launcher, "execute", removed)
    comparison = compared("out")
    assert [row.status for row in comparison.rows[1:]] == ["failed", "same step"]
    assert comparison.exit_code == 1


@pytest.mark.parametrize(
    "error",
    [ConfigError("state.npz holds no readable state: it is damaged."), OSError(errno.EIO, os.strerror(errno.EIO))],
)
@pytest.mark.parametrize("place", ["_judge", "write_json"])
def test_what_refuses_a_run_that_has_begun_is_a_failure_of_every_row(
    monkeypatch: pytest.MonkeyPatch, place: str, error: Exception
) -> None:
    """Rows that nobody named are no better off."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(finishing, place, refuse)
    asked = describe({"framework": "tf", "batch_size": 48, "steps": 12})
    comparison = execution.compare(asked, "out", quiet=True)
    statuses = {row.status for row in comparison.rows if row.cell not in ("tf:context", "tf:expert")}  # of other models
    assert "failed" in statuses and statuses <= {"failed", "unavailable"}
    assert comparison.exit_code == samestep.load("out").exit_code == 1


def test_a_failed_row_is_not_overwritten_by_a_page_that_has_no_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page comes last: what it cannot hold has been measured, so the request was not wrong."""

    def spoil(*_: object) -> None:
        (page := tmp_path / "out" / "report.html").unlink()
        page.mkdir()

    monkeypatch.setattr(Launcher, "warm", spoil)
    with pytest.raises(samestep.WorkerFailed, match=r"out/report.html is not a plain file that samestep wrote"):
        compare.main(["--strategies", SPARED, "--batch-size", "48", "--steps", "12", "--out", "out", "--report"])
    assert "| tf:mirrored" in capsys.readouterr().out


def test_a_comparison_whose_folder_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(ConfigError, match=r"--out out cannot be made \(No space left on device\); name another"):
        compared("out")
