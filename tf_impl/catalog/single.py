"""`single` in the catalogue. Imports no framework."""

from samestep.common.costs.data_parallel import replicated
from samestep.common.costs.textbook import REPLICATED
from samestep.common.strategy import Answer
from samestep.tf_impl.catalog.presets import in_one_process
from samestep.tf_impl.rows.refusals import ALONE

ROW = in_one_process(
    name="single",
    summary="The plain step on one device: the baseline of every comparison.",
    goal="baseline",
    data_split=Answer("no", "one device takes the whole batch"),
    model_split=Answer("no", "one device holds the whole model"),
    hardware="one CPU core or one GPU",
    axes=(),
    refuses=ALONE,
    cost=replicated,
    textbook=REPLICATED,
    reference="tf.function, tf.GradientTape",
    status="stable",
    counterpart="torch:single",
)
