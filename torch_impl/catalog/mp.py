"""`mp` in the catalogue. Imports no framework."""

from samestep.common.costs.pipeline import mp
from samestep.torch_impl.catalog.presets import EQUAL_STAGES, WHOLE_BATCH, layer_parallel
from samestep.torch_impl.rows import measures, needs

ROW = layer_parallel(
    name="mp",
    summary="One stage of layers per rank, and one batch at a time: all ranks but one wait.",
    goal="memory, if nothing better can be used",
    data_split=WHOLE_BATCH,
    model_split=EQUAL_STAGES,
    hardware="several GPUs, even with slow links; CPU cores over gloo",
    cost=mp,
    reference="torch.distributed.send, torch.distributed.recv",
    status="no API; a textbook pattern, for which upstream points to torch.distributed.pipelining",
    measures=measures.WAITING,
    needs=needs.check_stages,
)
