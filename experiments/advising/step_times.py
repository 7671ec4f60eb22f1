"""The seconds of a candidate: which time model applies to a workload, and how a run is expressed in it."""

import dataclasses
from collections.abc import Callable

from samestep.common.axes.used import exchanging_in_blocks, hooks_of, splits_between
from samestep.common.costs.optimizer_state import spreads_state
from samestep.common.costs.shards import is_sharded
from samestep.common.costs.sizes import MESSAGES
from samestep.common.seconds.core_time import Cores, core_time
from samestep.common.seconds.layout import Layout
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.step_time import StepTime, step_time
from samestep.common.strategy import Run
from samestep.experiments.advising import candidate_meshes as rows
from samestep.experiments.advising.candidate_meshes import FRAMEWORK, ROWS, Candidate

PARTS = {
    "compute": "computing",
    "tensor_exchange": "the exchanges inside layers",
    "pipeline_bubble": "the bubble of the pipeline",
    "pipeline_sends": "the sends between stages",
    "data_exchange": "the exchange of gradients and parameters",
    "optimizer": "the update",
    **{f"{name}_exchange": hooks_of(name).about for name in exchanging_in_blocks()},
}
"""Part of a step -> its name in sentences."""
ASSUMED_EFFICIENCY = 0.4
"""The assumed share of the peak that the products of a model without transformer blocks reach; it was not measured."""
ASSUMED_LATENCY_SECONDS = 2e-5
"""The least seconds of a collective of such a model, for any number of bytes."""
BLOCK_LAYERS = 8
"""The number of layers of such a model that take the host as long as one transformer block, whose time the machine has."""
ELEMENT_ACCESSES = 5
"""How often an element that a layer of such a model keeps is read or written, in both passes together."""
WORK = ("compute", "optimizer")
"""What a device does itself; during the other parts it waits."""


Timer = Callable[[Candidate, Machine], StepTime]
"""Predicts the seconds of a candidate on a machine."""


def seconds_of(candidate: Candidate, machine: Machine) -> StepTime:
    """Predicts the parts of a candidate's step.

    Args:
        candidate: What is timed.
        machine: What it runs on.
    """
    if not (shape := candidate.run.workload.model.facts.sizes).layers:
        return _of_any_model(candidate, machine)
    run, row = candidate.run, candidate.row
    in_shards, period = is_sharded(run.mesh) and bool(run.mesh.replica_axes), run.techniques.steps_of_period
    layout = Layout(
        batch_size=run.batch_size,
        microbatch_size=candidate.microbatch_size,
        **Layout.sizes_along(run.mesh),
        beside=Layout.beside_of(run.mesh),
        schedule=run.asked.schedule if run.mesh.parts("layers") > 1 else "1f1b",
        sharding=0 if in_shards and row not in rows.SPLIT else row.sharding,
        forward_passes=candidate.forward_passes,
        overlaps=row in (*rows.WHOLE, rows.POSITIONS, rows.EXPERTS, rows.SHARDED_EXPERTS) and period == 1,
        fused_attention=True,
        separate_kernels=True,
        splits_sequence=splits_between(run),
        shards_along_expert=row == rows.SHARDED_EXPERTS,
    )
    time = step_time(shape, layout, machine)
    return time if period == 1 else dataclasses.replace(time, data_exchange=time.data_exchange / period)


def candidate_of(run: Run, needed_bytes: int = 0) -> Candidate | None:
    """Returns a run as a candidate; None if its strategy is not ranked.

    Args:
        run: The run.
        needed_bytes: The bytes that the fullest device needs, if known.
    """
    spreads = spreads_state(run)
    named = [row for row in ROWS if row.strategy == run.strategy.name and row.shards_optimizer == spreads]
    if run.framework != FRAMEWORK or not named:
        return None
    row = next((row for row in named if row.in_shards == is_sharded(run.mesh)), named[0])
    rows = run.examples_per_pass // run.asked.microbatches
    return Candidate(run, row, rows, needed_bytes, needed_bytes > 0)


def _of_any_model(candidate: Candidate, machine: Machine) -> StepTime:
    """Predicts the step of a model that is not a transformer from its FLOPs, kept activations and ledger, at assumed rates."""
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
    return core_time(run, "nccl", dataclasses.replace(machine, node_bytes_per_second=link), cores)
