"""Measures what `samestep record` adds to a PyTorch step, and the least any recorder could add, in microseconds of CPU time.

`python -m benchmarks.recording.floor [--steps N]` takes the training steps of `benchmarks.recording.recorder`. After each
step it does a part, or all, of the minimum that a frame in the file requires. A training step empties the caches, so a part
takes several times as long as in a loop that does nothing else. The least that `--every 10` can add to a step is this and a tenth
of a look. `benchmarks.recording.least` does the same for Keras.

Then one model is trained whose recorder is switched off and on in random turns of two steps, of which the second counts. Printed
are the medians of steps that are not recorded, of recorded steps in which no tensor is looked at, and of those in which all are;
and how much of the second is spent in the recorder's own hooks, as the rest is their effect on torch's calls in between. One
process shows differences a tenth as large as those between two processes of one script, but not what a recorder costs a process
as a whole.
"""

import argparse
import contextlib
import gc
import itertools
import os
import random
import statistics
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator

from benchmarks.recording.recorder import LENGTH, SIZES, VOCABULARY, WARM_UP, training_of_torch
from samestep.common.steps.rows import coefficients

EVERY = 10
NUM_HOOKS = 6
"""The calls of a step into a recorder: zero_grad, before and after the model, backward, before and after the optimizer."""


def main() -> None:
    """Prints a row per size of step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    given = parser.parse_args()
    for size in ("10 ms", "50 ms"):
        found = {name: statistics.median(each) * 1e6 for name, each in _measured(size, given.steps).items()}
        parts = ", ".join(f"{name} {each - found['nothing']:.0f}" for name, each in found.items())
        print(f"{size}: {parts}", flush=True)
        bare, unseen, seen, idle, busy = (statistics.median(each) * 1e6 for each in _recorded(size, given.steps))
        hooks = f"{busy - idle:.0f} of it in hooks"
        print(
            f"{size}: bare {bare:.0f}; no tensor looked at {unseen - bare:.0f} more, {hooks}; all {seen - bare:.0f} more"
        )
        every_10 = unseen + (seen - unseen) / EVERY
        print(f"{size}: every step {seen / bare:.4f} of bare, --every {EVERY} {every_10 / bare:.4f}", flush=True)


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


def _recorded(size: str, steps: int) -> list[list[float]]:
    """Returns the seconds of steps not recorded, not looked at, and looked at, and the seconds in hooks of the first two."""
    import torch  # noqa: F401  it has to be imported before it is recorded

    import samestep
    from samestep.common.steps.recording import Recorder

    found: list[list[float]] = [[] for _ in range(6)]
    in_hooks = list[float]()
    with (
        _timed_hooks(in_hooks),
        tempfile.TemporaryDirectory() as scratch,
        samestep.record(f"{scratch}/record", every=EVERY),
    ):
        _, train = training_of_torch(*SIZES[size])
        train(2 * WARM_UP)
        recorder = next(each for each in gc.get_objects() if isinstance(each, Recorder))
        draw, turns = random.Random(0), [True, False]
        for _ in range(steps):
            draw.shuffle(turns)
            for is_bare in turns:
                recorder.is_ended = is_bare
                train(1)
                kind = 0 if is_bare else 1 + recorder.looks_at(recorder.number)
                in_hooks.clear()
                start = time.thread_time()
                train(1)
                found[kind].append(time.thread_time() - start)
                found[3 + kind].append(sum(in_hooks))
        recorder.is_ended = True
    return found[:5]


@contextlib.contextmanager
def _timed_hooks(seconds: list[float]) -> Iterator[None]:
    """Makes a context that appends the seconds of each hook call to a list."""
    from samestep.torch_impl.recording.hooks import Hooks

    guard = Hooks._guard

    def timed_guard(hooks: Hooks, function: Callable[..., object]) -> Callable[..., object]:
        hook = guard(hooks, function)

        def timed(*arguments: object, **keywords: object) -> object:
            start = time.thread_time()
            try:
                return hook(*arguments, **keywords)
            finally:
                seconds.append(time.thread_time() - start)

        return timed

    Hooks._guard = timed_guard
    try:
        yield
    finally:
        Hooks._guard = guard


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
