"""Engines that cannot take a run from here, and what Slurm's commands say of a job, by commands that are made up."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError, SamestepError, Unavailable
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.processes.network import HOST, free_ports
from samestep.experiments import compare
from samestep.experiments.run import main
from samestep.experiments.submitting import jobs
from samestep.experiments.submitting.jobs import SlurmJob, executor_of
from samestep.experiments.submitting.targets import SCRIPTS, STARTED, read_target, render

Slurm = Callable[[str, str], None]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Makes a command of Slurm's, of which a script is given."""

    def made(name: str, script: str) -> None:
        (command := tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return made


def test_hosts_that_nobody_wrote_down_are_refused(tmp_path: Path, slurm: Slurm) -> None:
    slurm("mpirun", "")
    with pytest.raises(ConfigError, match=f"there is no file '{tmp_path}/hosts'; write one with a line a host"):
        executor_of(read_target("--on", f"mpi:hostfile={tmp_path}/hosts"))
    (tmp_path / "hosts").write_text("here")
    executor_of(read_target("--on", f"mpi:hostfile={tmp_path}/hosts"))


@pytest.mark.parametrize(("flag", "taken"), [("--on", STARTED), ("--for", SCRIPTS)])
def test_an_unknown_engine_is_told_what_the_flag_takes(flag: str, taken: Iterable[str]) -> None:
    with pytest.raises(ConfigError, match=rf"^unknown engine 'foo'\. Choose from: {', '.join(taken)}\.$"):
        read_target(flag, "foo")


@pytest.mark.ray
def test_a_ray_that_does_not_answer_is_named() -> None:
    (port,) = free_ports(1)
    with pytest.raises(Unavailable, match=f"nothing answers at ray://{HOST}:{port} .*; start Ray there"):
        executor_of(read_target("--on", f"ray://{HOST}:{port}"))


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        (
            "error: invalid partition specified: none\nsbatch: error: Batch job submission failed",
            ConfigError,
            "^Slurm refuses the job: invalid partition specified: none; Batch job submission failed$",
        ),
        (
            "error: Unable to contact slurm controller (connect failure)",
            Unavailable,
            "Slurm does not answer: Unable.*; `scontrol ping`",
        ),
        ("fatal: Unable to process configuration file", Unavailable, "Slurm does not answer: Unable"),
        ("fatal: Could not establish a configuration source", Unavailable, "Slurm does not answer: Could"),
    ],
)
def test_what_slurm_refuses_is_one_line(
    tmp_path: Path, slurm: Slurm, said: str, kind: type[SamestepError], told: str
) -> None:
    slurm("sbatch", f"printf 'sbatch: {said}\\n' >&2; exit 1".replace("\n", "\\n", 1))
    with pytest.raises(kind, match=told):
        SlurmJob(tmp_path / "slurm.sh")


def test_a_job_is_followed_in_every_state_that_is_no_end(tmp_path: Path, slurm: Slurm) -> None:
    slurm("sbatch", "echo 7")
    job = SlurmJob(tmp_path / "slurm.sh")
    for state in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "SIGNALING", "STAGE_OUT"):
        slurm("scontrol", f"echo '   JobState={state} Reason=None Dependency=(null)'")
        assert job.ended() is None
    slurm("scontrol", "echo 'slurm_load_jobs error: Socket timed out' >&2; exit 1")
    assert job.ended() is None
    assert "does not answer" in job.waits_for()
    for state, is_slurms_doing in (("FAILED", False), ("COMPLETED", False), ("TIMEOUT", True), ("NODE_FAIL", True)):
        slurm("scontrol", f"echo '   JobState={state} Reason=None Dependency=(null)'")
        assert (end := job.ended()) and (end.word, end.is_engines_doing) == (state, is_slurms_doing)


def test_a_job_that_slurm_does_not_end_is_not_said_to_have_ended(
    tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "CANCEL_SECONDS", 0.2)
    slurm("sbatch", "echo 7")
    for name in ("scancel", "scontrol"):
        slurm(name, "exit 1")
    job = SlurmJob(tmp_path / "slurm.sh")
    assert job.cancel() is False
    slurm("scontrol", "echo '   JobState=CANCELLED Reason=None Dependency=(null)'")
    assert job.cancel() is True


def test_a_run_that_slurm_refuses_says_how_it_is_started_where_it_lies(
    tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    slurm("sbatch", "echo 'sbatch: error: invalid partition' >&2; exit 1")
    small = ["--workload", "digits-mlp+width=32", "--devices", "2", "--batch-size", "48"]
    for words in (["torch:ddp", *small, "--out", "a run"], ["--resume", "a run"]):
        with pytest.raises(ConfigError, match="invalid partition") as refused:
            main([*words, "--on", "slurm:partition=al"])
        line = "samestep run --resume 'a run' --on slurm:partition=al"
        assert refused.value.__notes__ == [f"the run in a run was not started; once that is put right: {line}"]


def test_a_comparison_that_slurm_refuses_is_a_wrong_request_and_leaves_nothing(
    tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    slurm("sbatch", "echo 'sbatch: error: invalid partition' >&2; exit 1")
    words = ["torch:ddp", "--batch-size", "48", "--on", "slurm:partition=al", "--report"]
    for place in ([], ["--out", "out"]):
        with pytest.raises(ConfigError, match=r"^Slurm refuses the job: invalid partition$"):
            compare.main([*words, *place])
    assert [path.name for path in here.rglob("*")] == ["runs"], "the folder of all runs"


def test_a_path_means_nothing_else_to_slurm() -> None:
    run = parse(RunConfig(strategy="ddp", devices=2, workload="digits-mlp"))
    script = render(read_target("--for", "slurm"), run, Path('/runs/50%j é "x"'))
    assert '#SBATCH --output="/runs/50%%j é \\"x\\"/slurm-%j.log"' in script
    with pytest.raises(ConfigError, match=r"slurm cannot read '.*' in '.*'; name another directory by --out"):
        render(read_target("--for", "slurm"), run, Path("/runs/a\\b"))
