"""Negative controls on the real programs: torch and TensorFlow made wrong, caught and named."""

import dataclasses
from pathlib import Path

import pytest

from samestep.common.reference.mutants import MUTANTS
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments import run
from samestep.experiments.cli.ending import run_command
from tests.cells import SIZED, traced_once
from tests.lent import LentLauncher

WORKER = "tests.parity.mutant_worker"
SENTENCES = {mutant.name: mutant.sentence.format(devices=2) for mutant in MUTANTS}
CASES = [
    ("torch_sum_for_mean", "ddp", "mlp", "sgd"),
    ("torch_forgotten_exchange", "ddp", "mlp", "adamw"),
    ("torch_stale_gradient", "single", "mlp", "sgd"),
    ("torch_coupled_decay", "ddp", "mlp", "adamw"),
    ("torch_nesterov", "single", "cnn", "sgd"),
    ("torch_transposed_kernel", "single", "mlp", "adamw"),
    ("torch_tanh_gelu", "single", "transformer", "adamw"),
    ("tf_mean_twice", "mirrored", "mlp", "sgd"),
    ("tf_unsent_gradients", "mirrored", "mlp", "adamw"),
    ("tf_float32_hyper_parameters", "single", "mlp", "sgd"),
    ("tf_epsilon_hat", "single", "mlp", "adamw"),
    ("tf_missing_causal_mask", "single", "transformer", "sgd"),
    ("tf_norm_epsilon", "single", "transformer", "adamw"),
]
SLOW = (
    "tf_mean_twice",
    "torch_coupled_decay",
    "tf_epsilon_hat",
    "tf_missing_causal_mask",
    "tf_norm_epsilon",
)
"""Those of the model or the optimizer whose like is among the others."""
SAME_STEP = {"unsent_gradients": "dropped_shard"}
"""With two devices, the first shard alone and the last shard missing are one and the same."""


@pytest.fixture(scope="module")
def mutant_launcher(launcher: Launcher) -> Launcher:
    return LentLauncher(launcher, WORKER)


@pytest.mark.parametrize(
    ("mutant", "strategy", "model", "optimizer"),
    [
        pytest.param(
            *case,
            id=case[0],
            marks=[getattr(pytest.mark, case[0].partition("_")[0]), *([pytest.mark.slow] if case[0] in SLOW else [])],
        )
        for case in CASES
    ],
)
def test_a_mutated_program_is_caught_and_diagnosed(
    mutant_launcher: Launcher, tmp_path: Path, mutant: str, strategy: str, model: str, optimizer: str
) -> None:
    framework, _, name = mutant.partition("_")
    workload = traced_once(framework, SIZED[model])
    asked = RunConfig(framework=framework, strategy=strategy, workload=workload, optimizer=optimizer, steps=6)
    devices = 1 if strategy == "single" else 2
    asked = dataclasses.replace(
        asked, devices=devices, batch_size=48, dtype="float64", parity=True, out=str(tmp_path / "run")
    )
    result = mutant_launcher.run(parse(asked), launch_of(asked), environment={"MUTANT": mutant})
    assert result.status == "not the same step"
    assert result.parity.passed is False
    assert SENTENCES[SAME_STEP.get(name, name)] in result.parity.reason
    assert (tmp_path / "run" / "state.npz").exists(), "what is wrong can be looked at"


@pytest.mark.torch
def test_the_command_says_why_and_exits_with_4(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lent = LentLauncher(launcher, WORKER, MUTANT="torch_sum_for_mean")
    monkeypatch.setattr("samestep.common.runtime.parent.launcher.Launcher", lambda **_: lent)
    arguments = (
        f"--strategy ddp --devices 2 --workload {SIZED['mlp']} --batch-size 48 --steps 6 --dtype float64 --parity"
    )
    monkeypatch.setattr("sys.argv", ["run", *arguments.split(), "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as ended:
        run_command(run.main)
    assert ended.value.code == 4
    told = capsys.readouterr()
    assert (
        "every gradient is 2 times the oracle's, which is the number of devices: a sum where a mean belongs" in told.err
    )
    assert (tmp_path / "run" / "result.json").exists()
