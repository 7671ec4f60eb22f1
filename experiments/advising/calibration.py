"""Fits the time model to runs that were measured: `samestep advise --calibrate DIR`.

Two factors are fitted, by least squares of the relative errors: one on what devices do themselves (computing, the update, and
the bubble, in which a device waits for another one that computes), one on what they exchange.
"""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from samestep.common.errors import ConfigError, count, percent
from samestep.common.run import parse_prediction
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.step_time import StepTime
from samestep.experiments.advising.candidate_meshes import FRAMEWORK, ROWS, Candidate
from samestep.experiments.advising.step_times import Timer, candidate_of

RESULT = "result.json"
LEAST_RUNS = 3
"""The fewest runs from which a fit of two factors has an error."""
OWN = ("compute", "pipeline_bubble", "optimizer")
"""The parts of a step that the first factor multiplies; the others are exchanges, which the second one multiplies."""
_RANKED = {row.strategy for row in ROWS}


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The result of a fit.

    Attributes:
        directory: The directory of the runs.
        runs: The number of runs.
        work: The factor of the predicted seconds of computing.
        exchanges: The factor of the predicted seconds of exchanges.
        error_before: The mean relative error of the predictions of the runs without the factors.
        error_after: The same with them.
        error_left_out: The mean relative error of each run by factors that were fitted to the others; None for fewer than three
        runs, which leave nothing to check two factors with.
    """

    directory: str
    runs: int
    work: float
    exchanges: float
    error_before: float
    error_after: float
    error_left_out: float | None = None

    def timed(self, time: StepTime) -> StepTime:
        """Returns the prediction with the factors."""
        factors = dict.fromkeys(OWN, self.work)
        return StepTime.of(
            {name: seconds * factors.get(name, self.exchanges) for name, seconds in time.parts().items()}
        )

    def __str__(self) -> str:
        if self.error_left_out is None:
            off = f"two factors fit so few runs exactly, which says nothing of their error; give {LEAST_RUNS} runs or more"
        else:
            off = (
                f"the mean error on these runs falls from {percent(self.error_before)} to {percent(self.error_after)}, and is "
                f"{percent(self.error_left_out)} on runs that are left out of the fit"
            )
        return (
            f"Calibrated with {count(self.runs, 'run')} in {self.directory}: computing takes {self.work:.2f} times and "
            f"exchanging {self.exchanges:.2f} times what was predicted; {off}."
        )


def calibrated(timer: Timer, machine: Machine, directory: Path) -> tuple[Timer, Calibration]:
    """Fits the factors, and returns the timer that applies them.

    Args:
        timer: Predicts the seconds of a candidate on a machine.
        machine: The machine that the runs ran on.
        directory: The directory with run directories in it, at any depth.

    Raises:
        ConfigError: It has no run that can be predicted.
    """
    points = [(timer(candidate, machine), seconds) for candidate, seconds in _measured(directory)]
    if not points:
        raise ConfigError(
            f"--calibrate {directory} has no run of a strategy that is ranked, on a workload of samestep's; give a directory "
            "of runs, as `samestep compare --strategies torch:ddp,torch:fsdp --out DIR` leaves it."
        )
    found = _with_factors(str(directory), points)
    left_out = None
    if len(points) >= LEAST_RUNS:
        others = [_with_factors("", [*points[:place], *points[place + 1 :]]) for place in range(len(points))]
        left_out = _error(
            (each.timed(time).total, seconds) for each, (time, seconds) in zip(others, points, strict=True)
        )
    found = dataclasses.replace(found, error_left_out=left_out)
    return lambda candidate, machine: found.timed(timer(candidate, machine)), found


def _with_factors(directory: str, points: Sequence[tuple[StepTime, float]]) -> Calibration:
    """Fits the factors to predicted and measured steps."""
    work, exchanges = _fit([(_split(time), seconds) for time, seconds in points])
    found = Calibration(directory, len(points), work, exchanges, 0.0, 0.0)
    before = _error((time.total, seconds) for time, seconds in points)
    after = _error((found.timed(time).total, seconds) for time, seconds in points)
    return dataclasses.replace(found, error_before=before, error_after=after)


def _measured(directory: Path) -> Iterable[tuple[Candidate, float]]:
    """Yields the runs of rows that are ranked, with the seconds of a step."""
    from samestep.common.runtime.records import load_result  # here: it needs pydantic

    for path in sorted(directory.rglob(RESULT)) if os.path.isdir(directory) else ():  # no error for a long path
        result = load_result(path.parent)
        speed, config = result.examples_per_second, result.config
        if speed is None or config.framework != FRAMEWORK or config.strategy not in _RANKED or config.model is not None:
            continue  # a user's model was described for its own command only, so its request cannot be parsed here
        if (candidate := candidate_of(parse_prediction(config))) is not None:
            yield candidate, candidate.run.batch_size / speed.median


def _split(time: StepTime) -> tuple[float, float]:
    own = sum(time.parts()[name] for name in OWN)
    return own, time.total - own


def _fit(points: Sequence[tuple[tuple[float, float], float]]) -> tuple[float, float]:
    """Returns the two non-negative factors that minimize the sum of squares of (a work + b exchanged) / seconds - 1."""
    scaled = [(work / seconds, exchanged / seconds) for (work, exchanged), seconds in points]
    ww, we, ee = (sum(each[i] * each[j] for each in scaled) for i, j in ((0, 0), (0, 1), (1, 1)))
    w, e = (sum(each[i] for each in scaled) for i in (0, 1))
    determinant = ww * ee - we * we
    if determinant > 1e-9 * ww * ee:
        both = (w * ee - e * we) / determinant, (e * ww - w * we) / determinant
        if min(both) > 0:
            return both
    together = sum(sum(each) for each in scaled) / sum(sum(each) ** 2 for each in scaled)
    return together, together  # the runs do not tell the two apart


def _error(pairs: Iterable[tuple[float, float]]) -> float:
    errors = [abs(predicted / seconds - 1) for predicted, seconds in pairs]
    return sum(errors) / len(errors)
