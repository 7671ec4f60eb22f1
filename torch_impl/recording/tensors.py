"""Finds which tensors a script trains, their names, and which part of each this process holds.

Modules and optimizers are found among all objects of the process, so the script does not have to name them. Among the outermost
modules, those count that hold a parameter of an optimizer or that were called.
"""

import dataclasses
import functools
import itertools
import operator
import weakref
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from samestep.common.objects import uncollected
from samestep.common.steps.record import FOLLOWER, RecordedTensor
from samestep.torch_impl.recording.flat import flat_tensors
from samestep.torch_impl.recording.keras.layers import is_keras
from samestep.torch_impl.recording.keras.variables import averages_of_keras, followers_of_keras, held_of_keras
from samestep.torch_impl.recording.objects import find_objects, followers, outermost
from samestep.torch_impl.recording.partitions import is_partitioned, partition_of
from samestep.torch_impl.recording.pieces import (
    as_real,
    dtype_of,
    gradient_as_real,
    gradient_of,
    has_no_numbers,
    local_of,
    piece_of,
)
from samestep.torch_impl.recording.places import shards
from samestep.torch_impl.recording.tracked_tensor import TrackedTensor, nothing

_WRAPPERS = {"module", "_forward_module", "_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"}
"""The attributes in which wrappers hold a module: DDP, DataParallel and many others; FSDP; torch.compile; checkpoints."""


@uncollected()
def find_tensors(
    called: Sequence[nn.Module], leaves: Sequence[TrackedTensor] = (), gone: Sequence[str] = ()
) -> list[TrackedTensor]:
    """Finds the tensors of the script.

    Args:
        called: The outermost modules that were called in training mode.
        leaves: The tensors to take if no module and no optimizer has any.
        gone: The classes of modules that the script has deleted, whose names stay reserved.
    """
    modules, optimizers = find_objects()
    trained = {id(each): each for optimizer in optimizers for each in parameters_of(optimizer)}
    partitioned = {id(each) for module in modules for each in _own_parameters(module) if is_partitioned(each)}
    called_on = {id(each) for module in called for each in module.parameters() if each.requires_grad}
    wanted = {*trained, *partitioned, *called_on}
    parts: list[tuple[str, list[TrackedTensor]]] = [(name, []) for name in gone]
    roots, idle = outermost(modules, wanted)
    followed = followers_of_keras(modules, called)
    taken = {id(each.owner) for network in followed for each in _of_root(network)}
    for root in roots:
        found = [each for each in _of_root(root) if id(each.owner) not in taken]
        taken |= {id(each.owner) for each in found}
        if found:
            parts.append((class_of(root), found))
    updated = {*trained, *partitioned}
    held = [*_named(parts)]
    if updated:
        held = [each if id(each.owner) in updated else dataclasses.replace(each, is_updated=False) for each in held]
    lacking = [] if partitioned else [each for key, each in trained.items() if key not in taken]
    alone = [each for each in lacking if _has_numbers(each)]
    names = {id(each.owner): each.tensor.name for each in leaves}
    others = (_held(names.get(id(each), f"param.{number}"), each, "") for number, each in enumerate(alone))
    found = [*held, *others] or [*leaves]
    if partitioned:
        return found
    idle_networks = (*followers(idle, roots), *followed)
    networks = [sorted(_of_root(each), key=operator.attrgetter("tensor.role"), reverse=True) for each in idle_networks]
    return [*found, *_of_followers(filter(None, [*networks, *averages_of_keras(roots)]), found)]


def _of_followers(networks: Iterable[Sequence[TrackedTensor]], found: Sequence[TrackedTensor]) -> list[TrackedTensor]:
    """Returns the tensors of networks that follow the trained ones; their gradients are ignored."""
    held = []
    for number, network in enumerate(networks, 1):
        first = f"{FOLLOWER}{number if number > 1 else ''}."
        for each in network:
            tensor = dataclasses.replace(each.tensor, name=first + each.tensor.name, role=FOLLOWER, is_trained=False)
            held.append(dataclasses.replace(each, tensor=tensor, gradient=nothing, is_updated=False))
    return with_places(held, [each.tensor.name for each in found])


