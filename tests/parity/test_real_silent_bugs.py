"""Silent bugs in the real programs of torch and TensorFlow are caught, and named by their own names."""

import dataclasses
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.reference.known import KNOWN
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from tests.lent import LentLauncher

GPT = "prose-gpt+layers=1+heads=2+width=16+context=8"
NORMED = "digits-mlp+width=16+norm=batch"
EXPERTS = f"{GPT}+experts=4+balance=0.5"
DILOCO = "local_steps=3+outer_rate=0.7+outer_momentum=0.9"
SENTENCES = {mutant.name: mutant.sentence.format(devices=2) for mutant in KNOWN}
CASES = [
    ("torch_times_microbatches", "ddp+accumulation_steps=4", GPT),
    ("torch_local_positions", "cp", GPT),
    ("torch_local_attention", "cp+devices=4+mesh=data=2,context=2", GPT),
    ("torch_shifted_in_parts", "cp", f"{GPT}+ignored=0.5"),
    ("torch_divided_by_microbatches", "pp+microbatches=4", GPT),
    ("torch_last_microbatch_only", "c10d+accumulation_steps=2", GPT),
    ("torch_clip_forgotten", "ddp+clip_norm=0.05", GPT),
    ("torch_clip_by_local_norm", "ddp+clip_norm=0.05", GPT),
    ("torch_clip_counts_replicas", "ddp+clip_norm=0.05", GPT),
    ("torch_clip_each_parameter", "ddp+clip_norm=0.05", GPT),
    ("torch_unscaled_dropout", "ddp", f"{GPT}+dropout=0.2"),
    ("torch_same_mask_on_every_shard", "ddp", f"{GPT}+dropout=0.2"),
    ("torch_same_data_on_every_worker", "ddp", GPT),
    ("torch_same_data_on_every_worker", "hybrid+devices=4+mesh=data=2,tensor=2", GPT),
    ("torch_padded_sample_twice", "ddp", GPT),
    ("torch_loss_summed", "ddp", GPT),
    ("torch_ignored_counted", "ddp", f"{GPT}+ignored=0.5"),
    ("torch_clip_on_one_rank", "ddp+clip_norm=0.05", GPT),
    ("torch_same_order_each_epoch", "ddp", "synthetic-mlp+width=8+examples=32"),
    ("torch_local_statistics", "ddp+batch_norm=sync", NORMED),
    ("torch_statistics_of_last_microbatch", "ddp+accumulation_steps=2", NORMED),
    ("torch_statistics_moved_twice", "c10d", NORMED),
    ("torch_balance_of_shards", "ddp", EXPERTS),
    ("torch_balance_of_shards", "ep", EXPERTS),
    ("torch_expert_gradients_over_replicas", "ep", EXPERTS),
    ("tf_local_statistics", "mirrored+batch_norm=sync", NORMED),
    ("tf_ignored_counted", "mirrored", f"{GPT}+ignored=0.5"),
    ("tf_clip_forgotten", "mirrored+clip_norm=0.05", GPT),
    ("tf_same_mask_on_every_shard", "mirrored", f"{GPT}+dropout=0.2"),
    ("torch_error_feedback_dropped", "ddp+compress=int8", GPT),
    ("torch_scale_by_rank", "ddp+compress=int8", GPT),
    ("tf_error_feedback_dropped", "mirrored+compress=int8", GPT),
    ("torch_gradients_averaged_too", f"ddp+{DILOCO}", GPT),
    ("torch_own_weights_kept", f"ddp+{DILOCO}", GPT),
    ("torch_outer_momentum_forgotten", f"ddp+{DILOCO}", GPT),
    ("tf_outer_step_uphill", f"mirrored+{DILOCO}", GPT),
]


FAST = (
    "torch_local_attention",
    "torch_last_microbatch_only",
    "torch_clip_by_local_norm",
    "torch_same_mask_on_every_shard",
    "torch_ignored_counted",
    "torch_local_statistics",
    "tf_clip_forgotten",
    "torch_scale_by_rank",
    "torch_own_weights_kept",
)
"""One of each kind; the others are for `make test-slow`."""


def test_at_least_twelve_are_made_in_real_programs() -> None:
    assert len({bug.partition("_")[2] for bug, _, _ in CASES} & {*SENTENCES}) >= 12


@pytest.fixture(scope="module")
def silent_launcher(launcher: Launcher) -> Launcher:
    return LentLauncher(launcher, "tests.parity.silent_worker")


@pytest.mark.parametrize(
    ("bug", "cell", "workload"),
    [
        pytest.param(
            *case,
            id=case[0],
            marks=[getattr(pytest.mark, case[0].partition("_")[0]), *([] if case[0] in FAST else [pytest.mark.slow])],
        )
        for case in CASES
    ],
)
def test_a_silent_bug_is_caught_and_named(
    silent_launcher: Launcher, tmp_path: Path, bug: str, cell: str, workload: str
) -> None:
    framework, _, name = bug.partition("_")
    base = RunConfig(
        workload=workload, optimizer="sgd", devices=2, batch_size=16, steps=3, dtype="float64", parity=True
    )
    asked = dataclasses.replace(Cell.parse(f"{framework}:{cell}").apply_to(base), out=str(tmp_path / "run"))
    result = silent_launcher.run(parse(asked), launch_of(asked), environment={"MUTANT": bug})
    assert result.parity.passed is False
    assert SENTENCES[name] in result.parity.reason


