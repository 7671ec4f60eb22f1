"""Measures what `samestep record --every 10` adds to Keras steps, part by part, and the least that any recorder could add.

`python -m benchmarks.recording.least [--size "50 ms"] [--steps N]` takes the steps of `benchmarks.recording.recorder`, with
all scripts in one process. They alternate in turns of three steps in random order, so the machine is in the same state for each.
The first step of a turn does not count, because the caches still hold another script. Printed is the CPU time of a step in
microseconds, without the slowest quarter, with its standard error. This shows differences a tenth as large as those between two
processes of one script, but not what a recorder costs a process as a whole.

The recorder is measured with and without its work after a call of TensorFlow, and without the copies of graphs that it runs for
steps that are not looked at ("all of the graph"). The least is a `train_step` written for this purpose. It hashes the examples
and returns the hashes, loss and rate as one more output of the compiled step, so it needs no hook, no variable and no second call
of TensorFlow. Then its frame is built and written. It looks at no tensor.
"""

import argparse
import contextlib
import gc
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.recording.recorder import LENGTH, SIZES, model_of_keras

EVERY = 10
WARM_UP, TURN = 20, 3
KEPT = 0.75
"""The share of the steps that is kept, the fastest ones."""
BARS = {"10 ms": 0.015, "50 ms": 0.005, "200 ms": 0.005}
"""The share of a step that recording may add, which is a tenth of what recording every step may add."""
_WHOLE = "recorded, all of the graph"
Step = Callable[[], object]


def main() -> None:
    """Prints what each part adds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600, help="that count, of each script (default: 600)")
    parser.add_argument("--size", choices=[*SIZES], default="10 ms", help="of the steps (default: 10 ms)")
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    with contextlib.ExitStack() as recording:
        scratch = Path(recording.enter_context(tempfile.TemporaryDirectory()))
        descriptor = recording.enter_context((scratch / "least").open("wb", buffering=0)).fileno()
        recorded = _recorded(recording, scratch / "record", given.size)
        recorded.recorder.is_ended = (
            True  # models that are there before the recorded one would be recorded as its followers
        )
        plain = {"bare": _least(False, descriptor, given.size), "least": _least(True, descriptor, given.size)}
        found = _measured(given.steps, plain, recorded)
        bare_mean, bare_error = _mean(found["bare"])
        print(f"bare {bare_mean:.0f}; the bar allows {BARS[given.size] * bare_mean:.0f} more")
        for name in [*found][1:]:
            each, error = _mean(found[name])
            print(f"{name}: {each - bare_mean:.0f} more, +- {error + bare_error:.0f}")
        mean = {name: _mean(times)[0] - bare_mean for name, times in found.items()}
        look = (mean["recorded, in the graph, looked at"] - mean["recorded, in the graph"]) / EVERY
        print(f"least, and a look of the graph's at one of {EVERY}: {mean['least'] + look:.0f} more")
        own = mean["recorded"] + (mean["recorded, looked at"] - mean["recorded"]) / EVERY
        print(f"recorded, one of {EVERY} looked at: {own:.0f} more, {1 + own / bare_mean:.4f} of bare", flush=True)


class _Recorded(NamedTuple):
    """A recorded step, and the parts of its recorder that are switched."""

    step: Step
    recorder: Any
    journal: Any
    unseen: Any


def _measured(steps: int, plain: Mapping[str, Step], recorded: _Recorded) -> dict[str, list[float]]:
    """Takes the turns. To leave out the host's part, the same script runs while its recorder is marked as ended."""
    step, recorder, journal, unseen = recorded
    turns = {**plain, "recorded, in the graph": step, _WHOLE: step, "recorded": step}
    is_due = unseen._is_due
    found: dict[str, list[float]] = {name: [] for name in turns}
    draw, names, count = random.Random(0), [*turns], journal.num_read
    for _ in range(steps // (TURN - 1)):
        before = ""
        draw.shuffle(names)
        for name in [each for each in names for _ in range(TURN)]:
            recorder.is_ended, own = name not in ("recorded", _WHOLE), name.startswith("recorded")
            unseen._is_due = is_due if name == "recorded" else lambda: False
            is_looked_at = own and count % EVERY == 0
            count += own
            seconds = _timed(turns[name])
            if name == before:
                found.setdefault(f"{name}, looked at" if is_looked_at else name, []).append(seconds * 1e6)
            before = name
            if name == "recorded, in the graph":  # nothing counts as lost
                journal.num_read = count
    recorder.is_ended = True
    return dict(sorted(found.items()))


def _timed(step: Step) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def _mean(times: list[float]) -> tuple[float, float]:
    """Returns the mean of the fastest times, and its standard error."""
    kept = sorted(times)[: int(KEPT * len(times))]
    return statistics.mean(kept), statistics.stdev(kept) / len(kept) ** 0.5


def _recorded(recording: contextlib.ExitStack, directory: Path, size: str) -> _Recorded:
    import keras

    import samestep
    from samestep.common.steps.recording import Recorder
    from samestep.tf_impl.recording.graphs.unseen import Unseen
    from samestep.tf_impl.recording.session import Session

    recording.enter_context(samestep.record(directory, every=EVERY))
    session, recorder, unseen = (
        next(each for each in gc.get_objects() if isinstance(each, kind)) for kind in (Session, Recorder, Unseen)
    )
    step = _step(keras.Model, size)
    return _Recorded(step, recorder, next(iter(session._journals.values())), unseen)


def _least(is_noted: bool, descriptor: int, size: str) -> Step:
    """Returns a step that records as cheaply as possible, or one that records nothing."""
    import keras
    import numpy as np
    import tensorflow as tf

    from samestep.common.steps.record import RecordedStep, step_frame
    from samestep.common.steps.rows import coefficients

    by = coefficients(0, LENGTH).view(np.int64)

    class Noting(keras.Model):
        def train_step(self, data: Any) -> dict[str, Any]:
            logs = super().train_step(data)
            if not is_noted:
                return logs
            sums = tf.reduce_sum(tf.cast(data[0], tf.int64) * by, axis=1)
            numbers = tf.stack([tf.cast(each, tf.float64) for each in (logs["loss"], self.optimizer.learning_rate)])
            return logs | {"note": tf.concat([tf.bitcast(numbers, tf.int64), sums], 0)}

    step, number = _step(Noting, size), 0

    def noted() -> None:
        nonlocal number
        note = step()["note"].numpy()
        loss, rate = note[:2].view(np.float64).tolist()
        frame = step_frame(RecordedStep(number, (loss,), scalars={"lr": rate}), (note[2:].tobytes(), None))
        os.write(descriptor, frame)
        number += 1

    return noted if is_noted else step


def _step(kind: type, size: str) -> Callable[[], dict[str, Any]]:
    """Returns a function that takes one step of the measured script, after warming it up."""
    model, batch = model_of_keras(*SIZES[size], kind)
    batches = iter(batch)
    model.make_train_function()

    def step() -> dict[str, Any]:
        logs = model.train_function(batches)
        float(logs["loss"])
        return logs

    for _ in range(WARM_UP):
        step()
    return step


if __name__ == "__main__":
    main()
