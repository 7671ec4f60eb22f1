"""What disturbs a run while its clock runs is recorded: others on its cores, and what is compiled there."""

import contextlib
import dataclasses
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from samestep.common.batch import digest_order
from samestep.common.judging.confounds import find_confounds
from samestep.common.run import parse
from samestep.common.runtime import measured as recorded
from samestep.common.runtime.measured import LEAST_CORE_SECONDS, Watched, conditions
from samestep.common.runtime.worker.disturbances import CoreSeconds, Disturbances, read_cores
from samestep.common.workload.models.spec import num_params
from samestep.experiments.comparing.confound_report import circumstances
from tests.conftest import RunCell

ACCOUNTS = """cpu  9 9 9 9 9 9 9 9 9 9
cpu0 100 10 50 800 5 7 8 20 100 10
cpu1 200 0 0 800 0 0 0 0 0 0
cpu10 1 1 1 1 1 1 1 1 1 1
intr 123 4
"""


def test_the_cores_are_those_of_the_process_and_guests_count_once(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    file.write_text(ACCOUNTS)
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert read_cores([0], file) == pytest.approx(CoreSeconds(160 * tick, 20 * tick, 1000 * tick))
    assert read_cores([0, 1], file) == pytest.approx(CoreSeconds(360 * tick, 20 * tick, 2000 * tick))


@pytest.mark.parametrize("text", ["", "cpu0 1 2", "cpu0 one 2 3 4 5 6 7 8", None])
def test_without_accounts_nothing_is_known(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert read_cores([0], tmp_path / "stat") is None


def test_compilations_count_from_the_first_timed_window_on() -> None:
    counts = iter([5, 5, 7])
    disturbances = Disturbances(lambda: next(counts))
    disturbances.start()
    disturbances.start()
    disturbances.stop()
    assert disturbances.watched == Watched()
    disturbances.stop()
    assert disturbances.watched == Watched(compilations=2)


def test_what_the_run_did_not_use_itself_others_had() -> None:
    watched = [Watched(core_seconds=4.0, busy_core_seconds=3.0, stolen_core_seconds=0.2, compilations=1), Watched()]
    found = conditions(10, watched, cpu_seconds=2.0)
    assert (found.others_share, found.stolen_share, found.compilations) == (0.25, 0.05, 1)
    assert conditions(10, watched, cpu_seconds=3.5).others_share == 0.0, "ticks are not exact"


def test_of_a_run_that_is_too_short_nobody_knows() -> None:
    short = conditions(10, [Watched(core_seconds=0.9 * LEAST_CORE_SECONDS, busy_core_seconds=0.5)], 0.0)
    assert (short.others_share, short.stolen_share) == (None, None)


def test_the_order_is_that_of_the_first_batches() -> None:
    usual = digest_order(64, 8, seed=0)
    assert usual == digest_order(64, 8, seed=0)
    assert (
        len({usual, digest_order(64, 8, 1), digest_order(64, 16, 0), digest_order(72, 8, 0), digest_order(64, 8, 0, 4)})
        == 5
    )


# --- real runs --------------------------------------------------------------------------------------------------------


def _spin(cores: set[int]) -> None:
    os.sched_setaffinity(0, cores)
    while True:
        pass


@contextlib.contextmanager
def busy(cores: set[int]) -> Iterator[None]:
    """Three others compute on some cores: a run that the kernel favours in its first milliseconds gets less than most of them."""
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_spin, args=(cores,), daemon=True) for _ in range(3)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def test_others_on_the_cores_of_a_run_stop_its_ranking(run_cell: RunCell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run takes the first cores that it may have: the other process spins on the same one."""
    if read_cores(os.sched_getaffinity(0)) is None:
        pytest.skip("the kernel keeps no accounts of its cores here")
    monkeypatch.setattr(recorded, "LEAST_CORE_SECONDS", 0.1)
    with busy({min(os.sched_getaffinity(0))}):
        run = run_cell("numpy:oracle", "digits-mlp", dtype="float64", steps=250, parity=False)
    assert run.conditions.others_share is not None
    assert 0.2 < run.conditions.others_share < 1
    names = [each.name for each in find_confounds(circumstances(run), circumstances(run))]
    assert names == ["busy"]


def test_the_order_and_the_optimizer_state_of_a_run_are_recorded(run_cell: RunCell) -> None:
    asked = {"dtype": "float64", "steps": 3, "optimizer": "adamw", "parity": False}
    usual, other = (run_cell("numpy:oracle", "digits-mlp+width=8", seed=seed, **asked) for seed in (0, 1))
    quiet = (
        dataclasses.replace(usual.conditions, others_share=0.0),
        dataclasses.replace(other.conditions, others_share=0.0),
    )
    usual, other = (dataclasses.replace(r, conditions=c) for r, c in zip((usual, other), quiet, strict=True))
    assert [each.name for each in find_confounds(circumstances(usual), circumstances(other))] == ["order"]
    assert {row.optimizer_dtype for row in usual.processes} == {"float64"}
    assert usual.conditions.num_parameters == num_params(parse(usual.config).workload.model)
