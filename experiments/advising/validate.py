"""What `samestep predict --validate` prints: predictions beside published measurements."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from samestep.common.errors import count, percent
from samestep.common.files.reading import read_toml
from samestep.common.seconds import published_rows as published
from samestep.common.seconds import validation as fitted
from samestep.common.seconds.measured_iterations import MeasuredIteration, read_rows
from samestep.common.seconds.validation import FAR, Compared, Score, by_group, compare, score
from samestep.experiments.printing.formats import Case, Document
from samestep.experiments.printing.text import bullets, fill, github, paragraphs, screen_width


@dataclasses.dataclass(frozen=True)
class Validation:
    """Predictions that are compared with measurements.

    Attributes:
        title: What was measured, and by whom.
        split: Which rows the constants were fitted to, in sentences.
        compared: The rows.
        causes: Name of a row that is far off -> the suspected reason.
        others: What other constants were fitted to -> the scores of the same rows with them.
        far: A row with a larger relative error is listed with its cause.
    """

    title: str
    split: str
    compared: Sequence[Compared]
    causes: Mapping[str, str]
    others: Mapping[str, Score] = dataclasses.field(default_factory=dict)
    far: float = FAR


def of_vtrain(rows: Path | None) -> Validation:
    """Predicts vTrain's measured iterations.

    Args:
        rows: A file with more of them; by default the carried ones.

    Raises:
        ConfigError: The file cannot be read or lacks columns.
    """
    carried = fitted.carried_rows()
    measured = carried if rows is None else read_rows(rows)
    known = [row for row in measured if fitted.is_carried(row)]
    compared = compare(measured, fitted.unseen_machine)
    split = f"Constants were fitted to the {len(carried)} rows that come with samestep. "
    if known:
        which = f"Of these {count(len(measured), 'row')}, {len(known)} {'is' if len(known) == 1 else 'are'} among them, and each"
        which = "Each" if known == measured else f"{which} of those"
        split += (
            f"{which} is predicted with the constants of another fit, which left out all rows of its model, so no row is "
            "predicted with constants that were fitted to it"
        )
    else:
        split += "None of these rows is among them: they are predicted with the constants of the machine files"
    causes = {
        each.name: fitted.suspected_cause(row, each, measured)
        for row, each in zip(measured, compared, strict=True)
        if abs(each.error) > FAR
    }
    title = "Iterations of GPT training on A100 that vTrain measured (arXiv 2312.12391)"
    return Validation(title, split, compared, causes, _with_other_constants(known) if known else {})


def _with_other_constants(rows: Sequence[MeasuredIteration]) -> dict[str, Score]:
    """Returns the errors of the carried rows with constants fitted without their family, and with those fitted to them."""
    unseen = by_group(compare(rows, fitted.unseen_family_machine))
    families = {f"{name}, its hidden size left out": each for name, each in unseen.items() if "," in name}
    return (
        families
        | fitted.extrapolated(rows)
        | {"all, with the constants that were fitted to them": score(compare(rows, fitted.fitted_machine))}
    )


_UNSEEN = "No constant was fitted to any of them"
_OF_OTHERS = "Two shares of an H100 were fitted to steps that llm-foundry published, none of which is among them"
_LEFT_OUT = (
    "Two shares of an H100 were fitted to these steps; those of each model are predicted with a fit that left them out"
)


def _of_published(
    name: str, title: str, compared: Callable[[], list[Compared]], split: str, rows: Path | None
) -> Validation:
    """Compares the predictions with a published table, which no other rows can replace."""
    causes = read_toml(published.CAUSES).get(name, {})
    return Validation(title, split, compared(), causes, far=published.FAR)  # pyrefly: ignore[bad-argument-type]


_TABLES = {
    "torchtitan": ("Llama 3.1 on 8 to 512 H100, as torchtitan published it", published.torchtitan, _OF_OTHERS),
    "llm-foundry": ("MPT on 8 to 64 H100, as llm-foundry published it", published.llm_foundry, _LEFT_OUT),
    "llm-foundry-a100": ("MPT on 8 to 64 A100, as llm-foundry published it", published.llm_foundry_a100, _UNSEEN),
    "megatron-a100": (
        "GPT on 8 to 3,360 A100 under Megatron-LM, as its papers published it",
        published.megatron_a100,
        _UNSEEN,
    ),
    "megatron": ("Memory of GPT on H100, as Megatron-LM's tests expect it", published.megatron, _UNSEEN),
}
VALIDATIONS: Mapping[str, Callable[[Path | None], Validation]] = {
    "vtrain": of_vtrain,
    **{name: functools.partial(_of_published, name, *table) for name, table in _TABLES.items()},
}
"""Name of a set of measurements -> its validation. Only the first one takes other rows."""


def document(validation: Validation) -> Document:
    """Makes the document of a validation.

    Args:
        validation: The compared predictions and measurements.
    """
    compared, rows = validation.compared, [_record(each, validation.causes) for each in validation.compared]
    record = {
        **dataclasses.asdict(score(compared)),
        "groups": by_group(compared),
        "with_other_constants": validation.others,
        "split": validation.split,
        "far_rows": [row for row, each in zip(rows, compared, strict=True) if abs(each.error) > FAR],
    }
    cases = [Case(each.name, "failure" if abs(each.error) > FAR else "passed", _told(each.error)) for each in compared]
    return Document("samestep predict --validate", lambda: text(validation), record, rows, cases)


def _record(each: Compared, causes: Mapping[str, str]) -> dict[str, str | float]:
    return {
        "row": each.name,
        "group": each.groups[-1],
        "measured": each.measured,
        "predicted": each.predicted,
        "error": each.error,
        "suspected_cause": causes.get(each.name, ""),
    }


def _told(error: float) -> str:
    return f"{100 * error:+z.1f} %"


def _cells(name: str, found: Score) -> list[str]:
    regret = "" if found.regret is None else percent(found.regret, 1)
    return [name, str(found.rows), percent(found.mape, 1), percent(found.max_error), str(found.far), regret]


def errors(validation: Validation, width: int | None = None) -> str:
    """Returns the table of the errors of each group.

    Args:
        validation: The compared predictions and measurements.
        width: Characters of a line; as many as it needs, unless given.
    """
    headers = ["rows", "number", "mean error", "largest", f"beyond {percent(FAR)}", "regret"]
    groups = by_group(validation.compared)
    lines = [_cells(name, found) for name, found in groups.items()]
    lines += [_cells("all", score(validation.compared))] if len(groups) > 1 else []
    lines += [_cells(name, found) for name, found in validation.others.items()]
    return github(headers, lines, width)


def far_rows(validation: Validation, width: int) -> str:
    """Returns the rows that are far off, each with the suspected cause; "" if there are none.

    Args:
        validation: The compared predictions and measurements.
        width: Characters of a line.
    """
    far = [each for each in validation.compared if abs(each.error) > validation.far]
    listed = [
        f"{each.name}: {_told(each.error)}{'; ' if each.name in validation.causes else ''}"
        f"{validation.causes.get(each.name, '')}"
        for each in sorted(far, key=lambda each: -abs(each.error))
    ]
    return f"Beyond {percent(validation.far)}, with the suspected cause:\n{bullets(listed, width)}" if listed else ""


def text(validation: Validation) -> str:
    """Makes what people read: the errors of each group, and the rows that are far off."""
    width = screen_width()
    meaning = (
        "regret: by how much the layout that is ranked first is slower than the fastest measured one, as the mean over model, "
        "GPUs and batch"
    )
    meanings = [] if score(validation.compared).regret is None else [meaning]
    caption = fill(f"{validation.title}. {validation.split}.")
    return paragraphs(caption, errors(validation, width), far_rows(validation, width), bullets(meanings))
