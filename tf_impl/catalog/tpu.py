"""`tpu` in the catalogue. Imports no framework."""

from samestep.common.costs.dtensor import tpu
from samestep.common.strategy import Answer
from samestep.tf_impl.catalog.presets import DATA_AND_TENSOR, in_one_process
from samestep.tf_impl.rows import needs, options
from samestep.tf_impl.rows.refusals import ALREADY_COMPILED

ROW = in_one_process(
    name="tpu",
    summary="XLA compiles the forward and backward pass of each core; gradients are summed between the cores.",
    goal="speed, on TPUs",
    data_split=Answer("yes", "one contiguous shard of the global batch per core"),
    model_split=Answer("partial", "not in training; along the axis tensor in a step that is only compiled"),
    hardware="the cores of a TPU; without one, logical devices of one CPU",
    axes=DATA_AND_TENSOR,
    refuses=ALREADY_COMPILED,
    cost=tpu,
    reference="tf.distribute.TPUStrategy",
    status="stable; the newest wheel with TPU kernels, tensorflow-tpu, is for TensorFlow 2.20",
    options=options.TpuOptions,
    emulation="emulated: XLA on CPU",
    compiled_cores=lambda chosen: chosen.compiled_cores,
    needs=needs.check_cores,
    available=needs.require_tpu,
)
