"""Handles networks that a script creates anew with the weights of an earlier one: both count as the same tensors.

For example, a model is loaded from a file in the middle of a run, or restored into a new object after an interruption.
"""

import collections
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from samestep.common.steps.record import RecordedTensor
from samestep.common.steps.recorded_run import ReadAnew, RecordedRun, RunStep, Sums

_LAST = re.compile(r"[a-z_]+(?=[^/.a-z]*$)")
"""The last part of a name, without the number that makes it unique."""


def _with_rows(
    steps: Iterable[RunStep], rows: Sequence[tuple[int, np.ndarray]], names: Mapping[str, str]
) -> Iterator[RunStep]:
    """Yields the steps of a run with the remaining tensors, each in the row that it has at that step.

    Args:
        steps: The steps.
        rows: (step, rows): the rows of the tensors from a step on, in order.
        names: The name of a tensor that counts as an earlier one -> the name of the earlier one.
    """
    later = collections.deque(rows)
    for step in steps:
        while len(later) > 1 and later[1][0] <= step.number:
            later.popleft()
        sums = {phase: each.take(later[0][1]) for phase, each in (step.sums or {}).items()}
        splits = [dataclasses.replace(each, name=names.get(each.name, each.name)) for each in step.splits]
        yield dataclasses.replace(step, sums=sums or None, splits=tuple(splits))


class _Seen:
    """What all steps show of tensors: when they had gradients, and which of them had the first weights of later ones."""

    def __init__(self, run: RecordedRun, groups: Sequence[Sequence[int]]) -> None:
        """Reads all steps.

        Args:
            run: The run.
            groups: The places of the tensors that were added together, in order.
        """
        self.first, self.last = (np.full(len(run.tensors), -1) for _ in range(2))
        self.alike = collections.defaultdict[int, set[int]](set)
        begun: Sums | None = None
        for step in run.steps:
            sums = step.sums or {}
            if begun is None:
                begun = sums.get("weight")
                continue
            if "gradient" in sums:
                is_given = ~np.isnan(sums["gradient"].square) | (sums["gradient"].bits != 0)
                self.last[is_given] = step.number
                self.first[is_given & (self.first < 0)] = step.number
            for group in groups if "weight" in sums else ():
                if (self.first[[*group]] < 0).all():
                    self._compare(group, begun, sums["weight"])

    def _compare(self, group: Sequence[int], begun: Sums, now: Sums) -> None:
        before = now.take(slice(group[0]))
        for place in group:
            self.alike[place] |= {*np.flatnonzero(before.are_as(begun.take(slice(place, place + 1)))).tolist()}


def with_networks_joined(run: RecordedRun, added: Sequence[Sequence[str]]) -> RecordedRun:
    """Identifies a network with an earlier one if it starts from that one's weights, and only it has been trained since then.

    Args:
        run: The run.
        added: The names of the tensors that were added together after the first step, in order.
    """
    places = {each.name: place for place, each in enumerate(run.tensors)}
    groups = [[places[name] for name in each] for each in added]
    if not groups:
        return run
    seen, roots = _Seen(run, groups), np.arange(len(run.tensors))
    rows = [(-1, roots.copy())]
    for group in groups:
        begin = min((first for first in seen.first[group].tolist() if first >= 0), default=None)
        if begin is not None and (found := _earlier(run, group, seen, begin)):
            now = rows[-1][1].copy()
            for place, other in found.items():
                roots[place] = roots[other]
                now[roots[other]] = place
            rows.append((begin, now))
    if len(rows) == 1:
        return run
    is_left = roots == np.arange(len(roots))
    names = {each.name: run.tensors[root].name for each, root in zip(run.tensors, roots, strict=True)}
    header = dataclasses.replace(run.header, tensors=tuple(run.tensors[place] for place in np.flatnonzero(is_left)))
    left = [(number, at[is_left]) for number, at in rows]
    return dataclasses.replace(
        run, header=header, steps=ReadAnew(functools.partial(_with_rows, run.steps, left, names))
    )


def _earlier(run: RecordedRun, group: Sequence[int], seen: _Seen, begin: int) -> dict[int, int]:
    """Returns the tensors that those of a network continue; empty unless all its parameters continue one, and some were trained.

    Args:
        run: The run.
        group: The places of the network's tensors.
        seen: What the steps show of all tensors.
        begin: The step at which its training begins.
    """
    found: dict[int, int] = {}
    for place in group:
        taken = {*found.values()}
        alike = [other for other in sorted(seen.alike[place] - taken) if seen.last[other] < begin]
        if run.tensors[place].role == "buffer":  # the first pass may have moved it before it was recorded
            alike += [other for other in range(group[0]) if other not in taken and seen.last[other] < 0]
        if alike := [other for other in alike if _kind(run.tensors[other]) == _kind(run.tensors[place])]:
            found[place] = alike[0]
    are_whole = all(place in found for place in group if run.tensors[place].role == "parameter")
    return found if are_whole and any(seen.last[other] >= 0 for other in found.values()) else {}


def _kind(tensor: RecordedTensor) -> tuple[object, ...]:
    last = _LAST.findall(tensor.name) if tensor.role == "buffer" else ()
    return tensor.role, tensor.dtype, tensor.piece.shape, *last
