"""`--bit-equal`: a gate that sees what the bounds of float32 do not, where the versions and the machine are the same."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import samestep
from samestep.common.errors import ConfigError
from samestep.common.program import TrainState
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.state_file import digest_state, write_state
from samestep.experiments import compare
from samestep.experiments.cli.ending import run_command
from samestep.experiments.comparing.against import Against, Earlier, hold
from samestep.experiments.printing.against_report import write_report
from tests.experiments.comparisons import TRAINED, make_up
from tests.results import leave, made

SYSTEM = "Linux-6.1.0-28-x86_64-with-glibc2.36"
DDP = made("torch:ddp", state_sha256="a" * 64)
DDP = dataclasses.replace(DDP, machine=DDP.machine | {"system": SYSTEM})


@pytest.fixture(autouse=True)
def wide_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def changed(**fields: object) -> RunResult:
    return dataclasses.replace(DDP, **fields)


def held(now: RunResult, *then: RunResult, bit_equal: bool = True) -> Against:
    return hold({"torch:ddp": [now]}, Earlier(Path("old"), {"torch:ddp": list(then or [DDP])}), (), bit_equal)


def trained_with(factor: float, optimizer: str) -> tuple[float, ...]:
    """The losses of a regression in float32 of whose gradients each is multiplied, as a wrong mean would do it."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((64, 8)).astype(np.float32)
    targets = (inputs @ generator.standard_normal(8)).astype(np.float32)
    weight, moment, square, losses = np.zeros(8, np.float32), np.zeros(8, np.float32), np.zeros(8, np.float32), []
    for step in range(1, len(DDP.losses) + 1):
        error = inputs @ weight - targets
        losses.append(float(np.mean(error * error, dtype=np.float32)))
        gradient = np.float32(factor) * (inputs.T @ error * np.float32(2 / 64))
        if optimizer == "adamw":
            moment = moment * np.float32(0.9) + gradient * np.float32(0.1)
            square = square * np.float32(0.999) + gradient**2 * np.float32(0.001)
            rate = np.float32(0.05 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step))
            weight = weight - rate * moment / (np.sqrt(square) + np.float32(1e-8))
        else:
            weight = weight - np.float32(0.05) * gradient
    return tuple(losses)


# --- what it sees -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_gradients_that_are_a_millionth_too_large_are_red_in_float32(optimizer: str) -> None:
    then, now = (changed(losses=trained_with(factor, optimizer)) for factor in (1.0, 1 + 1e-6))
    again = changed(losses=trained_with(1.0, optimizer))
    first = next(step for step, pair in enumerate(zip(now.losses, then.losses, strict=True)) if pair[0] != pair[1])
    assert held(now, then, bit_equal=False).changed == "", "as far as its bounds go, it is the same step"
    found = held(now, then)
    assert found.changed == f"torch:ddp (step {first}) did not take the step that old has."
    assert f"NOT BIT-EQUAL from step {first}" in write_report(found)
    assert (
        f"the loss of step {first} is {now.losses[first]!r} and was {then.losses[first]!r}: not bit-equal"
        in write_report(found)
    )
    assert [case.outcome for case in found.cases()] == ["failure"]
    assert (held(again, then).changed, held(again, then).lack()) == ("", "")


def test_a_last_bit_of_any_loss_is_seen() -> None:
    for step in (0, len(DDP.losses) - 1):
        losses = list(DDP.losses)
        losses[step] = float(np.nextafter(losses[step], 9.0))
        assert held(changed(losses=tuple(losses))).changed.startswith(f"torch:ddp (step {step}) did not")


def test_a_state_that_changed_is_seen_though_no_loss_did() -> None:
    found = held(changed(state_sha256="b" * 64))
    assert found.changed == "torch:ddp did not take the step that old has."
    assert "NOT BIT-EQUAL in the final state" in write_report(found)
    assert "the state after step 29 is not bit-equal, though every loss is" in found.rows[0].what_changed
    assert held(changed(state_sha256="b" * 64), bit_equal=False).changed == ""
    assert held(changed(state_sha256="")).changed == "", "one of the two has none"


def test_any_round_that_is_another_one_is_seen() -> None:
    other = changed(losses=(*DDP.losses[:-1], 0.125))
    found = hold({"torch:ddp": [DDP, DDP, other]}, Earlier(Path("old"), {"torch:ddp": [DDP, DDP]}), (), True)
    assert found.changed


# --- where bits cannot be expected ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "told"),
    [
        (changed(versions=DDP.versions | {"torch": "2.12"}), f"torch {DDP.versions['torch']} and 2.12"),
        (changed(versions=DDP.versions | {"numpy": "1.26"}), f"numpy {DDP.versions['numpy']} and 1.26"),
        (changed(versions=DDP.versions | {"deepspeed": "1"}), "deepspeed none and 1"),
        (changed(machine=DDP.machine | {"cpu": "another"}), "and another"),
        (
            changed(machine=DDP.machine | {"system": SYSTEM.replace("2.36", "2.41")}),
            "C library glibc2.36 and glibc2.41",
        ),
        (changed(backend="nccl"), "backend gloo and nccl"),
        (changed(device_note="8 x H200"), "and 8 x H200"),
    ],
)
def test_other_versions_or_another_machine_are_named_and_nothing_is_judged(then: RunResult, told: str) -> None:
    rounded = changed(losses=tuple(loss * (1 + 1e-9) for loss in DDP.losses))
    found = held(rounded, then)
    assert found.changed == ""
    assert found.lack().startswith("nothing could be held against old: bits cannot be expected to be equal: ")
    assert told in found.lack()
    assert "bits not judged: torch:ddp: " in write_report(found)
    assert [case.outcome for case in found.cases()] == ["skipped"]
    assert held(rounded, then, bit_equal=False).lack() == ""


