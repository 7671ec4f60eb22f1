"""What becomes of a job of an engine: followed to its end, ended with us, and named with the engine's word."""

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.errors import Diverged, WorkerFailed
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.directory import read_error, write_error
from samestep.common.runtime.parent import job_executor
from samestep.common.runtime.parent.job_executor import JobEnd, JobExecutor
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.processes import started
from samestep.experiments.cli import ending

RULE = "-" * 74
ASKED = RunConfig(strategy="ddp", devices=2, workload="digits-mlp+width=32", batch_size=48, steps=3)


@dataclasses.dataclass
class Jobs:
    """An engine with one job, of which a test says how it ends.

    Attributes:
        ends: How each job ends; called when it is asked after for the second time.
        says: What the engine says of it in the log.
    """

    ends: Callable[[Path], JobEnd]
    says: str = "srun: error: n2: task 1: Killed"
    name: str = "job 7"
    log: Path = Path("none")
    asked: int = 0
    cancelled: int = 0
    obeys: bool = True

    def submit(self, directory: Path, run: object) -> "Jobs":
        self.directory, self.log, self.asked = directory, directory / "job.log", 0
        self.log.write_text(f"first\n{self.says}\nlast\n")
        return self

    def ended(self) -> JobEnd | None:
        self.asked += 1
        return self.ends(self.directory) if self.asked > 1 else None

    def waits_for(self) -> str:
        return "Resources"

    def cancel(self) -> bool:
        self.cancelled += 1
        return self.obeys


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a job that ends without a result; returns what is said of it."""
    monkeypatch.setattr(job_executor, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(job_executor, "SETTLE_SECONDS", 0.02)

    def told(jobs: Jobs, error: type[BaseException] = WorkerFailed, **fields: object) -> str:
        config = dataclasses.replace(ASKED, out=str(tmp_path / "run"), **fields)
        with Launcher(executor=JobExecutor(jobs.submit)) as launcher:
            launcher.warm(["torch"])  # imports nothing: it would take seconds
            with pytest.raises(error) as caught:
                launcher.run(parse(config), launch_of(config))
        return str(caught.value)

    return told


def test_the_engines_word_is_named(
    told: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = told(Jobs(lambda directory: JobEnd("TIMEOUT", is_engines_doing=True)))
    assert said.splitlines()[0] == f"job 7 ended without a result (TIMEOUT); log: {tmp_path}/run/job.log."
    assert capsys.readouterr().err == "samestep: job 7 waits (Resources)\n"
    _, left = read_error(tmp_path / "run") or ("", None)
    assert str(left) == said


@pytest.mark.parametrize(
    "says",
    [  # of Slurm 22.05: of a task that was killed; that its cgroup killed; that its accounting killed
        "srun: error: n2: task 1: Killed",
        "srun: error: n1: task 0: Out Of Memory",
        "slurmstepd-n2: error: StepId=1.0 exceeded memory limit (92868608 > 62914560), being killed",
    ],
)
def test_a_process_that_was_killed_counts_before_what_others_say_of_it(told: Callable[..., str], says: str) -> None:
    def ends(directory: Path) -> JobEnd:
        write_error(directory, "rank-0", WorkerFailed("connection reset by peer"))
        return JobEnd("FAILED")

    assert f"(FAILED): {says}; log:" in told(Jobs(ends, says))


@pytest.mark.parametrize(
    ("says", "quoted"),
    [
        (  # of Open MPI 4.1
            f"ssh: no such host\n{RULE}\nORTE was unable to start.\nThis is caused by:\n\n* a path\n\nor more\n{RULE}",
            "job 7 ended without a result (exit code 1): ORTE was unable to start. This is caused by: * a path; log: LOG."
            "\n    first\n    ssh: no such host",
        ),
        (  # of torchrun 2.13
            "[1]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 315)  (SIGKILL)",
            "job 7 ended without a result (exit code 1): rank : 1 (local_rank: 1) exitcode : -9 (pid: 315) (SIGKILL); log: ",
        ),
    ],
)
def test_the_words_of_an_engine_are_quoted_where_they_begin(
    told: Callable[..., str], tmp_path: Path, says: str, quoted: str
) -> None:
    said = told(Jobs(lambda directory: JobEnd("exit code 1"), says))
    assert said.replace(f"{tmp_path}/run/job.log", "LOG").startswith(quoted)


def test_what_a_process_says_is_enough(told: Callable[..., str]) -> None:
    def ends(directory: Path) -> JobEnd:
        write_error(directory, "rank-0", Diverged("the loss of step 2 is nan"))
        return JobEnd("FAILED")

    assert told(Jobs(ends), Diverged) == "the loss of step 2 is nan"


def test_ctrl_c_cancels_the_job(told: Callable[..., str], tmp_path: Path) -> None:
    def ends(directory: Path) -> JobEnd:
        raise KeyboardInterrupt

    jobs = Jobs(ends)
    told(jobs, KeyboardInterrupt)
    assert jobs.cancelled == 1
    assert json.loads((tmp_path / "run" / "error.json").read_text())["message"].endswith("was interrupted")


def test_a_job_that_cannot_be_cancelled_may_still_run(
    told: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(directory: Path) -> JobEnd:
        raise KeyboardInterrupt

    monkeypatch.setattr(started, "UNENDED", [])
    monkeypatch.setattr(job_executor, "UNENDED", started.UNENDED)
    monkeypatch.setattr(ending, "_leave", sys.exit)
    told(Jobs(ends, obeys=False), KeyboardInterrupt)
    with pytest.raises(SystemExit), ending.report_errors():
        raise KeyboardInterrupt
    assert "samestep: interrupted; job 7 could not be cancelled and may still run.\n" in capsys.readouterr().err


def test_a_directory_that_is_removed_is_named(told: Callable[..., str], tmp_path: Path) -> None:
    def ends(directory: Path) -> JobEnd:
        shutil.rmtree(directory)
        return JobEnd("FAILED")

    assert told(Jobs(ends)) == f"{tmp_path}/run was removed before job 7 had ended (FAILED)"


def test_a_log_is_quoted_without_its_colours(told: Callable[..., str]) -> None:
    said = told(Jobs(lambda directory: JobEnd("FAILED"), says="\x1b[36m(work pid=7)\x1b[0m gave up"))
    assert "\n    (work pid=7) gave up\n" in said


def test_a_job_is_started_again_as_often_as_asked(told: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    jobs = Jobs(lambda directory: JobEnd("NODE_FAIL", is_engines_doing=True))
    assert "(NODE_FAIL)" in told(jobs, restarts=2)
    assert capsys.readouterr().err.count("starts again") == 2
