"""The axis `data`: every device has the whole model, or the same part of it, and takes other examples."""

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
    """Wraps a model in DDP; the gradients are views of the buckets, which saves a second copy of them.

    Args:
        run: The run; without overlap all gradients go into one bucket, which is full when the last gradient has been computed.
        bare: The model.
        bucket_bytes: About the size of a bucket; None leaves it to DDP.
    """
    if run.techniques.overlap is False:
        bucket_bytes = ONE_BUCKET
    cap = None if bucket_bytes is None else bucket_bytes / MEBIBYTE
    find = run.workload.model.facts.may_skip  # which costs a look at the graph, and a number for each parameter
    return DistributedDataParallel(bare, gradient_as_bucket_view=True, bucket_cap_mb=cap, find_unused_parameters=find)


def replicate(model: nn.Module, mesh: DeviceMesh, apart: Iterable[nn.Parameter] = ()) -> None:
    """Replicates what other axes left of a model, in place; DDP does not work inside pipelines.

    Args:
        model: A stage.
        mesh: The ranks that hold a replica.
        apart: The parameters that fewer ranks hold; their gradients stay as they are.
    """
    upstream.replicate(model, mesh, apart)
    model.register_forward_hook(free_after_prediction)
