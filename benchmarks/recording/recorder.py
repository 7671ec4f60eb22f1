"""Measures what `samestep record` costs a training script, as the CPU time of a step, recorded and bare.

`python -m benchmarks.recording.recorder [torch keras] [--every 1 10]` prints a row per size of step. The bare and the recorded
script are separate processes with one thread each. They alternate every few steps, so both find the machine in the same state,
and the ratio of a round is the median over its pairs. Two processes of one script may differ by some percent for their whole
lives, so each round has new ones. The table has the median over rounds with its 95 % interval. The cost should be at most 5 % for
steps of 50 ms and more and 15 % for steps of 10 ms, and a tenth of that with `--every 10`.

Much of the difference between processes is due to malloc. Whether it returns memory to the kernel after each step, and faults it
in again in the next, depends on everything that a process ever allocated, and costs some percent of a step. So malloc keeps its
memory on both sides, and the table shows the remaining page faults. `--malloc default` leaves malloc as scripts usually have it.

`python -m benchmarks.recording.recorder torch-gpu` trains larger models in bf16 on a GPU, and compares seconds instead of CPU
time.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from benchmarks.intervals import median_interval

ROOT = Path(__file__).parents[2]
_ON_GPU = "torch-gpu"
VOCABULARY, LENGTH, HEADS = 256, 32, 4
SIZES = {"10 ms": (64, 16), "50 ms": (256, 12), "200 ms": (256, 64)}
"""The sizes of a transformer with two layers: its width, and the number of sequences in a batch."""
GPU_SIZES = {"3 M": (256, 8, 4, 128), "25 M": (512, 16, 8, 256), "303 M": (1024, 8, 24, 512)}
"""The sizes of a transformer on a GPU: width, sequences in a batch, layers, and tokens in a sequence."""
WARM_UP, ROUNDS, PAIRS, STEPS = 12, 8, 32, {"10 ms": 40, "50 ms": 20, "200 ms": 10} | dict.fromkeys(GPU_SIZES, 20)
"""Steps before measuring, more than are all looked at; rounds; pairs; and the steps of a turn, a multiple of ten."""
KEEPING = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
"""Variables that make malloc keep freed memory. A second arena would return some of it; 32 MiB is glibc's maximum."""


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frameworks", nargs="*", default=["torch", "keras"])
    parser.add_argument("--every", nargs="*", type=int, default=[1, 10])
    parser.add_argument("--sizes", nargs="*")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--malloc", choices=["keeping", "default"], default="keeping", help="what both sides have")
    given = parser.parse_args()
    print(
        f"| script | parameters | bare, ms | `--every` | recorded / bare | 95 % | faults |\n{'|---' * 7}|", flush=True
    )
    malloc = KEEPING if given.malloc == "keeping" else {}
    for framework in given.frameworks:
        for size in given.sizes or (GPU_SIZES if framework == _ON_GPU else SIZES):
            for every in given.every:
                print(_row(framework, size, every, given.pairs, malloc), flush=True)


