"""Every device holds the full model: single devices and data parallelism between processes.

With P the parameter bytes and N devices, the gradients' all-reduce sends 2(N-1)/N * P a rank, in one piece, in DDP's
buckets or around a ring; between the devices of one process it sends nothing.

References:
    Rajbhandari et al., arXiv 1910.02054, section 7.1; Li et al., arXiv 2006.15704, section 3.2.3 (buckets); Patarasuk and
    Yuan 2009 (the ring).
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.sizes import ID_BYTES, KEY_BYTES, holder_of, symmetric, with_agreement
from samestep.common.features.used import buffers_of, with_layers
from samestep.common.ledger import Footprint, Ledger, Send
from samestep.common.mesh import Mesh
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.used import kept_bytes, periods_of, sums_gradients
from samestep.common.workload.models.parameters import num_trained, trained
from samestep.common.workload.models.spec import Param

DEFAULT_CAPS = (1 << 20, 25 << 20)
"""DDP's own caps. The first bucket is small, so it is in flight early."""


def replicated(run: Run, backend: str) -> Ledger:
    """Predicts devices that all hold everything, and sum gradients once a step.

    Args:
        run: What is trained.
        backend: "memory" (devices of one process), "gloo", "nccl" or "grpc".

    Returns:
        The footprint of all devices, and a single all-reduce, or with overlap one for each parameter.
    """
    params = list(trained(run.workload.model.params()).values())
    together = [[param] for param in reversed(params)] if run.techniques.overlap else [params]
    ledger = _summed(run, together if run.num_devices > 1 else [], backend)
    if backend != "grpc" or sums_gradients(run.techniques):  # our own exchanges use keys that stay the same
        return ledger
    calls = run.num_devices * sum(send.count for send in ledger.sends)
    return dataclasses.replace(ledger, sent_bytes_per_step=ledger.sent_bytes_per_step + calls * KEY_BYTES)


def oracle(run: Run, backend: str) -> Ledger:
    """Predicts one device that holds everything and sends nothing, even where the oracle computes what several would exchange.

    Args:
        run: What is trained.
        backend: "memory".
    """
    return replicated(dataclasses.replace(run, mesh=Mesh.of_replicas(1), techniques=Techniques()), backend)


def _summed(run: Run, together: Iterable[Sequence[Param]], backend: str) -> Ledger:
    """Predicts devices with full models that sum the gradients of each group of parameters together."""
    technique = sums_gradients(run.techniques)
    sum_up = (technique and technique.gradient_sends) or _plain_sum
    sends = (send for params in together for send in sum_up(run, params))
    return symmetric(run, replicated_footprints(run), with_agreement(run, with_layers(run, sends)), backend)


def _plain_sum(run: Run, params: Sequence[Param]) -> Iterator[Send]:
    if size := sum(param.size for param in params if param.has_gradient) * run.item_bytes:
        yield Send("backward", "all_reduce", run.mesh.only_axis, run.num_devices, size)


def replicated_footprints(run: Run) -> tuple[Footprint, ...]:
    """Predicts the memory of devices that all hold the full model, and a shard of the batch."""
    params = run.workload.model.params()
    footprint = holder_of(run, params.values(), count=run.num_devices)
    kept = kept_bytes(run, trained(params).values())
    return (dataclasses.replace(footprint, activations_bytes=activation_bytes(run), residuals_bytes=kept),)


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
    """Predicts DDP's exchanges: its buffers, then one all-reduce per bucket, whose total does not depend on the buckets.

    Args:
        run: What is trained.
        caps: The bytes at which each bucket is closed; the last cap applies to all further buckets. Without overlap, no
            bucket is closed.
        backend: "gloo" or "nccl".
    """
    if run.techniques.overlap is False or periods_of(run.techniques):
        caps = (num_trained(run.workload.model.params().values()) * run.item_bytes,)
    closed: list[list[Param]] = []
    filled: list[Param] = []
    # DDP fills its buckets in the order in which the backward pass yields the gradients: the last parameter's first.
    for param in reversed(trained(run.workload.model.params()).values()):
        filled.append(param)
        if sum(each.size for each in filled) * run.item_bytes >= caps[min(len(closed), len(caps) - 1)]:
            closed.append(filled)
            filled = []
    ledger = _summed(run, [*closed, filled] if filled else closed, backend)
    return symmetric(run, ledger.footprints, (*_buffers(run), *ledger.sends), backend)


def _buffers(run: Run) -> Iterator[Send]:
    """Yields the broadcasts of rank 0's buffers before a step's first forward pass: one message for each kind of number."""
    facts, num_whole = run.workload.model.facts, 0
    num_real = sum(size for size, _ in buffers_of(run.workload.model).values())
    for name, shape in facts.buffers.items():
        if name in facts.whole_buffers:
            num_whole += math.prod(shape)
        else:
            num_real += math.prod(shape)
    for size in (num_real * run.item_bytes, num_whole * ID_BYTES):
        if size:
            yield Send("forward", "broadcast", run.mesh.only_axis, run.num_devices, size, source="0")


def flat(run: Run, backend: str) -> Ledger:
    """Predicts one all-reduce of the flat gradient; the arguments are those of `replicated`."""
    return _summed(run, [list(trained(run.workload.model.params()).values())], backend)


def c10d(run: Run, backend: str) -> Ledger:
    """Predicts one all-reduce of the flat gradient, or with the option `ring` its 2(N-1) messages, each 1/N of it.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprint of all ranks, and the all-reduce or the sends.
    """
    ledger, devices = flat(run, backend), run.num_devices
    if not run.options.ring:
        return ledger
    chunk = -(-num_trained(run.workload.model.params().values()) // devices) * run.item_bytes
    messages = [Send("backward", "send", "data", devices, chunk, to="1")] * (2 * (devices - 1))
    return symmetric(run, ledger.footprints, with_agreement(run, with_layers(run, messages)), backend)
