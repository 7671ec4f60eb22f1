"""Activations: the bytes that the graph of a step hands from the forward pass to the backward pass.

`step.accumulate` traces each pass in a name scope, and TensorFlow names the gradient of an operation of the forward pass
"gradient_tape/forward/...", so a name says which operations are of the backward pass. A tensor is kept if one of these takes
it, none of them made it, and the step needs what comes of it: that is what the executor has to hold, since it frees a tensor
as soon as its last reader is done. Grappler may still fold what does not depend on the batch, such as a mask.

All micro-batches of a shard count together: nothing in the graph makes one wait for the backward pass of another.
"""

import collections

import tensorflow as tf

from samestep.tf_impl.observing.loops import needed

FORWARD, BACKWARD = "forward", "backward"
"""Name scopes; the second one only holds what the tape adds up or makes dense."""
_SAME_MEMORY = {"Identity": 0, "Reshape": 0, "ExpandDims": 0, "Squeeze": 0, "Split": 1, "Unpack": 0}
"""Operations whose outputs lie in the memory of one of their inputs, and which input that is."""
_NOT_KEPT = {"ReadVariableOp", "Const"}
"""Parameters count elsewhere, and constants belong to the graph."""


def kept_bytes(graph: tf.Graph) -> dict[str, int] | None:
    """Adds up what each device keeps between the passes: each piece of memory once, the batch included, no parameters.

    Returns None for a graph that keeps lists, as the loops of recurrent layers do: their size is in no graph.

    Args:
        graph: The graph of a concrete function that takes a step.
    """
    backward = [operation for operation in needed(graph) if _is_backward(operation)]
    by_device: collections.Counter[str] = collections.Counter()
    counted = set()
    for operation in backward:
        for tensor in operation.inputs:
            root = _root(tensor)
            if _is_backward(root.op) or root.op.type in _NOT_KEPT or root.dtype == tf.resource:
                continue
            if root.dtype == tf.variant:
                return None
            if (operation.device, root.ref()) not in counted:
                counted.add((operation.device, root.ref()))
                by_device[operation.device] += (root.shape.num_elements() or 0) * root.dtype.size
    return dict(by_device)


def _is_backward(operation: tf.Operation) -> bool:
    scopes = operation.name.split("/")
    return "gradient_tape" in scopes or any(scope.partition("_")[0] == BACKWARD for scope in scopes)


def phase_of(operation: tf.Operation) -> str:
    """Returns the pass that an operation belongs to."""
    return "backward" if _is_backward(operation) else "forward"


def _root(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor in whose memory a tensor lies."""
    while tensor.op.type in _SAME_MEMORY:
        tensor = tensor.op.inputs[_SAME_MEMORY[tensor.op.type]]
    return tensor
