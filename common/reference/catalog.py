"""The oracle's row."""

from samestep.common.catalog import FrameworkInfo
from samestep.common.costs.data_parallel import oracle
from samestep.common.runtime.topology import one_process
from samestep.common.strategy import Answer, StrategyInfo

_KEEP_MEMORY = ":".join(
    f"glibc.malloc.{name}" for name in ("mmap_threshold=33554432", "trim_threshold=1073741824", "hugetlb=1")
)
"""A step makes and drops arrays of a few MiB. By default glibc hands each back to the kernel, which fills new pages with zeros
for the next one: a third of a step's time."""

FRAMEWORK = FrameworkInfo(
    module="numpy",
    title="the NumPy oracle",
    extra="",
    reference_row="oracle",
    environment={"GLIBC_TUNABLES": _KEEP_MEMORY},
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
            cost=oracle,
            backend="memory",
            reference="numpy",
            status="ours",
            twin="",
            dtypes=("float64",),
            refuses={"fixed_order": "it is the reference of every order"},
        ),
    ),
)
