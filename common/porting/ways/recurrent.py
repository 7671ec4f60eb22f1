"""The known ways to compute a recurrent layer: the order and the activations of its gates, its direction, what it leaves out."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from scipy import special

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.array_layouts import apart
from samestep.common.porting.ways.formulas import ACTIVATIONS, MERGES
from samestep.common.porting.ways.identify import SAME, Candidate

Weights = Mapping[str, np.ndarray]
Step = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(inputs, state, memory) -> the same, one position later."""
_GATES = {"sigmoid": special.expit, **{name: ACTIVATIONS[name] for name in ("hard sigmoid", "old hard sigmoid")}}
_STATES = {"tanh": np.tanh, **{name: ACTIVATIONS[name] for name in ("relu", "none", "sigmoid", "softsign")}}
_DIRECTIONS = {
    "from the first position to the last": (False, False),
    "from the last position to the first": (True, False),
    "from the last position to the first, turned round": (True, True),
}
"""The direction of a layer -> whether it goes backward, and whether its result is put back in the order of the positions."""
_LETTERS = {4: "ifgo", 3: "rzn", 1: "h"}
_LSTM = 4
_Held = dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]
"""(level, direction) -> state and memory after the last position that it reached."""


def recurrent(x: np.ndarray, params: Weights, layer: Aligned) -> Iterator[Candidate]:
    """Yields an LSTM, a GRU or a plain layer under each order of its gates, then with each other setting changed.

    Args:
        x: [batch, time, inputs].
        params: The parameters of both sides.
        layer: The layer.
    """
    levels = _levels(layer.params[0]) or _levels(layer.params[1])
    if not levels:
        return
    count = _count(levels)
    letters, mask, usual = _LETTERS.get(count, ""), _mask(layer, x), _usual(count)
    start = _start(layer, x, levels)
    others = {
        "biases": ("the first", "none"),
        "order": tuple(itertools.permutations(range(count)))[1:],
        "reset": ("before",) if count == 3 else (),
        "gate": tuple(_GATES)[1:],
        "state": tuple(_STATES)[1:],
        "direction": tuple(_DIRECTIONS)[1:],
        "merge": tuple(MERGES)[1:] if len(levels[0]) > 1 else (),
        "masked": (True,) if mask is not None else (),
        "started": (True,) if start else (),
    }
    changed = [usual, *({**usual, name: value} for name, values in others.items() for value in values)]
    changed += [{**each, "order": order} for order in others["order"] for each in changed[1:3]]
    for settings in changed if letters else ():
        names = ", ".join(name for _, name in sorted(zip(settings["order"], letters, strict=True)))  # type: ignore[call-overload]
        said = {"gates": names, **{name: value for name, value in settings.items() if name != "order"}}
        given = {"mask": mask if settings["masked"] else None, "start": start if settings["started"] else ()}
        yield said, lambda s=settings, given=given: _run(x, levels, s, layer.output[1].ndim == 2, **given)[0]


