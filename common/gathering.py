"""Records which examples of each batch a process actually gathers, for the ledger of examples."""

import dataclasses
import hashlib
import itertools
from typing import NamedTuple

import numpy as np


class GatheredPart(NamedTuple):
    """Neighbouring places of a GLOBAL batch, and a part of each example's positions.

    Attributes:
        start: The first place.
        stop: The place after the last.
        position: The number of one of the equal parts of the positions, from 0.
        positions: The number of these parts.
    """

    start: int
    stop: int
    position: int
    positions: int


@dataclasses.dataclass(frozen=True)
class GatheredSteps:
    """Steps in which a process gathered the same places.

    Attributes:
        first: The first step.
        end: The step after the last.
        parts: The places, in order.
        sha256: The digest of the examples in these places, step by step: see `digest_examples`.
    """

    first: int
    end: int
    parts: tuple[GatheredPart, ...]
    sha256: str


def digest_examples(digest: "hashlib._Hash", step: int, indices: np.ndarray) -> None:
    """Adds a step to a digest.

    Args:
        digest: The digest.
        step: The number of the step.
        indices: The examples in the places of each part, one part after the other.
    """
    digest.update(np.concatenate([[step], indices]).astype("<i8").tobytes())


class Gathering:
    """Records which examples `Batch.rows` returns."""

    def __init__(self) -> None:
        """Starts without records."""
        self._noted: dict[int, dict[tuple[int, int, int, int], np.ndarray]] = {}
        self._parts: tuple[GatheredPart, ...] = ()
        self._first, self._end, self._digest = 0, 0, hashlib.sha256()
        self._done: list[GatheredSteps] = []

    def note(self, step: int, start: int, indices: np.ndarray, position: tuple[int, int]) -> None:
        """Notes which examples are being gathered.

        Args:
            step: The step.
            start: The first place in the GLOBAL batch.
            indices: The examples in the places from there on.
            position: The number of the part of their positions, from 0, and the number of parts.
        """
        self._noted.setdefault(step, {})[(start, len(indices), *position)] = indices

    def close(self) -> None:
        """Digests the steps that were noted, all of which must have ended."""
        for step in sorted(self._noted):
            places: dict[tuple[int, int], dict[int, int]] = {}
            for (start, _, *position), indices in self._noted.pop(step).items():
                places.setdefault((position[0], position[1]), {}).update(enumerate(indices.tolist(), start))
            parts = tuple(part for position in sorted(places) for part in _runs(sorted(places[position]), position))
            if (parts, step) != (self._parts, self._end):
                self._finish()
                self._parts, self._first, self._digest = parts, step, hashlib.sha256()
            self._end = step + 1
            found = [places[part.position, part.positions][place] for part in parts for place in range(*part[:2])]
            digest_examples(self._digest, step, np.array(found, np.int64))

    def take(self) -> list[GatheredSteps]:
        """Returns what was digested since the last call."""
        self.close()
        self._finish()
        done, self._done, self._parts = self._done, [], ()
        return done

    def _finish(self) -> None:
        if self._parts:
            self._done.append(GatheredSteps(self._first, self._end, self._parts, self._digest.hexdigest()))


def _runs(places: list[int], position: tuple[int, int]) -> list[GatheredPart]:
    """Makes parts from places; neighbours are in the same part."""
    ends = [place for place, following in zip(places, [*places[1:], None], strict=True) if following != place + 1]
    starts = [places[0], *(place for before, place in itertools.pairwise(places) if place != before + 1)]
    return [GatheredPart(start, end + 1, *position) for start, end in zip(starts, ends, strict=True)]
