"""`single` in the catalogue. Imports no framework."""

from samestep.common.costs.data_parallel import replicated
from samestep.common.costs.textbook import REPLICATED
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import in_one_process

ROW = in_one_process(
    name="single",
    summary="The plain step on one device: the baseline of every comparison.",
    goal="baseline",
    data_split=Answer("no", "one device takes the whole batch"),
    model_split=Answer("no", "one device holds the whole model"),
    hardware="one CPU core or one GPU",
    axes=(),
    cost=replicated,
    textbook=REPLICATED,
    reference="torch.nn.Module, torch.optim",
    status="stable",
    counterpart="tf:single",
)
