"""What a run is compared with: its reference, the curves of both, and repeated steps of either."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from samestep.common.catalog import framework_info, strategy_info
from samestep.common.features.used import of_whole, takes_shares
from samestep.common.mesh import Mesh
from samestep.common.request import StrategyOptions
from samestep.common.steps.log import Log
from samestep.common.strategy import Run
from samestep.common.techniques.used import counts_devices

if TYPE_CHECKING:
    import numpy as np

    from samestep.common.program import TrainState


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """The steps of a run from its first one on, and the state after them.

    Attributes:
        log: The log of the steps.
        state: The state after the last of them.
    """

    log: Log
    state: "TrainState"

    @property
    def losses(self) -> tuple[float, ...]:
        """The loss of each step."""
        return self.log.losses


class Rerun(Protocol):
    """Repeats steps of a run. A launcher does this in separate processes."""

    def steps(self, run: Run, start: "TrainState | None" = None) -> Curve:
        """Takes the steps of a run up to its last.

        Args:
            run: The run that is judged, or one like it: shorter, in another dtype, without a suspect, on one device.
            start: The state from which it continues, or its initial weights at step 0; None to start where the judged run did.
        """
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedSteps:
    """The steps of a run that are compared.

    Attributes:
        losses: The run's loss at each step that is judged.
        wanted: The reference's losses at the same steps.
        params: The weights after the last step, by neutral name.
        noise: How far rounding alone may have moved a weight.
    """

    losses: Sequence[float]
    wanted: Sequence[float]
    params: "Mapping[str, np.ndarray]"
    noise: float = 0.0


def reference_of(run: Run) -> Run:
    """Returns the reference's run of the same steps: the oracle's, or a user's model on one device in float64.

    For a TensorFlow model with a torch model in the same file, the reference is the torch model. References differ only in what
    affects their numbers; with local statistics, that includes the number of replicas.
    """
    techniques = run.techniques.of_reference()
    devices = run.num_devices if counts_devices(techniques) else 1
    if takes_shares(run):
        devices = run.mesh.replicas
        techniques = techniques.in_passes(run.microbatches)
    if not (facts := run.workload.model.facts).has_oracle:
        model = facts.counterpart or run.workload.model
        run = of_whole(dataclasses.replace(run, workload=dataclasses.replace(run.workload, model=model)))
        techniques = techniques.in_passes(1)  # a normalization sees the whole batch
    return dataclasses.replace(
        run,
        framework=facts.reference_framework,
        strategy=strategy_info(facts.reference_framework, framework_info(facts.reference_framework).reference_row),
        mesh=Mesh((("data", devices),)),
        dtype="float64",
        threads=1,
        options=StrategyOptions(),
        techniques=techniques,
    )


def without_counterpart(run: Run) -> Run:
    """Returns the run of the same steps on one device in float64, in the framework of the run itself."""
    one = dataclasses.replace(reference_of(run), framework=run.framework, workload=run.workload)
    return dataclasses.replace(one, strategy=strategy_info(run.framework, framework_info(run.framework).reference_row))
