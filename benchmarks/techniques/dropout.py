"""Measures what dropout with a stated mask costs, compared with the frameworks' own.

`python -m benchmarks.techniques.dropout [torch tf] [--pairs 15]` takes forward and backward passes of one dropout layer of each
framework, ours and then its own, on one thread, and prints a line per shape of the activations: the milliseconds of both
(medians), and the median ratio of consecutive pairs, with the smallest and the largest. It should be at most 2.
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from samestep.common.keys import example_keys

SHAPES = ((48, 512), (24, 64, 128), (16, 128, 256), (8, 256, 1024))
RATE = 0.1
PAIRS, PASSES = 15, 4
HEADINGS = ("framework, activations", "ours, ms", "its own, ms", "ratio")
Pass = Callable[[], object]
"""A function that runs a layer forward and backward."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each framework in its own process, and prints its lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frameworks", nargs="*", default=list(LAYERS))
    parser.add_argument("--pairs", type=int, default=PAIRS)
    given = parser.parse_args(arguments)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for framework in given.frameworks:
        # One after the other: torch and TensorFlow never share a process.
        child = multiprocessing.get_context("spawn").Process(target=measure, args=(framework, given.pairs))
        child.start()
        child.join()


def measure(framework: str, pairs: int) -> None:
    """Prints the lines of a framework.

    Args:
        framework: A key of `LAYERS`.
        pairs: The number of pairs.
    """
    THREADS[framework]()
    for shape in SHAPES:
        passes = LAYERS[framework](shape)
        for take in passes * 3:  # traces, and warms up
            take()
        taken = [[_milliseconds(take) for take in passes] for _ in range(pairs)]
        ours, own = (statistics.median(column) for column in zip(*taken, strict=True))
        ratios = [one / other for one, other in taken]
        told = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {framework}, {' x '.join(map(str, shape))} | {ours:.2f} | {own:.2f} | {told} |", flush=True)


def _milliseconds(take: Pass) -> float:
    start = time.perf_counter()
    for _ in range(PASSES):
        take()
    return (time.perf_counter() - start) * 1000 / PASSES


def torch_passes(shape: tuple[int, ...]) -> tuple[Pass, Pass]:
    """Returns the passes of our layer in torch, and of torch's own layer.

    Args:
        shape: The shape of the activations.
    """
    import torch

    from samestep.torch_impl.features.dropout import Dropout
    from samestep.torch_impl.step_context import StepContext

    context = StepContext()
    keys, ours = torch.from_numpy(example_keys(0, 0, 0, shape[0])), Dropout(RATE, 0, context)
    x, gradient = torch.ones(shape, requires_grad=True), torch.ones(shape)

    def passes(layer: Callable[[torch.Tensor], torch.Tensor]) -> Pass:
        return lambda: torch.autograd.grad(layer(x), x, gradient)

    def numbered(x: torch.Tensor) -> torch.Tensor:
        with context.numbered(keys):
            return ours(x)

    return passes(numbered), passes(torch.nn.Dropout(RATE))


def tf_passes(shape: tuple[int, ...]) -> tuple[Pass, Pass]:
    """Returns the passes of our layer in TensorFlow, and of TensorFlow's own layer, in graphs as in the programs.

    Args:
        shape: The shape of the activations.
    """
    import tensorflow as tf

    from samestep.tf_impl.features.dropout import Dropout

    ours, keys = Dropout(RATE, 0), tf.constant(example_keys(0, 0, 0, shape[0]))

    def passes(layer: Callable[[tf.Tensor], tf.Tensor]) -> Pass:
        @tf.function(autograph=False)
        def take(x: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x)
            return tape.gradient(y, x)

        x = tf.ones(shape)
        return lambda: take(x)

    return passes(lambda x: ours(x, keys)), passes(lambda x: tf.nn.dropout(x, RATE))


def _one_thread_of_torch() -> None:
    import torch

    torch.set_num_threads(1)


def _one_thread_of_tf() -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


THREADS = {"torch": _one_thread_of_torch, "tf": _one_thread_of_tf}
LAYERS: Mapping[str, Callable[[tuple[int, ...]], tuple[Pass, Pass]]] = {"torch": torch_passes, "tf": tf_passes}

if __name__ == "__main__":
    main()
