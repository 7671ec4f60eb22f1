"""The driver that `--for ray` writes, with a made-up Ray whose client server has died, or fails, or answers after all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.experiments.submitting.jobs import ProcessJob
from samestep.experiments.submitting.targets import read_target, render

RAY = """
import os, signal, sys, time
alarm, sleep, left = signal.alarm, time.sleep, os.environ["INITS"].split()
faster = 500 if "is-silent" in left else 1  # then a second takes 2 ms
signal.alarm = lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds / faster)
time.sleep = lambda seconds: print("pauses for", seconds, flush=True)
remote = lambda **_: lambda function: function
shutdown = lambda: None
def init(*_, **__):
    match left.pop(0):
        case "fails": raise ConnectionError("the proxy\\nhas lost it")
        case "is-silent": sleep(60)
"""
GROUP = "def placement_group(*_, **__): raise SystemExit(0)"
AT = "Ray at ray://head:10001"


def driven(folder: Path, inits: str, group: str = GROUP) -> tuple[int, list[str]]:
    """Runs the driver; returns its exit code and what it prints."""
    (folder / "ray" / "util").mkdir(parents=True)
    (folder / "ray" / "__init__.py").write_text(RAY)
    (folder / "ray" / "util" / "placement_group.py").write_text(group)
    (folder / "ray" / "util" / "scheduling_strategies.py").write_text("PlacementGroupSchedulingStrategy = None")
    run = parse(RunConfig(strategy="ddp", devices=2, workload="digits-mlp", out=str(folder / "run")))
    (folder / "ray_job.py").write_text(render(read_target("--for", "ray://head:10001"), run, folder / "run"))
    own = {**os.environ, "INITS": inits, "HOME": str(folder)}
    own.pop("RAY_ADDRESS", None)
    done = subprocess.run(
        [sys.executable, str(folder / "ray_job.py")], env=own, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_a_server_that_has_died_is_tried_three_times_and_each_is_said(tmp_path: Path) -> None:
    code, said = driven(tmp_path, "is-silent is-silent is-silent")
    assert code == 1
    silent = f"{AT} takes no client: NoAnswer: no answer within 60 s"
    waits = [f"waits for {AT} to answer: 60 s at most, try {number} of 3" for number in (1, 2, 3)]
    assert said[:-1] == [
        *(waits[0], f"{silent}; tries again", "pauses for 1"),
        *(waits[1], f"{silent}; tries again", "pauses for 5"),
        *(waits[2], silent, "pauses for 0"),
    ]
    assert said[-1].startswith(f"no connection to {AT}; look at its logs")


def test_an_error_is_quoted_and_the_next_try_may_do(tmp_path: Path) -> None:
    code, said = driven(tmp_path, "fails answers")
    assert (code, said) == (0, [f"{AT} takes no client: ConnectionError: the proxy; tries again", "pauses for 1"])


def test_a_rank_that_fails_is_named(tmp_path: Path) -> None:
    code, said = driven(
        tmp_path, "answers", "def placement_group(*_, **__):\n    import __main__\n    __main__.work(1)"
    )
    assert (code, said[-1]) == (1, "RuntimeError: rank 1 ended with 2")


@pytest.mark.parametrize(
    ("line", "reason"),
    [("waits for 2 cores", "2 cores"), ("trains", "")],
)
def test_the_user_is_told_what_a_driver_waits_for(tmp_path: Path, line: str, reason: str) -> None:
    (script := tmp_path / "script.sh").write_text(f"echo first; echo {line}; sleep 60")
    job = ProcessJob("mpi", script, ["bash"], {})
    try:
        while job.log.read_text().count("\n") < 2:
            assert job.ended() is None
        assert job.waits_for() == reason
    finally:
        job.cancel()
