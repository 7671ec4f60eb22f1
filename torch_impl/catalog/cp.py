"""`cp` in the catalogue. Imports no framework."""

from samestep.common.costs import textbook
from samestep.common.costs.context import cp
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import DATA, WHOLE_MODEL, over_ranks
from samestep.torch_impl.rows import options, refusals

ROW = over_ranks(
    name="cp",
    summary="Each rank takes some positions of every example; attention exchanges heads, or keys and values.",
    goal="memory: activations of long sequences",
    data_split=Answer("yes", "by positions, and along data by examples"),
    model_split=WHOLE_MODEL,
    axes=("context", *DATA),
    cost=cp,
    textbook=textbook.split,
    reference="torch.distributed._functional_collectives.all_to_all_single_autograd",
    status="no API; follows DeepSpeed-Ulysses; torch's context_parallel is experimental and fails on CPUs (2.13)",
    counterpart="tf:context",
    options=options.ContextOptions,
    refuses=refusals.NO_SWITCH | refusals.PARTS_OF_SUMS,
)
