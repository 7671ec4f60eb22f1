"""Finds which parameters of a user's model a step reads, from its graph, when the model is described.

Keras makes variables that its forward pass may never read. They have no gradient, and Keras' optimizers do not update them, but
keep state for them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from samestep.common.workload.declaration import Model
from samestep.common.workload.declared import call_user
from samestep.tf_impl.models.inputs import Inputs
from samestep.tf_impl.models.outputs import main_outputs
from samestep.tf_impl.models.user_loss import loss_function
from samestep.tf_impl.models.user_model import UserModel
from samestep.tf_impl.observing.loops import find_reads


def losses_of(model: Model, returned: object, targets: tf.Tensor, source: str) -> Any:
    """Returns the user's loss of what the model returns; or the outputs, all of which a loss of ours reads.

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
    """The findings about the trained parameters.

    Attributes:
        reads: How often a step reads each parameter, including for what is added to the loss, if that is not once.
        unreached: The parameters that no gradient reaches, even if something reads them on which the loss does not depend.
        loops: As in `Findings`.
    """

    reads: Mapping[str, int] = dataclasses.field(default_factory=dict)
    unreached: frozenset[str] = frozenset()
    loops: tuple[int, ...] = ()


def find_reach(built: UserModel, model: Model, inputs: Inputs, targets: tf.Tensor, source: str) -> Reach:
    """Traces the forward pass in training, and the backward pass. Nothing is computed.

    Args:
        built: The model.
        model: The declaration.
        inputs: The inputs of a few examples.
        targets: Their targets.
        source: Where it is declared, for messages.

    Raises:
        ConfigError: The forward or the backward pass cannot be traced.
    """
    unreached: frozenset[str] = frozenset()

    def trace() -> list[object]:
        nonlocal unreached
        with tf.GradientTape() as tape:
            returned = call_user(built, source, "the forward pass in training", inputs)
            losses = losses_of(model, returned, targets, source)
            added = call_user(built.added.total, source, "what it adds to its loss", tf.float64)
        if not (tf.is_tensor(losses) and losses.dtype.is_floating):
            return []  # other checks refuse what is not a loss
        sources = [losses] if added is None else [losses, added]
        gradients = call_user(tape.gradient, source, "the backward pass", sources, built.trained)
        unreached = frozenset(name for name, each in gradients.items() if each is None)
        return [*sources, *(each for each in gradients.values() if each is not None)]

    graph = tf.function(trace, autograph=False).get_concrete_function().graph
    if not graph.outputs:
        return Reach()
    found = find_reads(graph)
    again = {name: count for name, variable in built.params.items() if (count := found.whole[id(variable.handle)]) > 1}
    unread = {name: 0 for name, variable in built.trained.items() if id(variable.handle) not in found.used}
    return Reach(again | unread, unreached, found.loops)
