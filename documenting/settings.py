"""Writes `samestep/settings.py` from the flags: `python -m documenting.settings`."""

import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from samestep.common.catalog import catalogue
from samestep.common.flags import flags
from samestep.common.request import RunConfig
from samestep.common.techniques import Techniques
from samestep.experiments.advising.prediction import Assumptions
from samestep.experiments.cli.ending import run_command
from samestep.experiments.predict import PREDICTED

FILE = Path(__file__).resolve().parents[1] / "samestep" / "settings.py"
_IN_THE_CELL_OR_OF_NO_USE = ("framework", "strategy", "prepare")
_HEADING = '''"""The keyword arguments of `samestep.run`, `compare` and `predict`: the flags of the commands, named as fields.

Type checkers and editors cannot read them off the dataclasses, so `python -m documenting.settings` writes them.
"""

from typing import TypedDict
'''
Kinds = Mapping[str, str]
"""The fields of a class, by name, with their types as Python spells them."""


def main(arguments: Sequence[str]) -> int:
    """Writes the file."""
    FILE.write_text(text())
    return 0


def text() -> str:
    """Returns the text of the file, generated from the flags."""
    techniques, options = _kinds(Techniques), _together(row.options for _, row in catalogue())
    request = {name: kind for name, kind in _kinds(RunConfig).items() if name not in _IN_THE_CELL_OR_OF_NO_USE}
    shared = {name: kind for name, kind in request.items() if flags(RunConfig)[name].metadata["compared"]}
    alone = {name: kind for name, kind in request.items() if name not in shared}
    predicted = {name: kind for name, kind in request.items() if name in PREDICTED}
    parts = [
        _class("CompareSettings", (), "compare --help", "What all rows of a comparison share", shared | techniques),
        _class("OptionSettings", (), "strategies CELL", "The options of single strategies", options),
        _class(
            "RunSettings",
            ("CompareSettings", "OptionSettings"),
            "run --help",
            "What one run takes, with its mesh, where it starts and the options of its strategy",
            alone,
        ),
        _class(
            "PredictSettings",
            ("OptionSettings",),
            "predict --help",
            "What a prediction takes",
            predicted | _kinds(Assumptions) | techniques,
        ),
    ]
    return "\n\n".join([_HEADING, *parts])


def _together(owners: Iterable[type]) -> Kinds:
    return {name: kind for owner in owners for name, kind in _kinds(owner).items()}


def _kinds(owner: type) -> dict[str, str]:
    hints = typing.get_type_hints(owner)
    return {name: hints[name].__name__ if isinstance(hints[name], type) else str(hints[name]) for name in flags(owner)}


def _class(name: str, bases: Sequence[str], command: str, what: str, kinds: Kinds) -> str:
    """Returns the source of a class.

    Args:
        name: The name of the class.
        bases: The classes that it inherits from.
        command: The command that explains each field.
        what: A description of the fields.
        kinds: The fields.
    """
    fields = "".join(f"    {field}: {kind}\n" for field, kind in kinds.items())
    head = f"class {name}({', '.join(bases or ('TypedDict',))}, total=False):"
    return f'{head}\n    """{what}; `samestep {command}` explains each."""\n\n{fields}'


if __name__ == "__main__":
    run_command(main)
