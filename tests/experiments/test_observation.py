"""`samestep predict CELL --observe`: a real step of rank 0, among ranks that are not there, beside its prediction."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ConfigError, Unavailable
from samestep.experiments import predict
from samestep.experiments.advising.observation import ObservedAmount
from samestep.experiments.printing.ledger_table import Amount

SMALL = ["--workload", "synthetic-gpt+layers=1+width=64+heads=4+context=8", "--batch-size", "64"]
MODEL = """
import torch
from samestep import Model
model = Model(torch=lambda: torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)))
"""


@pytest.mark.torch
def test_a_step_on_64_ranks_that_are_not_there_is_as_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    assert predict.main(["torch:fsdp", "--mesh", "data=8,shard=8", "--observe", "--format", "json", *SMALL]) == 0
    found = json.loads(capsys.readouterr().out)
    observed, (row,) = found["observed"], found["rows"]
    assert {each["name"] for each in observed["exchanges"]} == {"all_gather", "reduce_scatter", "all_reduce"}
    assert observed["state_bytes"] == row["params_bytes"] + row["gradients_bytes"] + row["optimizer_bytes"]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["shard=512", "data=64,shard=8"])
def test_so_are_512_ranks(mesh: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--workload", "synthetic-gpt+layers=2+width=512+heads=8+context=16", "--batch-size", "512"]
    assert predict.main(["torch:fsdp", "--mesh", mesh, "--observe", *asked]) == 0
    told = capsys.readouterr().out
    assert "one real step of rank 0 of 512" in told
    assert "!" not in told


@pytest.mark.torch
@pytest.mark.slow
def test_a_model_of_the_users_is_observed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    draw = np.random.default_rng(0)
    arrays = {"train_inputs": draw.normal(size=(128, 64)), "train_targets": draw.integers(0, 10, 128)}
    arrays |= {"test_inputs": arrays["train_inputs"][:8], "test_targets": arrays["train_targets"][:8]}
    np.savez(tmp_path / "data.npz", **arrays)
    asked = ["--model", str(tmp_path / "net.py"), "--data", str(tmp_path / "data.npz"), "--batch-size", "64"]
    assert predict.main(["torch:fsdp", "--mesh", "shard=4", "--observe", *asked]) == 0
    assert "one real step of rank 0 of 4" in capsys.readouterr().out


@pytest.mark.torch
def test_what_torch_refuses_is_told_in_one_line_with_its_own_words() -> None:
    with pytest.raises(
        Unavailable, match=r"torch:ddp cannot be observed among ranks that are not there: torch .* says"
    ):
        predict.main(["torch:ddp", "--mesh", "data=4", "--observe", *SMALL])


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--observe"], "--observe takes a step of one row; name it"),
        (["tf:mirrored", "--devices", "2", "--observe"], "and tf:mirrored has none; choose torch:fsdp"),
        (["torch:fsdp", "--observe", "--workload", "gpt3-175b"], "--workload gpt3-175b can only be predicted"),
        (["torch:fsdp", "--observe", "--weights", "bf16"], "--weights bf16 can only be predicted"),
    ],
)
def test_what_cannot_be_observed_is_refused_before_anything_starts(asked: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        predict.main(asked)


def test_a_wrong_prediction_is_marked() -> None:
    found = ObservedAmount("all_reduce", Amount(4096.0, 2), Amount(4096.0, 1))
    assert found.is_missed
    assert found.cells == ["all_reduce", "4.0 KiB in 2", "4.0 KiB in 1!"]
    assert not dataclasses.replace(found, predicted=Amount(4096.0, 2)).is_missed
    missing = ObservedAmount("all_gather", Amount(0, 0), Amount(1000.0, 1))
    assert missing.cells[1] == "none"
