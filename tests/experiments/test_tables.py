"""What the tables say holds, and they fit."""

import dataclasses
from pathlib import Path

import pytest

from samestep.common.runtime.records import RunResult, Throughput
from samestep.experiments import compare
from samestep.experiments.comparing.speeds import MeasuredRow, devices
from samestep.experiments.printing import tables
from samestep.experiments.printing.columns import cell, spell_range
from tests.results import EVERY_CELL, alone, deviating, made

LONG = ["torch:deepspeed+zero_stage=3+accumulation_steps=4+clip_norm=0.5", "torch:pp+schedule=interleaved_zero_bubble"]
EVERY_ROW = [made(name) for name in [*EVERY_CELL, *LONG]]
FAILURES = [("torch:rpc_parameter_server+consistency=async+clip_norm=1", "unavailable"), ("tf:dtensor", "not possible")]


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


def row(table: str, name: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.startswith(f"| {name} "))
    return [part.strip() for part in line.strip("|").split("|")]


# --- they fit ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("judged", [30, 12])
def test_every_row_fits(width: int, judged: int) -> None:
    results = [
        r if r.framework == "numpy" else made(cell(r).removesuffix(" (emulated)"), judged=judged) for r in EVERY_ROW
    ]
    printed = f"{tables.caption(alone(results), width)}\n{tables.comparison(alone(results), FAILURES, width)}"
    assert widest(printed) <= width
    for result in results:
        assert cell(result).partition("+")[0] in printed


def test_at_120_columns_nothing_is_left_out() -> None:
    table = tables.comparison(alone(EVERY_ROW), FAILURES, 120)
    assert "--wide" not in table
    assert row(table, "strategy") == ["strategy", "same step", "examples/s", "state KiB", "sent KiB", "start-up s"]
    assert row(table, "torch:ddp")[2:5] == ["16.2k [9.83k..21.2k]", "52.99 (52.99)", "36.45 (36.45)"]


def test_a_narrow_table_names_what_it_leaves_out_and_the_flag_that_shows_it() -> None:
    narrow = tables.comparison(alone([made(name) for name in EVERY_CELL]), width=80)
    assert row(narrow, "strategy") == ["strategy", "same step", "examples/s", "state KiB", "sent KiB"]
    assert row(narrow, "torch:ddp")[1:] == ["yes", "16.2k", "52.99", "36.45"]
    assert "not shown in 80 columns: [spread], (predicted), start-up s; --wide shows all" in narrow


def test_wide_shows_every_column_in_one_line_a_row() -> None:
    wide = tables.comparison(alone(EVERY_ROW), FAILURES, 80, wide=True)
    lines = wide.split("\n\n")[0].splitlines()
    assert len(lines) == 2 + len(EVERY_ROW) + len(FAILURES)
    assert any(LONG[0] in line for line in lines)
    assert "start-up s" in lines[0]
    assert "--wide" not in wide


def test_the_screen_decides_unless_a_width_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert tables.comparison(alone(EVERY_ROW)) == tables.comparison(alone(EVERY_ROW), width=columns)
        assert widest(tables.report(EVERY_ROW[-1])) <= columns


