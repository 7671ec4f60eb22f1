"""What a verdict may use beside the files of a run: steps that a launcher takes again, and ports that it asks for once."""

import dataclasses
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from samestep.common.judging.reference_run import Curve, Rerun
from samestep.common.request import Launch
from samestep.common.run import as_config
from samestep.common.runtime.directory import open_run
from samestep.common.runtime.parent.judging.reference_curves import read_curve
from samestep.common.runtime.state_file import write_state
from samestep.common.runtime.topology import UNEVALUATED
from samestep.common.strategy import Run

if TYPE_CHECKING:
    from samestep.common.judging.ported import PortedModel
    from samestep.common.program import TrainState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Means:
    """What a verdict may use beside the files of a run.

    Attributes:
        alone: Takes the steps of the reference.
        rerun: Takes steps of the run again, or of one like it; None where that cannot be done.
        ask: (launch, run, steps) -> the port of a model, as `AskPort` has it; None likewise.
    """

    alone: Rerun
    rerun: Rerun | None = None
    ask: "Callable[[Launch, Run, int], PortedModel | None] | None" = None


@dataclasses.dataclass(frozen=True)
class LaunchedRerun:
    """Takes steps again as a launcher does.

    Attributes:
        execute: The launcher's.
        scratch: The folder for its directories.
        launch: How the judged run was started.
        environment: Added to every process's.
    """

    execute: Callable[..., None]
    scratch: str
    launch: Launch
    environment: dict[str, str]

    def steps(self, run: Run, start: "TrainState | None" = None) -> Curve:
        """Takes a run to its last step, as `common.judging.reference_run` says.

        Args:
            run: The run.
            start: The state that it continues, or its first weights.
        """
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            directory, launch = Path(folder, "run"), self.launch.untraced
            is_first = start is not None and start.step == 0 and run.optimizer.rounding_move is None
            if start is not None and is_first:  # such an optimizer makes its own state
                run = _with_first_weights(run, start, Path(folder, "model"))
            elif start is not None:
                launch = dataclasses.replace(launch, start_from=str(directory))
            open_run(directory, as_config(run, launch))
            if start is not None and not is_first:
                write_state(directory, start)
            self.execute(directory, run, launch, environment={**self.environment, UNEVALUATED: "1"})
            return read_curve(directory)


def _with_first_weights(run: Run, start: "TrainState", folder: Path) -> Run:
    """Makes the same run of a copy of its model, which has other first weights.

    Args:
        run: The run of a user's model.
        start: Has the weights and buffers.
        folder: To copy the model to.
    """
    from samestep.common.workload.models.description import INITIAL  # here: runs of our own models do without
    from samestep.common.workload.models.user_model import UserModelSpec

    described = run.workload.model.facts.folder
    assert described is not None
    shutil.copytree(described, folder)
    arrays = {f"params/{name}": value for name, value in start.params.items()}
    np.savez(folder / INITIAL, **arrays, **{f"buffers/{name}": value for name, value in start.buffers.items()})  # type: ignore[arg-type]
    return dataclasses.replace(run, workload=dataclasses.replace(run.workload, model=UserModelSpec.of(str(folder))))