def parameters_of(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """Yields the parameters that an optimizer updates."""
    return itertools.chain.from_iterable(map(operator.itemgetter("params"), optimizer.param_groups))


class ParameterIds:
    """The ids of the parameters that optimizers update."""

    def __init__(self) -> None:
        """Starts with no optimizers."""
        self._known: dict[int, tuple[list[torch.Tensor], frozenset[int]]] = {}

    def __call__(self, optimizer: Optimizer) -> frozenset[int]:
        """Returns the ids of the parameters of an optimizer, from a cache, because they rarely change."""
        now = [*parameters_of(optimizer)]
        before, ids = self._known.get(id(optimizer), ((), frozenset()))
        if len(now) != len(before) or not all(map(operator.is_, now, before)):
            if id(optimizer) not in self._known:
                weakref.finalize(optimizer, self._known.pop, id(optimizer)).atexit = False
            ids = frozenset(map(id, now))
            self._known[id(optimizer)] = now, ids
        return ids


def is_rehearsed(optimizer: Optimizer, has_begun: bool) -> bool:
    """Returns whether a step of an optimizer is not a step of training.

    Tensors on the device "meta" and those of a FakeTensorMode have only shapes. Scripts use them to build large models, or to
    estimate how much memory a step takes.

    Args:
        optimizer: The optimizer, just before or after its update.
        has_begun: Whether there was a pass; before the first, wrappers make an optimizer create its state.
    """
    first = next((each["params"][0] for each in optimizer.param_groups if each["params"]), None)
    if first is not None and has_no_numbers(first):
        return True
    return not has_begun and not has_gradient(optimizer)


def has_gradient(optimizer: Optimizer) -> bool:
    """Returns whether any parameter of an optimizer has a gradient that is not zero."""
    return any(each.grad is not None and bool(each.grad.any()) for each in parameters_of(optimizer))


def _own_parameters(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from (each for each in (module.__dict__.get("_parameters") or {}).values() if each is not None)


def _named(parts: Sequence[tuple[str, list[TrackedTensor]]]) -> Iterator[TrackedTensor]:
    """Yields the tensors of modules, prefixed with the class of the module if there are several modules."""
    for place, (name, found) in enumerate(parts):
        same = sum(other == name for other, _ in parts[:place])
        network = "" if len(parts) == 1 else f"{name}.{same}" if same else name
        yield from map(functools.partial(_of_network, network), found) if network else found


def _of_network(network: str, held: TrackedTensor) -> TrackedTensor:
    tensor = dataclasses.replace(held.tensor, name=f"{network}.{held.tensor.name}", network=network)
    return dataclasses.replace(held, tensor=tensor)


def _of_root(root: nn.Module) -> list[TrackedTensor]:
    return held_of_keras(root) if is_keras(root) else _of_module(root)


def _of_module(root: nn.Module) -> list[TrackedTensor]:
    """Returns the parameters and the floating-point buffers of a module."""
    found, flat = [], set()
    for path, module in root.named_modules():
        for each, whole in flat_tensors(module):
            tensor = dataclasses.replace(each.tensor, name=_stripped(f"{path}.{each.tensor.name}"))
            found.append(dataclasses.replace(each, tensor=tensor))
            flat |= {id(each.owner), id(whole)}
    layers, sharded = dict(root.named_modules()), shards(root)
    for name, whole in root.named_parameters():
        each = sharded.get(id(whole), whole)
        if id(each) not in flat and _has_numbers(each):
            found.append(_held(name, each, _class_name(layers[name.rpartition(".")[0]])))
    for name, each in root.named_buffers():
        if _has_numbers(each) and each.is_floating_point():
            found.append(_held(name, each, _class_name(layers[name.rpartition(".")[0]]), role="buffer"))
    names = [each.tensor.name for each in found]
    return found if len(set(names)) == len(names) else with_places(found)


def _has_numbers(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has numbers; a lazy one has none yet, and a module that is called functionally may have none."""
    return not is_lazy(tensor) and not has_no_numbers(tensor)


def with_places(found: Iterable[TrackedTensor], names: Iterable[str] = ()) -> list[TrackedTensor]:
    """Numbers tensors whose names are equal once the names of wrappers are removed.

    Args:
        found: The tensors.
        names: The names of other tensors.
    """
    seen = dict.fromkeys(names, 1)
    made = []
    for each in found:
        name = each.tensor.name
        seen[name] = seen.get(name, 0) + 1
        tensor = each.tensor if seen[name] == 1 else dataclasses.replace(each.tensor, name=f"{name}.{seen[name]}")
        made.append(dataclasses.replace(each, tensor=tensor))
    return made


def _held(name: str, tensor: torch.Tensor, layer: str, role: str = "parameter") -> TrackedTensor:
    if is_partitioned(tensor):
        part = partition_of(tensor)
        info = RecordedTensor(_stripped(name), dtype_of(tensor), part.piece, role, layer, tensor.requires_grad)
        return TrackedTensor(info, tensor if part.flat is None else part.flat, part.value, part.gradient, (part.copy,))
    info = RecordedTensor(_stripped(name), dtype_of(tensor), piece_of(tensor), role, layer, tensor.requires_grad)
    if tensor.is_complex():
        return TrackedTensor(info, tensor, lambda: as_real(local_of(tensor)), lambda: gradient_as_real(tensor))
    return TrackedTensor(info, tensor, lambda: local_of(tensor), lambda: gradient_of(tensor))


def _stripped(name: str) -> str:
    return ".".join([part for part in name.split(".") if part and part not in _WRAPPERS])


def class_of(root: nn.Module) -> str:
    """Returns the class name of a module without its wrappers."""
    return _class_name(_unwrapped(root))


def _unwrapped(module: nn.Module) -> nn.Module:
    while len(inner := [child for name, child in module._modules.items() if name in _WRAPPERS and child]) == 1:
        (module,) = inner
    return module


def is_method_run(module: nn.Module) -> bool:
    """Returns whether a call of a module runs another method of the module it wraps, which then calls the model.

    For example, DDP's forward runs Lightning's `training_step` and passes it the batch; in a single process, nothing does.

    Args:
        module: The module that is called.
    """
    forward = vars(_unwrapped(module)).get("forward")
    return forward is not None and "method_name" in getattr(getattr(forward, "__code__", None), "co_freevars", ())


def _class_name(module: nn.Module) -> str:
    """Returns the name of a module's class, without the prefix FSDP that fully_shard adds."""
    kinds = type(module).__mro__
    is_sharded = kinds[1].__name__ == "FSDPModule"
    return kinds[2].__name__ if is_sharded else kinds[0].__name__
