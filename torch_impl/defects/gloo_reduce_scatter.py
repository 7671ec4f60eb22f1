"""A reduce-scatter over gloo is an all-reduce inside and sends twice the bytes that it needs.

What to do: expect FSDP and ZeRO to send more between CPUs than the textbooks count.
"""

import contextlib
import itertools
import os
import socket
import struct
import tempfile

import torch
import torch.distributed as dist

meeting = f"file://{tempfile.mkdtemp()}/store"
rank = 0 if os.fork() else 1
dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)


def sent_bytes() -> int:
    """Returns the bytes that the kernel counts as sent on the TCP sockets of this process."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as copy:  # not all are of TCP
            total += struct.unpack_from("Q", copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 200)[0]
    return total


whole, part = torch.ones(1 << 18), torch.empty(1 << 17)
sent = [sent_bytes()]
for send in (lambda: dist.reduce_scatter_single(part, whole), lambda: dist.all_gather_single(whole, part)):
    send()
    dist.barrier()
    sent.append(sent_bytes())
scatter, gather = ((after - before) / (1 << 20) for before, after in itertools.pairwise(sent))
if rank == 0:
    print(f"1 MiB on 2 ranks: a reduce-scatter sends {scatter:.1f} MiB a rank, an all-gather {gather:.1f} MiB")
    assert scatter < 1.5 * gather, "a reduce-scatter sends as much as an all-reduce"
