"""Finds out by experiment what state the user's optimizer keeps, and how it updates parts or only some of the parameters."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from samestep.common.errors import ConfigError
from samestep.common.workload.declaration import Model
from samestep.common.workload.declared import call_user
from samestep.common.workload.models.findings import DescribedOptimizer
from samestep.common.workload.optimizers.user_optimizer import UserOptimizer
from samestep.torch_impl import weights
from samestep.torch_impl.optimizers import own

_SAME = 1e-9
"""How far two updates in float64 may differ, relative to the largest change of a parameter."""
_STEPS = 2
"""The number of steps; the second depends on the state that the first one left."""
RANKS = 2
Values = list[torch.Tensor]
Build = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def describe_optimizer(model: Model, module: nn.Module, source: str) -> DescribedOptimizer | None:
    """Describes the user's optimizer; None if the file has none.

    Args:
        model: The declaration.
        module: A copy of the model in float64, whose parameters are changed.
        source: Where the model is declared, for messages.
    """
    if model.optimizer is None:
        return None
    if "torch" not in model.optimizer:
        return DescribedOptimizer(refused=f"has an optimizer for {', '.join(model.optimizer)} only; add one for torch")
    build: Build = lambda parameters: own.build(UserOptimizer(0.0, source), parameters)  # noqa: E731
    parameters = list(module.parameters())
    made = build(parameters)
    if (refused := refuse_closure(made)) is not None:
        return refused
    rates = [float(group["lr"]) for group in made.param_groups]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    call_user(made.step, source, "a step of the optimizer")
    first = next(each for group in made.param_groups for each in group["params"] if each.requires_grad)
    tensors = {k: v for k, v in made.state[first].items() if isinstance(v, torch.Tensor) and k != "step"}
    names = {id(weight.parameter): name for name, weight in weights.named_weights(module).items()}
    groups = tuple(tuple(names[id(p)] for p in group["params"] if id(p) in names) for group in made.param_groups)
    odd = next((key for key, value in tensors.items() if value.shape != first.shape), None)
    if odd is not None:
        name = type(made).__name__
        refused = f"has {name}, which keeps `{odd}`, not shaped like its parameter: no row could gather it"
        return DescribedOptimizer(learning_rate=rates[0], groups=groups, refused=refused)
    trained = [each for each in parameters if each.requires_grad]
    halves, shards, some = _experiment(build, trained, [names[id(each)] for each in trained])
    return DescribedOptimizer(
        learning_rate=rates[0], kept=tuple(tensors), groups=groups, halves=halves, shards=shards, some=some
    )


def refuse_closure(made: torch.optim.Optimizer) -> DescribedOptimizer | None:
    """Returns the refusal of an optimizer that recomputes the gradient within a step; None for any other.

    Args:
        made: The optimizer.
    """
    closure = inspect.signature(type(made).step).parameters.get("closure")
    if closure is None or closure.default is not inspect.Parameter.empty:
        return None
    name = type(made).__name__
    return DescribedOptimizer(refused=f"has {name}, whose step computes the loss several times, which no row does")


def _experiment(build: Build, trained: Sequence[nn.Parameter], names: Sequence[str]) -> tuple[str, str, str]:
    """Takes steps with all parameters, with half of each, with each in two shards, and with every second parameter.

    Args:
        build: Builds the optimizer.
        trained: The trained parameters.
        names: Their names.

    Returns:
        For each of the last three, the parameter whose update differs most from that of the first; "" if none does.
    """
    draw = torch.Generator().manual_seed(0)
    start = [each.detach().clone() for each in trained]
    gradients = [torch.randn(each.shape, generator=draw, dtype=each.dtype) for each in start]
    whole = _stepped(build, start, gradients)
    moves = [float((end - begin).abs().max()) for begin, end in zip(start, whole, strict=True)]

    def other(found: Values | None, wanted: Values, of: Sequence[int]) -> str:
        if found is None:
            return ""
        apart = [
            float((one - two).abs().max()) / (moves[n] or 1.0) for n, one, two in zip(of, found, wanted, strict=True)
        ]
        return "" if max(apart) <= _SAME else names[of[apart.index(max(apart))]]

    every, some = range(len(start)), range(0, len(start), 2)
    halves = other(_tried(build, _halved(start), _halved(gradients)), _halved(whole), every)
    alone = _tried(build, [start[n] for n in some], [gradients[n] for n in some])
    shards = other(_sharded(build, start, gradients), whole, every) if halves else ""
    return halves, shards, other(alone, [whole[n] for n in some], some)


def _halved(values: Values) -> Values:
    return [each[: (len(each) + 1) // 2].clone() if each.ndim else each.clone() for each in values]


def _stepped(build: Build, start: Values, gradients: Values) -> Values:
    """Returns the parameters after `_STEPS` steps."""
    parameters = [nn.Parameter(each.clone()) for each in start]
    made = build(parameters)
    for _ in range(_STEPS):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        made.step()
    return [each.detach() for each in parameters]


def _tried(build: Build, start: Values, gradients: Values) -> Values | None:
    """Returns the parameters after `_STEPS` steps; None if the optimizer rejects these parameters, as it would in a row."""
    try:
        return _stepped(build, start, gradients)
    except (ConfigError, RuntimeError, ValueError, TypeError, AssertionError, IndexError):
        return None


def _sharded(build: Build, start: Values, gradients: Values) -> Values | None:
    """Returns the parameters after `_STEPS` steps on two shards of each, laid out like those of `fully_shard`."""
    try:
        with two_ranks() as mesh:
            cut = lambda each: distribute_tensor(each.clone(), mesh, [Shard(0)])  # noqa: E731
            ended = [each.full_tensor() for each in _stepped(build, [*map(cut, start)], [*map(cut, gradients)])]  # type: ignore[attr-defined]
            return [each.reconcile() if isinstance(each, LocalTensor) else each for each in ended]
    except Exception:  # what cannot be simulated shows in the run
        return None


@contextlib.contextmanager
def two_ranks() -> Iterator[dist.DeviceMesh]:
    """Makes a context in which this process computes what two ranks would each compute (torch 2.13)."""
    dist.init_process_group("fake", rank=0, world_size=RANKS)
    try:
        with LocalTensorMode(RANKS):
            yield init_device_mesh("cpu", (RANKS,))
    finally:
        dist.destroy_process_group()
