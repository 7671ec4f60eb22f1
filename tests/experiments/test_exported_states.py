"""States as files that others read: what their own readers find in them is what the run has."""

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ConfigError
from samestep.common.features.used import initial_buffers
from samestep.common.files.reading import Unreadable
from samestep.common.files.safetensors import read_safetensors, write_safetensors
from samestep.common.program import TrainState
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.checkpoints.usual_names import from_usual, to_usual, usual_name
from samestep.common.runtime.start import read_start
from samestep.common.runtime.state_file import write_state
from samestep.common.workload.initial import empty_slots, init
from samestep.experiments import export
from tests.cells import SIZED

ROOT = Path(__file__).parents[2]
ASKED = RunConfig(framework="numpy", strategy="oracle", dtype="float64", workload="digits-mlp+width=8", steps=8)
ARRAYS = {
    "w": np.arange(6.0).reshape(2, 3),
    "n": np.array([3]),
    "half": np.ones(2, np.float16),
    "none": np.ones((0, 3)),
    "count": np.array(3),
    "mask": np.array([True, False]),
}


def state_of(asked: RunConfig) -> TrainState:
    run = parse(asked)
    slots = empty_slots(run.optimizer, run.workload.model.params())
    moved = {slot: {name: array + 1 for name, array in arrays.items()} for slot, arrays in slots.items()}
    return TrainState(3, init(run.workload.model, 0), moved, initial_buffers(run.workload.model))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", ARRAYS)
    found = read_safetensors(tmp_path / "x.safetensors")
    assert {name: array.tolist() for name, array in found.items()} == {n: a.tolist() for n, a in ARRAYS.items()}
    assert {name: array.dtype for name, array in found.items()} == {n: a.dtype for n, a in ARRAYS.items()}


def test_the_formats_own_reader_reads_it(tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.numpy", reason="pip install 'samestep[dev]'")
    write_safetensors(tmp_path / "x.safetensors", ARRAYS)
    found = theirs.load_file(tmp_path / "x.safetensors")
    assert {name: array.tolist() for name, array in found.items()} == {n: a.tolist() for n, a in ARRAYS.items()}
    theirs.save_file(ARRAYS, tmp_path / "y.safetensors")
    assert read_safetensors(tmp_path / "y.safetensors")["w"].tolist() == ARRAYS["w"].tolist()


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    halves = np.array([1.5, -2.0], np.float32).view(np.uint32) >> 16
    data = len(header).to_bytes(8, "little") + header + halves.astype("<u2").tobytes()
    (tmp_path / "x.safetensors").write_bytes(data)
    assert read_safetensors(tmp_path / "x.safetensors")["w"].tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"dtype": "F64", "shape": [2], "data_offsets": [0, 8]}, "claims bytes for w that are not there"),
        ({"dtype": "F64", "shape": [10**12], "data_offsets": [0, 8 * 10**12]}, "claims bytes for w"),
        ({"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]}, "claims bytes for w"),
        ({"dtype": "F3", "shape": [1], "data_offsets": [0, 8]}, "has no valid entry for w"),
        ({"dtype": "F64", "shape": "1", "data_offsets": [0, 8]}, "has no valid entry for w"),
        ([], "has no valid entry for w"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, said: object, why: str) -> None:
    header = json.dumps({"w": said}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(Unreadable, match=why):
        read_safetensors(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 8, (2).to_bytes(8, "little") + b"[]", (9).to_bytes(8, "little") + b"{"]
)
def test_a_torn_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"--start-from .*x\.safetensors: its header .*; give another file\."):
        read_start(parse(ASKED), str(path))


@pytest.mark.parametrize("workload", SIZED.values())
def test_a_run_starts_from_exported_weights(tmp_path: Path, workload: str) -> None:
    asked = RunConfig(framework="numpy", strategy="oracle", dtype="float64", workload=workload, steps=8)
    state = state_of(asked)
    write_state(tmp_path, state)
    assert export.main([str(tmp_path), "--format", "safetensors", "-o", str(tmp_path / "out")]) == 0
    started = read_start(parse(asked), str(tmp_path / "out/model.safetensors"))
    assert started.step == 0 and started.params.keys() == state.params.keys()
    assert all((started.params[name] == array).all() for name, array in state.params.items())


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    write_state(tmp_path, state_of(ASKED))
    export.main([str(tmp_path), "--format", "safetensors", "-o", str(tmp_path / "out")])
    wider = parse(dataclasses.replace(ASKED, workload="digits-mlp+width=9"))
    with pytest.raises(ConfigError, match=r"holds another model: its .* is \[8\], that of .* is \[9\]|is \[64, 8\]"):
        read_start(wider, str(tmp_path / "out/model.safetensors"))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 3, 4)])
