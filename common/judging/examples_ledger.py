"""Checks that every example of every counted step was gathered once, by comparing the processes' notes with the run's order."""

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Sequence

import numpy as np

from samestep.common.batch import batches
from samestep.common.gathering import GatheredPart, GatheredSteps, digest_examples


@dataclasses.dataclass(frozen=True)
class Attempted:
    """What one attempt at a run contributed.

    Attributes:
        number: The number of the attempt, from 1.
        num_processes: How many processes gathered examples.
        first: Its first step.
        end: The step after the last one that counts.
        gathered: The role of each of its processes, and what it gathered in these steps.
    """

    number: int
    num_processes: int
    first: int
    end: int
    gathered: tuple[tuple[str, GatheredSteps], ...]


def kept(entries: Sequence[tuple[int, str, GatheredSteps]]) -> list[Attempted]:
    """Returns the attempts as far as they count: from its first step on, a later attempt replaces the earlier ones.

    Args:
        entries: (attempt, role of the process, what it gathered).
    """
    found: list[Attempted] = []
    for number in sorted({each for each, _, _ in entries}):
        own = tuple((role, gathered) for each, role, gathered in entries if each == number)
        first = min(gathered.first for _, gathered in own)
        found = [_until(each, first) for each in found if each.first < first]
        found.append(Attempted(number, len({role for role, _ in own}), first, max(each.end for _, each in own), own))
    return found


def _until(attempted: Attempted, step: int) -> Attempted:
    gathered = tuple(each for each in attempted.gathered if each[1].first < step)
    return dataclasses.replace(attempted, end=min(attempted.end, step), gathered=gathered)


def find_gap(attempts: Sequence[Attempted], num_examples: int, size: int, seed: int, end: int) -> str:
    """Looks for an example that was lost, gathered twice, or replaced by another one.

    Args:
        attempts: The attempts as far as they count.
        num_examples: The number of examples of the data set.
        size: The GLOBAL batch size.
        seed: The run's seed.
        end: The step after the last of the run.

    Returns:
        What is wrong; "" if every example of every step was gathered once, or equally often.
    """
    step = attempts[0].first
    for attempted in attempts:
        for (first, until), own in itertools.groupby(
            sorted(attempted.gathered, key=lambda each: (each[1].first, each[1].end)),
            key=lambda each: (each[1].first, each[1].end),
        ):
            if first != step:
                return f"step {step} was gathered by no process" if first > step else f"step {first} was gathered twice"
            found = [*own]
            if wrong := _uneven([part for _, each in found for part in each.parts], size):
                return f"steps {first} to {until - 1}: {wrong}"
            for role, each in found:
                if each.sha256 != _digest(each, num_examples, size, seed):
                    return f"steps {first} to {until - 1}: {role} gathered different examples from those of these steps"
            step = until
    return "" if step == end else f"step {step} was gathered by no process"


def _uneven(parts: Sequence[GatheredPart], size: int) -> str:
    """Finds a place of the batch that was gathered more or less often than others."""
    across = math.lcm(*(part.positions for part in parts))
    counts = np.zeros((size, across), int)
    for part in parts:
        width = across // part.positions
        counts[part.start : part.stop, part.position * width : (part.position + 1) * width] += 1
    if counts.min() == counts.max():
        return ""
    usual = int(np.bincount(counts.ravel()).argmax())
    place = int(np.argwhere(counts != usual)[0, 0])
    return f"the example in place {place} was gathered {counts[place].min()} times, and others {usual} times"


def _digest(gathered: GatheredSteps, num_examples: int, size: int, seed: int) -> str:
    """Computes the digest of the examples that the run's order has in these places."""
    digest, nothing = hashlib.sha256(), np.empty((num_examples, 0))
    planned = batches(nothing, nothing, size, seed, gathered.first)
    for batch in itertools.islice(planned, gathered.end - gathered.first):
        places = [batch.indices[part.start : part.stop] for part in gathered.parts]
        digest_examples(digest, batch.step, np.concatenate(places))
    return digest.hexdigest()