@pytest.mark.parametrize(
    "then",
    [
        changed(versions=DDP.versions | {"samestep": "0.1"}),
        changed(git_commit="0" * 40),
        changed(machine=DDP.machine | {"host": "elsewhere", "cores": 96, "memory_bytes": 2**40}),
        changed(machine=DDP.machine | {"system": SYSTEM.replace("6.1.0-28", "6.12.1")}),
        changed(startup_seconds=9.0),
    ],
)
def test_what_computes_nothing_is_no_excuse(then: RunResult) -> None:
    """A change of samestep itself least of all: it is what the gate is for."""
    assert held(DDP, then).lack() == ""
    assert held(changed(losses=(*DDP.losses[:-1], 0.125)), then).changed


def test_a_step_beyond_the_bounds_is_red_whatever_the_versions_are() -> None:
    then = changed(versions=DDP.versions | {"torch": "2.12"})
    assert (
        held(changed(losses=(*DDP.losses[:-1], 9.0)), then).changed
        == "torch:ddp (step 29) did not take the step that old has."
    )


def test_a_baseline_that_is_not_reproducible_cannot_be_held_against() -> None:
    other = changed(losses=(*DDP.losses[:-1], float(np.nextafter(DDP.losses[-1], 9.0))))
    assert "the earlier rounds are not bit-equal among themselves" in held(DDP, DDP, other).lack()


def test_one_row_that_could_not_be_judged_is_not_green() -> None:
    pp = made("torch:pp")
    rows = {"torch:ddp": [DDP], "torch:pp": [pp]}
    then = {"torch:ddp": [DDP], "torch:pp": [dataclasses.replace(pp, versions=pp.versions | {"torch": "2.12"})]}
    assert (
        hold(rows, Earlier(Path("old"), then), (), True)
        .lack()
        .startswith("torch:pp could not be held against old: bits")
    )
    assert hold(rows, Earlier(Path("old"), then), ()).lack() == ""


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        (lambda then: then, 0, ""),
        (
            lambda then: dataclasses.replace(
                then, losses=(*then.losses[:2], then.losses[2] * (1 + 1e-7), *then.losses[3:])
            ),
            4,
            "torch:ddp (step 2) did not take the step that",
        ),
        (lambda then: dataclasses.replace(then, versions=then.versions | {"torch": "0.1"}), 3, "and 0.1"),
    ],
)
def test_the_gate_ends_with_its_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[RunResult], RunResult],
    code: int,
    told: str,
) -> None:
    make_up(monkeypatch, {})
    leave(tmp_path / "old", change(TRAINED))
    line = (
        f"--strategies torch:ddp --workload digits-mlp+width=32 --steps {TRAINED.steps} --batch-size 48 --optimizer sgd"
    )
    ways = [
        *line.split(),
        "--against",
        str(tmp_path / "old"),
        "--bit-equal",
        "--format",
        "json",
        "--out",
        str(tmp_path / "new"),
    ]
    monkeypatch.setattr(sys, "argv", ["compare", *ways])
    with pytest.raises(SystemExit) as ended:
        run_command(compare.main)
    printed = capsys.readouterr()
    assert ended.value.code == code
    assert told in printed.err.splitlines()[-1]
    assert json.loads(printed.out)["exit_code"] == code


def test_bits_of_nothing_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for ask in (lambda: compare.main(["--bit-equal"]), lambda: samestep.compare(bit_equal=True)):
        with pytest.raises(
            ConfigError, match="--bit-equal compares with an earlier comparison; name it with --against"
        ):
            ask()
    assert not list(tmp_path.iterdir())


# --- the state ----------------------------------------------------------------------------------------------------------


def test_every_bit_of_a_state_counts(tmp_path: Path) -> None:
    def digest(**changes: object) -> str:
        value = np.array([[1.0, 2.0]], np.float32)
        state = TrainState(3, {"a": value, "b": value + 1}, {"mean": {"a": value}}, {"running": value})
        write_state(tmp_path, dataclasses.replace(state, **changes))
        return digest_state(tmp_path)

    assert digest_state(tmp_path) == ""
    value = np.array([[1.0, 2.0]], np.float32)
    b = value + 1
    others = [
        digest(step=4),
        digest(params={"a": np.nextafter(value, np.float32(9)), "b": b}),
        digest(params={"a": b, "b": value}),
        digest(params={"a": value.T.copy(), "b": b}),
        digest(params={"a": -0.0 * value, "b": b}),
        digest(params={"a": 0.0 * value, "b": b}),
        digest(slots={"mean": {"a": b}}),
        digest(buffers={}),
        digest(local=({"residual": value},)),
    ]
    assert digest() == digest()
    assert len({digest(), *others}) == 1 + len(others)


@pytest.mark.torch
def test_a_run_that_is_repeated_has_the_same_state(run_cell: Callable[..., RunResult]) -> None:
    one, two = (run_cell("torch:ddp", "digits-mlp", devices=2, steps=3) for _ in range(2))
    assert one.state_sha256 == two.state_sha256 != ""
    assert run_cell("torch:ddp", "digits-mlp", devices=2, steps=3, seed=1).state_sha256 not in ("", one.state_sha256)
