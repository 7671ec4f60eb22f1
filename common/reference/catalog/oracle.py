"""The row of `oracle` in the catalogue."""

from samestep.common.costs.data_parallel import oracle
from samestep.common.runtime.topology import one_process
from samestep.common.strategy import Answer, StrategyInfo

ROW = StrategyInfo(
    name="oracle",
    summary="The plain step in float64, with every derivative written out by hand; all other rows are judged against it.",
    goal="the reference for all others",
    data_split=Answer("no", "one process takes the whole batch"),
    model_split=Answer("no", "one process holds the whole model"),
    hardware="one CPU core",
    axes=(),
    topology=one_process,
    cost=oracle,
    backend="memory",
    reference="numpy",
    status="ours",
    counterpart="",
    dtypes=("float64",),
    refuses={"fixed_order": "it is the reference for every order"},
)
