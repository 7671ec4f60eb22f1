"""How well the seconds of steps are predicted: by how much predictions are off, and what a choice by them costs.

A row that constants were fitted to is predicted with others: those of a fit that left out every row of its hidden size
(`left-out.toml`, which `python -m benchmarks.fit_machine` writes). So no row is judged by constants that have seen it.
"""

import dataclasses
import functools
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence

from samestep.common.evidence.costs.machine import Machine, load_machine
from samestep.common.evidence.costs.step_time import step_time
from samestep.common.evidence.measured import FOLDER, Measured, read_rows

SERVER, CLUSTER = "a100-80gb-server", "a100-80gb"
"""The machines of the rows on one server, and of the others."""
WAITS = {True: "server_wait_seconds", False: "cluster_wait_seconds"}
"""Whether a row is of the server -> the name of its `wait_seconds` in a fit; the other constants are the same on both."""
LEFT_OUT = FOLDER / "left-out.toml"
FAR = 0.25
"""The error from which on a row is listed with its suspected cause."""


@dataclasses.dataclass(frozen=True)
class Compared:
    """A row and its prediction.

    Attributes:
        row: What was measured.
        predicted: Seconds.
    """

    row: Measured
    predicted: float

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return self.predicted / self.row.seconds - 1


@dataclasses.dataclass(frozen=True)
class Score:
    """How far predictions are off.

    Attributes:
        rows: How many there are.
        mape: The mean of the absolute relative errors.
        max_error: The largest of them.
        far: How many are off by more than `FAR`.
        regret: By how much the layout that is ranked first is slower than the fastest measured one, as the mean over problems.
        problems: How many have a choice.
    """

    rows: int
    mape: float
    max_error: float
    far: int
    regret: float
    problems: int


def compare(rows: Iterable[Measured], machine: Callable[[Measured], Machine]) -> list[Compared]:
    """Predicts rows.

    Args:
        rows: What was measured.
        machine: What a row ran on.
    """
    return [Compared(row, step_time(row.shape, row.layout, machine(row)).total) for row in rows]


def score(compared: Sequence[Compared]) -> Score:
    """Adds up how far predictions are off."""
    errors = [abs(each.error) for each in compared]
    problems: dict[tuple[int, ...], list[Compared]] = {}
    for each in compared:
        problems.setdefault(each.row.problem, []).append(each)
    regrets = [
        min(group, key=lambda each: each.predicted).row.seconds / min(each.row.seconds for each in group) - 1
        for group in problems.values()
        if len(group) > 1
    ]
    return Score(
        rows=len(errors),
        mape=sum(errors) / len(errors),
        max_error=max(errors),
        far=sum(error > FAR for error in errors),
        regret=sum(regrets) / len(regrets) if regrets else 0.0,
        problems=len(regrets),
    )


@functools.cache
def carried_rows() -> tuple[Measured, ...]:
    """The rows that come with samestep, and that its constants were fitted to."""
    return tuple(row for name in ("single_node.csv", "multi_node.csv") for row in read_rows(FOLDER / name))


def machines_with(constants: Mapping[str, float]) -> dict[bool, Machine]:
    """Whether a row is of the server -> its machine, with the constants of a fit.

    Args:
        constants: By the names of a machine's rates, and those in `WAITS`.
    """
    common = {name: value for name, value in constants.items() if name not in WAITS.values()}
    return {
        is_server: dataclasses.replace(load_machine(name), **common, wait_seconds=constants[WAITS[is_server]])
        for is_server, name in ((True, SERVER), (False, CLUSTER))
    }


def fitted_machine(row: Measured) -> Machine:
    """The machine of a row, with the constants that were fitted to all carried rows."""
    return load_machine(SERVER if row.is_one_node else CLUSTER)


@functools.cache
def _left_out() -> dict[str, dict[bool, Machine]]:
    with LEFT_OUT.open("rb") as file:
        return {model: machines_with(constants) for model, constants in tomllib.load(file).items()}


def unseen_machine(row: Measured) -> Machine:
    """The machine of a row, with constants that no row of its hidden size was fitted to, and never the row itself."""
    models = _left_out()
    return models[row.model][row.is_one_node] if row in carried_rows() else fitted_machine(row)
