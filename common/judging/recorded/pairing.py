"""Pairs the tensors of two records: by name with or without wrappers' prefixes, by shape and order, or by initial weights."""

import collections
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Sequence

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.judging.recorded.followers import pair_by_class, pair_followers, pair_only_network
from samestep.common.judging.recorded.verdict import layer_of
from samestep.common.steps.record import FOLLOWER, RecordedTensor
from samestep.common.steps.recorded_run import RecordedRun, Sums

_WRAPPERS = re.compile(
    r"(?:^|(?<=\.))(?:module|model|net|_forward_module|_fsdp_wrapped_module|_orig_mod|_checkpoint_wrapped_module)\."
)
"""The prefixes that DDP, FSDP, `torch.compile`, checkpointing and users add to a name, or between its parts."""

_MOST = 16
"""The largest number of parameters in a layer; a module with more contains layers, or lists of them."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pairing:
    """The tensors that two records have in common.

    Attributes:
        tensors: The tensors as A records them, in A's order.
        places: The place of each tensor in A and in B.
        only_a: Names of tensors that B lacks.
        only_b: Names of tensors that A lacks.
        strangers: Names of tensors that both have, in networks that no optimizer updates and that start from different numbers.
    """

    tensors: tuple[RecordedTensor, ...]
    places: tuple[np.ndarray, np.ndarray]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()

    @functools.cached_property
    def are_parameters(self) -> np.ndarray:
        """Whether each tensor is a parameter."""
        return np.array([tensor.role == "parameter" for tensor in self.tensors])

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """The number of elements of each tensor."""
        return np.array([np.prod(tensor.piece.shape, dtype=np.int64) for tensor in self.tensors], float)

    @functools.cached_property
    def of_same_terms(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of biases, and for each the place of the tensor of its layer that multiplies the inputs.

        The gradient of a bias is a sum of d over all rows, and that of a weight is a sum of d * x: equally many terms, with the
        same d.
        """
        layers = collections.defaultdict[str, list[int]](list)
        for place, tensor in enumerate(self.tensors):
            if tensor.role == "parameter":
                layers[layer_of(tensor.name)].append(place)
        shapes = [tensor.piece.shape for tensor in self.tensors]
        found = [
            (place, other)
            for places in layers.values()
            if len(places) <= _MOST
            for place, other in itertools.permutations(places, 2)
            if len(shapes[place]) == 1 and shapes[place][0] in shapes[other]
        ]
        return np.array([place for place, _ in found], int), np.array([other for _, other in found], int)

    @functools.cached_property
    def _is_all(self) -> list[bool]:
        """Whether the places are 0, 1, 2 and so on, for A and for B."""
        return [np.array_equal(place, np.arange(len(place))) for place in self.places]

    def only(self, tensors: Sequence[RecordedTensor], side: int) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the tensors that the other record lacks, by name.

        Args:
            tensors: The tensors of A or B.
            side: 0 for A, 1 for B.
        """
        names = {*(self.only_a, self.only_b)[side]}
        return {each.name: each.piece.shape for each in tensors if each.name in names and each.role != FOLLOWER}

    def of(self, sums: Sums, side: int) -> Sums:
        """Takes the tensors that both records have, in the order of A.

        Args:
            sums: The sums of a step of A or B.
            side: 0 for A, 1 for B.
        """
        place = self.places[side]
        if self._is_all[side] and len(place) == len(sums.square):
            return sums
        return sums.take(place)


def pair(a: RecordedRun, b: RecordedRun) -> Pairing:
    """Finds the tensors that two records have in common.

    Args:
        a: One run.
        b: The other run.

    Raises:
        ConfigError: The runs have no tensor in common.
    """
    found = pair_by_class(a, b)
    for key in (lambda tensor: tensor.name, lambda tensor: _WRAPPERS.sub("", tensor.name)):
        _take(found, a.tensors, b.tensors, key)
    if not found:
        found |= pair_only_network(a, b)
    if not found or _is_complete(found, a.tensors, b.tensors):
        _by_order(found, a.tensors, b.tensors)
    if not found or _is_complete(found, a.tensors, b.tensors):
        found |= _by_start(found, a, b, lambda tensor: re.split("[./]", tensor.name)[-1])
    if not found:
        found |= _by_start(found, a, b, lambda _: "")
    if not found:
        raise ConfigError(
            f"{a.name} and {b.name} are records of different models: no tensor has the same name, or shape and order, in both, "
            "nor does the smaller one start from weights that the other has as well."
        )
    followers, strangers = pair_followers(a, b)
    found |= followers
    ordered = sorted(set(found) - set(strangers))
    places = np.array(ordered), np.array([found[place] for place in ordered])
    taken = set(found.values())
    return Pairing(
        tuple(a.tensors[place] for place in ordered),
        places,
        tuple(tensor.name for place, tensor in enumerate(a.tensors) if place not in found),
        tuple(tensor.name for place, tensor in enumerate(b.tensors) if place not in taken),
        tuple(a.tensors[place].name for place in strangers),
    )


def _take(
    found: dict[int, int],
    one: Sequence[RecordedTensor],
    other: Sequence[RecordedTensor],
    key: Callable[[RecordedTensor], str],
) -> None:
    """Pairs remaining tensors with the same key, role and shape, if the key is unique on each side."""
    sides: list[dict[tuple[object, ...], list[int]]] = []
    for tensors, taken in ((one, set(found)), (other, set(found.values()))):
        places: dict[tuple[object, ...], list[int]] = {}
        for place, tensor in enumerate(tensors):
            if place not in taken and tensor.role != FOLLOWER:
                places.setdefault((key(tensor), tensor.role, tensor.piece.shape), []).append(place)
        sides.append(places)
    for name, own in sides[0].items():
        if len(own) == len(sides[1].get(name, ())) == 1:
            found[own[0]] = sides[1][name][0]


def _is_complete(found: dict[int, int], one: Sequence[RecordedTensor], other: Sequence[RecordedTensor]) -> bool:
    """Returns whether both sides have equally many tensors, and some are left."""
    ours, theirs = (sum(each.role != FOLLOWER for each in tensors) for tensors in (one, other))
    return ours == theirs and len(found) < ours


def _by_order(found: dict[int, int], one: Sequence[RecordedTensor], other: Sequence[RecordedTensor]) -> None:
    """Pairs the remaining tensors in the order of the models, if their shapes agree in that order."""
    sides = (one, set(found)), (other, set(found.values()))
    left, rest = (
        [place for place, each in enumerate(tensors) if place not in taken and each.role != FOLLOWER]
        for tensors, taken in sides
    )
    shapes = [[(each[p].role, each[p].piece.shape) for p in places] for each, places in ((one, left), (other, rest))]
    if shapes[0] == shapes[1]:
        found.update(zip(left, rest, strict=True))


def _by_start(
    found: dict[int, int], a: RecordedRun, b: RecordedRun, key: Callable[[RecordedTensor], str]
) -> dict[int, int]:
    """Pairs remaining tensors with the same key and initial numbers, if that leaves none of the smaller model.

    The larger one may have more: PyTorch's LSTM has a second bias.
    """
    sides: list[dict[tuple[object, ...], list[int]]] = []
    for run, taken in ((a, set(found)), (b, set(found.values()))):
        places: dict[tuple[object, ...], list[int]] = {}
        for start in run.first_sums(1, "weight"):
            for place, (each, bits) in enumerate(zip(run.tensors, start.bits, strict=True)):
                if place not in taken and each.role != FOLLOWER:
                    places.setdefault((key(each), each.role, each.piece.shape, int(bits)), []).append(place)
        sides.append(places)
    keys = [key for key, places in sides[0].items() if len(places) == len(sides[1].get(key, ()))]
    new = {one: other for key in keys for one, other in zip(*(side[key] for side in sides), strict=True)}
    return new if len(new) == min(sum(map(len, side.values())) for side in sides) else {}


def places_in(run: RecordedRun, rerun: RecordedRun) -> np.ndarray:
    """Returns the place in a rerun of each tensor of the run; -1 where the rerun ended before it was added.

    A rerun may have more tensors, because an older recorder, which did not look at them, may have made the record.

    Args:
        run: The run.
        rerun: The rerun.
    """
    places = {tensor.name: place for place, tensor in enumerate(rerun.tensors)}
    return np.array([places.get(tensor.name, -1) for tensor in run.tensors], int)


def like(seen: Sums, whole: Sums, places: np.ndarray) -> Sums:
    """Returns the rerun's sums of the run's tensors, with the run's own sums of tensors that the rerun lacks.

    Args:
        seen: The sums of the rerun.
        whole: The sums of the run.
        places: The place in the rerun of each tensor of the run.
    """
    return seen.take(places).where(places >= 0, whole)
