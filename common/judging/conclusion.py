"""The sentence that a missed parity comes to: its cause first, and whose it is."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence

from samestep.common.errors import name_some

_MODELS = re.compile(
    r"not the same function: (?P<size>[^,]+), all of it (?P<cause>.+?)[;:] (?P<how>.+): the strategy is right(?P<rest>.*)"
)
"""A reason that clears the strategy, as `attribute` writes it."""
_PORT = "the port"
_SHOWN = 20
"""Of the rows that a sentence names."""


@dataclasses.dataclass(frozen=True)
class _Model:
    """Why the model itself is another function, whatever the strategy does.

    Attributes:
        what: As a clause.
        evidence: How that was found, as a sentence.
    """

    what: str
    evidence: str


def explain_missed(names: Sequence[str], reason: str) -> str:
    """Says why rows are not the same step, the cause before the numbers that show it.

    Args:
        names: The names of the rows.
        reason: What all of their verdicts say.
    """
    if (model := _blamed(reason)) is None:
        return f"{name_some(names, _SHOWN)} did not take the same step: {reason}"
    return f"{_cleared(names, model)}. {model.evidence}"


def conclude_missed(missed: Iterable[tuple[str, str]]) -> str:
    """Puts the verdicts on rows that are not the same step into one sentence for each cause, without the evidence.

    Args:
        missed: The name of each row, with the reason of its verdict.
    """
    wrong: dict[str, list[str]] = {}
    cleared: dict[str, tuple[_Model, list[str]]] = {}
    for name, reason in missed:
        if model := _blamed(reason):
            cleared.setdefault(model.what, (model, []))[1].append(name)
        else:
            wrong.setdefault(reason, []).append(name)
    said = [f"{name_some([*itertools.chain(*wrong.values())], _SHOWN)} did not take the same step"] if wrong else []
    if len(wrong) == 1 and (reason := next(iter(wrong))):
        said = [f"{said[0]}: {reason}"]
    return "; ".join([*said, *(_cleared(names, model) for model, names in cleared.values())])


def _blamed(reason: str) -> _Model | None:
    """Returns what of the model a verdict blames; None if it may be the strategy."""
    found = _MODELS.fullmatch(reason)
    if found is None:
        return None
    of_what = "as torch's" if found["cause"] == _PORT else f"on shards: {found['cause']}"
    return _Model(
        f"your model is not the same function {of_what}",
        f"The losses are off by {found['size']}; {found['how']}{found['rest']}",
    )


def _cleared(names: Sequence[str], model: _Model) -> str:
    return f"{name_some(names, _SHOWN)} {'are' if names[1:] else 'is'} right; {model.what}"
