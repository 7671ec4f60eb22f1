"""A user's own Keras model: every strategy that can take it takes the steps of the model itself on one device."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from samestep.common.catalog import framework_info
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import UNIT_ROUNDOFF, RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.runtime.state_file import read_state
from samestep.common.workload.models.description import read_description
from tests.cells import slow
from tests.conftest import RunCell
from tests.forked_scripts import end_of
from tests.ledgers import sends_what_was_predicted
from tests.tf_impl.conftest import costs_what_was_predicted

pytestmark = pytest.mark.tf
HELD = ("params_bytes", "params_peak_bytes", "gradients_bytes", "optimizer_bytes")
ZOO = Path(__file__).parents[1] / "own" / "keras_zoo.py"


def own(model: str) -> dict[str, str]:
    return {"model": f"{ZOO}:{model}", "data": f"{ZOO}:images"}


@pytest.mark.parametrize(
    "strategy", ["mirrored", *slow("parameter_server", "multi_worker_mirrored", "central_storage", "tpu")]
)
def test_a_functional_cnn(run_cell: RunCell, strategy: str) -> None:
    result = run_cell(f"tf:{strategy}", "digits-mlp", devices=2, dtype="float64", **own("FUNCTIONAL"))
    assert result.parity.passed, result.parity.reason
    assert result.parity.reference == "tf:single"


@pytest.mark.parametrize("cell", ["mirrored", *slow("parameter_server", "central_storage", "multi_worker_mirrored")])
def test_a_variable_that_nothing_reads_stays_as_it_is(run_cell: RunCell, cell: str, tmp_path: Path) -> None:
    """AdamW would let it decay; what has no gradient is left alone by the optimizers of Keras and torch."""
    fields = {"dtype": "float64", "optimizer": "adamw", "keep_state": True, "steps": 4, **own("UNREAD")}
    result = run_cell(f"tf:{cell}", "digits-mlp", devices=2, out=str(tmp_path / "run"), **fields)
    assert result.parity.passed, result.parity.reason
    state, initial = read_state(tmp_path / "run"), np.load(tmp_path / "run" / "model" / "initial.npz")
    still = {name for name, value in state.params.items() if (value == initial[f"params/{name}"]).all()}
    assert still == {"dense_1/kernel", "dense_1/bias"}
    costs_what_was_predicted(result)


def test_what_nothing_takes_is_not_read(launcher: Launcher) -> None:
    """So no worker pulls it, although its layer is called."""
    described = launcher.describe(Cell.parse("tf:single").apply_to(RunConfig(**own("UNREAD"))))
    reads = {name: param.reads for name, param in parse(described).workload.model.params().items()}
    assert reads == {
        f"dense{each}/{name}": int(each != "_1") for each in ("", "_1", "_2") for name in ("kernel", "bias")
    }


def test_a_subclassed_model_in_float32(run_cell: RunCell) -> None:
    result = run_cell("tf:single", "digits-mlp", **own("SUBCLASSED"))
    assert result.parity.passed, result.parity.reason


def test_inputs_of_several_arrays(run_cell: RunCell) -> None:
    named = {"model": f"{ZOO}:MASKED", "data": f"{ZOO}:sentences"}
    result = run_cell("tf:mirrored", "digits-mlp", devices=2, dtype="float64", **named)
    assert result.parity.passed, result.parity.reason


def test_statistics_of_the_whole_batch_make_it_the_same_function(run_cell: RunCell) -> None:
    result = run_cell("tf:mirrored", "digits-mlp", devices=2, dtype="float64", batch_norm="sync", **own("NORMED"))
    assert result.parity.passed, result.parity.reason


def test_what_regularizers_add_is_in_the_loss_and_in_its_gradient(run_cell: RunCell, tmp_path: Path) -> None:
    """Held against NumPy: the loss without regularizers and what they add, and the update of a kernel by SGD."""
    runs, states = {}, {}
    for name in ("PLAIN", "REGULARIZED"):
        fields = {"dtype": "float64", "optimizer": "sgd", "learning_rate": 0.25, "steps": 1, "keep_state": True}
        fields["parity"] = False
        runs[name] = run_cell("tf:single", "digits-mlp", out=str(tmp_path / name), **fields, **own(name))
        states[name] = read_state(tmp_path / name).params
    with np.load(tmp_path / "PLAIN" / "model" / "initial.npz") as initial:
        kernel, other, bias = (initial[f"params/{name}"] for name in ("dense_1/kernel", "dense/kernel", "dense/bias"))
    squares, l1, l2 = 0.5 * np.square(kernel).sum(), np.abs(other).sum() / 16, np.square(other).sum() / 16
    added = squares + l1 + l2 + 0.01 * np.abs(bias).sum()
    assert runs["REGULARIZED"].losses[0] - runs["PLAIN"].losses[0] == pytest.approx(added, rel=1e-7)  # .01 in float32
    moved = states["REGULARIZED"]["dense_1/kernel"] - states["PLAIN"]["dense_1/kernel"]
    assert moved == pytest.approx(-0.25 * kernel, abs=1e-12)


@pytest.mark.parametrize(
    "cell",
    [
        "mirrored+accumulation_steps=3",
        "parameter_server+accumulation_steps=2",
        *slow("central_storage", "multi_worker_mirrored", "tpu", "single+accumulation_steps=2"),
    ],
)
def test_what_layers_add_is_in_the_loss_of_every_row(run_cell: RunCell, cell: str) -> None:
    """A regularizer of weights counts once, whatever the number of parts; what is a mean over examples is one over all."""
    devices = 1 if cell.startswith("single") else 2
    result = run_cell(f"tf:{cell}", "digits-mlp", devices=devices, dtype="float64", steps=5, **own("ADDING"))
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    for measured, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert measured.params_peak_bytes == predicted.params_peak_bytes


@pytest.mark.parametrize("row", ["parameter_server", *slow("central_storage", "parameter_server+accumulation_steps=2")])
def test_a_layer_that_is_called_again_is_read_again(run_cell: RunCell, row: str) -> None:
    result = run_cell(f"tf:{row}", "digits-mlp", devices=2, dtype="float64", steps=3, parity=False, **own("SHARED"))
    sends_what_was_predicted(result)
    for measured, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert measured.params_peak_bytes == predicted.params_peak_bytes


@pytest.mark.parametrize(
    "row",
    [
        "parameter_server+parameter_servers=3",
        *slow("central_storage", "parameter_server", "parameter_server+accumulation_steps=2"),
    ],
)
def test_a_recurrent_layer_is_read_at_every_position(run_cell: RunCell, row: str) -> None:
    fields = {"devices": 2, "dtype": "float64", "steps": 12, "parity": False, **own("RECURRENT")}
    result = run_cell(f"tf:{row}", "digits-mlp", **fields)
    costs_what_was_predicted(result)
    weights_bytes = (8 + 32 + 1) * 4 * 32 * 8
    assert result.exchanges[0].bytes_per_step > 8 * weights_bytes * result.config.techniques.accumulation_steps
    sent = sum(process.sent_bytes_per_step for process in result.processes)
    assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.01)


@pytest.mark.parametrize("statistics", ["local", *slow("frozen")])
@pytest.mark.parametrize("row", [*slow("accumulation_steps=2"), "parameter_servers=2"])
def test_running_statistics_are_read_from_servers_and_assigned_there(
    run_cell: RunCell, row: str, statistics: str
) -> None:
    fields = {"devices": 2, "dtype": "float64", "steps": 12, "batch_norm": statistics, "parity": False, **own("NORMED")}
    result = run_cell(f"tf:parameter_server+{row}", "digits-mlp", **fields)
    costs_what_was_predicted(result)


@pytest.mark.parametrize(
    ("model", "is_measured"), [("SHARED", True), ("RECURRENT", False), ("CONVOLVING_RECURRENTLY", False)]
)
def test_what_a_loop_keeps_is_not_taken_for_nothing(run_cell: RunCell, model: str, is_measured: bool) -> None:
    result = run_cell("tf:single", "digits-mlp", devices=1, steps=2, parity=False, **own(model))
    assert (result.processes[0].activations_bytes is not None) == is_measured


@pytest.mark.parametrize("row", ["mirrored", *slow("parameter_server", "multi_worker_mirrored")])
def test_variables_of_one_name_are_all_trained(run_cell: RunCell, row: str) -> None:
    result = run_cell(f"tf:{row}", "digits-mlp", devices=2, dtype="float64", steps=5, **own("NAMESAKES"))
    assert result.parity.passed, result.parity.reason
    assert result.conditions is not None
    assert result.conditions.num_parameters == 64 * 8 + 8 * 10


def test_replicas_that_wait_in_the_forward_pass_keep_their_losses_apart(run_cell: RunCell) -> None:
    fields = {"devices": 2, "dtype": "float64", "steps": 5, "batch_norm": "sync", **own("ADDING_NORMED")}
    result = run_cell("tf:mirrored", "digits-mlp", **fields)
    assert result.parity.passed, result.parity.reason


def test_a_loss_that_is_no_mean_over_examples_is_named(run_cell: RunCell) -> None:
    result = run_cell("tf:mirrored", "digits-mlp", devices=2, dtype="float64", steps=5, **own("SUMMING"))
    assert result.parity.passed is False
    said = (
        "not the same function on shards: what 1 layer (adds) put into the loss by add_loss is not a mean over examples"
    )
    assert result.parity.reason.startswith(said)


def test_a_loss_that_is_added_in_training_alone_is_found(launcher: Launcher) -> None:
    described = launcher.describe(Cell.parse("tf:single").apply_to(RunConfig(**own("BALANCED"))))
    assert parse(described).workload.model.facts.sums == ("balanced",)


def test_a_loss_beside_the_logits_is_refused(launcher: Launcher) -> None:
    with pytest.raises(ConfigError, match="`aux_loss` next to its logits, which no strategy would train on"):
        launcher.describe(Cell.parse("tf:single").apply_to(RunConfig(**own("LEAKING"))))


def test_a_stateful_layer_is_refused_by_name(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import samestep\n\ndef net():\n    import keras\n    inner = keras.layers.GRU(2, stateful=True, name='inner')\n"
        "    return keras.Sequential([keras.Input((6, 1), batch_size=4), inner])\n\nmodel = samestep.Model(tf=net)\n"
    )
    config = dataclasses.replace(RunConfig(**own("BALANCED")), model=str(tmp_path / "net.py"))
    with pytest.raises(ConfigError, match=r"the GRU `inner` is stateful: .* give stateful=False"):
        launcher.describe(Cell.parse("tf:single").apply_to(config))


PLAIN = """
import keras
import samestep
import tensorflow as tf


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(2.0, trainable=False)
        self.inner = keras.layers.Dense(8)
        self.heads = [tf.Variable(tf.ones([8, 3]))]

    def call(self, x):
        return self.scale * self.inner(x) @ self.heads[0]


