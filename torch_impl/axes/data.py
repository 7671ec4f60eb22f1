"""The axis `data`: every device has the whole model, or the same part of it, and takes different examples."""

from collections.abc import Iterable

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from samestep.common.strategy import Run
from samestep.torch_impl import upstream
from samestep.torch_impl.sharded import free_after_prediction

MEBIBYTE = 1 << 20
ONE_BUCKET = 1 << 60
"""More bytes than the gradients of any model have."""


def wrap(run: Run, bare: nn.Module, bucket_bytes: int | None = None) -> DistributedDataParallel:
    """Wraps a model in DDP; gradients are views of the buckets, which avoids a second copy of them.

    Args:
        run: The run; without overlap, all gradients share one bucket, which is full once the last gradient has been computed.
        bare: The model.
        bucket_bytes: The approximate size of a bucket; None leaves it to DDP.
    """
    if run.techniques.overlap is False:
        bucket_bytes = ONE_BUCKET
    cap = None if bucket_bytes is None else bucket_bytes / MEBIBYTE
    find = run.workload.model.facts.may_skip  # it costs a walk over the graph, and a number for each parameter
    return DistributedDataParallel(bare, gradient_as_bucket_view=True, bucket_cap_mb=cap, find_unused_parameters=find)


def replicate(model: nn.Module, mesh: DeviceMesh, apart: Iterable[nn.Parameter] = ()) -> None:
    """Replicates what other axes left of a model, in place. It is not DDP, which does not work inside pipelines.

    Args:
        model: The stage to replicate.
        mesh: The ranks that hold a replica.
        apart: The parameters that fewer ranks hold; their gradients are left alone.
    """
    upstream.replicate(model, mesh, apart)
    model.register_forward_hook(free_after_prediction)