def ends(layer: Aligned, side: int, examples: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields, by name, the states of a recurrent layer after the last position that it does not return as its result.

    Nothing is yielded for a layer that does not compute in the usual way.

    Args:
        layer: The layer.
        side: 0 for the source, 1 for the target.
        examples: The number of examples to examine.
    """
    levels = _levels(layer.params[0]) or _levels(layer.params[1])
    if not levels or layer.inputs is None or _count(levels) not in _LETTERS:
        return
    x, seen = layer.inputs[side][:examples], layer.output[side][:examples]
    made, held = _run(x, levels, _usual(_count(levels)), seen.ndim == 2)
    if not apart(made, seen) <= SAME:
        return
    for (level, way), both in held.items():
        which = f" of level {level}" if len(levels) > 1 else ""
        which += f" {('forward', 'backward')[way]}" if len(levels[0]) > 1 else ""
        for what, array in zip(("state", "cell state"), both, strict=True):
            if (what == "state" and which) or (what != "state" and _count(levels) == _LSTM):
                yield f"the last {what}{which} of `{layer.source.name}`", array


def _count(levels: Sequence[Sequence[Weights]]) -> int:
    """Returns how many gates a layer has."""
    return levels[0][0]["kernel"].shape[-1] // levels[0][0]["recurrent"].shape[0]


def _usual(count: int) -> dict[str, object]:
    """Returns the usual settings of a layer with this number of gates."""
    cell = {"order": tuple(range(count)), "biases": "both", "reset": "after", "gate": "sigmoid", "state": "tanh"}
    return {**cell, "direction": next(iter(_DIRECTIONS)), "masked": False, "started": False, "merge": "side by side"}


def _mask(layer: Aligned, x: np.ndarray) -> np.ndarray | None:
    given = [each for call in (layer.source, layer.target) for each in call.inputs if each.dtype == bool]
    return next((each[: len(x)] for each in given if each[: len(x)].shape == x.shape[:2]), None)


def _start(layer: Aligned, x: np.ndarray, levels: Sequence[Sequence[Weights]]) -> Sequence[np.ndarray]:
    """Returns the initial state, and the memory if there is one, that either side gives a layer of one level and direction."""
    if len(levels) > 1 or len(levels[0]) > 1:
        return ()
    shape = (len(x), len(levels[0][0]["recurrent"]))
    for call in (layer.source, layer.target):
        given = [each[0] if each.ndim == 3 and len(each) == 1 else each for each in call.inputs[1:]]
        found = [each[: len(x)] for each in given if each[: len(x)].shape == shape]
        if len(found) == (2 if _count(levels) == _LSTM else 1):
            return found
    return ()


def _levels(params: Weights) -> list[list[Weights]]:
    """Returns the weights of each level, forward ones first; empty if they are not those of a recurrent layer."""
    cells: dict[str, dict[str, np.ndarray]] = {}
    for name, value in params.items():
        prefix, _, role = name.rpartition("/")
        cells.setdefault(prefix, {})[role] = value
    whole = {name: cell for name, cell in cells.items() if {"kernel", "recurrent"} <= cell.keys()}
    levels: dict[str, list[Weights]] = {}
    for name in sorted(whole):
        levels.setdefault(name.removesuffix("_reverse"), []).append(whole[name])
    return list(levels.values())


def _run(
    x: np.ndarray,
    levels: Sequence[Sequence[Weights]],
    how: Mapping[str, object],
    is_last: bool,
    mask: np.ndarray | None = None,
    start: Sequence[np.ndarray] = (),
) -> tuple[np.ndarray, _Held]:
    held: _Held = {}
    for number, cells in enumerate(levels, 1):
        first, *second = cells
        is_backward, is_turned = _DIRECTIONS[str(how["direction"])]
        made, held[number, 0] = _direction(x, first, how, mask, is_backward, start)
        if is_turned:
            made = made[:, ::-1]
        if second:
            turned, held[number, 1] = _direction(x, second[0], how, mask, True)
            back = turned[:, ::-1]
            both = [made[:, -1], back[:, 0]] if is_last and number == len(levels) else [made, back]  # where each ends
            if mask is not None and not is_last:  # in a layer of two directions, Keras puts zeros at masked positions
                both = [np.where(mask[..., None], each, 0.0) for each in both]
            made = MERGES[str(how["merge"])](both)
        x = made
    return x[:, -1] if is_last and x.ndim == 3 else x, held


def _direction(
    x: np.ndarray,
    cell: Weights,
    how: Mapping[str, object],
    mask: np.ndarray | None,
    is_backward: bool,
    start: Sequence[np.ndarray] = (),
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    if is_backward:
        x, mask = x[:, ::-1], mask if mask is None else mask[:, ::-1]
    step = _step(cell, how)
    zeros = np.zeros((len(x), cell["recurrent"].shape[0]))
    h, memory = (*start, zeros, zeros)[:2]
    outputs = []
    for t in range(x.shape[1]):
        new, later = step(x[:, t], h, memory)
        if mask is not None:
            new, later = (np.where(mask[:, t, None], a, b) for a, b in ((new, h), (later, memory)))
        h, memory = new, later
        outputs.append(h)
    return np.stack(outputs, axis=1), (h, memory)


def _step(cell: Weights, how: Mapping[str, object]) -> Step:
    kernel, wide, given = cell["kernel"], cell["recurrent"], how["order"]
    assert isinstance(given, tuple)
    order: tuple[int, ...] = given
    zero, count = np.zeros(kernel.shape[-1]), len(order)
    first, second = {
        "both": (cell.get("bias", zero), cell.get("second_bias", zero)),
        "the first": (cell.get("bias", zero), zero),
        "none": (zero, zero),
    }[str(how["biases"])]
    gate, state = _GATES[str(how["gate"])], _STATES[str(how["state"])]

    def parts(array: np.ndarray) -> list[np.ndarray]:
        split = np.split(array, count, axis=-1)
        return [split[place] for place in order]

    def lstm(x: np.ndarray, h: np.ndarray, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        i, f, g, o = parts(x @ kernel + first + h @ wide + second)
        memory = gate(f) * memory + gate(i) * state(g)
        return gate(o) * state(memory), memory

    def gru(x: np.ndarray, h: np.ndarray, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (r, z, n), (wr, wz, wn), (br, bz, bn) = parts(x @ kernel + first), parts(wide), parts(second)
        reset, update = gate(r + h @ wr + br), gate(z + h @ wz + bz)
        inner = reset * (h @ wn + bn) if how["reset"] == "after" else (reset * h) @ wn + bn
        return (1 - update) * state(n + inner) + update * h, memory

    def plain(x: np.ndarray, h: np.ndarray, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return state(x @ kernel + first + h @ wide + second), memory

    return {4: lstm, 3: gru, 1: plain}[count]
