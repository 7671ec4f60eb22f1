"""Builds the user's model once and writes down what every process of every strategy needs to know about it."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from samestep.common.errors import ConfigError
from samestep.common.workload.data.dataset import Split
from samestep.common.workload.declared import call_user, load_model
from samestep.common.workload.draws import DRAWS
from samestep.common.workload.models.description_report import EXAMPLES, BuildReport, kind_of, write_found
from samestep.common.workload.models.probing import find_habits
from samestep.common.workload.models.spec import Segment
from samestep.tf_impl.describing.optimizer import describe_optimizer
from samestep.tf_impl.describing.probing import Probe
from samestep.tf_impl.describing.reach import find_reach, losses_of
from samestep.tf_impl.describing.roundings import find_roundings
from samestep.tf_impl.features.applied import layers_of
from samestep.tf_impl.features.draws import STILL
from samestep.tf_impl.models.inputs import as_inputs
from samestep.tf_impl.models.outputs import is_tensor, main_outputs
from samestep.tf_impl.models.user_loss import loss_function
from samestep.tf_impl.models.user_model import UserModel, begin_in_float64


def describe(folder: Path, source: str, split: Split, seed: int) -> None:
    """Describes a model.

    Args:
        folder: Where the description goes.
        source: FILE.py:NAME, absolute.
        split: The data.
        seed: The seed with which the initial weights are drawn.

    Raises:
        ConfigError: The file, the model or the data are invalid; the message says what to change.
    """
    DRAWS.install(STILL)
    model = load_model(source, "tf")
    if model.tf is None:
        raise ConfigError(f"--model {source} has no model for tf; add `tf=` to its samestep.Model.")
    begin_in_float64(seed)
    inputs, targets = (as_inputs(array[:EXAMPLES]) for array in (split.train_inputs, split.train_targets))
    built = UserModel(model, source, inputs)
    with tf.GradientTape() as tape:
        returned = built.predict(inputs)
        outputs = main_outputs(returned)
        losses = losses_of(model, returned, targets, source)
    _refuse_independent(tape, losses, built, source)
    reach = find_reach(built, model, inputs, targets, source)
    params = {name: variable.numpy() for name, variable in built.params.items()}
    probe = Probe(built, model, split, source)
    habits = call_user(find_habits, source, "what it does", probe)
    found = BuildReport(
        outputs=outputs.numpy(),
        loss_of_each=None if loss_function(model) is None else lambda: np.asarray(losses),
        returns=kind_of(model, returned, is_tensor),
        params=params,
        buffers={name: variable.numpy() for name, variable in built.buffers.items()},
        dtypes=built.fixed_dtypes(),
        segments=(Segment("", 0, tuple(outputs.shape[1:]), tuple(params)),),
        reads=reach.reads,
        loops=reach.loops,
        unreached=reach.unreached,
        sums=call_user(probe.sums, source, "what it adds to its loss", habits),
        featured=layers_of(built.layers()),
        habits=habits,
        optimizer=describe_optimizer(model, {name: params[name] for name in built.trained}, source),
        layers=built.describe_layers(inputs),
        frozen=built.frozen,
        rounded=find_roundings(model, source, inputs),  # last: it changes how layers are built
    )
    write_found(folder, model, source, "tf", split, seed, found)


def _refuse_independent(tape: tf.GradientTape, losses: Any, built: UserModel, source: str) -> None:
    """Refuses a model if no trained variable gets a gradient from its loss; other checks refuse what is not a loss."""
    if not (tf.is_tensor(losses) and losses.dtype.is_floating):
        return
    gradients = call_user(tape.gradient, source, "the backward pass", losses, list(built.trained.values()))
    if all(each is None for each in gradients):
        raise ConfigError(
            f"--model {source}: nothing that the loss reads depends on a variable that is trained; leave out stop_gradient and "
            f".numpy() in the forward pass."
        )
