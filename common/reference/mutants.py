"""Wrong steps, each wrong in one known way in which distributed training goes wrong in practice.

They serve two purposes. As a negative control, a parity check that lets one of them pass is a defect. As a signature, the
mutant that takes the same step as a bad run says why the run is bad.
"""

import dataclasses
import importlib
import itertools
import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np

from samestep.common.batch import Batch
from samestep.common.mistakes.table import of_step
from samestep.common.program import Arrays, TrainState
from samestep.common.reference.models.layers import Gelu, Layer, Linear, Norm, Saved
from samestep.common.reference.models.transformer import Attention
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.step import times
from samestep.common.reference.wrong_steps import change_gradients, layers_of, train_on, weigh_parts
from samestep.common.workload.optimizers.spec import Update
from samestep.common.workload.optimizers.table import OPTIMIZERS, mistakes_of

GPT = "prose-gpt+layers=1+heads=2+width=8+context=8"
"""The cell of mistakes that matter in every transformer."""
TANH_SCALE = math.sqrt(2 / math.pi)


@dataclasses.dataclass(frozen=True)
class Context:
    """What a mutant may use beyond the step itself.

    Attributes:
        devices: The number of shards of the batch.
        next_batch: The batch of the next step, if there is one.
        last_gradients: The gradients of the previous step, if there was one.
        earlier: The state before the previous step, if there was one.
        first: The number of the first step of the run; above 0 if it continues another one.
    """

    devices: int = 2
    next_batch: Batch | None = None
    last_gradients: Arrays | None = None
    earlier: TrainState | None = None
    first: int = 0


Apply = Callable[[TrainingProgram, Context], bool]
"""A function that makes a program wrong in one way; it returns False if the program cannot be wrong in this way."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One way in which a step can be wrong.

    Attributes:
        name: A short, unique name.
        sentence: What is wrong, as a clause; `{devices}` stands for the number of devices.
        apply: Makes a program wrong in this way.
        cell: A workload with features and techniques in which it matters; "" if it matters in any.
    """

    name: str
    sentence: str
    apply: Apply
    cell: str = ""


def in_cell(cell: str, sentences: Mapping[str, str], **apply: Apply) -> tuple[Mutant, ...]:
    """Makes mutants that matter in one cell.

    Args:
        cell: As in `Mutant`.
        sentences: Name -> sentence. A mistake that records of scripts can show as well has its sentence in the table of mistakes.
        apply: Name -> the function that makes a program wrong, as in `Mutant`.
    """
    return tuple(Mutant(name, sentences.get(name) or of_step(name), each, cell) for name, each in apply.items())


def mistakes_below(package: str, path: Iterable[str]) -> tuple[Mutant, ...]:
    """Returns the mistakes of all modules of a package, in alphabetical order of the modules.

    Args:
        package: The name of the package.
        path: The directories of its modules.
    """
    names = sorted(each.name for each in pkgutil.iter_modules(path))
    return tuple(itertools.chain(*(importlib.import_module(f"{package}.{name}").MISTAKES for name in names)))


def _scaled(factor: Callable[[int], float], program: TrainingProgram, context: Context) -> bool:
    scale = factor(context.devices)
    change_gradients(program, lambda batch, loss, values: (loss, times(values, scale)))
    return context.devices > 1


def weigh_shards(weight: Callable[[int, int], float], program: TrainingProgram, context: Context) -> bool:
    """Replaces the gradient by a weighted sum of the shards' means, with wrong weights instead of 1/N; the loss is right.

    Args:
        weight: (shard, number of shards) -> N times the shard's weight.
        program: The program to be made wrong.
        context: Gives the number of shards.
    """
    weights = [weight(shard, context.devices) for shard in range(context.devices)]
    weigh_parts(program, lambda batch: weights)
    return context.devices > 1


def _swapped_batch(program: TrainingProgram, context: Context) -> bool:
    if (other := context.next_batch) is not None:
        train_on(program, lambda batch: other)
    return other is not None


