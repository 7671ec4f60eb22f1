"""DeepSpeed's ZeRO: flat parameters in N equal partitions, one for each rank.

In stages 1 and 2, all parameters are laid end to end and cut; in stage 3, each parameter is cut. With P the parameter
bytes, each rank keeps 1/N of the optimizer state and 1/N of P as master weights, which are a second copy even in
float32. A step sends in all, over all ranks, in multiples of (N-1) P:

    stages 1, 2   2 (all-reduce of the gradients, each rank keeps its partition) + 1 (all-gather of the parameters)
    stage 3       2 (all-gather in the forward and again in the backward pass) + 1 (reduce-scatter; over gloo 2)

Stage 2 differs from stage 1 if a step takes several micro-batches: it reduces the gradients of each, and accumulates
partitions. All gradients fit into one bucket, which holds them until the backward pass ends; no class of memory counts
it.

References:
    Rajbhandari et al., arXiv 1910.02054; deepspeed/runtime/zero/stage_1_and_2.py and stage3.py of DeepSpeed 0.19.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Mapping

from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.sizes import holder, symmetric
from samestep.common.features.used import sends_of_layers, with_layers
from samestep.common.ledger import Footprint, Ledger, Send
from samestep.common.strategy import Run
from samestep.common.techniques.used import computed_twice
from samestep.common.workload.models.parameters import trained
from samestep.common.workload.models.spec import Param, layer, num_params


def deepspeed(run: Run, backend: str) -> Ledger:
    """Predicts flat partitions of what the option `zero_stage` splits.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprints of all ranks, and the collectives of the engine.
    """
    footprints, sends = (_each_split if run.options.zero_stage == 3 else _end_to_end)(run)
    # It is not known what the engine's linear function keeps in two bytes while a block is recomputed.
    is_known = run.product_bytes == run.item_bytes or run.options.zero_stage < 3 or not computed_twice(run)
    activations = activation_bytes(run, as_it_comes=run.options.zero_stage == 3) if is_known else None
    footprints = tuple(dataclasses.replace(each, activations_bytes=activations) for each in footprints)
    needed = (send for send in sends if send.operation != "all_gather" or run.num_devices > 1)
    needed = with_layers(run, needed, with_ours=run.options.zero_stage < 3)
    return symmetric(run, footprints, tuple(needed), backend)


def _num_norms(run: Run) -> int:
    """Returns how often the norm of the gradient is summed: once by the engine, and once more for clipping."""
    return 2 if run.techniques.need_norm else 1


def _end_to_end(run: Run) -> tuple[tuple[Footprint, ...], list[Send]]:
    """Predicts stages 1 and 2."""
    devices, item, norms = run.num_devices, run.item_bytes, _num_norms(run)
    params = run.workload.model.params()
    sizes = [param.size for param in trained(params).values()]
    total = sum(sizes)
    frozen_bytes = (num_params(run.workload.model) - total) * item  # whole on every rank, next to the flat partitions
    stretch = -(-total // (2 * devices)) * 2
    kept = devices * stretch * item + _masters_bytes(run, stretch) + frozen_bytes
    held = dataclasses.replace(holder(run, stretch), params_bytes=kept, params_peak_bytes=kept)
    footprints = tuple(
        dataclasses.replace(held, gradients_bytes=elements * item, count=count)
        for elements, count in _gradient_elements(sizes, stretch, devices)
    )
    reductions = run.passes if run.options.zero_stage == 2 else 1
    summed = [Send("backward", "all_reduce", "data", devices, total * item)] * reductions
    normed = [Send("update", "all_reduce", "data", devices, item)] * norms
    return footprints, [*summed, *normed, Send("update", "all_gather", "data", devices, stretch * item)]


def _masters_bytes(run: Run, elements: int) -> int:
    """Returns the bytes of the second copy of what a rank updates; if weights have two bytes, optimizer state includes it."""
    return elements * run.item_bytes if run.weights is None else 0


def _gradient_elements(sizes: list[int], stretch: int, devices: int) -> Iterator[tuple[int, int]]:
    """Yields the gradient elements of a rank's stretch: parameters that reach into it have whole gradients; and the padding.

    Args:
        sizes: The sizes of the parameters, in order.
        stretch: The elements of each rank's stretch.
        devices: The number of ranks.

    Yields:
        The elements, and how many consecutive ranks have that many.
    """
    ends = [0, *itertools.accumulate(sizes)]
    rank = 0
    while rank < devices:
        start, end = rank * stretch, (rank + 1) * stretch
        first = bisect.bisect_right(ends, start)  # the parameter that the stretch starts in, counted from 1
        last = bisect.bisect_left(ends, end)
        inside = first == last < len(ends)  # so are the next stretches, up to the end of the parameter
        count = min(devices, ends[first] // stretch) - rank if inside else 1
        yield ends[min(last, len(sizes))] - ends[first - 1] + max(0, end - max(start, ends[-1])), count
        rank += count


def _each_split(run: Run) -> tuple[tuple[Footprint, ...], list[Send]]:
    """Predicts stage 3."""
    devices, item, micro, norms = run.num_devices, run.item_bytes, run.passes, _num_norms(run)
    params = run.workload.model.params()
    held = holder(run, sum(-(-param.size // devices) for param in params.values()))
    own = held.params_bytes
    params_bytes = own + _masters_bytes(run, own // item)
    peak = params_bytes + (_peak_gathered(run, params) * item if devices > 1 else 0)
    footprint = dataclasses.replace(held, params_bytes=params_bytes, params_peak_bytes=peak, count=devices)
    once = []
    for phase, layers in (("forward", (every := _layers(params))), ("backward", every[::-1])):
        summed = sends_of_layers(run, phase)
        for names in itertools.chain.from_iterable(layers):
            size = sum(-(-params[name].size // devices) for name in names) * item
            once += [Send(phase, "all_gather", "data", devices, size)]
            once += [summed[path] for path in {layer(names[0])} if path in summed]
    once += [Send("backward", "reduce_scatter", "data", devices, devices * own)]
    normed = [Send("update", "all_reduce", "data", devices, item)] * (norms - 1)  # clipping's own comes first
    normed += [Send("update", "all_reduce", "data", devices, 2 * item)]  # the engine's is of two numbers
    return (footprint,), [*once * micro, *normed]


def _modules(params: Mapping[str, Param]) -> list[list[str]]:
    """Returns the names of each module's parameters; the engine gathers module by module, a tied table once more for the head."""
    modules = [list(names) for _, names in itertools.groupby(params, layer)]
    return modules + [[name] for name, param in params.items() if param.tied]


