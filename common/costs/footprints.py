"""What the devices hold under the rows that scale, without what they send: for searches over thousands of meshes."""

from collections.abc import Callable, Mapping

from samestep.common.costs.data_parallel import ddp, replicated, replicated_footprints
from samestep.common.costs.pipeline import hybrid, hybrid_footprints, pp
from samestep.common.costs.tensor import tp, tp_footprints
from samestep.common.costs.zero import fsdp, fsdp_footprints, zero1, zero1_footprints, zero2, zero2_footprints
from samestep.common.ledger import Footprint
from samestep.common.strategy import Cost, Run

FOOTPRINTS: Mapping[Cost, Callable[[Run], tuple[Footprint, ...]]] = {
    replicated: replicated_footprints,
    ddp: replicated_footprints,
    zero1: zero1_footprints,
    zero2: zero2_footprints,
    fsdp: fsdp_footprints,
    tp: tp_footprints,
    pp: hybrid_footprints,
    hybrid: hybrid_footprints,
}
"""Cost model -> the footprints of its ledger."""
