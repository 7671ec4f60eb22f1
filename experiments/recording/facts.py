"""What one record alone proves: facts, and never a suspicion."""

from pathlib import Path

from samestep.common.files.reading import open_plain
from samestep.common.steps.record import rank_files, read_rank


def facts_of(out: Path) -> list[str]:
    """The lines that a record deserves when its script has ended.

    Args:
        out: The directory of the record.
    """
    files = rank_files(out)
    if not files:
        return []
    with open_plain(files[0]) as file:
        header, steps = read_rank(file, str(files[0]))
        number = sum(1 for _ in steps) - 1
    ranks = f"{len(files)} rank{'s' * (len(files) > 1)}"
    return [f"recorded {number} steps, {ranks}, {len(header.tensors)} tensors in {out}"]