model = samestep.Model(tf=Net)
"""


def test_a_variable_that_keras_does_not_train_is_refused_by_name(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(PLAIN)
    config = dataclasses.replace(RunConfig(**own("BALANCED")), model=str(tmp_path / "net.py"))
    with pytest.raises(
        ConfigError, match=r"trains and saves no tf.Variable, as Net has in `heads`; make it with self.add_"
    ):
        launcher.describe(Cell.parse("tf:single").apply_to(config))


def test_running_statistics_are_state(run_cell: RunCell, tmp_path: Path) -> None:
    """A run that continues another one takes the same steps as one that was not interrupted."""
    fields = {"keep_state": True, "parity": False, **own("NORMED")}
    whole = run_cell("tf:single", "digits-mlp", steps=6, out=str(tmp_path / "whole"), **fields)
    begun = run_cell("tf:mirrored", "digits-mlp", steps=3, out=str(tmp_path / "begun"), **fields)
    roles = {name: each.role for name, each in read_description(str(begun.config.described)).params.items()}
    assert {roles[name] for name in roles if name.endswith("/gamma")} == {"scale"}
    assert {roles[name] for name in roles if name.endswith(("/beta", "/bias"))} == {"bias"}
    rest = {"start_from": str(tmp_path / "begun"), "out": str(tmp_path / "rest")}
    assert run_cell("tf:single", "digits-mlp", steps=6, **rest, **fields).losses == whole.losses[3:]
    states = [read_state(tmp_path / name).buffers for name in ("whole", "rest", "begun")]
    assert states[0] and all((states[0][name] == states[1][name]).all() for name in states[0])
    assert not all((states[0][name] == states[2][name]).all() for name in states[0])


@pytest.mark.parametrize(
    "cell", ["mirrored", *slow("multi_worker_mirrored", "mirrored+accumulation_steps=2+clip_norm=0.5")]
)
def test_batch_normalisation_in_two_bytes(run_cell: RunCell, cell: str) -> None:
    """Keras' policy rounds data; both factors, the result and its sum with a bias; a normalization, a ReLU; and the head's."""
    fields = {"devices": 2, "steps": 5, "batch_norm": "frozen", **own("NORMED")}
    result = run_cell(f"tf:{cell}+precision=bf16", "digits-mlp", **fields)
    assert result.parity.passed, result.parity.reason
    assert result.parity.loss_bound == pytest.approx(math.sqrt(2 * (1 + 2 + 1 + 1 + 1 + 2 + 1)) / 256)
    assert UNIT_ROUNDOFF["float32"] < result.parity.max_relative_loss
    sends_what_was_predicted(result)
    for measured, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert [getattr(measured, name) for name in HELD] == [getattr(predicted, name) for name in HELD]


@pytest.mark.slow
def test_statistics_of_the_whole_batch_in_two_bytes(run_cell: RunCell) -> None:
    fields = {"devices": 2, "batch_norm": "sync", **own("NORMED")}
    result = run_cell("tf:mirrored+precision=bf16", "digits-mlp", **fields)
    assert result.parity.passed, result.parity.reason


@pytest.mark.slow
def test_keras_is_imported_once_for_all_workers(tmp_path: Path) -> None:
    server = ForkClient("tf", 1, "tests.tf_impl.imported_worker", str(tmp_path))
    try:
        server.wait_ready()
        assert not has_keras(server, tmp_path)
        server.preload(framework_info("tf").preload_for_models)
        assert has_keras(server, tmp_path)
    finally:
        server.close()


def has_keras(server: ForkClient, tmp_path: Path) -> bool:
    """Whether a new worker finds Keras; its server has one thread, or a fork could leave it locks that nobody frees."""
    number = server.start_worker(tmp_path, tmp_path / "log", {}, None)
    end_of(server, number)
    assert (tmp_path / "log").read_text().splitlines()[-1] in ("True 1", "False 1")
    return (tmp_path / "log").read_text().startswith("True")


@pytest.mark.parametrize(
    ("cell", "model", "reason"),
    [
        (
            "tf:dtensor",
            "FUNCTIONAL",
            "needs variables with a layout, and the layers of keras_zoo:FUNCTIONAL make plain",
        ),
        (
            "tf:mirrored+precision=bf16",
            "BARE",
            "keras_zoo:BARE computes nothing in two bytes: only layers of Keras do",
        ),
        (
            "tf:central_storage",
            "NORMED",
            "may not write the running statistics of batch_normalization; add --batch-norm",
        ),
    ],
)
def test_a_row_that_cannot_take_the_model_says_why(launcher: Launcher, cell: str, model: str, reason: str) -> None:
    config = launcher.describe(Cell.parse(cell).apply_to(RunConfig(devices=2, **own(model))))
    with pytest.raises(ConfigError, match=reason):
        parse(config)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("tf:tpu", "XLA compiles each replica alone"),
        ("tf:central_storage", "its replicas share one copy of each variable"),
        ("tf:parameter_server+consistency=async", "its workers do not wait for each other"),
    ],
)
def test_statistics_of_the_whole_batch_are_refused_with_the_reason(launcher: Launcher, cell: str, reason: str) -> None:
    config = launcher.describe(Cell.parse(cell).apply_to(RunConfig(devices=2, batch_norm="sync", **own("NORMED"))))
    with pytest.raises(ConfigError, match=reason):
        parse(config)
