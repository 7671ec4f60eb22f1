"""Advice for each of several values, the best layout of each in one table: `--vary context=8192,32768,131072`."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

from samestep.common.errors import ConfigError, count
from samestep.common.flags import Scalar, join_spelling, split_spelling
from samestep.experiments.advising.advice import Advice
from samestep.experiments.advising.advice_text import COLUMNS, figures, say_model
from samestep.experiments.advising.training_cost import DAY, StepCost
from samestep.experiments.printing.column_table import Column, table
from samestep.experiments.printing.formats import Case, Document
from samestep.experiments.printing.text import bullets, fill, paragraphs, screen_width


@dataclasses.dataclass(frozen=True)
class Swept:
    """The advice for some values.

    Attributes:
        values: Name -> its value, as it was given.
        advice: The advice; None if there is none.
        why_not: Why there is none.
    """

    values: Mapping[str, str]
    advice: Advice | None
    why_not: str = ""

    @property
    def cost(self) -> StepCost | None:
        """The cost of a step of its first layout."""
        return self.advice.cost_of(self.advice.first) if self.advice else None

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


def sweep(
    axes: Mapping[str, Sequence[str]],
    check: Callable[[Mapping[str, str]], object],
    advise: Callable[[Mapping[str, str]], Advice],
) -> list[Swept]:
    """Advises for every combination of values.

    Args:
        axes: Name -> its values.
        check: Refuses some values, as far as that is known without a search.
        advise: Advises for some values.

    Raises:
        ConfigError: A value is refused with all others, or no combination has a layout.
    """
    together = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    _refuse_wrong_values(axes, [(given, _why_refused(check, given)) for given in together])
    found = []
    for given in together:
        try:
            found.append(Swept(given, advise(given)))
        except ConfigError as error:
            found.append(Swept(given, None, str(error)))
    if all(each.advice is None for each in found):
        raise ConfigError(f"{found[0]}: {found[0].why_not}")
    return found


def _why_refused(check: Callable[[Mapping[str, str]], object], given: Mapping[str, str]) -> str:
    try:
        check(given)
    except ConfigError as error:
        return str(error)
    return ""


def _refuse_wrong_values(axes: Mapping[str, Sequence[str]], checked: Sequence[tuple[Mapping[str, str], str]]) -> None:
    """Refuses a value that is wrong with all values of the other names; an empty row would hide the mistake."""
    for name, values in axes.items():
        for value in values:
            reasons = [why for given, why in checked if given[name] == value]
            if all(reasons):
                raise ConfigError(f"--vary {name}={value}: {reasons[0]}")


def document(swept: Sequence[Swept]) -> Document:
    """Makes what `samestep advise --vary` prints.

    Args:
        swept: The advice for each combination.
    """
    rows = [{**each.values, **_figures(each)} for each in swept]
    record = {"varied": list(swept[0].values), "rows": rows}
    cases = [Case(str(each), "passed" if each.advice else "skipped", each.why_not) for each in swept]
    return Document("samestep advise --vary", lambda: _report(swept), record, rows, cases)


def _figures(swept: Swept) -> dict[str, Scalar]:
    return figures(swept.advice.first, swept.advice) if swept.advice else {"why_not": swept.why_not}


def _report(swept: Sequence[Swept]) -> str:
    without = [f"{each}: {each.why_not}" for each in swept if each.advice is None]
    advice = next(each.advice for each in swept if each.advice)
    varied = swept[0].values
    nodes = [] if {"nodes", "devices"} & {*varied} else [count(advice.nodes, "node")]
    place = " of ".join([*nodes, *([] if "machine" in varied else [advice.machine.title])])
    caption = (
        f"Predicted, nothing was run: the fastest layout of {_say_models(swept)} for each {' and '.join(varied)}"
        f"{f', on {place}' if place else ''}."
    )
    return paragraphs(fill(caption), table(_columns(swept), swept, screen_width()), bullets(without))


def _say_models(swept: Sequence[Swept]) -> str:
    """Returns the name of the model, without the sizes that vary."""
    bases = [each.advice.base for each in swept if each.advice]
    if len({base.workload.name for base in bases}) == 1:
        return say_model(bases[0])
    name, fields = split_spelling(bases[0].workload.name)
    return join_spelling(name, {field: size for field, size in fields.items() if field not in swept[0].values})


def _columns(swept: Sequence[Swept]) -> list[Column[Swept]]:
    names = [Column[Swept](name, lambda each, name=name: each.values[name]) for name in swept[0].values]
    layout = [
        dataclasses.replace(column, value=lambda each, of=column.value: of(each.advice.first) if each.advice else "")  # pyrefly: ignore[missing-attribute]
        for column in COLUMNS
    ]
    costs = [
        dataclasses.replace(column, value=lambda each, of=column.value: of(each.cost) if each.cost else "")  # pyrefly: ignore[missing-attribute]
        for column in _COSTS
        if column is not _DAYS or any(each.cost and each.cost.training.tokens is not None for each in swept)
    ]
    return [*names, *layout, *costs]  # pyrefly: ignore[bad-return]  # `replace` keeps the type of the rows


_DAYS = Column[StepCost]("days", lambda cost: f"{cost.whole_seconds / DAY:,.1f}")
_COSTS = (
    Column[StepCost]("tokens/s", lambda cost: cost.tokens, drop_priority=4),
    Column[StepCost]("MFU", lambda cost: cost.utilization.replace("less than ", "<")),
    _DAYS,
)
"""The columns of a layout's costs, besides the step."""