@pytest.mark.parametrize("name", EVERY_CELL)
def test_one_run_fits_80_columns_and_says_what_its_rows_mean(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = tables.report(made(name))
    assert widest(told) <= 80
    assert row(told, "examples/s [spread]")[1] == "16.2k [9.83k..21.2k]"
    assert " ".join(told.split()).count("including the import of the framework") == 1
    if made(name).emulation:
        assert f"{name} (emulated)" in told


# --- what rows have in common -----------------------------------------------------------------------------------------


def test_where_an_engine_ran_each_row_is_in_the_caption() -> None:
    there, both = ({"host": "a"},), ({"host": "a"}, {"host": "b"})
    rows = [
        made("torch:ddp", hosts=both),
        made("torch:fsdp", hosts=both),
        made("torch:dp", hosts=there),
        made("torch:tp"),
    ]
    assert " Ran on a and b: torch:ddp, torch:fsdp; on a: torch:dp" in " ".join(
        tables.caption(alone(rows), 200).split()
    )
    assert "Ran" not in tables.caption(alone(rows[3:]), 200)


def test_what_nearly_all_rows_have_in_common_is_in_the_caption_with_the_exceptions() -> None:
    said = " ".join(tables.caption(alone(EVERY_ROW)).split())
    assert (
        "Every row: devices 2 (numpy:oracle, torch:single, tf:single: 1), dtype float32 (numpy:oracle: float64)" in said
    )
    assert said.endswith("accuracy 0.6908.")
    assert not {"devices", "dtype", "metric"} & {*row(tables.comparison(alone(EVERY_ROW)), "strategy")}
    assert "numpy:oracle: devices 1, dtype float64" in tables.caption(alone([made("numpy:oracle")]), 200), (
        "not every row"
    )


def test_what_differs_is_a_column() -> None:
    half = [
        made(name, dtype="float64" if n % 2 else "float32", metric_value=n / 64) for n, name in enumerate(EVERY_CELL)
    ]
    assert row(tables.comparison(alone(half), width=120), "strategy")[1:3] == ["dtype", "metric"]
    assert "* metric: accuracy, higher is better\n" in tables.comparison(alone(half), width=120)
    assert "dtype" not in tables.caption(alone(half))


def test_two_meshes_of_one_strategy_are_two_names() -> None:
    usual = made("torch:fsdp")
    others = [
        dataclasses.replace(usual.config, mesh=mesh, devices=4) for mesh in ("data=2,shard=2", "data=4", "shard=4")
    ]
    assert [cell(dataclasses.replace(usual, config=config)) for config in [usual.config, *others]] == [
        "torch:fsdp",
        "torch:fsdp+mesh=data=2,shard=2",
        "torch:fsdp+mesh=data=4",
        "torch:fsdp",
    ]


def test_nothing_but_failures_is_a_table() -> None:
    assert row(tables.comparison(alone([]), FAILURES, 80), "tf:dtensor")[1] == "not possible"


def test_devices_that_share_cores_say_so() -> None:
    result = made("torch:ddp")
    asked = dataclasses.replace(result.config, devices=8, mesh="data=8")
    shared = dataclasses.replace(result, config=asked, cores=2)
    on_gpus = [dataclasses.replace(row, device="cuda:0") for row in result.processes]
    assert [devices(dataclasses.replace(shared, cores=cores)) for cores in (1, 2, 8)] == [
        "8 on 1 core",
        "8 on 2 cores",
        "8",
    ]
    assert devices(dataclasses.replace(shared, processes=on_gpus)) == "8"
    threads = dataclasses.replace(shared, config=dataclasses.replace(asked, devices=2, threads=2))
    assert devices(threads) == "2 on 2 cores"
    assert "devices 8 on 2 cores" in tables.caption(alone([shared]), width=200)


@pytest.mark.parametrize("width", [80, 120, None])
def test_what_is_emulated_is_marked_in_its_row_and_explained(width: int | None) -> None:
    printed = tables.comparison(alone(EVERY_ROW), width=width, wide=width is None)
    assert row(printed, "torch:dp (emulated)")
    assert row(printed, "tf:tpu (emulated)")
    assert "* torch:dp is emulated: threads; nn.DataParallel needs two GPUs\n" in printed
    assert "* tf:tpu is emulated: XLA on CPU" in printed
    assert printed.count("(emulated)") == 2


def test_a_strategy_that_is_not_emulated_is_not_said_to_be() -> None:
    plain, narrow = made("torch:ddp"), made("torch:ddp+precision=bf16", emulation="--precision bf16 on CPU cores")
    assert "* torch:ddp+precision=bf16 is emulated: --precision bf16" in tables.comparison(
        alone([plain, narrow]), width=200
    )
    assert "* torch:ddp is emulated: --precision bf16" in tables.comparison(alone([narrow]), width=200)


# --- speed ------------------------------------------------------------------------------------------------------------


def test_no_table_claims_an_interval_or_a_winner() -> None:
    slow, fast = made("torch:ddp", rate=(10.0, 9.0, 11.0)), made("torch:c10d", rate=(1000.0, 900.0, 1100.0))
    printed = (
        f"{tables.caption(alone([slow, fast]))}{tables.comparison(alone([slow, fast]))}{tables.verdict([slow, fast])}"
    )
    assert "%" not in printed
    assert "fastest here" not in printed
    assert "median of the run's timed windows [slowest..fastest]; another run may lie outside" in " ".join(
        printed.split()
    )


def test_one_window_has_no_spread() -> None:
    def spread(result: RunResult) -> str:
        return spell_range(MeasuredRow.of(result))

    assert spread(made("torch:ddp", examples_per_second=Throughput(2.0, 2.0, 2.0, 1))) == "[1 window]"
    assert spread(made("torch:ddp", examples_per_second=Throughput(2.0, None, None, 20))) == ""
    assert spread(made("torch:ddp", rate=None)) == ""


# --- the verdict ------------------------------------------------------------------------------------------------------


def test_a_float32_row_does_not_speak_for_a_float64_table() -> None:
    doubles = [deviating(made(f"torch:{name}", dtype="float64"), 2e-15) for name in ("ddp", "fsdp")]
    single = deviating(made("torch:deepspeed"), 3e-6)
    assert tables.verdict([*doubles, single]) == (
        "3 of 3 strategies took the oracle's 30 steps; largest relative loss deviation 2e-15 in float64, 3e-06 in float32."
    )


def test_a_deviation_is_read_beside_what_it_was_allowed() -> None:
    rounded = made("torch:ddp+precision=bf16")
    rounded = deviating(dataclasses.replace(rounded, parity=dataclasses.replace(rounded.parity, loss_bound=0.08)), 1e-2)
    hot = made("torch:zero1")
    hot = dataclasses.replace(
        hot, parity=dataclasses.replace(hot.parity, is_amplified=True, reason="rounding: so it is")
    )
    assert tables.verdict([deviating(made("torch:fsdp"), 3e-6), rounded, deviating(hot, 8e-4)]) == (
        "3 of 3 strategies took the oracle's 30 steps; largest relative loss deviation 3e-06 in float32, 1e-02 in bf16 "
        "(allowed 8e-02), 8e-04 in amplified float32."
    )
    assert tables.verdict([deviating(hot, 8e-4)]) == (
        "torch:zero1 took the oracle's 30 steps; largest relative loss deviation 8e-04 in amplified float32. Rounding: so it is."
    )


def test_a_run_of_one_step_took_one_step() -> None:
    short = dataclasses.replace(made("torch:ddp"), losses=(2.3,), steps=1)
    short = deviating(dataclasses.replace(short, parity=dataclasses.replace(short.parity, steps=1)), 1e-7)
    assert (
        tables.verdict([short])
        == "torch:ddp took the oracle's 1 step; largest relative loss deviation 1e-07 in float32."
    )
    assert ", 1 step, " in tables.caption(alone([short]))


def test_a_deviation_that_is_not_finite_is_the_largest() -> None:
    lost = dataclasses.replace(made("torch:ddp").parity, passed=False, max_relative_loss=None)
    assert tables.verdict([deviating(made("torch:c10d"), 1e-7), made("torch:ddp", parity=lost)]) == (
        "1 of 2 strategies took the oracle's 30 steps; largest relative loss deviation inf in float32."
    )


@pytest.mark.parametrize(
    ("judged", "column", "said"),
    [
        ([30], ["yes"], "torch:ddp took the oracle's 30 steps"),
        ([12], ["yes, 12 of 30"], "torch:ddp took the oracle's steps, judged at 12 of 30"),
        ([12, 12], ["yes, 12 of 30"] * 2, "2 of 2 rows took the oracle's steps, judged at 12 of 30"),
        ([12, 30], ["yes, 12 of 30", "yes"], "2 of 2 rows took the oracle's steps, judged at 12 to 30 of 30"),
        ([None, 30], ["not judged", "yes"], "torch:ddp took the oracle's 30 steps"),
    ],
)
def test_how_far_rows_were_judged_is_said(judged: list[int | None], column: list[str], said: str) -> None:
    results = [made("torch:ddp", judged=steps) for steps in judged]
    assert tables.verdict(results).startswith(f"{said}; largest relative loss deviation ")
    assert tables.verdict(results).endswith("; --parity judges every step.") == ("judged at" in said)
    table = tables.comparison(alone(results)).splitlines()[2:]
    assert [line.split("|")[2].strip() for line in table[: len(results)]] == column


def test_what_was_not_judged_says_so() -> None:
    unjudged: list[RunResult] = [made("torch:ddp", judged=None)]
    assert tables.verdict(unjudged) == "No run was judged."
    assert row(tables.comparison(alone(unjudged)), "torch:ddp")[1] == "not judged"


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flags", "shown"), [([], False), (["--wide"], True)])
def test_the_flag_that_a_narrow_table_names_shows_the_rest(
    flags: list[str], shown: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    line = "--strategies numpy:oracle --workload synthetic-mlp+width=8 --dtype float64 --steps 3 --batch-size 8"
    assert compare.main([*line.split(), *flags]) == 0
    printed = capsys.readouterr().out
    assert ("start-up s" in row(printed, "strategy")) == shown
    assert ("start-up s; --wide shows all" in printed) != shown


def test_quantities_of_the_strategy_alone_have_titles() -> None:
    result = made("torch:ddp")
    processes = tuple(dataclasses.replace(each, measures={"communication_seconds": 0.012}) for each in result.processes)
    table = tables.report(dataclasses.replace(result, processes=processes))
    assert row(table, "communication seconds")[1] == "0.012 s per step"
    assert "* communication seconds: how long" in table and "communication_seconds" not in table
