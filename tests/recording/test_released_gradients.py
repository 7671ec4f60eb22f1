"""Large gradients of Keras are let go of before their update: the record is the same, and no condition keeps them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import RecordedStep
from tests.recording.records import ROOT

pytestmark = [pytest.mark.tf, pytest.mark.timeout(300)]
WORKER = """
import sys
from samestep.common.runtime.imports import import_modules
import_modules(["keras"])
import keras, numpy as np, tensorflow as tf
import samestep
from samestep.tf_impl.recording import statistics
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
statistics._LARGE = int(sys.argv[2])
keras.utils.set_random_seed(0)
inputs = keras.Input((300,))
made = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(300, activation="gelu")(inputs)))
made.compile(keras.optimizers.AdamW(0.001), "mse", jit_compile=False)
drawn = np.random.default_rng(0).normal(size=(4, 301)).astype("float32")
with samestep.record(sys.argv[1], every=4):
    made.fit(drawn[:, :300], drawn[:, 300:], batch_size=4, epochs=14, verbose=0)
held = [each.cell_contents for each in made.train_function.__closure__]
(trace,) = next(each for each in held if isinstance(each, Function))._function_cache.values()
bodies = [trace.graph, *(each.graph for each in trace.graph._functions.values() if hasattr(each, "graph"))]
sizes = [
    each.shape.num_elements() or 0
    for body in bodies
    for operation in body.get_operations()
    if operation.type == "If" and not operation.get_attr("_lower_using_switch_merge")
    for each in operation.inputs
    if each.dtype.is_floating
]
print(max(sizes))
"""


def recorded(out: Path, large: int) -> tuple[list[RecordedStep], int]:
    """Returns the steps of a script, and the most numbers that what looks at tensors after an update is given of one."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, out, str(large)], cwd=ROOT, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    with (out / "rank-0.steps").open("rb") as file:
        return list(read_rank(file, "a record")[1]), int(done.stdout)


def test_large_gradients_are_seen_before_the_update_and_recorded_as_after_it(tmp_path: Path) -> None:
    steps, most = recorded(tmp_path / "before", 2**16)
    others, most_kept = recorded(tmp_path / "after", 2**62)
    assert most < 300 * 300 == most_kept
    assert [each.number for each in steps if each.stats] == [-1, *range(10), 12]
    for step, other in zip(steps, others, strict=True):
        assert step.losses == other.losses and step.rows == other.rows
        assert (step.stats is None) == (other.stats is None)
        for phase, rows in (step.stats or {}).items():
            np.testing.assert_array_equal(rows, (other.stats or {})[phase], f"{step.number} {phase}")
