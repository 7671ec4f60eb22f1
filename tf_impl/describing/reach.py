"""Which parameters of a user's model a step reads: found out when it is described, from the graph of one.

Keras makes variables that its forward pass may never read. They have no gradient, and no optimizer of Keras updates them, yet it
keeps their state.
"""

import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from samestep.common.workload.declaration import Model
from samestep.common.workload.declared import call_user
from samestep.tf_impl.models.inputs import Inputs
from samestep.tf_impl.models.outputs import main_outputs
from samestep.tf_impl.models.user_loss import loss_function
from samestep.tf_impl.models.user_model import UserModel


def losses_of(model: Model, returned: object, targets: tf.Tensor, source: str) -> object:
    """Returns what the user's loss makes of what the model returns; the outputs, all of which any loss of ours reads.

    Args:
        model: The declaration.
        returned: What the model returns.
        targets: The targets of the same examples.
        source: Where it is declared, for messages.
    """
    function = loss_function(model)
    return main_outputs(returned) if function is None else call_user(function, source, "the loss", returned, targets)


@dataclasses.dataclass(frozen=True)
class Reach:
    """What was found out of the parameters that are trained.

    Attributes:
        reads: How often a step reads each, with what is added to the loss, where that is not once.
        unreached: Those that no gradient reaches: also where something reads them on which the loss does not depend.
    """

    reads: Mapping[str, int] = dataclasses.field(default_factory=dict)
    unreached: frozenset[str] = frozenset()


def find_reach(built: UserModel, model: Model, inputs: Inputs, targets: tf.Tensor, source: str) -> Reach:
    """Traces the forward pass in training, and the backward pass. Nothing is computed.

    Args:
        built: The model.
        model: The declaration.
        inputs: The inputs of a few examples.
        targets: Their targets.
        source: Where it is declared, for messages.

    Raises:
        ConfigError: One of them cannot be traced.
    """
    found = Reach()

    def trace() -> None:
        nonlocal found
        with tf.GradientTape() as tape:
            returned = call_user(built, source, "the forward pass in training", inputs)
            losses = losses_of(model, returned, targets, source)
            added = call_user(built.added.total, source, "what it adds to its loss", tf.float64)
        if not (tf.is_tensor(losses) and losses.dtype.is_floating):
            return  # others refuse what is no loss
        sources = [losses] if added is None else [losses, added]
        gradients = call_user(tape.gradient, source, "the backward pass", sources, built.trained)
        read = {variable.ref() for variable in tape.watched_variables()}
        unread = {name: 0 for name, variable in built.trained.items() if variable.ref() not in read}
        again = {name: count for name, count in _reads(built).items() if count > 1}
        found = Reach(again | unread, frozenset(name for name, each in gradients.items() if each is None))

    tf.function(trace, autograph=False).get_concrete_function()
    return found


def _reads(built: UserModel) -> dict[str, int]:
    """Returns how often what was traced reads each parameter, by name; a read that nothing uses is left out of a graph."""
    graph = tf.compat.v1.get_default_graph()
    captured = {id(given): outer for outer, given in graph.captures}
    reads = [op for op in graph.get_operations() if op.type == "ReadVariableOp" and op.outputs[0].consumers()]
    handles = [captured.get(id(each.inputs[0])) for each in reads]
    return {name: sum(each is variable.handle for each in handles) for name, variable in built.params.items()}
