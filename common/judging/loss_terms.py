"""Names what a user's model adds to its loss and what is another loss on shards of a batch, as its description measured it."""

import dataclasses

from samestep.common.judging.parity import Parity
from samestep.common.strategy import Run


def name_sums(run: Run, parity: Parity) -> Parity:
    """Says first that a run is another function on shards, if layers add to its loss what is not a mean over examples.

    Args:
        run: What left its reference.
        parity: The verdict.
    """
    sums = run.workload.model.facts.sums
    if not sums or run.mesh.replicas * run.microbatches == 1:
        return parity
    count, names = len(sums), ", ".join(sums)
    layers = f"{count} layer{'s' if count > 1 else ''} ({names})"
    said = f"not the same function on shards: what {layers} put into the loss by add_loss is not a mean over examples"
    return dataclasses.replace(parity, reason=f"{said}: {parity.reason}")
