"""What `samestep predict --validate` prints: predictions beside what others measured and published."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from samestep.common.evidence.measured import read_rows
from samestep.common.evidence.validation import (
    FAR,
    Compared,
    Score,
    by_group,
    carried_rows,
    compare,
    fitted_machine,
    score,
    suspected_cause,
    unseen_machine,
)
from samestep.experiments.formats import Case, Document
from samestep.experiments.text import bullets, fill, github, screen_width


@dataclasses.dataclass(frozen=True)
class Validation:
    """Predictions that were held against measurements.

    Attributes:
        title: What was measured, and by whom.
        split: Which rows the constants were fitted to, in sentences.
        compared: The rows.
        causes: What may have made the rows fast or slow that are far off, by their names.
        fitted: The score with the constants that the rows themselves were fitted to; None where there are none.
    """

    title: str
    split: str
    compared: Sequence[Compared]
    causes: Mapping[str, str]
    fitted: Score | None = None


def of_vtrain(rows: Path | None) -> Validation:
    """Predicts vTrain's measured iterations.

    Args:
        rows: A file with more of them; the carried ones, unless given.

    Raises:
        ConfigError: The file cannot be read or lacks columns.
    """
    carried, measured = carried_rows(), list(carried_rows()) if rows is None else read_rows(rows)
    seen = sum(row in carried for row in measured)
    compared = compare(measured, unseen_machine)
    split = (
        f"The constants of {'a100-80gb' if rows else 'the machine'} were fitted to {len(carried)} carried rows. {seen} of these "
        f"{len(measured)} rows are among them; each of those is predicted with constants of another fit, which left out all rows "
        "of its hidden size. So no row is predicted with constants that have seen it."
    )
    causes = {
        each.name: suspected_cause(row, each, measured)
        for row, each in zip(measured, compared, strict=True)
        if abs(each.error) > FAR
    }
    known = score(compare(measured, fitted_machine)) if seen else None
    title = "Iterations of GPT training on A100 that vTrain measured (arXiv 2312.12391)"
    return Validation(title, split, compared, causes, known)


VALIDATIONS: Mapping[str, Callable[[Path | None], Validation]] = {"vtrain": of_vtrain}
"""What predictions are held against -> how. Only the first takes other rows."""


def document(validation: Validation) -> Document:
    """Makes the document of a validation.

    Args:
        validation: What was held against what.
    """
    compared, groups = validation.compared, by_group(validation.compared)
    whole = dataclasses.asdict(score(compared))
    far = [_record(each, validation.causes) for each in compared if abs(each.error) > FAR]
    record = {
        **whole,
        "groups": groups,
        "fitted": validation.fitted,
        "split": validation.split,
        "far_rows": far,
    }
    cases = [Case(each.name, "failure" if abs(each.error) > FAR else "passed", _told(each.error)) for each in compared]
    rows = [_record(each, validation.causes) for each in compared]
    return Document("samestep predict --validate", lambda: text(validation, screen_width()), record, rows, cases)


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
    return f"{error:+.1%}"


def _cells(name: str, found: Score) -> list[str]:
    regret = "" if found.regret is None else f"{found.regret:.1%}"
    return [name, str(found.rows), f"{found.mape:.1%}", f"{found.max_error:.0%}", str(found.far), regret]


def text(validation: Validation, width: int) -> str:
    """Makes what people read: the errors of each group, and the rows that are far off.

    Args:
        validation: What was held against what.
        width: Characters of a line.
    """
    headers = ["rows", "number", "mean error", "largest", f"beyond {FAR:.0%}", "regret"]
    groups = [_cells(name, found) for name, found in by_group(validation.compared).items()]
    groups.append(_cells("all", score(validation.compared)))
    if validation.fitted:
        groups.append(_cells("all, with constants fitted to them", validation.fitted))
    parts = [fill(f"{validation.title}. {validation.split}", width), github(headers, groups, width)]
    far = [each for each in validation.compared if abs(each.error) > FAR]
    if far:
        listed = [
            f"{each.name}: {_told(each.error)}{'; ' if each.name in validation.causes else ''}"
            f"{validation.causes.get(each.name, '')}"
            for each in sorted(far, key=lambda each: -abs(each.error))
        ]
        parts.append(f"Beyond {FAR:.0%}, with the suspected cause:\n{bullets(listed, width)}")
    meaning = "regret: by how much the layout that is ranked first is slower than the fastest measured one, as the mean over model, GPUs and batch"
    return "\n\n".join([*parts, bullets([meaning], width)])
