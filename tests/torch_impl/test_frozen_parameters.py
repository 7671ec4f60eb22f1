"""Parameters that are frozen cost what they cost in torch: no gradient, no optimizer state, nothing that is sent for these."""

from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.common.runtime.state_file import read_state
from tests.cells import slow
from tests.conftest import RunCell
from tests.own import frozen
from tests.own.frozen import asked
from tests.torch_impl.ledgers import by_name, bytes_of, sent_bytes

pytestmark = pytest.mark.torch

RANKS = ("c10d", "ddp", "zero1", "zero2", "fsdp", "mp", "pp", "tp")
MESHES = tuple(f"hybrid+mesh={mesh}" for mesh in ("pipe=2,data=2", "pipe=2,shard=2", "tensor=2,shard=2"))
MESHES += (f"{MESHES[0]}+shard_optimizer=true",)
QUICK = [
    ("fsdp", "FRONT"),
    ("zero1", "MIDDLE"),
    ("mp", "BACKBONE"),
    ("tp", "FRONT"),
    (MESHES[1], "FRONT"),
    ("dp", "LORA"),
]
QUICK += [("rpc_parameter_server", "LORA"), ("pp", "BACKBONE")]
ALL = [(cell, model) for model in frozen.FROZEN for cell in (*RANKS, "dp", "rpc_parameter_server", *MESHES)]


@pytest.mark.parametrize(
    ("cell", "model"), [*QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in ALL if each not in QUICK)]
)
def test_every_byte_is_predicted(run_cell: RunCell, cell: str, model: str) -> None:
    devices = {} if "mesh" in cell else {"devices": 2}
    result = run_cell(f"torch:{cell}", "digits-mlp", **asked(model, **devices))
    assert result.parity.passed, result.parity.reason
    assert bytes_of(result.processes) == bytes_of(result.predicted.devices())
    assert by_name(result.exchanges) == by_name(result.predicted.exchanges)
    predicted = result.predicted.sent_bytes_per_step
    assert abs(sent_bytes(result) - predicted) <= 0.01 * predicted + 2048 * len(result.processes)


def test_the_state_is_that_of_torchs_own_optimizer(run_cell: RunCell, tmp_path: Path) -> None:
    """By hand, of a LoRA in float64: 598 parameters, of which 150 have a gradient and two moments."""
    fields = asked("LORA", out=str(tmp_path / "run"), keep_state=True)
    (row,) = run_cell("torch:single", "digits-mlp", **fields).processes
    assert (row.params_bytes, row.gradients_bytes, row.optimizer_bytes) == (598 * 8, 150 * 8, 2 * 150 * 8)
    state = read_state(tmp_path / "run")
    assert sum(value.size for value in state.params.values()) == 598
    assert sum(value.size for value in state.slots["first_moment"].values()) == 150


@pytest.mark.parametrize("cell", ["ddp", *slow("zero1", "fsdp", "pp", "rpc_parameter_server")])
def test_a_run_goes_on_from_its_state(run_cell: RunCell, tmp_path: Path, cell: str) -> None:
    fields = asked("FRONT", devices=2, keep_state=True, parity=False)
    whole = run_cell(f"torch:{cell}", "digits-mlp", **fields | {"steps": 6, "out": str(tmp_path / "whole")})
    run_cell(f"torch:{cell}", "digits-mlp", **fields | {"steps": 3, "out": str(tmp_path / "begun")})
    rest = {"steps": 6, "start_from": str(tmp_path / "begun"), "out": str(tmp_path / "rest")}
    assert run_cell(f"torch:{cell}", "digits-mlp", **fields | rest).losses == whole.losses[3:]


def test_compression_keeps_nothing_for_what_is_frozen(run_cell: RunCell) -> None:
    result = run_cell("torch:ddp+compress=int8", "digits-mlp", **asked("LORA", devices=2, dtype="float32"))
    measured, predicted = (
        [row.residuals_bytes for row in rows] for rows in (result.processes, result.predicted.devices())
    )
    assert measured == predicted and max(measured) > 0


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2])
def test_deepspeed_leaves_frozen_parameters_out_of_what_is_flat(run_cell: RunCell, stage: int) -> None:
    fields = asked("FRONT", devices=2, dtype="float32", keep_state=True)
    result = run_cell(f"torch:deepspeed+zero_stage={stage}", "digits-mlp", **fields)
    assert result.parity.passed, result.parity.reason
    assert bytes_of(result.processes) == bytes_of(result.predicted.devices())
    assert by_name(result.exchanges) == by_name(result.predicted.exchanges)


def test_deepspeed_does_not_cut_frozen_parameters(run_cell: RunCell) -> None:
    with pytest.raises(ConfigError, match="--zero-stage 3 cannot gather the frozen parameters of frozen:FRONT"):
        run_cell("torch:deepspeed+zero_stage=3", "digits-mlp", **asked("FRONT", devices=2, dtype="float32"))


def test_a_model_of_which_nothing_is_trained_is_refused(run_cell: RunCell) -> None:
    with pytest.raises(ConfigError, match="the model has no parameters to train"):
        run_cell("torch:single", "digits-mlp", **asked("ALL"))


def test_a_layer_is_counted_as_often_as_it_is_applied(run_cell: RunCell) -> None:
    """Which the targets do not say: seventeen positions an image, twice each, and one class to find."""
    result = run_cell("torch:tp", "digits-mlp", **asked("PATCHES", "images", devices=2))
    assert result.parity.passed, result.parity.reason
    assert result.processes[0].sends == result.predicted.sends
    forward = [send for send in result.predicted.sends if send.phase == "forward"]
    assert sum(send.count for send in forward) == 2
    assert sum(send.bytes for send in forward) == 2 * 17 * 12 * 8 * result.global_batch_size
