"""What is private upstream, as it was in tensorflow 2.21; a later version that differs fails here first."""

import importlib.metadata
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.tf

SCRIPT = """
    import tensorflow as tf
    from samestep.tf_impl import upstream
    from samestep.tf_impl.devices import logical_cpus
    from samestep.tf_impl.observing.exchanges import sends_of
    from samestep.tf_impl.program import num_compilations

    devices = logical_cpus(2)
    strategy = tf.distribute.MirroredStrategy(devices, upstream.ring(devices))
    summed = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones(3)))
    print("ring", [float(each[0]) for each in strategy.experimental_local_results(summed)])

    before = upstream.function_names()
    kept = tf.function(lambda x: tf.exp(x) + 1)
    print(kept(tf.zeros(2)).numpy())
    found = {node.op for name in upstream.function_names() - before for node in upstream.nodes(name)}
    print("nodes", sorted(found & {"Exp", "AddV2"}))

    counts = [num_compilations()]
    for size in (2, 3, 3):
        kept(tf.zeros(size))
        counts.append(num_compilations())
    print("traced", [after > before for before, after in zip(counts, counts[1:])])

    traced = tf.function(lambda x: tf.raw_ops.CrossReplicaSum(input=x, group_assignment=[[0, 1]]))
    (found,) = sends_of(traced.get_concrete_function(tf.ones([3, 5])).graph, "data", 2)
    operations = []
    with upstream.watching_operations(lambda kind, operands, results: operations.append((kind, len(operands), results[0].shape))):
        tf.ones((2, 3)) @ tf.ones((3, 1))
    print("watched", operations[-1])

    try:
        peak = tf.config.experimental.get_memory_info("/job:localhost/replica:0/task:0/device:CPU:0")["peak"]
    except ValueError:  # or it refuses to say
        peak = 0
    print("allocated", peak)
    print("on a TPU", found.operation, found.count, found.bytes)

    turning = tf.function(lambda x: tf.while_loop(lambda i: i < 3.0, lambda i: (tf.exp(i),), (x,), maximum_iterations=5))
    graph = turning.get_concrete_function(tf.constant(0.0)).graph
    (loop,) = (op for op in graph.get_operations() if op.type == "StatelessWhile")
    body = upstream.loop_body(loop)
    kinds = {op.type for op in body.get_operations()}
    print("loop", len(body.inputs) == len(loop.inputs), tf.get_static_value(loop.inputs[1]), sorted(kinds & {"Exp"}))

    import threading
    import keras
    model = keras.Sequential([keras.Input((2,)), keras.layers.ActivityRegularization(l1=1.0)])
    upstream.separate_losses(model._flatten_layers())
    model(tf.ones((1, 2)))
    other = threading.Thread(target=lambda: model(tf.zeros((1, 2))))
    other.start(), other.join()
    print("losses", float(model.losses[0]), [float(each) for layer in model.layers for each in upstream.losses_of(layer)])
"""


def test_the_version() -> None:
    assert importlib.metadata.version("tensorflow").startswith("2.21.")


@pytest.mark.slow
def test_what_is_private_in_tensorflow_2_21() -> None:
    script = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    ring, called, nodes, compiled, watched, allocated, tpu, loop, losses = done.stdout.splitlines()
    assert (ring, called, nodes) == ("ring [2.0, 2.0]", "[2. 2.]", "nodes ['AddV2', 'Exp']")
    assert watched == "watched ('MatMul', 2, TensorShape([2, 1]))"
    assert compiled == "traced [False, True, False]"
    assert allocated == "allocated 0", "CPU cores do not count; a GPU is asked by the same name"
    assert tpu == "on a TPU all_reduce 1 60"
    assert loop == "loop True 5 ['Exp']"
    assert losses == "losses 2.0 [2.0]"
