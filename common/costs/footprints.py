"""What devices hold under the strategies that `samestep advise` ranks, without their sends, for searches over many meshes."""

import functools
from collections.abc import Callable, Mapping

from samestep.common.axes.used import held_params
from samestep.common.costs.context import cp
from samestep.common.costs.data_parallel import ddp, replicated, replicated_footprints
from samestep.common.costs.expert import ep
from samestep.common.costs.pipeline import hybrid, hybrid_footprints, pp
from samestep.common.costs.sizes import holder_of
from samestep.common.costs.tensor import tp, tp_footprints
from samestep.common.costs.zero import fsdp, sharded_footprints, zero1, zero1_footprints, zero2
from samestep.common.ledger import Footprint
from samestep.common.strategy import Cost, Run

_of_stages = functools.partial(hybrid_footprints, with_activations=False)
FOOTPRINTS: Mapping[Cost, Callable[[Run], tuple[Footprint, ...]]] = {
    replicated: replicated_footprints,
    ddp: replicated_footprints,
    cp: replicated_footprints,
    ep: lambda run: (holder_of(run, held_params(run).values(), count=run.num_devices),),
    zero1: zero1_footprints,
    zero2: functools.partial(sharded_footprints, frees=False),
    fsdp: functools.partial(sharded_footprints, frees=True),
    tp: tp_footprints,
    pp: _of_stages,
    hybrid: _of_stages,
}
"""Cost model -> the function that predicts its footprints; for a pipeline, without activations."""