def _layers(params: Mapping[str, Param]) -> list[list[list[str]]]:
    """Returns the modules, grouped by layer; a normalization belongs to the layer in front of it."""
    layers: list[list[list[str]]] = []
    for names in _modules(params):
        if layer(names[0]).endswith("/norm") and layers and layer(layers[-1][0][0]) == layer(layer(names[0])):
            layers[-1].append(names)
        else:
            layers.append([names])
    return layers


def _peak_gathered(run: Run, params: Mapping[str, Param]) -> int:
    """Returns the most elements of gathered modules alive at once in a step.

    A parameter that is alone in its module is gathered in place; several arrive in one buffer and are copied out of it.
    Autograd keeps the buffer of a kernel without a bias until its backward pass, although the kernel is gathered again
    for that; of a convolution in two bytes it keeps a copy. Tables pass no gradient on, so the engine does not notice
    when one has been used. All stay until the backward pass ends.
    """
    devices, is_copied = run.num_devices, run.product_bytes < run.item_bytes
    padded = {name: -(-param.size // devices) * devices for name, param in params.items()}
    peak = kept = 0
    looked_up: set[str] = set()
    for modules in _layers(params):
        around = 0
        for names in modules:
            size = sum(padded[name] + (params[name].size if len(names) > 1 else 0) for name in names)
            if params[names[0]].role == "table" and names[0] not in looked_up:
                looked_up |= {*names}
            elif len(names) == 1 and not (is_copied and len(params[names[0]].shape) > 2):
                kept += size
            around += size
            peak = max(peak, kept + around)
    return max(peak, sum(padded[name] for name in looked_up))
