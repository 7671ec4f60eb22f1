"""The contents of the page on records, read once, one step at a time, without running anything."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from samestep.common.judging.recorded.differences import THRESHOLD, ComparedTensors, times_rounding
from samestep.common.judging.recorded.walk import Walk
from samestep.common.steps.recorded_run import RecordedRun, RunStep
from samestep.experiments.page.curves import Place
from samestep.experiments.recording.diffing import Diffed, judge_as_kept
from samestep.experiments.recording.reruns import Reruns


@dataclasses.dataclass(frozen=True, eq=False)
class ShownTensor:
    """A tensor at the step that is shown.

    Attributes:
        name: The name of the tensor.
        one: Its projections in A.
        other: Its projections in B.
        times: Their difference, as a multiple of the difference that rounding makes.
        differs: Whether the difference is, or may be, more than rounding.
        rounding: The norm of the difference that rounding makes.
    """

    name: str
    one: np.ndarray
    other: np.ndarray
    times: float
    differs: bool
    rounding: float

    @property
    def norm(self) -> float:
        """The estimated norm in A, or in B if it is zero in A."""
        norms = [math.sqrt(float(np.mean(each**2))) for each in (self.one, self.other)]
        return norms[0] or norms[1]

    @property
    def is_rounding(self) -> bool:
        """Whether its values in both records are mere rounding of larger numbers, as in the gradient of a key bias."""
        return self.norm <= THRESHOLD * self.rounding and not self.differs

    @property
    def ratio(self) -> float | None:
        """B as a multiple of A, by least squares; None if there is nothing to compare."""
        square = float(self.one @ self.one)
        return float(self.one @ self.other) / square if square and not self.is_rounding else None

    @property
    def off(self) -> float:
        """The norm of the difference, relative to that of A."""
        apart = math.sqrt(float(np.mean((self.other - self.one) ** 2)))
        return apart / self.norm if self.norm else 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class GatheredPair:
    """Two records, read for the page.

    Attributes:
        found: The records and the verdict.
        losses: The loss of each step in A and in B.
        times: Name of a comparison -> the largest difference at each step, as a multiple of the one that rounding makes.
        step: The step whose tensors are shown: the first that differs, or the one that differs most.
        phase: The kind of tensors that is shown: "gradient" or "weight".
        tensors: The tensors at that step, in the order of A.
    """

    found: Diffed
    losses: tuple[Sequence[Place], Sequence[Place]]
    times: Mapping[str, Sequence[Place]]
    step: int
    phase: str
    tensors: Sequence[ShownTensor]


@dataclasses.dataclass(frozen=True, eq=False)
class GatheredRecord:
    """One record, read for the page.

    Attributes:
        run: The run.
        directory: Its directory.
        losses: The loss of each step.
        norms: The norm of all gradients, at each step whose tensors were recorded.
        rates: The learning rate of each step.
    """

    run: RecordedRun
    directory: Path
    losses: Sequence[Place]
    norms: Sequence[Place]
    rates: Sequence[Place]


def gather_record(run: RecordedRun, directory: Path) -> GatheredRecord:
    """Reads one record.

    Args:
        run: The run.
        directory: Its directory.
    """
    losses, norms, rates = list[Place](), list[Place](), list[Place]()
    for step in run.steps:
        if step.number < 0:
            continue
        losses += [] if step.loss is None else [(step.number, step.loss)]
        rates += [(step.number, step.scalars["lr"])] if "lr" in step.scalars else []
        if step.sums and "gradient" in step.sums:
            norms.append((step.number, math.sqrt(float(np.nansum(step.sums["gradient"].square)))))
    return GatheredRecord(run, directory, losses, norms, rates)


def gather_pair(a: Reruns, b: Reruns) -> GatheredPair:
    """Reads two records; the reruns that are kept in A are the yardstick.

    Args:
        a: The first record, whose reruns are the yardstick.
        b: The second record, which is compared with A.

    Raises:
        ConfigError: They have nothing in common, or are damaged.
    """
    found, yardstick = judge_as_kept(a, b)
    walk = Walk(a.run, b.run, yardstick)
    first = found.verdict.first
    wanted = None if first is None else first.step
    phase = "weight" if first is not None and first.phase in ("update", "initial weights") else "gradient"
    losses: tuple[list[Place], list[Place]] = [], []
    times = {name: list[Place]() for name in ("loss", "gradient", "weight")}
    shown, step, worst = None, 0, -1.0
    for one, other in walk.steps():
        for name, value in _times(walk, one, other):
            times[name].append((one.number, value))
        for points, each in zip(losses, (one, other), strict=True):
            points += [] if each.loss is None or each.number < 0 else [(each.number, each.loss)]
        compared = walk.compare(phase, one, other)
        if compared is None or not compared.times.size:
            continue
        most = float(compared.times.max())
        if one.number == wanted or (wanted is None and most > worst):
            shown, step, worst = compared, one.number, most
    return GatheredPair(found, losses, times, step, phase, _tensors(walk, shown) if shown else ())


def _times(walk: Walk, one: RunStep, other: RunStep) -> Iterable[tuple[str, float]]:
    if one.number < 0:
        return
    if one.loss is not None and other.loss is not None:
        rounding = float(walk.yardstick.of_loss(one.number, one.loss).rounding[0])
        yield "loss", times_rounding(abs(one.loss - other.loss), rounding)
    for phase in ("gradient", "weight"):
        compared = walk.compare(phase, one, other)
        if compared is not None and compared.times.size:
            yield phase, float(compared.times.max())


def _tensors(walk: Walk, compared: ComparedTensors) -> list[ShownTensor]:
    differs = compared.differs | compared.is_unsure
    return [
        ShownTensor(
            tensor.name,
            np.nan_to_num(compared.one.projections[place]),
            np.nan_to_num(compared.other.projections[place]),
            float(compared.times[place]),
            bool(differs[place]),
            float(compared.scale.rounding[place]),
        )
        for place, tensor in enumerate(walk.pairing.tensors)
    ]
