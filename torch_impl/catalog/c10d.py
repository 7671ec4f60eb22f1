"""`c10d` in the catalogue. Imports no framework."""

from samestep.common.costs.data_parallel import c10d
from samestep.torch_impl.catalog.presets import data_parallel
from samestep.torch_impl.rows import measures, options

ROW = data_parallel(
    name="c10d",
    summary="Data parallelism by hand: one all-reduce of the flat gradient once the backward pass is done.",
    goal="seeing the algorithm; a control for ddp",
    cost=c10d,
    reference="torch.distributed.all_reduce, isend, recv",
    status="stable",
    counterpart="tf:multi_worker_mirrored",
    options=options.C10dOptions,
    needs=options.check_ring,
    measures=measures.OVERLAP,
)
