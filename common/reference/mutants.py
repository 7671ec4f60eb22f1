"""Wrong steps, each wrong in one known way: the ways in which distributed training goes wrong in practice.

They serve twice. As a negative control: a parity check that lets one of them pass is a defect. As signatures: when a
run is not the same step, the mutant whose step it took says why.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from samestep.common.batch import Batch
from samestep.common.program import Arrays
from samestep.common.reference import wrong_updates
from samestep.common.reference.models.layers import Gelu, Layer, Linear, Norm, Saved, layers_below
from samestep.common.reference.models.transformer import Attention
from samestep.common.reference.program import TrainingProgram

Kind = TypeVar("Kind", bound=Layer)


@dataclasses.dataclass(frozen=True)
class Context:
    """What a mutant may know beyond the step itself.

    Attributes:
        devices: The number of shards of the batch.
        next_batch: The batch of the step after, if there is one.
        last_gradients: The gradients of the step before, if there was one.
    """

    devices: int = 2
    next_batch: Batch | None = None
    last_gradients: Arrays | None = None


Apply = Callable[[TrainingProgram, Context], bool]
"""Makes a program wrong in one way; False if it has nothing that could be wrong so."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One way to go wrong.

    Attributes:
        name: Short and unique.
        sentence: What it means; `{devices}` stands for their number.
        apply: Makes a program wrong in this way.
    """

    name: str
    sentence: str
    apply: Apply


def _scaled(factor: Callable[[int], float]) -> Apply:
    def apply(program: TrainingProgram, context: Context) -> bool:
        right = program.gradients

        def gradients(batch: Batch) -> tuple[float, Arrays]:
            loss, values = right(batch)
            return loss, {name: g * factor(context.devices) for name, g in values.items()}

        program.gradients = gradients
        return context.devices > 1

    return apply


def _shards(keep: Callable[[int, int], float]) -> Apply:
    """The gradient as a weighted sum over the shards, of which it should be the plain sum; the loss is right."""

    def apply(program: TrainingProgram, context: Context) -> bool:
        right, count = program.gradients, context.devices

        def gradients(batch: Batch) -> tuple[float, Arrays]:
            loss, _ = right(batch)
            total: Arrays = {}
            for shard in range(count):
                part = dataclasses.replace(batch, indices=np.array_split(batch.indices, count)[shard])
                for name, g in right(part)[1].items():
                    total[name] = total.get(name, 0.0) + keep(shard, count) * g / count
            return loss, total

        program.gradients = gradients
        return count > 1

    return apply


def _swapped_batch(program: TrainingProgram, context: Context) -> bool:
    right, other = program.gradients, context.next_batch
    if other is not None:
        program.gradients = lambda batch: right(other)
    return other is not None


def _stale_gradient(program: TrainingProgram, context: Context) -> bool:
    right, last = program.gradients, context.last_gradients

    def gradients(batch: Batch) -> tuple[float, Arrays]:
        nonlocal last
        loss, new = right(batch)
        used, last = (new if last is None else last), new
        return loss, used

    program.gradients = gradients
    return True


def _update(change: wrong_updates.WrongUpdate, optimizer: str) -> Apply:
    def apply(program: TrainingProgram, context: Context) -> bool:
        right = program.update
        program.update = lambda spec, t, w, g, slots: change(right, spec, t, w, g, slots)
        return program.optimizer.name == optimizer

    return apply


def _float32_hyper_parameters(program: TrainingProgram, context: Context) -> bool:
    spec = program.optimizer
    numbers = {k: float(np.float32(v)) for k, v in dataclasses.asdict(spec).items() if isinstance(v, float)}
    program.optimizer = dataclasses.replace(spec, **numbers)
    return program.optimizer != spec


def _transposed_kernel(program: TrainingProgram, context: Context) -> bool:
    linear = (layer for layer in layers_below(program.model) if isinstance(layer, Linear))
    square = next((x for x in linear if len(set(program.params[f"{x.name}/kernel"].shape)) == 1), None)
    if square is None:
        return False
    name, right_forward, right_backward = f"{square.name}/kernel", square.forward, square.backward

    def backward(params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        dx = right_backward(params | {name: params[name].T}, saved, dy, gradients)
        gradients[name] = gradients[name].T
        return dx

    square.forward = lambda params, x: right_forward(params | {name: params[name].T}, x)
    square.backward = backward
    return True


def _on_layers(kind: type[Kind], change: Callable[[Kind], None]) -> Apply:
    def apply(program: TrainingProgram, context: Context) -> bool:
        found = [layer for layer in layers_below(program.model) if isinstance(layer, kind)]
        for layer in found:
            change(layer)
        return bool(found)

    return apply


def _tanh_gelu(layer: Gelu) -> None:
    scale = math.sqrt(2 / math.pi)

    def forward(params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        tanh = np.tanh(scale * (x + 0.044715 * x**3))
        return 0.5 * x * (1 + tanh), (x, tanh)

    def backward(params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        x, tanh = saved
        return dy * (0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * scale * (1 + 3 * 0.044715 * x * x))

    layer.forward, layer.backward = forward, backward


MUTANTS = (
    Mutant(
        "sum_for_mean",
        "every gradient is {devices}.000 x the oracle's = number of devices: a sum where a mean belongs",
        _scaled(lambda devices: devices),
    ),
    Mutant(
        "mean_twice",
        "every gradient is 1/{devices} of the oracle's: averaged over the devices twice, where once belongs",
        _scaled(lambda devices: 1 / devices),
    ),
    Mutant(
        "dropped_shard",
        "the gradient of the last of {devices} shards is missing from the sum",
        _shards(lambda shard, count: float(shard < count - 1)),
    ),
    Mutant(
        "forgotten_exchange",
        "the gradient is the first shard's own mean: the exchange between {devices} devices was forgotten",
        _shards(lambda shard, count: float(shard == 0) * count),
    ),
    Mutant(
        "unsent_gradients",
        "the gradient is only the first shard's part of the sum over {devices} devices: the others' never arrived",
        _shards(lambda shard, count: float(shard == 0)),
    ),
    Mutant("swapped_batch", "it trained on the next step's batch: the order of the batches is wrong", _swapped_batch),
    Mutant("stale_gradient", "it applied the gradient of the step before: the exchange lags by one", _stale_gradient),
    Mutant(
        "momentum_off_by_one",
        "the update used the momentum of the step before: velocity and weights are updated in the wrong order",
        _update(wrong_updates.old_momentum, "sgd"),
    ),
    Mutant("nesterov", "the update is Nesterov's, not plain momentum", _update(wrong_updates.nesterov, "sgd")),
    Mutant("epsilon_inside", "Adam's epsilon is inside the root", _update(wrong_updates.epsilon_inside, "adamw")),
    Mutant(
        "epsilon_hat",
        "Adam's epsilon is added before the bias correction (epsilon-hat, as in Keras)",
        _update(wrong_updates.epsilon_hat, "adamw"),
    ),
    Mutant(
        "no_bias_correction",
        "Adam's moments are not corrected for their bias",
        _update(wrong_updates.no_correction, "adamw"),
    ),
    Mutant(
        "coupled_decay",
        "the weight decay goes through the moments (L2): it is not decoupled",
        _update(wrong_updates.coupled_decay, "adamw"),
    ),
    Mutant(
        "decay_without_rate",
        "the weight decay is not multiplied by the learning rate",
        _update(wrong_updates.decay_without_rate, "adamw"),
    ),
    Mutant(
        "float32_hyper_parameters",
        "a hyper-parameter passed through float32 on its way into the update",
        _float32_hyper_parameters,
    ),
    Mutant("transposed_kernel", "a square kernel is used transposed", _transposed_kernel),
    Mutant(
        "norm_epsilon",
        "the layer normalisation's epsilon is 1e-6, not 1e-5",
        _on_layers(Norm, lambda norm: setattr(norm, "epsilon", 1e-6)),
    ),
    Mutant(
        "missing_causal_mask",
        "attention sees the tokens to come: the causal mask is missing",
        _on_layers(Attention, lambda attention: setattr(attention, "causal", False)),
    ),
    Mutant("tanh_gelu", "GELU is approximated with tanh", _on_layers(Gelu, _tanh_gelu)),
)