def _row(framework: str, size: str, every: int, num_pairs: int, malloc: Mapping[str, str]) -> str:
    ratios, steps, faults = list[float](), list[float](), list[tuple[float, float]]()
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as scratch:
            options = ["--out", str(Path(scratch, "record")), "--every", str(every)]
            bare, recorded = (_Script(framework, size, words, malloc) for words in (None, options))
            pairs = [_pair(bare, recorded, number) for number in range(max(1, num_pairs // ROUNDS))]
            bare.end()
            recorded.end()
        ratios.append(statistics.median(own.seconds / other.seconds for other, own in pairs))
        steps += [other.seconds / STEPS[size] * 1e3 for other, _ in pairs]
        faults += [(other.faults / STEPS[size], own.faults / STEPS[size]) for other, own in pairs]
    ratio, low, high = median_interval(ratios)
    numbers = f"{bare.num_parameters / 1e6:.2f} M | {statistics.median(steps):.1f} | {every}"
    bares, owns = (statistics.median(each) for each in zip(*faults, strict=True))
    return f"| {framework}, {size} | {numbers} | {ratio:.3f} | {low:.3f} .. {high:.3f} | {bares:.0f}, {owns:.0f} |"


class _Turn(NamedTuple):
    """A turn of one script: the CPU time of its steps, or their seconds on a GPU, and their page faults."""

    seconds: float
    faults: int


def _pair(bare: "_Script", recorded: "_Script", number: int) -> tuple[_Turn, _Turn]:
    turns = {each: each.turn() for each in ((recorded, bare) if number % 2 else (bare, recorded))}
    return turns[bare], turns[recorded]


class _Script:
    """A training script in a process that takes a turn of steps when asked."""

    def __init__(self, framework: str, size: str, options: list[str] | None, malloc: Mapping[str, str]) -> None:
        script = [sys.executable, "-m", "benchmarks.recording.recorder", "--script", framework, size]
        recorder = [] if options is None else [sys.executable, "-m", "samestep", "record", *options, "--"]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"} | malloc
        if framework != _ON_GPU:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([*recorder, *script], cwd=ROOT, env=environment, text=True, **pipes)
        self.num_parameters = int(self._said())

    def turn(self) -> _Turn:
        """Makes the script take a turn, and returns the measurements."""
        print("go", file=self._pipe(self._process.stdin), flush=True)
        seconds, faults = self._said().split()
        return _Turn(float(seconds), int(faults))

    def end(self) -> None:
        self._pipe(self._process.stdin).close()
        if code := self._process.wait():
            raise SystemExit(f"the script ended with exit code {code}.")

    def _said(self) -> str:
        return self._pipe(self._process.stdout).readline()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def script(framework: str, size: str) -> None:
    """Runs the script that is measured.

    Args:
        framework: "torch", "keras" or "torch-gpu".
        size: A key of SIZES, or of GPU_SIZES.
    """
    if framework == _ON_GPU:
        num_parameters, train = training_on_gpu(*GPU_SIZES[size])
    else:
        num_parameters, train = {"torch": training_of_torch, "keras": training_of_keras}[framework](*SIZES[size])
    clock = time.perf_counter if framework == _ON_GPU else time.process_time
    train(WARM_UP)
    print(num_parameters, flush=True)
    for _ in sys.stdin:
        start, faults = clock(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        train(STEPS[size])
        print(clock() - start, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults, flush=True)


def training_on_gpu(width: int, num_sequences: int, layers: int, length: int) -> tuple[int, Callable[[int], None]]:
    """Builds a model in bf16 on the GPU; see `training_of_torch`.

    Args:
        width: The width of the model.
        num_sequences: The number of sequences in a batch.
        layers: The number of layers.
        length: The number of tokens in a sequence.
    """
    import torch

    num_parameters, train = training_of_torch(width, num_sequences, layers, length, "cuda")

    def train_on_gpu(count: int) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            train(count)
        torch.cuda.synchronize()

    return num_parameters, train_on_gpu


def training_of_torch(
    width: int, num_sequences: int, layers: int = 2, length: int = LENGTH, device: str = "cpu"
) -> tuple[int, Callable[[int], None]]:
    """Builds the model and its optimizer; returns its number of parameters, and a function that takes a number of steps.

    Args:
        width: The width of the model.
        num_sequences: The number of sequences in a batch.
        layers: The number of layers.
        length: The number of tokens in a sequence.
        device: The device of the model.
    """
    import torch
    from torch import nn

    torch.set_num_threads(1)
    layer = nn.TransformerEncoderLayer(width, HEADS, 4 * width, 0.0, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(VOCABULARY, width), nn.TransformerEncoder(layer, layers), nn.Linear(width, VOCABULARY)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (num_sequences, length + 1)).to(device)

    def train(count: int) -> None:
        for _ in range(count):
            loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return sum(each.numel() for each in model.parameters()), train


def training_of_keras(width: int, num_sequences: int) -> tuple[int, Callable[[int], None]]:
    """Builds the model in Keras; returns the same as `training_of_torch`.

    Args:
        width: The width of the model.
        num_sequences: The number of sequences in a batch.
    """
    import keras

    model, batch = model_of_keras(width, num_sequences, keras.Model)

    def train(count: int) -> None:
        model.fit(batch, steps_per_epoch=count, verbose=0)

    return model.count_params(), train


def model_of_keras(width: int, num_sequences: int, kind: type) -> tuple[Any, Any]:
    """Builds the model in Keras; returns it and an endless data set of batches.

    Args:
        width: The width of the model.
        num_sequences: The number of sequences in a batch.
        kind: keras.Model or a subclass.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    layers = keras.layers
    tokens = keras.Input((LENGTH,), dtype="int32")
    seen = layers.Embedding(VOCABULARY, width)(tokens)
    for _ in range(2):
        seen = layers.LayerNormalization()(seen + layers.MultiHeadAttention(HEADS, width // HEADS)(seen, seen))
        hidden = layers.Dense(4 * width, activation="relu")(seen)
        seen = layers.LayerNormalization()(seen + layers.Dense(width)(hidden))
    model = kind(tokens, layers.Dense(VOCABULARY)(seen))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-3), loss, jit_compile=False)
    drawn = np.random.default_rng(0).integers(0, VOCABULARY, (num_sequences, LENGTH + 1))
    return model, tf.data.Dataset.from_tensors((drawn[:, :-1], drawn[:, 1:])).repeat()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--script"]:
        script(*sys.argv[2:])
    else:
        main()
