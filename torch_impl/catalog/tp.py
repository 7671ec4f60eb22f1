"""`tp` in the catalogue. Imports no framework."""

from samestep.common.costs.tensor import tp
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import layer_parallel
from samestep.torch_impl.rows import needs, options, refusals

ROW = layer_parallel(
    name="tp",
    summary="Layers split in pairs, by column and by row; every rank computes its part of each on the whole batch.",
    goal="large layers, inside one machine",
    data_split=Answer("no", "every rank takes the whole batch"),
    model_split=Answer("yes", "kernels, heads, the vocabulary and tables of rows, by the neutral split table"),
    hardware="several GPUs with fast links in one machine; CPU cores over gloo",
    axes=("tensor",),
    cost=tp,
    reference="torch.distributed.tensor.parallel.parallelize_module, loss_parallel",
    status="experimental; DTensor's convolutions are wrong when sharded (2.13), so they stay whole here",
    counterpart="tf:dtensor",
    options=options.TensorOptions,
    refuses=refusals.SPLIT_LAYERS | refusals.PARTS_OF_SUMS,
    needs=needs.check_sequence,
)
