"""nn.DataParallel with its five exchanges counted, and its algorithm on threads for machines without two GPUs.

On such machines, nn.DataParallel itself passes everything through to its one module.

References:
    torch/nn/parallel/data_parallel.py of torch 2.13.
"""

import copy
import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from samestep.torch_impl.models.inputs import Inputs
from samestep.torch_impl.observing.recorder import SendRecorder
from samestep.torch_impl.step_context import StepContext

_PACKED = ("broadcast_parameters", "reduce_gradients")
"""The exchanges that take one message per replica, because nn.DataParallel coalesces their tensors."""


def record(recorder: SendRecorder, name: str, shares: Sequence[Sequence[torch.Tensor]], phase: str) -> None:
    """Records an exchange between the master and the other replicas, message by message.

    Args:
        recorder: The recorder of the program.
        name: The name of the exchange.
        shares: The tensors that each of the other replicas is sent, or sends.
        phase: The phase of the step.
    """
    for tensors in shares:
        for message in [tensors] if name in _PACKED else [[tensor] for tensor in tensors]:
            recorder.add(name, message, "data", len(shares) + 1, phase=phase)


class CountedDataParallel(nn.DataParallel):
    """nn.DataParallel itself, with its exchanges recorded; each backward exchange mirrors one of the forward pass."""

    def __init__(self, module: nn.Module, device_ids: list[int], recorder: SendRecorder) -> None:
        super().__init__(module, device_ids)
        self._recorder = recorder
        self._others = 0

    def scatter(self, inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, device_ids: Sequence[int]) -> Any:
        """Sends the mini-batches to the replicas.

        Args:
            inputs: The positional inputs of the model.
            kwargs: The keyword inputs, if there are any.
            device_ids: The devices, each of which takes a mini-batch.
        """
        shards = super().scatter(inputs, kwargs, device_ids)
        record(self._recorder, "scatter_inputs", shards[0][1:], "forward")
        return shards

    def replicate(self, module: nn.Module, device_ids: Sequence[int]) -> list[nn.Module]:
        """Sends the parameters to the replicas; their gradients come back the same way.

        Args:
            module: The master.
            device_ids: The devices, each of which takes a replica.
        """
        self._others = len(device_ids) - 1
        record(self._recorder, "broadcast_parameters", [list(module.parameters())] * self._others, "forward")
        return super().replicate(module, device_ids)

    def gather(self, outputs: Sequence[torch.Tensor], output_device: int | torch.device) -> Any:
        """Collects the outputs; their gradients return the same way.

        Args:
            outputs: The output of each replica.
            output_device: The device of the master.
        """
        others = [[output] for output in outputs[1:]]
        record(self._recorder, "gather_outputs", others, "forward")
        gathered = super().gather(outputs, output_device)

        def go_back(_: torch.Tensor) -> None:
            record(self._recorder, "scatter_output_gradients", others, "backward")
            trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
            record(self._recorder, "reduce_gradients", [trained] * self._others, "backward")

        if gathered.requires_grad:
            gathered.register_hook(go_back)
        return gathered


Replica = tuple[torch.Tensor, list[torch.Tensor]]
"""The outputs of a replica, and its copies of the trained parameters, on which the outputs depend."""


