"""What a step costs at least of which data, loss and scalars are recorded and no tensor: CPU time of each part, in microseconds.

`python -m benchmarks.recorder_floor [torch keras] [--steps N]` takes the training steps of `benchmarks.recorder`. After each of
them it does a part, or all, of what a frame in the file cannot do without, with nothing around it. A step of training empties
the caches, so a part takes several times as long as in a loop that does nothing else. The least that `--every 10` can add to a
step is this and a tenth of a look. In Keras, the graph hashes the examples as well, and notes the loss and the learning rate.
"""

import argparse
import itertools
import os
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable

from benchmarks.recorder import LENGTH, SIZES, VOCABULARY, WARM_UP, training_of_keras, training_of_torch
from samestep.common.steps.rows import FEW, coefficients

NUM_HOOKS = 6
"""Calls from the script into a recorder: zero_grad, the model before and after, backward, the optimizer before and after."""


def main() -> None:
    """Prints a row per size of step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frameworks", nargs="*", default=[*FRAMEWORKS])
    parser.add_argument("--steps", type=int, default=400)
    given = parser.parse_args()
    for framework, size in itertools.product(given.frameworks, ("10 ms", "50 ms")):
        found = {name: statistics.median(each) * 1e6 for name, each in _measured(framework, size, given.steps).items()}
        parts = ", ".join(f"{name} {each - found['nothing']:.0f}" for name, each in found.items())
        print(f"{framework}, {size}: {parts}", flush=True)


def _measured(framework: str, size: str, steps: int) -> dict[str, list[float]]:
    training, parts_of = FRAMEWORKS[framework]
    _, train = training(*SIZES[size])
    train(WARM_UP)
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryFile() as file:
        parts = parts_of(SIZES[size][1], file.fileno())
        turns = {"nothing": [], **{name: [part] for name, part in parts.items()}, "all": [*parts.values()]}
        for _, (name, own) in zip(range(steps), itertools.cycle(turns.items()), strict=False):
            train(1)
            start = time.thread_time()
            for part in own:
                part()
            found.setdefault(name, []).append(time.thread_time() - start)
    return found


def _parts_of_torch(num_sequences: int, descriptor: int) -> dict[str, Callable[[], object]]:
    import torch

    tokens = torch.randint(VOCABULARY, (num_sequences, LENGTH + 1))[:, :-1]
    by = torch.from_numpy(coefficients(0, LENGTH).view("int64"))
    group = torch.optim.AdamW([torch.zeros(1)]).param_groups[0]
    loss = torch.zeros(())

    def hook(*arguments: object, **keywords: object) -> None:
        """Does nothing."""

    def hooks() -> None:
        for _ in range(NUM_HOOKS):
            hook(1, name=2)

    return {
        "hashes of the examples": lambda: torch.mv(tokens, by).tolist(),
        "loss": loss.item,
        "scalars": lambda: [each for name, each in group.items() if name != "params"],
        **_writing(num_sequences, descriptor),
        "hooks": hooks,
    }


def _parts_of_keras(num_sequences: int, descriptor: int) -> dict[str, Callable[[], object]]:
    import tensorflow as tf

    from samestep.tf_impl.recording.journal import WIDTH, read_now

    note = tf.Variable(tf.zeros([1 + WIDTH + FEW], tf.int64))
    return {"read": lambda: read_now(note).tolist(), **_writing(num_sequences, descriptor)}


def _writing(num_sequences: int, descriptor: int) -> dict[str, Callable[[], object]]:
    rows = bytes(8 * num_sequences)

    def frame() -> bytes:
        text = (
            f'{{"number": {1}, "losses": [{0.5!r}], "rows": {num_sequences}, "scalars": {{"lr": {0.001!r}}}}}'.encode()
        )
        return zlib.crc32(text).to_bytes(4) + text + rows

    written = frame()
    return {"frame": frame, "write": lambda: os.write(descriptor, written)}


FRAMEWORKS = {"torch": (training_of_torch, _parts_of_torch), "keras": (training_of_keras, _parts_of_keras)}

if __name__ == "__main__":
    main()
