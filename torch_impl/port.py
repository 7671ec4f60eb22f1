"""Traces the user's torch model: every layer, the gradients and one step on one batch, and a curve of losses."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from samestep.common.batch import batches
from samestep.common.errors import ConfigError
from samestep.common.files.safetensors import write_safetensors
from samestep.common.porting.model_trace import NUDGE, ModelTrace, TraceRequest, write_trace
from samestep.common.porting.starting_weights import read_weights, saved_weights
from samestep.common.porting.traced_call import layer_calls
from samestep.common.workload.data.dataset import Split
from samestep.common.workload.declaration import Model
from samestep.common.workload.declared import call_user, load_model
from samestep.common.workload.draws import DRAWS
from samestep.common.workload.models.user_model import UserModelSpec
from samestep.common.workload.optimizers.user_optimizer import UserOptimizer
from samestep.common.workload.reductions import divisor_of
from samestep.torch_impl import tracing, weights
from samestep.torch_impl.describing.amended import amend_module, amend_optimizer
from samestep.torch_impl.describing.clipping import Clips
from samestep.torch_impl.describing.configured import hyper_parameters
from samestep.torch_impl.describing.optimizer import refuse_closure
from samestep.torch_impl.features.applied import held_still
from samestep.torch_impl.features.draws import STILL
from samestep.torch_impl.models import summed_loss
from samestep.torch_impl.models.inputs import Inputs, as_inputs
from samestep.torch_impl.models.outputs import main_outputs
from samestep.torch_impl.models.uncast import keep_float64
from samestep.torch_impl.models.user_loss import loss_function
from samestep.torch_impl.models.user_model import build_declared
from samestep.torch_impl.optimizers import build_optimizer, own

MeanLoss = Callable[[object, torch.Tensor], torch.Tensor]
"""Given what the model returns and the targets, returns the mean loss of the batch."""


class _Traced:
    """A model that can be reset to the same weights repeatedly."""

    def __init__(self, folder: Path, asked: TraceRequest, split: Split) -> None:
        DRAWS.install(STILL)  # before the user's file is imported
        self.model, self._asked, self._split = load_model(asked.model, "torch"), asked, split
        spec = UserModelSpec.of(str(folder.resolve().parent / "torch"))
        torch.manual_seed(asked.seed)
        self.module = build_declared(self.model, asked.model, spec.facts.unread).double()
        keep_float64(self.module, spec.facts.casts)
        self.stilled = held_still(self.module)
        amend_module(self.module, asked.amendments)
        self._params, self._buffers = read_weights(folder)
        self.loss = _mean_loss(spec)

    def start(self, factor: float = 0.0) -> torch.optim.Optimizer:
        """Resets the weights, each perturbed by a relative factor; returns a new optimizer."""
        nudge = np.random.default_rng(self._asked.seed)
        params = dict(self._params)
        if factor:  # the product of a scalar parameter is no longer an array
            params |= {n: np.asarray(v * (1 + factor * nudge.normal(size=v.shape))) for n, v in params.items()}
        weights.materialize(self.module, torch.device("cpu"), params, self._buffers)
        self.module.train()
        made = _optimizer(self.model, self._asked)([p for p in self.module.parameters() if p.requires_grad])
        if (found := refuse_closure(made)) is not None:
            raise ConfigError(f"--model {self._asked.model} {found.refused}; give another optimizer.")
        amend_optimizer(made, weights.named_weights(self.module), self._asked.amendments)
        return made

    def batches(self) -> Iterator[tuple[Inputs, torch.Tensor]]:
        """Yields the batches of the curve."""
        inputs, targets = self._split.train_inputs, self._split.train_targets
        for batch in batches(inputs, targets, self._asked.batch_size, self._asked.seed):
            x, y = batch.rows()
            yield as_inputs(x), torch.from_numpy(y)

    def curve(self, factor: float = 0.0) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Trains from perturbed weights; returns the losses and the learning rate of each step."""
        update, losses, rates = self.start(factor), list[float](), list[float]()
        for x, y in itertools.islice(self.batches(), self._asked.steps):
            rates.append(float(update.param_groups[0]["lr"]))
            losses.append(float(_step(self.module, update, self.loss, x, y)))
        return tuple(losses), tuple(rates)


def trace(folder: Path, asked: TraceRequest, split: Split) -> None:
    """Traces a model.

    Args:
        folder: The folder that holds the weights; the trace is written into it.
        asked: What to trace.
        split: The data.
    """
    with Clips(asked.amendments) as clips:  # before the user's file is imported
        write_trace(folder, _trace(_Traced(folder, asked, split), clips))


