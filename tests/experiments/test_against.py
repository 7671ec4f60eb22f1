"""A comparison held against an earlier one: losses, bytes, speeds, what only one has; and the exit code of the gate."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.common.ledger import Exchange
from samestep.common.runtime.measured import Conditions
from samestep.common.runtime.records import DeviceRow, RunResult
from samestep.experiments import compare
from samestep.experiments.cli.ending import run_command
from samestep.experiments.comparing.against import Against, Earlier, hold
from samestep.experiments.comparing.baseline import load_earlier
from samestep.experiments.printing.against_report import write_report
from tests.experiments.comparisons import TRAINED, keep, make_up
from tests.results import REAL, leave, made

QUIET = Conditions(others_share=0.01)
DDP = made("torch:ddp", conditions=QUIET)
FSDP = made("torch:fsdp", conditions=QUIET)


@pytest.fixture(autouse=True)
def wide_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def changed(result: RunResult, **fields: object) -> RunResult:
    return dataclasses.replace(result, **fields)


def with_loss(step: int, factor: float, result: RunResult = DDP) -> RunResult:
    """A run of which one loss is another."""
    losses = list(result.losses)
    losses[step] *= factor
    return changed(result, losses=tuple(losses))


def on_devices(result: RunResult, **fields: object) -> RunResult:
    rows = [DeviceRow(**dataclasses.asdict(row) | fields) for row in result.processes]
    return changed(result, processes=rows)


def held(now: RunResult, then: RunResult = DDP, allowed: tuple[str, ...] = ()) -> Against:
    return hold({"torch:ddp": [now]}, Earlier(Path("old"), {"torch:ddp": [then]}), allowed)


def fast(speed: float, result: RunResult = DDP) -> RunResult:
    return made(f"{result.framework}:{result.strategy}", (speed, speed, speed), conditions=QUIET)


# --- the step ---------------------------------------------------------------------------------------------------------


def test_a_repetition_is_equal_in_every_bit_and_byte() -> None:
    found = held(DDP)
    assert (found.changed, found.lack()) == ("", "")
    assert f"| torch:ddp | bit-equal, {len(DDP.losses)} steps | equal |" in " ".join(write_report(found).split())
    assert [case.outcome for case in found.cases()] == ["passed"]


def test_rounding_is_no_change() -> None:
    found = held(with_loss(3, 1 + 1e-7))
    assert found.changed == ""
    assert "equal but for rounding, from step 3" in write_report(found)


def test_a_loss_that_changed_is_named_with_its_step() -> None:
    found = held(with_loss(3, 1.5))
    assert found.changed == "torch:ddp (step 3) did not take the step that old has."
    assert "CHANGED at step 3" in write_report(found)
    assert "the loss of step 3 is" in found.rows[0].what_changed
    assert "relative deviation 5.0e-01, allowed 1e-05" in found.rows[0].what_changed
    assert [case.outcome for case in found.cases()] == ["failure"]


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (on_devices(DDP, gradients_bytes=0), "gradients: 0 B on device 0, and were "),
        (on_devices(DDP, params_peak_bytes=2**20), "parameters at their peak: 1.0 MiB on device 0, and were "),
        (changed(DDP, processes=DDP.processes[:1]), "parameters on 1 devices, and were on 2"),
        (changed(DDP, exchanges=()), "a step has no all_reduce and had "),
        (
            changed(DDP, exchanges=(*DDP.exchanges, Exchange("broadcast", 2, 1024))),
            "2 x broadcast of 1.0 KiB and had no",
        ),
        (on_devices(DDP, sent_bytes_per_step=2.0**20), "2.0 MiB on the wire, and were "),
    ],
)
def test_bytes_that_changed_are_named(now: RunResult, told: str) -> None:
    found = held(now)
    assert told in "; ".join(found.rows[0].bytes)
    assert found.changed
    assert "CHANGED" in write_report(found)


def test_what_a_backend_adds_on_the_wire_may_vary() -> None:
    sent = DDP.processes[0].sent_bytes_per_step
    assert held(on_devices(DDP, sent_bytes_per_step=1.004 * sent)).changed == ""


def test_a_step_that_changed_in_one_round_changed() -> None:
    rounds = {"torch:ddp": [DDP, with_loss(3, 1.5), DDP]}
    assert hold(rounds, Earlier(Path("old"), {"torch:ddp": [DDP]}), ()).changed


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (changed(DDP, global_batch_size=96), "another request: batch (48 and 96)"),
        (changed(DDP, seed=1), "another request: order (seed 0 and 1)"),
        (changed(DDP, dtype="float64"), "another request: dtype (float32 and float64)"),
        (changed(DDP, mesh="data=4"), "another request: mesh (data=2 and data=4)"),
    ],
)
def test_another_request_is_not_compared_and_what_differs_is_named(then: RunResult, why: str) -> None:
    found = held(DDP, then)
    assert found.rows[0].reason == why
    assert found.lack() == f"nothing could be held against old: {why}."
    assert not found.changed
    assert "not compared" in write_report(found)


def test_an_option_that_did_not_exist_then_is_no_difference() -> None:
    now = changed(DDP, config=dataclasses.replace(DDP.config, options={"bucket_bytes": None}))
    then = changed(DDP, config=dataclasses.replace(DDP.config, options={}))
    assert held(now, then).lack() == held(DDP, then).lack() == ""
    other = changed(DDP, config=dataclasses.replace(DDP.config, options={"bucket_bytes": 1024}))
    assert held(now, other).rows[0].reason == "another request: bucket_bytes (None and 1024)"


def test_a_strategy_whose_bits_vary_is_not_compared() -> None:
    then = made("torch:rpc_parameter_server+consistency=async")
    (row,) = hold({"it": [then]}, Earlier(Path("old"), {"it": [then]}), ()).rows
    assert row.reason == "gradients are applied in the order in which they arrive"


# --- speeds -----------------------------------------------------------------------------------------------------------

NOW, THEN = (200.0, 204.0, 198.0, 201.0, 199.0), (100.0, 101.0, 99.0, 102.0, 98.0)


def ratio(now: list[RunResult], then: list[RunResult], allowed: tuple[str, ...] = ()) -> str:
    found = hold({"torch:ddp": now}, Earlier(Path("old"), {"torch:ddp": then}), allowed)
    line = next(line for line in write_report(found).splitlines() if line.startswith("| torch:ddp"))
    return line.split("|")[5].strip()


def test_five_rounds_of_each_give_a_verdict() -> None:
    now, then = [fast(speed) for speed in NOW], [fast(speed) for speed in THEN]
    assert ratio(now, then) == "2.00x faster"
    assert ratio(then, now) == "0.50x slower"
    assert ratio(then, list(reversed(then))) == "1.00x not separated"
    assert ratio(now[:4], then) == "2.01x"
    assert ratio(now[:1], then[:1]) == "2.00x"


def test_versions_are_what_one_looks_for_and_a_machine_is_a_confound() -> None:
    newer = [changed(fast(speed), versions=DDP.versions | {"torch": "9.9"}) for speed in NOW]
    then = [fast(speed) for speed in THEN]
    assert ratio(newer, then) == "2.00x faster"
    found = hold({"torch:ddp": newer}, Earlier(Path("old"), {"torch:ddp": then}), ())
    assert write_report(found).startswith(f"Against old (today first): torch 9.9 and {DDP.versions['torch']}.")
    moved = [changed(each, machine=DDP.machine | {"cpu": "another"}) for each in newer]
    assert ratio(moved, then) == "(machine)"
    assert ratio(moved, then, ("machine",)) == "2.00x faster"


def test_a_busy_run_of_either_side_stops_the_verdict() -> None:
    now, then = [fast(speed) for speed in NOW], [fast(speed) for speed in THEN]
    busy = [*then[:4], changed(then[4], conditions=Conditions(others_share=0.5))]
    assert ratio(now, busy) == "(busy)"


# --- directories ------------------------------------------------------------------------------------------------------


def test_a_comparison_is_read_with_its_rounds(tmp_path: Path) -> None:
    directory = keep(
        tmp_path / "c", {"numpy:oracle": [made("numpy:oracle")], "torch:ddp": [DDP, DDP], "torch:fsdp": [FSDP]}
    )
    rows = load_earlier(directory).rows
    assert {cell: len(results) for cell, results in rows.items()} == {
        "numpy:oracle": 1,
        "torch:ddp": 2,
        "torch:fsdp": 1,
    }


def test_a_single_run_and_directories_of_runs_are_read(tmp_path: Path) -> None:
    assert list(load_earlier(REAL).rows) == ["torch:ddp"]
    larger = changed(DDP, global_batch_size=96, config=dataclasses.replace(DDP.config, batch_size=96))
    for number, result in enumerate([DDP, DDP, FSDP, larger]):
        leave(tmp_path / "runs" / str(number), result)
    rows = load_earlier(tmp_path).rows
    assert {cell: len(results) for cell, results in rows.items()} == {
        "torch:ddp": 2,
        "torch:fsdp": 1,
        "torch:ddp #2": 1,
    }


def test_rows_that_only_one_has_are_listed() -> None:
    found = hold({"a": [DDP]}, Earlier(Path("old"), {"b": [FSDP]}), ())
    assert (found.only_now, found.only_then) == (("a",), ("b",))
    assert found.lack() == "nothing could be held against old: no row is in both."
    assert "* only today: a\n* only in old: b" in write_report(found)


def test_a_required_row_must_be_held() -> None:
    found = hold({"a": [DDP], "b": [FSDP]}, Earlier(Path("old"), {"a": [DDP]}), ())
    assert (found.lack(), found.lack(["a"])) == ("", "")
    assert found.lack(["a", "b"]) == "b could not be held against old: no row is in both."


def test_the_row_of_the_same_request_is_found_however_it_is_spelled() -> None:
    larger = changed(DDP, global_batch_size=96)
    found = hold({"torch:ddp+batch_size=96": [larger]}, Earlier(Path("old"), {"x": [DDP], "y": [larger]}), ())
    assert (found.rows[0].losses is not None, found.only_then) == (True, ("x",))


@pytest.mark.parametrize("name", ["nothing", "."])
def test_a_directory_without_a_run_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no finished run; name the directory of a comparison, of a run, or of"):
        load_earlier(tmp_path / name)


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_printed_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = [f"torch:{name}" for name in ("zero1", "zero2", "fsdp", "deepspeed", "rpc_parameter_server", "hybrid")]
    now = {name: [made(name, conditions=Conditions(others_share=0.3))] for name in names}
    then = {name: [with_loss(4, 1.1, made(name))] for name in names[1:]}
    report = write_report(hold(now, Earlier(Path("runs/a-directory-with-a-name"), then), ("machine",)))
    assert max(map(len, report.splitlines())) <= width


# --- the command ------------------------------------------------------------------------------------------------------

Gate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Gate:
    """Compares torch:ddp, made up, with an earlier result of it; returns the exit code and what was printed."""

    def gate(then: RunResult, *more: str) -> tuple[int, str, str]:
        make_up(monkeypatch, {})
        leave(tmp_path / "old", then)
        line = ["--strategies", "torch:ddp", "--workload", "digits-mlp+width=32", "--steps", str(TRAINED.steps)]
        line += ["--batch-size", str(TRAINED.global_batch_size), "--optimizer", "sgd", "--out", str(tmp_path / "new")]
        monkeypatch.setattr(sys, "argv", ["compare", *line, "--against", str(tmp_path / "old"), *more])
        with pytest.raises(SystemExit) as ended:
            run_command(compare.main)
        told = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, told.out, told.err.splitlines()[-1]

    return gate


def test_the_gate_is_green_if_nothing_changed(gate: Gate) -> None:
    code, printed, _ = gate(TRAINED)
    assert code == 0
    assert "bit-equal" in printed


def test_the_gate_is_red_with_code_4_if_the_step_changed(gate: Gate, tmp_path: Path) -> None:
    code, printed, last = gate(with_loss(2, 1.01, TRAINED), "--format", "json")
    assert (code, last) == (4, f"samestep: torch:ddp (step 2) did not take the step that {tmp_path / 'old'} has.")
    told = json.loads(printed)
    assert told["exit_code"] == 4
    assert told["against"]["rows"][0]["losses"]["step"] == 2


def test_the_gate_is_not_green_if_nothing_could_be_compared(gate: Gate) -> None:
    code, _, last = gate(changed(TRAINED, seed=3, config=dataclasses.replace(TRAINED.config, seed=3)))
    assert code == 3
    assert last.endswith("another request: order (seed 0 and 3).")


def test_an_unknown_confound_and_a_missing_directory_are_refused_at_once(gate: Gate, tmp_path: Path) -> None:
    code, printed, last = gate(TRAINED, "--allow", "machine,buzy")
    assert (code, printed) == (2, "")
    assert "unknown confound 'buzy'. Did you mean 'busy'?" in last
    assert not (tmp_path / "new").exists()
