"""DeepSpeed's ZeRO: flat parameters in N equal stretches, one a rank: of all of them end to end, in stage 3 of each.

With P the parameter bytes, each rank keeps, beside 1/N of the optimizer's slots, 1/N of P as masters, which are a second
copy even in float32. A step sends in all, over all ranks, in multiples of (N-1) P:

    stages 1, 2   2 (all-reduce of the gradients, each rank keeps its stretch) + 1 (all-gather of the parameters)
    stage 3       2 (all-gather in the forward and again in the backward pass) + 1 (reduce-scatter; over gloo 2)

Stage 2 differs from 1 where a step takes several micro-batches: it reduces the gradients of each, and accumulates
stretches. All gradients fit one bucket, which holds them until the backward pass ends; it counts as no class of memory.

References:
    Rajbhandari et al., arXiv 1910.02054; deepspeed/runtime/zero/stage_1_and_2.py and stage3.py of DeepSpeed 0.19.
"""

import itertools
from collections.abc import Mapping

from common.config import RunConfig
from common.evidence.laws.collectives import (
    ITEM_BYTES,
    all_gather_bytes,
    all_reduce_bytes,
    framing_bytes,
    reduce_scatter_bytes,
)
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import Param
from common.workload.table import Workload


def flattened(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """One row a rank.

    Args:
        workload: What is trained.
        config: A checked configuration; its option `zero_stage` is 1, 2 or 3.
        backend: "gloo" or "nccl".
    """
    return (_in_parts if config.options["zero_stage"] == 3 else _whole)(workload, config, backend)


def _norms(config: RunConfig) -> int:
    """How often the norm of the gradient is summed: once by the engine, once more to clip by it."""
    return 1 if config.techniques.clip_norm is None else 2


def _whole(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """Stages 1 and 2."""
    devices, item = Mesh.parse(config.mesh or "data=1").size, ITEM_BYTES[config.dtype]
    slots = len(workload.optimizer(config).slots)
    sizes = [param.size for param in workload.model.params().values()]
    ends = list(itertools.accumulate(sizes))
    padded = -(-ends[-1] // (2 * devices)) * 2 * devices
    stretch = padded // devices
    params = (padded + stretch) * item
    footprints = []
    for rank in range(devices):
        first, last = rank * stretch, (rank + 1) * stretch
        # A gradient stays whole where its parameter reaches into the stretch.
        touching = sum(size for size, end in zip(sizes, ends, strict=True) if end - size < last and first < end)
        gradients = touching + max(0, last - max(first, ends[-1]))
        footprints.append(Footprint("each", params, params, gradients * item, slots * stretch * item, "law"))
    reductions = config.techniques.micro_batches if config.options["zero_stage"] == 2 else 1
    norms = _norms(config)
    gathered = Exchange("all_gather", 1, stretch * item)
    reduced = Exchange("all_reduce", reductions + norms, (reductions * ends[-1] + norms) * item)
    exchanges = (gathered, reduced) if devices > 1 else (reduced,)
    sent = all_gather_bytes(gathered.bytes_per_step, devices) + framing_bytes("all_gather", devices, backend)
    sent += all_reduce_bytes(reduced.bytes_per_step, devices)
    sent += reduced.count_per_step * framing_bytes("all_reduce", devices, backend)
    return Ledger(tuple(footprints), exchanges, sent * devices)


def _in_parts(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """Stage 3."""
    devices, item = Mesh.parse(config.mesh or "data=1").size, ITEM_BYTES[config.dtype]
    slots, micro = len(workload.optimizer(config).slots), config.techniques.micro_batches
    params = workload.model.params()
    own = sum(-(-param.size // devices) for param in params.values()) * item
    peak = _peak_gathered(params, devices) * item if devices > 1 else 0
    footprint = Footprint("each", 2 * own, 2 * own + peak, own, slots * own, "law")
    gathered = Exchange("all_gather", 2 * len(_modules(params)) * micro, 2 * own * micro)
    norm = Exchange("all_reduce", _norms(config), (_norms(config) + 1) * item)  # the engine's is of two numbers
    reduced = Exchange("reduce_scatter", micro, devices * own * micro)
    exchanges = (gathered, norm, reduced) if devices > 1 else (norm, reduced)
    sent = all_gather_bytes(gathered.bytes_per_step, devices) + all_reduce_bytes(norm.bytes_per_step, devices)
    sent += reduce_scatter_bytes(reduced.bytes_per_step, devices, backend)
    sent += sum(each.count_per_step * framing_bytes(each.name, devices, backend) for each in exchanges)
    return Ledger((footprint,) * devices, exchanges, sent * devices)


def _modules(params: Mapping[str, Param]) -> list[list[str]]:
    """The names of the parameters of each module; each module is gathered by itself."""
    modules: dict[str, list[str]] = {}
    for name in params:
        modules.setdefault(name.rpartition("/")[0], []).append(name)
    return list(modules.values())


def _peak_gathered(params: Mapping[str, Param], devices: int) -> int:
    """The most elements of gathered modules alive at once in a step.

    A parameter that is alone in its module is gathered in place; several arrive in one buffer and are copied out of it.
    Tables pass no gradient on, so that the engine is not told when one is done: all stay until the backward pass ends.
    """
    padded = {name: -(-param.size // devices) * devices for name, param in params.items()}
    each = [
        sum(padded[name] + (params[name].size if len(names) > 1 else 0) for name in names) for names in _modules(params)
    ]
    return max(*each, sum(size for name, size in padded.items() if name.endswith("/table")))
