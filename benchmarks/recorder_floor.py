"""What a step of PyTorch costs at least of which data, loss and scalars are recorded and no tensor: CPU time of each part.

`python -m benchmarks.recorder_floor [--steps N]` takes the training steps of `benchmarks.recorder`. After each of them it does a
part, or all, of what a frame in the file cannot do without, with nothing around it, and prints microseconds. A step of training
empties the caches, so a part takes several times as long as in a loop that does nothing else. The least that `--every 10` can
add to a step is this and a tenth of a look. `benchmarks.recorder_least` has the same for Keras.
"""

import argparse
import itertools
import os
import statistics
import struct
import tempfile
import time
import zlib
from collections.abc import Callable

from benchmarks.recorder import LENGTH, SIZES, VOCABULARY, WARM_UP, training_of_torch
from samestep.common.steps.rows import coefficients

NUM_HOOKS = 6
"""Calls from the script into a recorder: zero_grad, the model before and after, backward, the optimizer before and after."""


def main() -> None:
    """Prints a row per size of step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    given = parser.parse_args()
    for size in ("10 ms", "50 ms"):
        found = {name: statistics.median(each) * 1e6 for name, each in _measured(size, given.steps).items()}
        parts = ", ".join(f"{name} {each - found['nothing']:.0f}" for name, each in found.items())
        print(f"{size}: {parts}", flush=True)


def _measured(size: str, steps: int) -> dict[str, list[float]]:
    _, train = training_of_torch(*SIZES[size])
    train(WARM_UP)
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryFile() as file:
        parts = _parts_of_torch(SIZES[size][1], file.fileno())
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

    tokens = torch.randint(VOCABULARY, (num_sequences, LENGTH + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:].flatten()
    by, sums = torch.from_numpy(coefficients(0, LENGTH).view("int64")), torch.empty(2, num_sequences, dtype=torch.int64)
    of_inputs, of_targets = sums.unbind()
    written = memoryview(sums.numpy())
    group = torch.optim.AdamW([torch.zeros(1)]).param_groups[0]
    loss = torch.zeros(())

    def hook(*arguments: object, **keywords: object) -> None:
        """Does nothing."""

    def hooks() -> None:
        for _ in range(NUM_HOOKS):
            hook(1, name=2)

    return {
        "hashes of the examples": lambda: torch.mv(inputs, by, out=of_inputs),
        "with their targets": lambda: torch.addmv(of_inputs, targets.view(num_sequences, -1), by, out=of_targets),
        "bytes of both": written.tobytes,
        "loss": loss.item,
        "scalars": lambda: [each for name, each in group.items() if name != "params"],
        **_writing(num_sequences, descriptor),
        "hooks": hooks,
    }


def _writing(num_sequences: int, descriptor: int) -> dict[str, Callable[[], object]]:
    rows, text = bytes(16 * num_sequences), b'{"losses": 1, "rows": 16, "targets": 16, "scalars": {"lr": 0.001}}'
    checksum, numbers = zlib.crc32(text), struct.Struct("<qd")

    def frame() -> bytes:
        array = numbers.pack(1, 0.5) + rows
        return b"".join((zlib.crc32(array, checksum).to_bytes(4), text, array))

    written = frame()
    return {"frame": frame, "write": lambda: os.write(descriptor, written)}


if __name__ == "__main__":
    main()
