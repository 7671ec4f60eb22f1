"""The reference that a run is held against."""

import dataclasses

from samestep.common.catalog import strategy_info
from samestep.common.mesh import Mesh
from samestep.common.strategy import NoOptions, Run
from samestep.common.workload.models.own import OwnSpec

ONE_DEVICE = {"torch": "single", "tf": "single"}
"""Framework -> the strategy that is the reference of a user's model, in float64."""


def reference_of(run: Run) -> Run:
    """The reference's run of the same steps: the oracle's, or of a user's model its own on one device in float64.

    What distinguishes two of them decides the reference's numbers.
    """
    framework, strategy, techniques, batch_norm = "numpy", "oracle", run.techniques, run.batch_norm
    if isinstance(run.workload.model, OwnSpec):
        framework = run.workload.model.described.framework
        strategy = ONE_DEVICE[framework]
        techniques = dataclasses.replace(techniques, accumulation_steps=1)  # a normalisation sees the whole batch
        batch_norm = "local" if batch_norm == "sync" else batch_norm  # one device has all of it
    return dataclasses.replace(
        run,
        framework=framework,
        strategy=strategy_info(framework, strategy),
        mesh=Mesh((("data", 1),)),
        dtype="float64",
        threads=1,
        options=NoOptions(),
        techniques=techniques,
        batch_norm=batch_norm,
    )
