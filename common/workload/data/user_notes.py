"""Finds what users should know about their data before training; it may be intended, so it is noted and not refused."""

from pathlib import Path

import numpy as np

from samestep.common.errors import percent
from samestep.common.workload.data.dataset import Split
from samestep.common.workload.data.user_file import LARGE
from samestep.common.workload.models.spec import ModelSpec

_MOST_NAMED = 5


def notes_on(path: str, model: ModelSpec, split: Split) -> list[str]:
    """Returns a note on each peculiarity: large numbers, and labels that look misnumbered.

    Args:
        path: The path of the user's file.
        model: The model, fitted to the data.
        split: The data in the file.
    """
    found = _on_large_numbers(split)
    if model.loss == "mean_squared_error":
        found += _on_whole_targets(split)
    elif (targets := model.targets()).shape == () and isinstance(targets.ids, int) and not targets.is_open:
        found += _on_labels(split, targets.ids)
    return [f"{Path(path).name}: {note}." for note in found]


def _on_large_numbers(split: Split) -> list[str]:
    notes = []
    for kind in ("inputs", "targets"):
        arrays = [getattr(split, f"{part}_{kind}") for part in ("train", "test")]
        if arrays[0].dtype.kind == "f" and (top := max(np.abs(array).max() for array in arrays)) > LARGE:
            line = f"train_{kind} / {top:g}`, `test_{kind} / {top:g}"
            notes.append(f"{kind} go up to {top:g}, and the initial weights suit about 1; scale them, as in `{line}`")
    return notes


def _on_whole_targets(split: Split) -> list[str]:
    if (split.train_targets % 1).any():
        return []
    return [
        "the targets are whole numbers stored as real ones: a regression; for classes, store `train_targets.astype(int)`"
    ]


def _on_labels(split: Split, num_classes: int) -> list[str]:
    trained, tested = (each[each >= 0] for each in map(np.unique, (split.train_targets, split.test_targets)))
    present, unseen, notes = np.union1d(trained, tested), np.setdiff1d(tested, trained), []
    if lowest := int(present[0]):
        notes.append(f"labels start at {lowest}, not at 0; give `train_targets - {lowest}`, `test_targets - {lowest}`")
    if missing := num_classes - lowest - len(present):
        before = np.diff([*present, num_classes]) > 1
        regression = ", or for a regression store `train_targets.astype(float)`" if missing > len(present) else ""
        notes.append(
            f"labels have gaps: {missing} of {num_classes} classes, such as {present[before][0] + 1}, have no example; "
            f"number them without gaps{regression}"
        )
    if len(unseen):
        named = ", ".join(map(str, unseen[:_MOST_NAMED])) + (", ..." if len(unseen) > _MOST_NAMED else "")
        share = np.isin(split.test_targets, unseen).mean()
        notes.append(f"no training example has label {named}, which {percent(share)} of the held-out examples have")
    return notes