@pytest.mark.torch
def test_statistics_that_are_off_show_in_float32_where_no_loss_does(silent_launcher: Launcher, tmp_path: Path) -> None:
    base = RunConfig(workload=NORMED, optimizer="sgd", devices=2, batch_size=16, steps=3, parity=True)
    config = dataclasses.replace(Cell.parse("torch:c10d").apply_to(base), out=str(tmp_path / "run"))
    bug = {"MUTANT": "torch_statistics_moved_twice"}
    parity = silent_launcher.run(parse(config), launch_of(config), environment=bug).parity
    assert (parity.passed, parity.first_bad_step) == (False, None)
    assert SENTENCES["statistics_moved_twice"] in parity.reason


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("bug", "workload"),
    [
        ("torch_position_lost", GPT),
        ("torch_running_statistics_lost", NORMED),
    ],
)
def test_what_a_continued_run_has_lost_is_named(
    launcher: Launcher, silent_launcher: Launcher, tmp_path: Path, bug: str, workload: str
) -> None:
    begun = RunConfig(workload=workload, optimizer="sgd", devices=2, batch_size=16, dtype="float64", keep_state=True)
    begun = dataclasses.replace(
        Cell.parse("torch:ddp").apply_to(begun), steps=3, parity=False, out=str(tmp_path / "begun")
    )
    launcher.run(parse(begun), launch_of(begun))
    asked = {"steps": 6, "parity": True, "start_from": str(tmp_path / "begun"), "out": str(tmp_path / "run")}
    config = dataclasses.replace(begun, **asked)
    result = silent_launcher.run(parse(config), launch_of(config), environment={"MUTANT": bug})
    assert result.parity.passed is False
    assert SENTENCES[bug.removeprefix("torch_")] in result.parity.reason


@pytest.mark.torch
@pytest.mark.parametrize(
    ("bug", "cell", "workload", "asked"),
    [
        ("torch_loss_scale_differs_by_rank", "ddp+precision=fp16", GPT, {"steps": 5}),
        pytest.param(
            "torch_masters_in_two_bytes",
            "ddp+precision=bf16",
            "digits-mlp+width=32",
            {"steps": 50, "learning_rate": 0.01},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "torch_clip_before_unscaling",
            "ddp+precision=fp16+clip_norm=0.05",
            GPT,
            {"steps": 5, "optimizer": "adamw"},
            marks=pytest.mark.slow,
        ),
        pytest.param("torch_skipped_on_one_rank", "fsdp+precision=fp16", GPT, {"steps": 5}, marks=pytest.mark.slow),
        pytest.param(
            "torch_local_statistics",
            "ddp+precision=bf16+batch_norm=sync",
            f"{NORMED}+layers=3",
            {"steps": 5, "batch_size": 8},
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda value: value if str(value).startswith("torch_") else "",
)
def test_a_silent_bug_in_two_bytes_breaks_the_derived_bound(
    silent_launcher: Launcher, tmp_path: Path, bug: str, cell: str, workload: str, asked: dict[str, object]
) -> None:
    asked = {"optimizer": "sgd", "batch_size": 16, **asked}
    base = RunConfig(workload=workload, devices=2, parity=True, **asked)
    config = dataclasses.replace(Cell.parse(f"torch:{cell}").apply_to(base), out=str(tmp_path / "run"))
    result = silent_launcher.run(parse(config), launch_of(config), environment={"MUTANT": bug})
    assert result.parity.passed is False
    assert result.parity.max_relative_loss > result.parity.loss_bound
    assert SENTENCES[bug.removeprefix("torch_")] in result.parity.reason


@pytest.mark.torch
@pytest.mark.parametrize("bug", ["torch_masters_in_two_bytes", "torch_loss_summed"])
def test_masters_in_two_bytes_are_seen_where_the_loss_is_within_its_bound(
    silent_launcher: Launcher, tmp_path: Path, bug: str
) -> None:
    base = RunConfig(workload=GPT, optimizer="sgd", devices=2, batch_size=16, steps=2, parity=True)
    config = dataclasses.replace(Cell.parse("torch:ddp+precision=bf16").apply_to(base), out=str(tmp_path / "run"))
    parity = silent_launcher.run(parse(config), launch_of(config), environment={"MUTANT": bug}).parity
    is_within = parity.max_relative_loss <= parity.loss_bound
    assert (parity.passed, is_within) == (False, bug == "torch_masters_in_two_bytes")
    assert SENTENCES[bug.removeprefix("torch_")] in parity.reason


@pytest.mark.torch
@pytest.mark.parametrize(
    ("bug", "cell"),
    [
        ("torch_statistics_moved_twice", "c10d+precision=bf16"),
        pytest.param(
            "torch_statistics_of_last_microbatch", "ddp+precision=bf16+accumulation_steps=2", marks=pytest.mark.slow
        ),
    ],
)
def test_wrong_running_statistics_are_seen_in_two_bytes(
    silent_launcher: Launcher, tmp_path: Path, bug: str, cell: str
) -> None:
    """They are in no loss of training, and no run in float64 can be asked."""
    base = RunConfig(workload=NORMED, devices=2, batch_size=32, steps=3, parity=True, optimizer="sgd")
    config = dataclasses.replace(Cell.parse(f"torch:{cell}").apply_to(base), out=str(tmp_path / "run"))
    result = silent_launcher.run(parse(config), launch_of(config), environment={"MUTANT": bug})
    assert result.parity.passed is False
    assert result.parity.max_relative_loss < result.parity.loss_bound / 10
    assert SENTENCES[bug.removeprefix("torch_")] in result.parity.reason
    assert "after the last step the running statistics are off by" in result.parity.reason