def _stale_gradient(program: TrainingProgram, context: Context) -> bool:
    last = context.last_gradients

    def change(batch: Batch, loss: float, new: Arrays) -> tuple[float, Arrays]:
        nonlocal last
        used, last = (new if last is None else last), new
        return loss, used

    change_gradients(program, change)
    return True


def _update(optimizer: str, wrong: Update, program: TrainingProgram, context: Context) -> bool:
    program.update = wrong
    return program.optimizer.name == optimizer


def _float32_hyper_parameters(program: TrainingProgram, context: Context) -> bool:
    spec = program.optimizer
    numbers = {k: float(np.float32(v)) for k, v in dataclasses.asdict(spec).items() if isinstance(v, float)}
    program.optimizer = dataclasses.replace(spec, **numbers)
    return program.optimizer != spec


def _late_rate(program: TrainingProgram, context: Context) -> bool:
    right = program.optimizer_at
    program.optimizer_at = lambda step: right(max(1, step - 1))
    return program.techniques.has_schedule


def _transposed_kernel(program: TrainingProgram, context: Context) -> bool:
    linear = layers_of(program, Linear)
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


def _on_layers(kind: type[Layer], attributes: Mapping[str, object], program: TrainingProgram, context: Context) -> bool:
    found = layers_of(program, kind)
    for layer in found:
        vars(layer).update(attributes)
    return bool(found)


def _tanh_forward(params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
    tanh = np.tanh(TANH_SCALE * (x + 0.044715 * x**3))
    return 0.5 * x * (1 + tanh), (x, tanh)


def _tanh_backward(params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
    x, tanh = saved
    return dy * (0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * TANH_SCALE * (1 + 3 * 0.044715 * x * x))


_SENTENCES = {
    "unsent_gradients": "the gradient is only the first shard's part of the sum over {devices} devices: the others' "
    "never arrived",
    "swapped_batch": "it trained on the next step's batch: the order of the batches is wrong",
    "float32_hyper_parameters": "a hyper-parameter passed through float32 on its way into the update",
    "transposed_kernel": "a square kernel is used transposed",
    "norm_epsilon": "the layer normalization's epsilon is 1e-6, not 1e-5",
    "missing_causal_mask": "attention sees later tokens: the causal mask is missing",
    "tanh_gelu": "GELU is approximated with tanh",
}
MUTANTS = (
    *in_cell(
        "",
        _SENTENCES,
        sum_for_mean=partial(_scaled, lambda devices: devices),
        mean_twice=partial(_scaled, lambda devices: 1 / devices),
        dropped_shard=partial(weigh_shards, lambda shard, count: float(shard < count - 1)),
        forgotten_exchange=partial(weigh_shards, lambda shard, count: float(shard == 0) * count),
        unsent_gradients=partial(weigh_shards, lambda shard, count: float(shard == 0)),
        swapped_batch=_swapped_batch,
        stale_gradient=_stale_gradient,
    ),
    *(
        Mutant(wrong.__name__, said, partial(_update, optimizer, wrong))
        for optimizer in OPTIMIZERS
        for wrong, said in mistakes_of(optimizer).items()
    ),
    *in_cell("", _SENTENCES, float32_hyper_parameters=_float32_hyper_parameters),
    *in_cell("synthetic-mlp+width=8+warmup_steps=40", _SENTENCES, late_rate=_late_rate),
    *in_cell(
        "",
        _SENTENCES,
        transposed_kernel=_transposed_kernel,
        norm_epsilon=partial(_on_layers, Norm, {"epsilon": 1e-6}),
        missing_causal_mask=partial(_on_layers, Attention, {"sees": lambda tokens: np.ones((tokens, tokens))}),
        tanh_gelu=partial(_on_layers, Gelu, {"forward": _tanh_forward, "backward": _tanh_backward}),
    ),
)
