"""What a step of the oracle takes on one thread, and what no faster code can take off it.

`python -m benchmarks.cost.oracle [WORKLOAD ...]` prints a row per workload: the CPU time of a step, the median over its steps;
and that of two parts alone, on arrays of the same shapes: the matrix products of its layers, and the error function of GELU.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported

import functools
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import erf

from samestep.common.batch import batches
from samestep.common.program import Arrays
from samestep.common.reference.models import layers
from samestep.common.reference.models.images import Convolution
from samestep.common.reference.models.transformer import Attention
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.workload.data.dataset import load
from samestep.experiments.printing.text import github

STEPS = 20


def main(workloads: Sequence[str]) -> None:
    """Prints the table."""
    rows = [[workload, *(f"{1e3 * seconds:.1f}" for seconds in measure(workload))] for workload in workloads]
    print(github(["workload", "step ms", "matrix products ms", "error function ms"], rows))


def measure(workload: str) -> tuple[float, float, float]:
    """CPU seconds of a step, of its matrix products and of its error functions."""
    run = parse(RunConfig("numpy", "oracle", workload, dtype="float64"))
    program, split = TrainingProgram(run), load(run.workload.data)
    stream = batches(split.train_inputs, split.train_targets, run.batch_size, run.seed, 0)
    parts = _parts(lambda: program.step(next(stream)))
    steps = [_seconds(lambda batch=batch: program.step(batch)) for batch in itertools.islice(stream, STEPS)]
    own = [[part for part in parts if (part.func is erf) == is_erf] for is_erf in (False, True)]
    products, errors = (_median(lambda work=work: [part() for part in work]) for work in own)
    return statistics.median(steps), products, errors


def _parts(step: Callable[[], None]) -> list[functools.partial[np.ndarray]]:
    """Returns what a step cannot do without, ready to be done again: its matrix products and its error functions."""
    found: list[functools.partial[np.ndarray]] = []
    forward = {kind: kind.forward for kind in NEEDS}

    def spy(kind: type) -> Callable[..., object]:
        def watched(layer: layers.Layer, params: Arrays, x: np.ndarray) -> object:
            y, saved = forward[kind](layer, params, x)
            found.extend(NEEDS[kind](saved, y))
            return y, saved

        return watched

    for kind in forward:
        kind.forward = spy(kind)
    try:
        step()
    finally:
        for kind, own in forward.items():
            kind.forward = own
    return found


def _kernel(x: np.ndarray, y: np.ndarray) -> list[functools.partial[np.ndarray]]:
    """Returns the output, the gradient of the kernel, the gradient of the input."""
    rows, dy = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    kernel = np.ones((rows.shape[1], dy.shape[1]))
    pairs = [(rows, kernel), (rows.T, dy), (dy, kernel.T)]
    return [functools.partial(np.matmul, *pair) for pair in pairs]


def _attention(saved: tuple[np.ndarray, ...], y: np.ndarray) -> list[functools.partial[np.ndarray]]:
    """Returns the scores, the mixture, and two gradients of each."""
    _, q, k, v, weights, _ = saved
    pairs = [(q, k.swapaxes(-1, -2)), (weights, v), (v, k.swapaxes(-1, -2))]
    pairs += [(weights.swapaxes(-1, -2), v), (weights, k), (weights.swapaxes(-1, -2), q)]
    return [functools.partial(np.matmul, *pair) for pair in pairs]


NEEDS = {
    layers.Linear: _kernel,
    Convolution: _kernel,
    Attention: _attention,
    layers.Gelu: lambda saved, y: [functools.partial(erf, saved[0] / np.sqrt(2))],
}
"""The kinds of layers, and their parts, from what the forward pass saved and returned."""


def _median(work: Callable[[], object]) -> float:
    return statistics.median(_seconds(work) for _ in range(STEPS))


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main(sys.argv[1:] or ["digits-mlp", "mnist-cnn", "prose-gpt", "flights-ranker"])