@pytest.mark.parametrize("name", ["a/kernel", "a/table", "a/own"])
def test_layouts_go_there_and_back(name: str, shape: tuple[int, ...]) -> None:
    array = np.arange(float(np.prod(shape))).reshape(shape)
    assert (from_usual(name, to_usual(name, array)) == array).all()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["{}", "--format", "onnx"], r"onnx"),
        (["{}", "{}", "--format", "dcp"], r"--format takes one directory, and 2 are named"),
        (["{}/none", "--format", "tf"], r"/none is not there; name a directory that is"),
        (
            ["{}", "--format", "dcp", "-o", "{}/state.npz"],
            r"-o .*/state.npz is a file, and the export is a folder; name a new",
        ),
        (["{}", "--format", "dcp", "-o", "{}"], r"-o .* has something in it, which would be mixed with the export"),
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path: Path, arguments: list[str], why: str) -> None:
    write_state(tmp_path, state_of(ASKED))
    with pytest.raises(ConfigError, match=why):
        export.main([each.format(tmp_path) for each in arguments])


def in_child(code: str, *arguments: object) -> str:
    """Runs code in a process of its own: torch and TensorFlow never share one, and this one imports neither."""
    line = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, capture_output=True, text=True, timeout=200, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


READ_BY_TORCH = """
    import sys
    import torch
    import torch.distributed.checkpoint as dcp
    from samestep.common.request import RunConfig
    from samestep.common.run import parse
    from samestep.experiments import export
    from samestep.torch_impl.models import build_model
    from samestep.torch_impl.step_context import StepContext
    from samestep.torch_impl.weights import named_weights
    from samestep.common.runtime.start import read_start
    from samestep.common.runtime.state_file import read_state
    from pathlib import Path

    directory, workload = sys.argv[1:]
    export.main([directory, "--format", "dcp", "-o", f"{directory}/dcp"])
    run = parse(RunConfig(framework="torch", strategy="single", dtype="float64", workload=workload, steps=8))
    model = build_model(run.workload.model, StepContext()).double()
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    weights, slots = get_state_dict(model, optimizer)
    asked = {"model": weights, "optimizer": {"state": slots["state"]}}
    dcp.load(asked, checkpoint_id=f"{directory}/dcp")
    set_state_dict(model, optimizer, model_state_dict=asked["model"], optim_state_dict={**slots, **asked["optimizer"]})
    state = read_state(Path(directory))
    for name, weight in named_weights(model).items():
        assert (weight.to_neutral(weight.parameter) == state.params[name]).all(), name
        held = optimizer.state[weight.parameter]
        assert (weight.to_neutral(held["exp_avg"]) == state.slots["first_moment"][name]).all(), name
        assert held["step"] == 3
    weights, slots = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": slots}, checkpoint_id=f"{directory}/theirs", no_dist=True)
    asked = RunConfig("numpy", "oracle", dtype="float64", optimizer="adamw", workload=workload, steps=8)
    for folder in ("dcp", "theirs"):
        started = read_start(parse(asked), f"{directory}/{folder}")
        assert started.step == started.updates == 3
        assert all((started.params[name] == array).all() for name, array in state.params.items())
        moments = zip(started.slots.values(), state.slots.values(), strict=True)
        assert all((one[name] == other[name]).all() for one, other in moments for name in one)
    print(len(state.params))
"""


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("workload", SIZED.values())
def test_torch_reads_its_format_into_its_own_model(tmp_path: Path, workload: str) -> None:
    asked = RunConfig(
        framework="numpy", strategy="oracle", optimizer="adamw", dtype="float64", workload=workload, steps=8
    )
    write_state(tmp_path, state := state_of(asked))
    assert int(in_child(READ_BY_TORCH, tmp_path, workload)) == len(state.params)


READ_BY_TENSORFLOW = """
    import sys
    from samestep.experiments import export
    export.main([sys.argv[1], "--format", "tf", "-o", f"{sys.argv[1]}/tf"])
    import tensorflow as tf
    written = tf.train.latest_checkpoint(f"{sys.argv[1]}/tf")
    reader = tf.train.load_checkpoint(written)
    kernel = tf.Variable(tf.zeros([64, 8], tf.float64))
    layers = {"layers": {"0": {"kernel": kernel}}}
    tf.train.Checkpoint(model=layers).restore(written).expect_partial().assert_existing_objects_matched()
    print(float(tf.reduce_sum(kernel)), int(reader.get_tensor("step/.ATTRIBUTES/VARIABLE_VALUE")))
"""


@pytest.mark.tf
@pytest.mark.slow
def test_tensorflow_reads_its_format(tmp_path: Path) -> None:
    state = dataclasses.replace(state_of(ASKED), step=4, skipped=1, counts={"layers/0/bias": 2})
    write_state(tmp_path, state)
    total, step = in_child(READ_BY_TENSORFLOW, tmp_path).split()
    assert float(total) == pytest.approx(state.params["layers/0/kernel"].sum(), rel=1e-12) and step == "4"
    started = read_start(parse(ASKED), str(tmp_path / "tf"))
    assert (started.step, started.skipped, started.counts) == (4, 1, {"layers/0/bias": 2})
    assert all((started.params[name] == array).all() for name, array in state.params.items())
    assert all((started.slots["momentum"][name] == array).all() for name, array in state.slots["momentum"].items())
    assert usual_name("layers/0/kernel") == "layers.0.weight"
