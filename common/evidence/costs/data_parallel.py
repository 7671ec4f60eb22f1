"""Every device holds the full model: single devices and data parallelism between processes.

With P the parameter bytes and N devices, the gradients' all-reduce sends 2(N-1)/N * P a rank, in one piece, in DDP's
buckets or around a ring; between the devices of one process it sends nothing.

References:
    Rajbhandari et al., arXiv 1910.02054, section 7.1; Li et al., arXiv 2006.15704, section 3.2.3 (buckets); Patarasuk and
    Yuan 2009 (the ring).
"""

import dataclasses

from samestep.common.evidence.costs.activations import activation_bytes
from samestep.common.evidence.costs.sizes import all_reduce_bytes, framing_bytes, holder, sent_bytes
from samestep.common.ledger import Exchange, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_params

DEFAULT_CAPS = (1 << 20, 25 << 20)
"""DDP's own caps: the first bucket is small to be in flight early."""


def replicated(run: Run, backend: str) -> Ledger:
    """Every device holds everything; gradients are summed over all devices once a step.

    Args:
        run: What is trained.
        backend: "memory" (devices of one process), "gloo", "nccl" or "grpc".

    Returns:
        The footprint of all devices, and a single all-reduce.
    """
    devices = run.num_devices
    footprint = holder(run, num_params(run.workload.model), count=devices)
    footprint = dataclasses.replace(footprint, activations_bytes=activation_bytes(run))
    exchanges = (Exchange("all_reduce", 1, footprint.params_bytes),) if devices > 1 else ()
    sent = 0 if backend == "memory" else all_reduce_bytes(footprint.params_bytes, devices) * devices
    return Ledger((footprint,), exchanges, sent)


def ddp(run: Run, backend: str) -> Ledger:
    """Predicts one all-reduce per bucket; the option `bucket_bytes` caps each bucket.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprint of all ranks, and the all-reduces.
    """
    cap: int | None = run.options.bucket_bytes
    return bucketed(run, DEFAULT_CAPS if cap is None else (cap,), backend)


def bucketed(run: Run, caps: tuple[int, ...], backend: str) -> Ledger:
    """Predicts one all-reduce per bucket; their total does not depend on the buckets.

    Args:
        run: What is trained.
        caps: A bucket is closed once it holds so many bytes; the last cap is that of all further buckets.
        backend: "gloo" or "nccl".
    """
    filled = closed = 0
    # DDP fills its buckets in the order in which the backward pass yields the gradients: the last parameter's first.
    for param in reversed(run.workload.model.params().values()):
        filled += param.size * run.item_bytes
        if filled >= caps[min(closed, len(caps) - 1)]:
            filled, closed = 0, closed + 1
    return _in_pieces(run, closed + (filled > 0), backend)


def _in_pieces(run: Run, pieces: int, backend: str) -> Ledger:
    """Predicts what `replicated` does, with the all-reduce in several pieces, each with its own framing."""
    ledger, devices = replicated(run, backend), run.num_devices
    exchanges = (Exchange("all_reduce", pieces, ledger.footprints[0].params_bytes),)
    sent = ledger.sent_bytes_per_step + pieces * devices * framing_bytes("all_reduce", devices, backend)
    return Ledger(ledger.footprints, exchanges, sent)


def c10d(run: Run, backend: str) -> Ledger:
    """Predicts one all-reduce of the flat gradient, or with the option `ring` its 2(N-1) messages, each 1/N of it.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprint of all ranks, and the all-reduce or the sends.
    """
    if not run.options.ring:
        return _in_pieces(run, 1, backend)
    devices = run.num_devices
    chunk = -(-num_params(run.workload.model) // devices) * run.item_bytes
    messages = 2 * (devices - 1)
    sends = Exchange("send", messages, messages * chunk)
    footprints = replicated(run, backend).footprints
    return Ledger(footprints, (sends,) if messages else (), devices * sent_bytes(sends, 2, backend))