class Replicas(nn.Module):
    """A module that splits its inputs among replicas of another module, which are created anew in every forward pass.

    Attributes:
        module: The master, whose parameters count; the first replica is the master itself.
        together_seconds: The seconds in which all replicas have computed in parallel.
        copied_bytes: The bytes of parameters last sent to each replica but the first.
    """

    def __init__(self, module: nn.Module, context: StepContext, count: int, threads: int) -> None:
        """Creates the replicas, without parameters.

        Args:
            module: The master.
            context: The context that the master was built with; each replica has its own, because they run at the same time.
            count: The number of replicas, including the master.
            threads: The number of threads of each replica.
        """
        super().__init__()
        self._context = context
        self.module = module
        self.together_seconds = 0.0
        self.copied_bytes = 0
        # A tied parameter has several names, which are no longer tied in a copy of the module.
        numbers = {parameter: number for number, parameter in enumerate(module.parameters())}
        self._names = {name: numbers[each] for name, each in module.named_parameters(remove_duplicate=False)}
        # functional_call swaps parameters in place, which is a silent data race if threads share one module.
        self._contexts = [StepContext() for _ in range(count)]
        self._skeletons = [[copy.deepcopy(module, {id(context): own}).to("meta") for own in self._contexts]]
        self._pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(threads,))

    def forward(self, x: Inputs) -> torch.Tensor:
        """Returns what the master would compute from [batch, ...]."""
        return _Replicated.apply(self, x, torch.is_grad_enabled(), *self.module.parameters())

    def scatter(self, name: str, whole: torch.Tensor, phase: str) -> tuple[torch.Tensor, ...]:
        """Returns a contiguous shard for each replica; the master keeps the first.

        Args:
            name: The name of the exchange.
            whole: The tensor to split, [batch, ...].
            phase: The phase of the step.
        """
        shards = whole.chunk(len(self._skeletons[0]))
        record(self._context.recorder, name, [[shard] for shard in shards[1:]], phase)
        return (shards[0], *(shard.clone() for shard in shards[1:]))

    def scatter_inputs(self, x: Inputs) -> Sequence[Inputs]:
        """Returns the shards of the inputs; each of several inputs is split."""
        if isinstance(x, torch.Tensor):
            return self.scatter("scatter_inputs", x, "forward")
        shards = {name: self.scatter("scatter_inputs", one, "forward") for name, one in x.items()}
        return [dict(zip(shards, parts, strict=True)) for parts in zip(*shards.values(), strict=True)]

    def broadcast(self, params: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Returns a copy of the parameters for each replica; the master needs no copy."""
        others = [[param.detach().clone() for param in params] for _ in self._skeletons[0][1:]]
        self.copied_bytes = sum(param.nbytes for param in others[0]) if others else 0
        record(self._context.recorder, "broadcast_parameters", others, "forward")
        return [[param.detach() for param in params], *others]

    def gather(self, outputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns all outputs, collected on the master in order."""
        record(self._context.recorder, "gather_outputs", [[output] for output in outputs[1:]], "forward")
        return torch.cat([output.detach() for output in outputs])

    def reduce(self, gradients: Sequence[Sequence[torch.Tensor | None]]) -> list[torch.Tensor | None]:
        """Returns the sums of the gradients in a fixed order, so all runs agree; None for parameters that no example reached."""
        record(
            self._context.recorder,
            "reduce_gradients",
            [[each for each in own if each is not None] for own in gradients[1:]],
            "backward",
        )
        there = [[part for part in parts if part is not None] for parts in zip(*gradients, strict=True)]
        return [functools.reduce(torch.add, parts) if parts else None for parts in there]

    def run_together(self, work: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        """Runs the same function for every replica, each on its own thread.

        Args:
            work: The function to call once for each replica.
            *arguments: The arguments of that call, one for each replica.
        """
        start = time.perf_counter()
        results = list(self._pool.map(work, *arguments))
        self.together_seconds += time.perf_counter() - start
        return results

    def run_back(self, work: Sequence[tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]]) -> list[Any]:
        """Returns the gradients of every replica.

        autograd computes all backward passes on a GPU on one thread, which is this one. It must not wait for other threads
        that start a backward pass, so it runs one pass after the other.

        Args:
            work: For each replica, its outputs, its parameters, and the gradients of its outputs.
        """

        def replica(each: tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]) -> Sequence[torch.Tensor | None]:
            return torch.autograd.grad(*each, allow_unused=True)

        return [*map(replica, work)] if work[0][0].is_cuda else self.run_together(replica, work)

    def run_forward(self, x: Inputs, params: Sequence[torch.Tensor], grad: bool) -> list[Replica]:
        """Runs the forward pass of every replica.

        Args:
            x: The inputs, [batch, ...].
            params: The master's parameters.
            grad: Whether a backward pass follows.
        """
        shards, copies = self.scatter_inputs(x), self.broadcast(params)

        trains = [param.requires_grad for param in self.module.parameters()]
        keys = (
            [None] * len(self._contexts)
            if self._context.keys is None
            else self._context.keys.chunk(len(self._contexts))
        )
        for context, part in zip(self._contexts, keys, strict=True):
            context.keys = part

        def replica(skeleton: nn.Module, shard: Inputs, own: list[torch.Tensor]) -> Replica:
            with torch.set_grad_enabled(grad):  # each thread has its own gradient mode
                leaves = [
                    param.requires_grad_(grad) for param, is_trained in zip(own, trains, strict=True) if is_trained
                ]
                named = {name: own[number] for name, number in self._names.items()}
                return functional_call(skeleton, named, shard), leaves

        return self.run_together(replica, self._skeletons[0], shards, copies)


class _Replicated(torch.autograd.Function):
    """The forward and backward pass of all replicas, as one operation in the master's graph."""

    @staticmethod
    def forward(ctx: Any, replicas: Replicas, x: Inputs, grad: bool, *params: torch.Tensor) -> torch.Tensor:
        """Sends out inputs and parameters, and collects the outputs."""
        ran = replicas.run_forward(x, params, grad)
        ctx.replicas, ctx.ran = replicas, ran
        return replicas.gather([outputs for outputs, _ in ran])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        """Sends out the gradients of the outputs, and collects those of the parameters."""
        shards = ctx.replicas.scatter("scatter_output_gradients", gradient, "backward")
        work = [(outputs, leaves, shard) for (outputs, leaves), shard in zip(ctx.ran, shards, strict=True)]
        gradients = ctx.replicas.run_back(work)
        ctx.ran = None
        reduced = iter(ctx.replicas.reduce(gradients))
        return None, None, None, *(next(reduced) if needed else None for needed in ctx.needs_input_grad[3:])
