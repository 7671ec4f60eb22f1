"""What one record alone proves: facts only, no suspicions.

Ranks that hold a whole tensor under one name are replicas if their initial weights were the same in every bit.
"""

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from samestep.common.errors import ConfigError, count
from samestep.common.files.reading import Unreadable, open_plain
from samestep.common.mistakes.mistake import few
from samestep.common.steps.projections import Piece
from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import INITIAL, RecordedStep, RecordHeader, rank_files
from samestep.experiments.recording.exchange import ExchangeFacts
from samestep.experiments.recording.pass_facts import PassFacts

_ENOUGH = 3
"""Something that happens in every step is reported after this number of steps."""


class RecordFacts:
    """The facts about the steps of a record. Each step is added once, and none is kept."""

    def __init__(self, headers: Sequence[RecordHeader]) -> None:
        """Starts without a step.

        Args:
            headers: The headers of the ranks.
        """
        self.headers, self.steps, self.looked_at = headers, 0, 0
        self.is_same_start, self.drifted = False, dict[str, tuple[int, int]]()  # name -> first step and rank
        self.has_gradient = [np.zeros(len(header.tensors), bool) for header in headers]
        self.has_moved = [np.zeros(len(header.tensors), bool) for header in headers]
        self.same_examples, self.compared = Counter[tuple[int, int]](), 0
        self.passes = PassFacts(headers[0].framework)
        self.skipped, self.evaluated, self.used_again = list[int](), list[int](), list[int]()
        # The bits of the gradients of a step with a loss, and of those after it without one.
        self._used: np.ndarray | None = None
        self.schedule = Counter[int]()
        self._is_whole, self._initial = _whole(headers), list[np.ndarray]()
        self.exchange = ExchangeFacts([each.name for each in headers[0].tensors], self._is_whole)

    def add(self, ranks: Sequence[RecordedStep]) -> None:
        """Adds one step.

        Args:
            ranks: The step as each rank recorded it.
        """
        first = ranks[0]
        if first.number == 0 and sum(bool(step.rows) for step in ranks) == 1 < len(ranks):
            self._is_whole &= False  # the stages of a pipeline, which may be seeded alike
        seen = [step.stats["weight"]["bits"] for step in ranks if step.stats is not None]
        if len(seen) == len(ranks):
            self._add_weights(first.number, seen)
        if first.number == INITIAL:
            return
        self.steps += 1
        self.skipped += [first.number] if first.is_skipped else []
        self.evaluated += [first.number] if "evaluated_calls" in first.counts else []
        if len(seen) == len(ranks):
            self.looked_at += 1
            self._add_use(first)
            for found, step in zip(self.has_gradient, ranks, strict=True):
                stats = step.stats or {}
                for gradients in (stats[phase] for phase in ("gradient", "stray") if phase in stats):
                    found |= ~np.isnan(gradients["square"]) | (gradients["bits"] != 0)
        if "schedule_steps" in first.counts:
            self.schedule[first.counts["schedule_steps"]] += 1
        self._add_examples(ranks)
        self.exchange.add(ranks)

    def _add_weights(self, number: int, bits: Sequence[np.ndarray]) -> None:
        if number == INITIAL:
            self._initial = [*bits]
            self.is_same_start = all(self._differing(bits[0], each).size == 0 for each in bits[1:])
            self._leave_out_stages(bits)
            return
        for moved, before, now in zip(self.has_moved, self._initial, bits, strict=True):
            moved |= before != now
        for rank, each in enumerate(bits[1:], 1) if self.is_same_start else ():
            for place in self._differing(bits[0], each):
                self.drifted.setdefault(self.headers[0].tensors[place].name, (number, rank))

    def _leave_out_stages(self, bits: Sequence[np.ndarray]) -> None:
        """Leaves out tensors with different initial weights: stages of a pipeline may have tensors with the same names."""
        shared = min(map(len, bits))
        alike = np.arange(len(self._is_whole)) < shared
        alike[:shared] = np.all([each[:shared] == bits[0][:shared] for each in bits], axis=0)
        matrices = self._is_whole & [len(each.piece.shape) > 1 for each in self.headers[0].tensors]
        self._is_whole &= alike & bool((alike & matrices).any() or not matrices.any())

    def _add_use(self, step: RecordedStep) -> None:
        """Notes a step without a loss, and the gradients of the step with a loss before it."""
        assert step.stats is not None
        bits = step.stats["gradient"]["bits"]
        if step.losses or step.rows:
            self._used = bits
        elif self._used is not None and np.array_equal(bits, self._used) and bits.any():
            self.used_again.append(step.number)
        else:
            self._used = None

    def _differing(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Returns the places of the parameters that two ranks hold whole, and that differ."""
        shared = min(len(one), len(other))
        return np.flatnonzero((one[:shared] != other[:shared]) & self._is_whole[:shared])

    def _add_examples(self, ranks: Sequence[RecordedStep]) -> None:
        self.passes.add(ranks)
        if any(not step.rows for step in ranks):
            return
        self.compared += 1
        for (one, step), (other, another) in itertools.combinations(enumerate(ranks), 2):
            self.same_examples[one, other] += Counter(step.rows) == Counter(another.rows)

    def names(self, found: Sequence[np.ndarray]) -> list[str]:
        """Returns the trained parameters for which no rank has a property.

        Args:
            found: Whether each tensor of each rank has the property.
        """
        has = dict[str, bool]()
        for header, each in zip(self.headers, found, strict=True):
            for tensor, is_found in zip(header.tensors, each, strict=True):
                if tensor.is_trained and tensor.role == "parameter" and math.prod(tensor.piece.size):
                    has[tensor.name] = has.get(tensor.name, False) or bool(is_found)
        return [name for name, is_found in has.items() if not is_found]


def _whole(headers: Sequence[RecordHeader]) -> np.ndarray:
    """Returns whether every rank holds the whole parameter, for each place of a tensor."""
    return np.array(
        [
            tensor.role == "parameter"
            and tensor.piece == Piece.whole(tensor.piece.shape)
            and all(header.tensors[place : place + 1] == (tensor,) for header in headers)
            for place, tensor in enumerate(headers[0].tensors)
        ]
    )


def read_facts(out: Path) -> RecordFacts | None:
    """Reads a record; None if it has no step.

    Args:
        out: Its directory.
    """
    with contextlib.ExitStack() as stack, contextlib.suppress(ConfigError, Unreadable):
        readers = [read_rank(stack.enter_context(open_plain(path)), str(path)) for path in rank_files(out)]
        if not readers:
            return None
        seen = RecordFacts([header for header, _ in readers])
        for steps in zip(*(steps for _, steps in readers), strict=False):
            seen.add(steps)
        return seen
    return None


def facts_of(out: Path) -> list[str]:
    """Returns the facts about a record whose script has ended, as lines.

    Args:
        out: The directory of the record.
    """
    if (seen := read_facts(out)) is None:
        return []
    tensors, ranks = len(seen.headers[0].tensors), len(seen.headers)
    lines = [f"recorded {count(seen.steps, 'step')}, {count(ranks, 'rank')}, {count(tensors, 'tensor')} in {out}"]
    if ranks < seen.headers[0].world:
        lines.append(f"only {ranks} of {seen.headers[0].world} processes took a step.")
    found = _of_replicas(seen), seen.exchange.lines(), _of_data(seen), seen.passes.lines(), _of_training(seen)
    return [*lines, *itertools.chain(*found)]


def _of_replicas(seen: RecordFacts) -> Iterator[str]:
    for name, (step, rank) in itertools.islice(seen.drifted.items(), 1):
        more = f" and {count(len(seen.drifted) - 1, 'other tensor')}" if len(seen.drifted) > 1 else ""
        yield f"replicas differ: since step {step}, {name}{more} on ranks 0 and {rank}; their initial weights were the same."


def _of_data(seen: RecordFacts) -> Iterator[str]:
    layouts = {*seen.headers[0].layouts}
    if (seen.is_same_start or layouts & {"ddp", "deepspeed", "fsdp1", "fsdp2"}) and "tp" not in layouts:
        for (one, other), times in seen.same_examples.items():
            if times == seen.compared >= _ENOUGH:
                yield f"ranks {one} and {other} got the same examples at each of {times} steps."


def _of_training(seen: RecordFacts) -> Iterator[str]:
    if seen.skipped:
        yield f"the gradient scaler skipped {count(len(seen.skipped), 'step')}, the first at step {seen.skipped[0]}."
    if seen.used_again:
        yield (
            f"{count(len(seen.used_again), 'step')} had no backward pass, the first at step {seen.used_again[0]}: the optimizer "
            "updated again with the gradients of the step before."
        )
    if seen.evaluated:
        yield (
            f"the model was trained in evaluation mode at {count(len(seen.evaluated), 'step')}, first at step "
            f"{seen.evaluated[0]}; dropout and running statistics, if it has any, were off."
        )
    within = "" if seen.looked_at == seen.steps else f" at the {count(seen.looked_at, 'step')} that were looked at"
    unmoved = seen.names(seen.has_moved)  # a target network moves without a gradient
    lacking = [name for name in seen.names(seen.has_gradient) if name in unmoved] if seen.looked_at else []
    if lacking:
        yield f"had no gradient at any update{within}: {few(lacking)}."
    if seen.looked_at - len(seen.skipped) >= _ENOUGH:
        still = [name for name in unmoved if name not in lacking]
        if still:
            yield f"got gradients but never moved{within}: {few(still)}."
    (times, often), *others = seen.schedule.most_common() or [(0, 0)]
    if times > 1 and not others and often >= _ENOUGH:
        yield f"the learning-rate schedule took {times} steps at each of {often} optimizer steps."
