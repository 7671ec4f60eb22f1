"""Draws the pictures of docs/: `python -m experiments.docs_pictures [CELL ...]`; every row, unless some are named."""

from collections.abc import Sequence
from pathlib import Path

from samestep.common.catalog import catalogue
from samestep.common.errors import Unavailable
from samestep.experiments.arguments import run_command
from samestep.experiments.page.svg import file_of
from samestep.experiments.picture import draw

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
_MESHES = {"torch:hybrid": "+mesh=pipe=2,tensor=2", "tf:dtensor": "+mesh=tensor=2"}
"""Rows with several axes show what is theirs: several at once, or another one than the rows before them."""


def cells() -> list[str]:
    """The cell of each row that has a picture: all but the oracle's."""
    names = [f"{framework}:{row.name}" for framework, row in catalogue() if framework != "numpy"]
    return [name + _MESHES.get(name, "") for name in names]


def place(cell: str) -> Path:
    """The file of a cell's picture.

    Args:
        cell: One of `cells`.
    """
    return FOLDER / (cell.partition("+")[0].replace(":", "-") + ".svg")


def main(arguments: Sequence[str]) -> int:
    """Draws what can run here; the picture of what cannot stays as it is."""
    from samestep.common.runtime.parent.launcher import Launcher  # here: --help imports no NumPy

    FOLDER.mkdir(exist_ok=True)
    with Launcher() as launcher:
        for cell in arguments or cells():
            try:
                place(cell).write_text(file_of(draw(launcher, [cell])))
                print(place(cell))
            except Unavailable as error:
                print(f"{cell}: not drawn again: {error}")
    return 0


if __name__ == "__main__":
    run_command(main)
