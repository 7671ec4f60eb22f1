"""`ddp` in the catalogue. Imports no framework."""

from samestep.common.costs.data_parallel import ddp
from samestep.torch_impl.catalog.presets import data_parallel
from samestep.torch_impl.rows import measures, options

ROW = data_parallel(
    name="ddp",
    summary="One process per device, gradients all-reduced in buckets during the backward pass.",
    goal="speed, when the model fits one device",
    refuses={},
    cost=ddp,
    reference="torch.nn.parallel.DistributedDataParallel",
    status="stable; upstream recommends it over DataParallel even on one machine",
    counterpart="tf:mirrored",
    options=options.DdpOptions,
    needs=options.check_buckets,
    measures=measures.OVERLAP,
)