def _trace(traced: _Traced, clips: Clips) -> ModelTrace:
    module, (x, y) = traced.module, next(traced.batches())
    traced.start()
    evaluated, evaluated_calls = _evaluate(module, x)
    update = traced.start()
    update.zero_grad()
    with tracing.recording(module) as recorder:
        outputs = module(x)
    value = traced.loss(outputs, y)
    value.backward()
    named = weights.named_weights(module)
    configured = hyper_parameters(update, named)  # before a step, which may change them
    gradients = {name: _gradient(weight) for name, weight in named.items()}
    update.step()
    found = ModelTrace(
        calls=layer_calls(recorder.calls, evaluated_calls, torch.Tensor.numpy),
        outputs=main_outputs(outputs).detach().numpy(),
        evaluated=evaluated,
        targets=y.numpy(),
        loss=float(value),
        each=_losses(traced, outputs, y),
        gradients=gradients,
        buffers={name: buffer.numpy().copy() for name, buffer in weights.named_buffers(module).items()},
        stepped={name: weight.to_neutral(weight.parameter) for name, weight in named.items()},
        losses=(),
        stilled={path: traced.stilled[path] for path in recorder.started if path in traced.stilled} | recorder.stilled,
        optimizer=clips.beside(configured, named),
        frozen=tuple(name for name, weight in named.items() if not weight.parameter.requires_grad),
    )
    (losses, rates), (nudged, _) = traced.curve(), traced.curve(NUDGE)
    return dataclasses.replace(found, losses=losses, rates=rates, nudged=nudged)


def _losses(traced: _Traced, outputs: object, y: torch.Tensor) -> np.ndarray:
    """Returns the losses of the user's loss function for each target or example; none without such a function."""
    function = loss_function(traced.model)
    return np.zeros(0) if function is None else function(outputs, y).detach().numpy().astype(np.float64)


def save(folder: Path, asked: TraceRequest, split: Split) -> None:
    """Writes the weights under torch's names, in the dtypes of the model, for `load_state_dict`.

    Args:
        folder: The folder that holds the weights; the file is written into it.
        asked: The request, which names the model.
        split: The data.
    """
    torch.manual_seed(asked.seed)
    module = build_declared(load_model(asked.model, "torch"), asked.model)
    own, (params, buffers) = weights.named_weights(module), read_weights(folder)
    params = {name: params.get(name, weight.to_neutral(weight.parameter)) for name, weight in own.items()}
    weights.materialize(module, torch.device("cpu"), params, buffers)
    held = {name: tensor for name, tensor in module.state_dict().items() if isinstance(tensor, torch.Tensor)}
    arrays = {name: (t.float() if t.dtype is torch.bfloat16 else t).cpu().numpy() for name, t in held.items()}
    write_safetensors(saved_weights(folder, "torch"), arrays)


def _mean_loss(spec: UserModelSpec) -> MeanLoss:
    summed, source = summed_loss(spec), spec.facts.source

    def loss(returned: object, targets: torch.Tensor) -> torch.Tensor:
        total = call_user(summed, source, "the loss", returned, targets)
        assert isinstance(total, torch.Tensor)
        return total / divisor_of(spec, "torch", targets.numpy())

    return loss


def _optimizer(model: Model, asked: TraceRequest) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    given = model.optimizer
    if given is None or "torch" not in given:
        return lambda parameters: build_optimizer(asked.update, parameters)

    return lambda parameters: own.build(UserOptimizer(0.0, asked.model), parameters)


def _step(module: nn.Module, update: torch.optim.Optimizer, loss: MeanLoss, x: Inputs, y: torch.Tensor) -> torch.Tensor:
    update.zero_grad()
    value = loss(module(x), y)
    value.backward()
    update.step()
    return value.detach()


def _gradient(weight: weights.Weight) -> np.ndarray:
    gradient = weight.parameter.grad
    return weight.to_neutral(torch.zeros_like(weight.parameter) if gradient is None else gradient)


def _evaluate(module: nn.Module, x: Inputs) -> tuple[np.ndarray, list[tracing.Call]]:
    """Returns the outputs and calls in evaluation; gradients stay on, because some layers take another path without them."""
    module.eval()
    with tracing.recording(module) as recorder:
        outputs = module(x)
    return main_outputs(outputs).detach().numpy(), recorder.calls
