"""The seconds of a candidate: which model of time a workload takes, and how a run is spelled in it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import cast

from samestep.common.costs.sizes import MESSAGES
from samestep.common.seconds.core_time import Cores, Taken, core_time
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.step_time import Layout, Shape, StepTime, step_time
from samestep.common.workload.models.decoder import DecoderSpec
from samestep.common.workload.models.spec import ModelSpec
from samestep.common.workload.models.transformer import TransformerSpec
from samestep.experiments.advising.candidate_meshes import WHOLE, Candidate

PARTS = {
    "compute": "computing",
    "tensor_exchange": "the exchanges inside layers",
    "pipeline_bubble": "the bubble of the pipeline",
    "pipeline_sends": "the sends between stages",
    "data_exchange": "the exchange of gradients and parameters",
    "optimizer": "the update",
}
"""The parts of a step, in words."""
ASSUMED_EFFICIENCY = 0.4
"""Of a model that is not a transformer: the share of the peak that its products reach. Nothing measured says so."""
ASSUMED_LATENCY_SECONDS = 2e-5
"""Of the same: what a collective takes however few bytes it has."""
BLOCK_LAYERS = 8
"""Of a transformer's block, whose time on the host is a machine's: that of a layer is taken to be so much less."""
ELEMENT_ACCESSES = 5
"""Of the same: how often an element that a layer keeps is read or written, in both passes."""
WORK = ("compute", "optimizer")
"""What a device does itself; during the other parts it waits."""


Timer = Callable[[Candidate, Machine], StepTime]
"""Predicts the seconds of a candidate on a machine."""


def _shape(model: TransformerSpec | DecoderSpec, key_heads: int, hidden: int, is_gated: bool) -> Shape:
    return Shape(
        layers=model.layers,
        width=model.width,
        heads=model.heads,
        key_heads=key_heads,
        hidden=hidden,
        is_gated=is_gated,
        context=model.context,
        vocabulary=model.vocabulary,
    )


def _transformer(spec: ModelSpec) -> Shape:
    model = cast(TransformerSpec, spec)
    return _shape(model, model.num_key_heads, model.hidden, model.is_llama)


def _decoder(spec: ModelSpec) -> Shape:
    model = cast(DecoderSpec, spec)
    return _shape(model, model.key_heads, model.hidden, model.style == "llama")


SHAPES: Mapping[str, Callable[[ModelSpec], Shape]] = {"transformer": _transformer, "decoder": _decoder}
"""Name of a model -> what the model of time sees of it."""


def seconds_of(candidate: Candidate, machine: Machine) -> StepTime:
    """Predicts the parts of a candidate's step.

    Args:
        candidate: What is timed.
        machine: What it runs on.
    """
    if (shape := SHAPES.get(candidate.run.workload.model.name)) is None:
        return _of_any_model(candidate, machine)
    run, mesh = candidate.run, candidate.run.mesh
    staged, is_hsdp = mesh.pipe > 1, mesh.shard > 1 and mesh.data > 1
    layout = Layout(
        batch_size=run.batch_size,
        microbatch_size=candidate.microbatch_size,
        data=mesh.data if is_hsdp else mesh.axis(candidate.row.axis),
        shard=mesh.shard if is_hsdp else 1,
        tensor=mesh.tensor,
        pipe=mesh.pipe,
        schedule=run.options.schedule if staged else "1f1b",
        sharding=0 if is_hsdp else candidate.row.sharding,
        forward_passes=candidate.forward_passes,
        overlaps=candidate.row in WHOLE,
        fused_attention=True,
        separate_kernels=True,
    )
    return step_time(shape(run.workload.model), layout, machine)


def _of_any_model(candidate: Candidate, machine: Machine) -> StepTime:
    """A model that is not a transformer: from its FLOPs, what its layers keep and its ledger, at assumed shares of the rates."""
    run = candidate.run
    link = machine.node_bytes_per_second
    if run.num_devices > machine.gpus_per_node:  # a ring passes each node's adapters once
        link = min(link, machine.network_bytes_per_second)
    cores = Cores(
        matmul={1: ASSUMED_EFFICIENCY * machine.peak_flops_per_second},
        element_seconds=ELEMENT_ACCESSES * run.item_bytes / machine.memory_bytes_per_second,
        latency_seconds=dict.fromkeys(MESSAGES, ASSUMED_LATENCY_SECONDS),
        exchange_bytes_per_second=dict.fromkeys(MESSAGES, link),
        overhead_seconds={run.name: (0.0, machine.block_host_seconds / BLOCK_LAYERS)},
    )
    taken = Taken.by(run)
    return core_time(run, "nccl", taken, dataclasses.replace(machine, node_bytes_per_second=link), cores)
