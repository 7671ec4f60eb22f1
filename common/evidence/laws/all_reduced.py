"""Data parallelism as `replicated`, with the all-reduce taken apart: into DDP's buckets, or into a ring's messages.

However it is cut, each rank sends 2(N-1)/N of the gradients' bytes.

References:
    Li et al., arXiv 2006.15704, section 3.2.3 (buckets); Patarasuk and Yuan 2009 (the ring).
"""

import dataclasses
from collections.abc import Iterable

from common.config import RunConfig
from common.evidence.laws.collectives import ITEM_BYTES, MESSAGE_BYTES, framing_bytes
from common.evidence.laws.replicated import replicated
from common.ledger import Exchange, Ledger
from common.workload.models.spec import num_params
from common.workload.table import Workload

DEFAULT_BUCKETS = (1 << 20, 25 << 20)
"""DDP's own caps: a small first bucket, so that something is on its way early."""


def by_hand(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """One all-reduce of the flat gradient; with the option `ring` its 2(N-1) messages, each 1/N of it.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "gloo" or "nccl".
    """
    ledger = replicated(workload, config, backend)
    devices = len(ledger.footprints)
    if not config.options["ring"]:
        return _in_pieces(ledger, 1, backend)
    chunk = -(-num_params(workload.model) // devices) * ITEM_BYTES[config.dtype]
    messages = 2 * (devices - 1)
    exchanges = (Exchange("send", messages, messages * chunk),) if messages else ()
    sent = devices * messages * (chunk + MESSAGE_BYTES[backend])
    return dataclasses.replace(ledger, exchanges=exchanges, sent_bytes_per_step=sent)


def bucketed(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """One all-reduce a bucket; the option `bucket_bytes` caps each.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "gloo" or "nccl".
    """
    ledger = replicated(workload, config, backend)
    return _in_pieces(ledger, num_buckets(workload, config), backend)


def _in_pieces(ledger: Ledger, pieces: int, backend: str) -> Ledger:
    devices = len(ledger.footprints)
    exchanges = (Exchange("all_reduce", pieces, ledger.footprints[0].params_bytes),)
    sent = ledger.sent_bytes_per_step + pieces * devices * framing_bytes("all_reduce", devices, backend)
    return dataclasses.replace(ledger, exchanges=exchanges, sent_bytes_per_step=sent)


def num_buckets(workload: Workload, config: RunConfig) -> int:
    """The buckets that DDP makes of the gradients in the order in which the backward pass yields them: the last first."""
    cap = config.options.get("bucket_bytes")
    caps = DEFAULT_BUCKETS if cap is None else (int(cap),)
    sizes = [param.size * ITEM_BYTES[config.dtype] for param in workload.model.params().values()]
    return len(list(_buckets(reversed(sizes), caps)))


def _buckets(sizes: Iterable[int], caps: tuple[int, ...]) -> Iterable[int]:
    filled = made = 0
    for size in sizes:
        filled += size
        if filled >= caps[min(made, len(caps) - 1)]:
            yield filled
            filled, made = 0, made + 1
    if filled:
        yield filled
