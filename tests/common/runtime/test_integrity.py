"""A run whose losses are lost while it trains fails, and names the file; the damages of finished runs are in experiments/."""

import itertools
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.directory import read_error
from samestep.common.runtime.integrity import check_losses
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.steps.log import METRICS, read_log

ASKED = RunConfig(framework="numpy", strategy="oracle", dtype="float64", workload="digits-mlp+width=32", steps=40)


def replaced(file: Path) -> None:
    """Another file takes its place: the worker goes on with the old one, which has no name any more."""
    other = file.with_name("other")
    other.write_text(json.dumps({"step": 1, "seconds": 0.1, "losses": [1.5]}) + "\n")
    os.replace(other, file)


def append(file: Path, line: str) -> None:
    with file.open("a") as lines:
        lines.write(f"{line}\n")


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda file: os.truncate(file, 0),
        lambda file: os.truncate(file, 10),
        lambda file: file.write_text("{}\n"),
        lambda file: append(file, "garbage"),
        lambda file: append(file, '{"step": 1, "seconds": 0.1, "losses": [NaN]}'),
        replaced,
        a_folder,
    ],
    ids=["removed", "emptied", "truncated", "overwritten", "garbage", "NaN", "replaced", "folder"],
)
def test_losses_that_are_lost_in_training_fail_the_run(
    launcher: Launcher, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    struck = []

    def strike(step: int, losses: list[float], seconds: float) -> None:
        if not struck:
            struck.append(damage(tmp_path / "run" / METRICS))

    config = RunConfig(**{**vars(ASKED), "out": str(tmp_path / "run")})
    with pytest.raises(WorkerFailed, match=METRICS.replace(".", r"\.")) as failed:
        launcher.run(parse(config), launch_of(config), strike, time.time())
    assert "\n" not in str(failed.value)
    assert not (tmp_path / "run" / "result.json").exists()
    _, left = read_error(tmp_path / "run") or ("", None)
    assert str(left) == str(failed.value)


def test_losses_in_any_windows_are_read_as_they_are(tmp_path: Path) -> None:
    losses = [2.5, 1.5, 1.25, 1.0]
    for cuts in ((0, 4), (0, 1, 4), (0, 1, 2, 3, 4)):
        lines = [
            json.dumps(
                {"step": 3 + end, "seconds": 0.5, "losses": losses[start:end], "learning_rates": [0.1] * (end - start)}
            )
            for start, end in itertools.pairwise(cuts)
        ]
        (tmp_path / METRICS).write_text("\n".join(lines))
        assert read_log(tmp_path).losses == tuple(losses)
        assert [window.step for window in read_log(tmp_path).windows] == [3 + end for end in cuts[1:]]
        check_losses(tmp_path, 3, tuple(losses))
        for first, wanted in (
            (0, losses),
            (3, losses[:3]),
            (3, [*losses, 0.5]),
            (3, [2.5, 1.5, 1.25, math.nextafter(1, 2)]),
        ):
            with pytest.raises(ConfigError, match=METRICS):
                check_losses(tmp_path, first, tuple(wanted))
