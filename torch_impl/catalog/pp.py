"""`pp` in the catalogue. Imports no framework."""

from samestep.common.costs.pipeline import pp
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import pipelined
from samestep.torch_impl.rows import needs

ROW = pipelined(
    name="pp",
    summary="One or two stages of layers per rank; micro-batches follow each other through them.",
    goal="large models over slow links",
    data_split=Answer("partial", "into micro-batches, all of which pass through every rank"),
    model_split=Answer("yes", "contiguous stages of layers, one or two a rank"),
    cost=pp,
    reference="torch.distributed.pipelining",
    status="alpha; the successor of PiPPy, which was merged into it",
    needs=needs.check_schedule,
)
