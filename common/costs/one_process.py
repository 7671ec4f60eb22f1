"""Strategies between the devices of one process, where copies may take the place of collectives and nothing is on any wire.

With P the parameter bytes, I and O the bytes of a batch's inputs and outputs, and N devices:

    dp                a master, which is one of N replicas, hands out (N-1)/N I + (N-1) P + (N-1)/N O in five exchanges a
                      batch, and takes back (N-1)/N O + (N-1) P
    mirrored          as seen from the busiest device:
                      ring, NCCL                one all-reduce of P
                      reduction to one device   2(N-1)P: every gradient to the first device, the sum back
                      hierarchical copy         N P: half of the devices to one root, the two roots to each other, and back
    central_storage   one device stores, N compute, and the busiest copies the larger of R + N P and N R + P: the first compute
                      device sums the gradients for the store, and every replica reads R there, which is P with only
                      those rows of a table that it looks up; each micro-batch reads again, and each regularizer once more

References:
    torch/nn/parallel/data_parallel.py of torch 2.13: scatter, replicate, parallel_apply, gather; and their backward.
"""

import dataclasses
import math

from samestep.common.costs.data_parallel import replicated
from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.sizes import borrower, example_bytes, holder_of, symmetric
from samestep.common.ledger import Ledger, Send
from samestep.common.strategy import Run


def dp(run: Run, backend: str) -> Ledger:
    """Predicts a master that holds everything, and replicas that hold the parameters only during a step.

    Args:
        run: What is trained.
        backend: "memory".

    Returns:
        The footprints of the master and of each other replica, and the copies between them.
    """
    model, others = run.workload.model, run.num_devices - 1
    params = model.params().values()
    master = holder_of(run, params, "master")
    replica = borrower("replica", master.params_bytes, 0, count=others)
    examples = run.batch_size * others // run.num_devices // run.passes
    returned = examples * math.prod(model.segments()[-1].outputs) * run.item_bytes
    once = [
        ("forward", "scatter_inputs", examples * example_bytes(model.inputs(), run.item_bytes)),
        ("forward", "broadcast_parameters", others * master.params_bytes),
        ("forward", "gather_outputs", returned),
        ("backward", "scatter_output_gradients", returned),
        ("backward", "reduce_gradients", others * master.gradients_bytes),
    ]
    sends = [Send(phase, name, "data", others + 1, size, others) for phase, name, size in once if others]
    footprints = (master, replica) if others else (master,)
    return symmetric(run, footprints, sends * run.passes, backend)


def mirrored(run: Run, backend: str) -> Ledger:
    """Predicts devices that all hold everything; their exchanges depend on the option `reduce`.

    Args:
        run: What is trained.
        backend: "memory".

    Returns:
        The footprint of all devices, and the all-reduce or the copies.
    """
    ledger, devices = replicated(run, backend), run.num_devices
    params = sum(param.has_gradient for param in run.workload.model.params().values())
    size = ledger.footprints[0].gradients_bytes
    copies = {
        "reduction_to_one_device": (2 * (devices - 1), params),
        "hierarchical_copy": (devices, 1),  # packed into one tensor
    }
    if devices == 1 or run.options.reduce not in copies:
        return ledger
    moves, tensors = copies[run.options.reduce]
    send = Send("backward", "copy", run.mesh.only_axis, devices, moves * size, moves * tensors)
    return dataclasses.replace(ledger, sends=(send,))


def central_storage(run: Run, backend: str) -> Ledger:
    """Predicts compute devices that read every parameter and send every gradient back.

    Args:
        run: What is trained.
        backend: "memory".

    Returns:
        The footprints of the compute devices and, last, of the store; and the copies.
    """
    devices, item, model = run.num_devices, run.item_bytes, run.workload.model
    params = model.params().values()
    store = holder_of(run, params, "store")
    total, examples = store.gradients_bytes, run.batch_size // devices
    dense = sum(param.size * param.reads for param in params if not param.read_by_rows) * item
    passes, times = run.passes, sum(param.reads for param in params)
    tables_twice = sum(param.tied for param in params)  # its rows, and the whole table
    rows = sum(examples * param.lookups * param.shape[1] for param in params if param.lookups) * item
    read = passes * dense + rows
    # The busiest device is the first that computes, or the store: (how often the parameters are read, gradients moved).
    reads, moves = max((devices, 1), (1, devices), key=lambda each: each[0] * read + each[1] * total)
    sends = (
        Send("forward", "copy", "data", devices, reads * read, reads * passes * (times + tables_twice)),
        Send("backward", "copy", "data", devices, moves * total, moves * sum(param.has_gradient for param in params)),
    )
    compute = borrower("compute", passes * dense, total, count=devices)
    kept = activation_bytes(run)
    compute = dataclasses.replace(compute, activations_bytes=kept)
    return Ledger((compute, dataclasses.replace(store, activations_bytes=None if kept is None else 0)), sends, 0)
