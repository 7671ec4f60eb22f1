"""How well the seconds of steps are predicted: how far predictions are off, and what choosing a layout by them costs.

A row that constants were fitted to is predicted with others: those of a fit that left out every row of its model
(`left-out.toml`, which `python -m benchmarks.predicting.fit_machine` writes). So no row is judged by constants that have seen
it. Stricter checks leave out all models of its hidden size, or everything that is as large as it.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from samestep.common.errors import percent
from samestep.common.files.reading import read_toml
from samestep.common.flags import FieldValues
from samestep.common.seconds.machine import Machine, load_machine
from samestep.common.seconds.measured_iterations import FOLDER, MeasuredIteration, read_rows
from samestep.common.seconds.step_time import step_time

SERVER, CLUSTER = "a100-80gb-server", "a100-80gb"
"""The machines of the rows on one server, and of the others."""
WAITS = {True: "server_wait_seconds", False: "cluster_wait_seconds"}
"""Whether a row ran on the one server -> the name of its `wait_seconds` in a fit; the other constants are the same for both."""
LEFT_OUT = FOLDER / "left-out.toml"
SMALLER: Mapping[str, Callable[[MeasuredIteration], bool]] = {
    "fitted to 2 and 4 GPUs": lambda row: row.layout.num_gpus <= 4,
    "fitted to one node": lambda row: row.is_one_node,
    "fitted to hidden 1024": lambda row: row.shape.width <= 1024,
}
"""The name of what an extrapolation is fitted to -> whether a row belongs to it; the other, larger rows are then predicted."""
FAR = 0.25
"""The error from which a row is listed with its suspected cause."""


@dataclasses.dataclass(frozen=True)
class Compared:
    """A measured quantity and its prediction, in the same unit.

    Attributes:
        name: What was measured.
        groups: The groups of rows that it counts in.
        measured: Its value.
        predicted: The prediction of the cost model.
        problem: The problem for which a layout is chosen; rows of one problem are ranked by their predictions. "" for none.
    """

    name: str
    groups: tuple[str, ...]
    measured: float
    predicted: float
    problem: str = ""

    @property
    def error(self) -> float:
        """The error of the prediction, relative to the measurement."""
        return self.predicted / self.measured - 1


@dataclasses.dataclass(frozen=True)
class Score:
    """How far predictions are off.

    Attributes:
        rows: The number of rows.
        mape: The mean of the absolute relative errors.
        max_error: The largest absolute relative error.
        far: How many are off by more than `FAR`.
        regret: By how much the layout that is ranked first is slower than the fastest measured one, as the mean over
            problems; None if there is no choice.
            problems: The number of problems with a choice.
    """

    rows: int
    mape: float
    max_error: float
    far: int
    regret: float | None
    problems: int


def score(compared: Sequence[Compared]) -> Score:
    """Summarizes how far predictions are off."""
    errors = [abs(each.error) for each in compared]
    problems: dict[str, list[Compared]] = {}
    for each in compared:
        if each.problem:
            problems.setdefault(each.problem, []).append(each)
    regrets = [
        min(group, key=lambda each: each.predicted).measured / min(each.measured for each in group) - 1
        for group in problems.values()
        if len(group) > 1
    ]
    return Score(
        rows=len(errors),
        mape=sum(errors) / len(errors),
        max_error=max(errors),
        far=sum(error > FAR for error in errors),
        regret=sum(regrets) / len(regrets) if regrets else None,
        problems=len(regrets),
    )


def by_group(compared: Iterable[Compared]) -> dict[str, Score]:
    """Returns the score of each group of rows."""
    groups: dict[str, list[Compared]] = {}
    for each in compared:
        for name in each.groups:
            groups.setdefault(name, []).append(each)
    return {name: score(group) for name, group in groups.items()}


def compare(rows: Iterable[MeasuredIteration], machine: Callable[[MeasuredIteration], Machine]) -> list[Compared]:
    """Predicts the seconds of measured iterations.

    Args:
        rows: The measured iterations.
        machine: Row -> the machine that it ran on.
    """
    return [
        Compared(str(row), row.groups, row.seconds, step_time(row.shape, row.layout, machine(row)).total, row.problem)
        for row in rows
    ]


@functools.cache
def carried_rows() -> tuple[MeasuredIteration, ...]:
    """Returns the rows that come with samestep, and that its constants were fitted to."""
    return tuple(row for name in ("single_node.csv", "multi_node.csv") for row in read_rows(FOLDER / name))


@functools.cache
def _carried() -> frozenset[MeasuredIteration]:
    return frozenset(carried_rows())


def is_carried(row: MeasuredIteration) -> bool:
    """Returns whether constants were fitted to a row."""
    return row in _carried()


def machines_with(constants: Mapping[str, float]) -> dict[bool, Machine]:
    """Returns the machines of a fit: whether a row ran on the one server -> its machine.

    Args:
        constants: The constants by the names of a machine's rates, and those in `WAITS`.
    """
    common: FieldValues = {name: value for name, value in constants.items() if name not in WAITS.values()}
    return {
        is_server: dataclasses.replace(load_machine(name), **common, wait_seconds=constants[WAITS[is_server]])
        for is_server, name in ((True, SERVER), (False, CLUSTER))
    }


def fitted_machine(row: MeasuredIteration) -> Machine:
    """Returns the machine of a row, with the constants that were fitted to all carried rows."""
    return load_machine(SERVER if row.is_one_node else CLUSTER)


@functools.cache
def _left_out() -> dict[str, dict[bool, Machine]]:
    return {model: machines_with(constants) for model, constants in read_toml(LEFT_OUT).items()}  # pyrefly: ignore[bad-argument-type]


def unseen_machine(row: MeasuredIteration) -> Machine:
    """Returns the machine of a row, with constants that were fitted without the rows of its model."""
    return _left_out()[row.model][row.is_one_node] if is_carried(row) else fitted_machine(row)


def unseen_family_machine(row: MeasuredIteration) -> Machine:
    """Returns the machine of a carried row, with constants that were fitted without the rows of its hidden size."""
    return _left_out()[row.family][row.is_one_node]


def extrapolated(rows: Sequence[MeasuredIteration]) -> dict[str, Score]:
    """Returns how far predictions are off for carried rows that are larger than everything that constants were fitted to.

    Args:
        rows: The carried rows.

    Returns:
        The score by where the rows ran and what the constants were fitted to.
    """
    found = {}
    for name, is_smaller in SMALLER.items():
        larger = [row for row in rows if not is_smaller(row)]
        machines = _left_out()[name]
        groups = by_group(compare(larger, lambda row, of=machines: of[row.is_one_node]))
        found |= {f"{group}, {name}": each for group, each in groups.items() if "," not in group}
    return found


@functools.cache
def expected_error(is_one_node: bool) -> Score:
    """Returns how far predictions of carried rows are off, with constants that were fitted without them.

    Args:
        is_one_node: Whether to take rows on one node, or those on many.
    """
    return score(compare([row for row in carried_rows() if row.is_one_node is is_one_node], unseen_machine))


def suspected_cause(row: MeasuredIteration, compared: Compared, rows: Sequence[MeasuredIteration]) -> str:
    """Says what may have made a row faster or slower than other rows.

    Args:
        row: The measured iteration.
        compared: The row with its prediction.
        rows: All measured iterations.
    """
    alike = [each for each in rows if each.problem == row.problem and each.layout_name == row.layout_name]
    smaller = [each for each in alike if each.layout.microbatch_size < row.layout.microbatch_size]
    faster = min(alike, key=lambda each: each.seconds)
    if compared.error > 0:
        if any(each.pass_seconds > 0.97 * row.pass_seconds for each in smaller):
            return "its micro-batch took no longer than a smaller one: the kernels were timed under other conditions"
        if _waits_for_host(row):
            return "measured faster than the host launches kernels in the other rows"
        return "measured faster than its kernels run in the other rows"
    if row.seconds > 1.2 * faster.seconds:
        why = (
            "memory is nearly full"
            if faster.layout.microbatch_size < row.layout.microbatch_size
            else "the host fell behind"
        )
        less = 1 - faster.seconds / row.seconds
        return f"with micro-batches of {faster.layout.microbatch_size} the same layout took {percent(less)} less: {why}"
    return (
        "every micro-batch of this layout is slow, other layouts of the model are not: slow links or GPUs in these runs"
    )


def _waits_for_host(row: MeasuredIteration) -> bool:
    """Returns whether a host that launches at once would make the prediction a tenth shorter."""
    machine = fitted_machine(row)
    at_once = dataclasses.replace(
        machine, block_host_seconds=0.0, all_reduce_host_seconds=0.0, unfused_softmax_seconds=0.0
    )
    return step_time(row.shape, row.layout, at_once).total < 0.9 * step_time(row.shape, row.layout, machine).total
