"""What of one worker's update crosses to the servers and back, read from its graph."""

import tensorflow as tf

from tf_impl.exchanges import placement


def crossing(graph: tf.Graph) -> tuple[int, int]:
    """The bytes of whole variables that a worker reads, and of gradients that it sends, in one execution of a graph."""
    device = placement(graph)
    read, sent = {}, {}
    for operation in graph.get_operations():
        for tensor in operation.inputs:
            source, target = device(tensor.op), device(operation)
            if tensor.op.type != "Placeholder" and tensor.dtype.is_floating and source != target and _size(tensor):
                (read if source else sent)[tensor.name, target] = _size(tensor)
    return sum(read.values()), sum(sent.values())


def _size(tensor: tf.Tensor) -> int:
    """Its bytes; 0 if it has as many rows as happen to be looked up on one server."""
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size
