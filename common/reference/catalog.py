"""The oracle's row."""

from samestep.common.evidence.costs.data_parallel import replicated
from samestep.common.runtime.topology import one_process
from samestep.common.strategy import Answer, FrameworkInfo, StrategyInfo

FRAMEWORK = FrameworkInfo(
    module="numpy",
    extra="",
    environment={},
    preload=("samestep.common.reference.program",),
    rows=(
        StrategyInfo(
            name="oracle",
            summary="The plain step in float64, every derivative written out by hand; all others are judged against it.",
            goal="truth",
            data_split=Answer("no", "one process takes the whole batch"),
            model_split=Answer("no", "one process holds the whole model"),
            hardware="one CPU core",
            axes=(),
            topology=one_process,
            cost=replicated,
            backend="memory",
            reference="numpy",
            status="ours",
            twin="",
            dtypes=("float64",),
        ),
    ),
)
