"""The reference that a run is held against."""

import dataclasses

from samestep.common.batch_norm import num_passes, num_replicas, takes_shares
from samestep.common.catalog import strategy_info
from samestep.common.mesh import Mesh
from samestep.common.strategy import NoOptions, Run
from samestep.common.workload.models.own import OwnSpec

ONE_DEVICE = {"torch": "single", "tf": "single"}
"""Framework -> the strategy that is the reference of a user's model, in float64."""


def reference_of(run: Run) -> Run:
    """The reference's run of the same steps: the oracle's, or of a user's model its own on one device in float64.

    A TensorFlow model with a torch model beside it has that one's. What distinguishes two references decides their numbers:
    of local statistics also the number of replicas.
    """
    framework, strategy, techniques, batch_norm = "numpy", "oracle", run.techniques.of_reference(), run.batch_norm
    devices = 1 if techniques.compress is None else run.num_devices
    if takes_shares(run):
        devices = num_replicas(run)
        techniques = dataclasses.replace(techniques, accumulation_steps=num_passes(run))
    if isinstance(own := run.workload.model, OwnSpec):
        run = dataclasses.replace(run, workload=dataclasses.replace(run.workload, model=own.twin or own))
        framework = (own.twin or own).described.framework
        strategy = ONE_DEVICE[framework]
        techniques = dataclasses.replace(techniques, accumulation_steps=1)  # a normalisation sees the whole batch
        batch_norm = "local" if batch_norm == "sync" else batch_norm  # one device has all of it
    return dataclasses.replace(
        run,
        framework=framework,
        strategy=strategy_info(framework, strategy),
        mesh=Mesh((("data", devices),)),
        dtype="float64",
        threads=1,
        options=NoOptions(),
        techniques=techniques,
        batch_norm=batch_norm,
    )


def without_twin(run: Run) -> Run:
    """The run of the same steps on one device in float64, in the framework of the run itself."""
    one = dataclasses.replace(reference_of(run), framework=run.framework, workload=run.workload)
    return dataclasses.replace(one, strategy=strategy_info(run.framework, ONE_DEVICE[run.framework]))
