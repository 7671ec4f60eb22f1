"""The ZeRO family: optimizer state, gradients and parameters spread over N ranks.

With P the parameter bytes, a step sends, over all ranks:

    zero1   2(N-1) P for DDP's all-reduce of the gradients, and (N-1) P for the broadcast of the parameters
    zero2   (N-1) P for one all-gather, after which a block stays full from its forward to its backward pass, and as much
            for the reduce-scatter
    fsdp    2(N-1) P for two all-gathers, since a block is full only while it computes, and (N-1) P for the reduce-scatter

Over gloo a reduce-scatter sends twice that, since gloo's is an all-reduce.

References:
    Rajbhandari et al., arXiv 1910.02054; Zhao et al., arXiv 2304.11277 (FSDP).
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from samestep.common.axes.used import held_params
from samestep.common.costs.data_parallel import DEFAULT_CAPS, bucketed, replicated_footprints
from samestep.common.costs.optimizer_state import broadcasts_of, owned, state_bytes
from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.shards import (
    ShardPart,
    gathered_again,
    gathered_bytes,
    gathers,
    is_sharded,
    norm_of_all,
    norms,
    part_of,
    reductions,
    sharded_holders,
    times_called,
)
from samestep.common.costs.sizes import symmetric, with_agreement
from samestep.common.costs.within import sends_within
from samestep.common.features.used import sends_of_layers, with_layers
from samestep.common.ledger import Footprint, Ledger, Send
from samestep.common.strategy import Run
from samestep.common.workload.models.parameters import trained
from samestep.common.workload.models.spec import ModelSpec, Param, parameters_of

_DUMMY_BYTES = 4
"""The bytes that a rank without parameters broadcasts: one float32 (torch 2.13)."""


def zero1(run: Run, backend: str) -> Ledger:
    """Predicts ranks that keep the optimizer state of some full parameters, update these, and broadcast them.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprints of all ranks, and DDP's exchanges with one broadcast per rank.
    """
    ledger, devices = bucketed(run, DEFAULT_CAPS, backend), run.num_devices
    broadcasts = broadcasts_of(run, _owned(run), "data", devices, _DUMMY_BYTES)
    return symmetric(run, zero1_footprints(run), (*ledger.sends, *broadcasts), backend)


def zero1_footprints(run: Run) -> tuple[Footprint, ...]:
    """Predicts the memory of ranks that hold everything except optimizer state, of which each holds that of some parameters."""
    (each,) = replicated_footprints(run)
    return tuple(
        dataclasses.replace(each, optimizer_bytes=state_bytes(run, own), count=count) for own, count in _owned(run)
    )


def _owned(run: Run) -> list[tuple[Sequence[Param], int]]:
    """Returns the parameters that a rank updates, as `owned` does; ZeroRedundancyOptimizer assigns each group separately."""
    params = run.workload.model.params()
    groups = run.optimizer.groups or (list(params),)
    return owned(run, [[params[name] for name in group] for group in groups], run.num_devices)


def zero2(run: Run, backend: str) -> Ledger:
    """Predicts ranks that gather every block once for each micro-batch and keep it for its backward pass.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprints of all ranks, and the collectives along both axes.
    """
    return _fully_sharded(run, frees=False, backend=backend)


def fsdp(run: Run, backend: str) -> Ledger:
    """Predicts ranks that gather every block for its forward pass, free it, and gather it again for its backward pass.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprints of all ranks, and the collectives along both axes.
    """
    return _fully_sharded(run, frees=True, backend=backend)


def _fully_sharded(run: Run, frees: bool, backend: str) -> Ledger:
    """Predicts shards along the axis `shard`, and replicas of them along `data`.

    Args:
        run: What is trained.
        frees: Whether a block is freed after its forward pass, and gathered again for its backward pass.
        backend: "gloo" or "nccl".
    """
    sends = list(_collectives(run, frees))
    sends = with_layers(run, sends, with_ours=False)
    return symmetric(run, sharded_footprints(run, frees), with_agreement(run, sends), backend)


def _parts(run: Run, params: Callable[[Mapping[str, Param]], Mapping[str, Param]] = dict) -> list[ShardPart]:
    """Returns each rank's part of the parameters outside of all blocks, and of each block.

    Args:
        run: What is trained.
        params: Selects some of their parameters; all by default.
    """
    held = held_params(run)
    together = ({name: held[name] for name in params(block)} for block in gathered_together(run.workload.model))
    return [part_of(each, run.mesh) for each in together]


def sharded_footprints(run: Run, frees: bool) -> tuple[Footprint, ...]:
    """Predicts the memory of ranks that hold shards and gather every block.

    Args:
        run: What is trained.
        frees: Whether a block is freed after its forward pass instead of being kept until its backward pass.
    """
    every, blocks = held_params(run), _parts(run)
    gathered = [gathered_bytes(run, block) for block in blocks]
    in_two = any(block.of_experts for block in blocks)
    peak = _peak_gathered(gathered, freed=frees, buffered=is_sharded(run.mesh), in_two=in_two)
    activations = activation_bytes(run)
    return tuple(
        dataclasses.replace(each, params_peak_bytes=each.params_bytes + peak, activations_bytes=activations)
        for each in sharded_holders(run, every.values(), trained(every).values())
    )


def gathered_together(model: ModelSpec) -> list[dict[str, Param]]:
    """Lists the parameters outside of all blocks, which are gathered for the whole pass; then those of each block."""
    blocks = [parameters_of(model, block) for block in model.facts.blocks]
    named = {name for block in blocks for name in block}
    rest = {name: param for name, param in model.params().items() if name not in named}
    return [rest, *(block for block in blocks if block)]


def _collectives(run: Run, frees: bool) -> Iterator[Send]:
    """Predicts what a rank takes part in during a step.

    In the backward pass, a freed block is gathered while the block behind it still computes, so its all-gathers come
    before that block's reduce-scatters. If that block is gathered in one piece, only the first of two all-gathers does
    (torch 2.13).

    Args:
        run: What is trained.
        frees: As in `_fully_sharded`.
    """
    rest, *blocks = _parts(run)
    first = [rest] if any(rest) else []
    *reduced, reduced_last = reversed(_parts(run, trained))
    inside = _sends_inside(run)
    for micro in range(run.passes):
        yield from itertools.chain.from_iterable(gathers(run, "forward", part) for part in first)
        calls = times_called(run.workload.model) if frees else [1] * len(blocks)
        for block, times, summed in zip(blocks, calls, inside["forward"], strict=True):
            yield from gathers(run, "forward", block) * times
            yield from summed
        again = [*(first if frees else ()), *gathered_again(run.workload.model, blocks, frees)]
        ahead = iter([gathers(run, "backward", block) for block in again])
        for sends in itertools.islice(ahead, len(first) + 1):
            yield from sends
        for number, block in enumerate([*reduced, *([reduced_last] if first else [])]):
            following = next(ahead, [])
            early = len(following) if block.of_experts else 1
            yield from following[:early]
            yield from inside["backward"][len(blocks) - 1 - number] if number < len(blocks) else ()
            if micro == run.passes - 1:
                yield from reductions(run, block, reverse=True)
            yield from following[early:]
        yield from itertools.chain.from_iterable(ahead)
    if run.techniques.need_norm:
        of_each = run.mesh.parts("stacked") > 1
        yield from (norms if of_each else norm_of_all)(run, trained(run.workload.model.params()))


def _sends_inside(run: Run) -> dict[str, list[list[Send]]]:
    """Returns the exchanges inside each block by phase; the sums of its batch normalization come last."""
    model = run.workload.model
    segments, blocks = model.segments(), [block.name for block in model.facts.blocks if parameters_of(model, block)]
    forward, backward = sends_within(run, run.examples_per_pass, segments)
    found: dict[str, list[list[Send]]] = {}
    for phase, sends in (("forward", forward), ("backward", backward[::-1])):
        within = dict(zip((segment.name for segment in segments), sends, strict=True))
        sums = sends_of_layers(run, phase)
        found[phase] = [
            [*within.get(name, ()), *([sums[norm]] if (norm := f"{name}/norm") in sums else [])] for name in blocks
        ]
    return found


def _peak_gathered(blocks: Sequence[int], freed: bool, buffered: bool, in_two: bool) -> int:
    """Returns the most bytes of gathered parameters alive at once in a step.

    A block arrives in a buffer and is copied out of it. The buffer stays until the next block is copied out (torch
    2.13), so three blocks are alive at a time, counting copies.

    Args:
        blocks: The bytes of the parameters outside of all blocks, and of each block, in order.
        freed: Whether a block is freed after its forward pass.
        buffered: Whether blocks arrive from other ranks; a single rank copies its parameters as well.
        in_two: Whether blocks arrive in two buffers; copying out the second one frees that of the block before.
    """
    peak = kept = previous = 0
    for number, block in enumerate(blocks):
        peak = max(peak, kept + block + (previous + block if buffered else 0))
        kept, previous = kept if freed and number else kept + block, 0 if in_two else block
    return peak
