"""What stands between two layers is recognized from arrays alone, and what turns one side's array into the other's."""

import dataclasses

import numpy as np
import pytest

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.functions import align_functions
from samestep.common.porting.model_trace import IS_FUNCTION, LayerCall
from samestep.common.porting.ways.between import identify_between
from samestep.common.porting.ways.formulas import softmax
from samestep.common.porting.ways.one_step import identify_step
from samestep.common.porting.ways.programs import programs
from samestep.common.porting.ways.recurrent import _levels, _run, _usual, ends
from samestep.common.porting.ways.resizing import _KERNELS, _PLACES, _weights
from samestep.common.porting.ways.turns import turn
from samestep.common.porting.words import does, name_sides, say

RNG = np.random.default_rng(0)
X, Y, SCORES = RNG.normal(size=(4, 6, 12)), RNG.normal(size=(4, 6, 12)), RNG.normal(size=(4, 3, 6, 6))
CAUSAL = np.triu(np.ones((6, 6), bool), 1)
NORMS = np.linalg.norm(X, axis=-1) * np.linalg.norm(Y, axis=-1)


def rotated(x: np.ndarray, are_halves: bool = True, sign: int = 1) -> np.ndarray:
    angles = sign * np.outer(np.arange(6), 0.5 ** np.arange(6))
    one, other = (x[..., :6], x[..., 6:]) if are_halves else (x[..., 0::2], x[..., 1::2])
    made = [one * np.cos(angles) - other * np.sin(angles), other * np.cos(angles) + one * np.sin(angles)]
    return np.concatenate(made, -1) if are_halves else np.stack(made, -1).reshape(x.shape)


def called(name: str, output: np.ndarray) -> LayerCall:
    return LayerCall(name=name, kind=name, settings={IS_FUNCTION: True}, inputs=(), output=output)


def before(**outputs: np.ndarray) -> list[Aligned]:
    return [Aligned(called(n, x), called(n, x), "linear", None, (x, x)) for n, x in outputs.items()]


def between(one: np.ndarray, other: np.ndarray, **known: np.ndarray) -> str:
    found = identify_between(before(**known), (one, other))
    return found if isinstance(found, str) else "" if found is None else name_sides(say(*found), ("torch", "tf"))


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (softmax(SCORES), softmax(SCORES, 1), "torch takes the softmax over the last axis, TensorFlow over axis 1"),
        (X.max(1), X.mean(1), "torch pools by the maximum, TensorFlow by the mean"),
        (3 * X + Y, X + Y, "torch adds 3 times the output of `x` and the output of `y`, TensorFlow the output of"),
        (X - Y, X + Y, "torch adds the output of `x` and minus the output of `y`, TensorFlow the"),
        (X * Y, X + Y, "torch multiplies the output of `y` and the output of `x`, TensorFlow adds"),
        (X[:, :5], X[:, 1:], "torch takes 0 to 4 of 6, TensorFlow 1 to 5 of 6"),
        (
            np.where(CAUSAL, -9e9, SCORES),
            SCORES,
            "torch hides what comes after a position, TensorFlow takes the output of",
        ),
        (np.concatenate([X, Y], 2), np.concatenate([Y, X], 2), "torch joins the output of `x` and the output of `y`"),
        ((X * Y).sum(-1), (X * Y).sum(-1) / NORMS, "torch takes the dot product, TensorFlow the cosine"),
        (
            rotated(X),
            rotated(X, False),
            "of what is turned by its position, torch takes halves as pairs, TensorFlow neig",
        ),
        (
            rotated(X),
            rotated(X, sign=-1),
            "torch turns a position by an angle of 1, TensorFlow of -1",
        ),
    ],
)
def test_a_step_of_each_side(one: np.ndarray, other: np.ndarray, said: str) -> None:
    found = between(one, other, x=X, y=Y, scores=SCORES)
    assert found.startswith(said) or said in found, found
    assert between(one, one, x=X, y=Y, scores=SCORES) == ""
    assert between(one, RNG.normal(size=other.shape), x=X, y=Y, scores=SCORES) == ""


def test_an_axis_beside_ones_is_called_as_without_them() -> None:
    """One side may squeeze its scores and the other not: both take the softmax over the last axis."""
    scores, softmaxes = X[:, :, :1], []
    for settings, make in programs([("x", scores)], scores):
        if "softmax" in settings and np.array_equal(make(), softmax(scores, 1)):
            softmaxes.append(settings["softmax"])
    assert set(softmaxes) == {"the last axis"}


def test_a_step_that_only_one_side_takes() -> None:
    hidden, plain = np.where(CAUSAL, -9e9, SCORES), softmax(SCORES)
    gap = [called("hide", hidden), called("softmax", softmax(hidden))], [called("Softmax", plain)]
    found = identify_between(before(scores=SCORES), (softmax(hidden) @ X[:, None], plain @ X[:, None]), gap)
    assert found == "{a} hides what comes after a position, {b} does not"


def test_a_step_in_the_middle_of_others() -> None:
    """What comes after it takes its result on one side, and what was there before on the other."""
    made = np.tanh(X)
    gap = [called("mul", 0.25 * made), called("add", 0.25 * made + Y)], [called("AddV2", made + Y)]
    found = identify_between(before(x=X, y=Y, made=made), ((0.25 * made + Y).sum(2), (made + Y).sum(2)), gap)
    assert found == "{a} takes 0.25 times the output of `made`, {b} does not"


def test_a_step_is_said_whole() -> None:
    assert does({"activation": "tanh", "terms": ("x",), "factor": 0.5}) == "takes 0.5 times tanh of x"
    assert does({"activation": "none", "terms": ("x", "y")}) == "adds x and y"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (4 * X, "TensorFlow's is 4 times torch's"),
        (X + 2, "each number is 2 more in TensorFlow than in torch"),
        (np.roll(X, 4, 2), "along the last axis, TensorFlow has the last 4 before the first 8"),
        (X[:, ::-1], "along axis 1, TensorFlow has everything in reverse order"),
        (X.reshape(4, 6, 3, 4).swapaxes(2, 3).reshape(X.shape), "along the last axis, TensorFlow interleaves 3 parts"),
        (X.reshape(4, 6, 3, 4).swapaxes(1, 2).reshape(X.shape), "the 3 heads are not transposed back in TensorFlow"),
        (2 * X - 1, "TensorFlow's is 2 times torch's, and each number 1 less"),
        (
            np.where(np.arange(12) < 6, X, X / 2),
            "along the last axis, TensorFlow's 6 to 11 of 12 are 0.5 times torch's",
        ),
        (np.roll(X, 6, 2), "along the last axis, TensorFlow has the last 6 before the first 6"),
        (np.maximum(X, 0), "the activation (relu) is left out in torch"),
        (X.reshape(4, 12, 6).swapaxes(1, 2).reshape(X.shape), "TensorFlow has the same numbers in another order"),
        (np.where(np.arange(12) < 3, 0, X), "TensorFlow hides 72 of 288 elements"),
        (np.concatenate([0 * X[:, :1], X[:, :-1]], 1), "along axis 1, TensorFlow's is shifted by 1 forward"),
        (X, ""),
        (RNG.normal(size=X.shape), ""),
        (X[:, :3], ""),
    ],
)
def test_what_turns_one_array_into_the_other(other: np.ndarray, said: str) -> None:
    made = turn((X, other))
    found = "" if made is None else name_sides(made.said, ("torch", "tf"))
    assert found.startswith(said) and bool(found) == bool(said), found


@pytest.mark.parametrize(
    ("limit", "name"), [(6, "relu6"), (1, "relu up to 1"), (2.5, "relu up to 2.5"), (None, "squared relu")]
)
def test_a_limited_relu_of_a_relu_is_another_activation(limit: float | None, name: str) -> None:
    """Nothing is left out: relu6 of what a relu gave is relu6."""
    rectified = np.maximum(8 * X, 0)
    other = np.square(rectified) if limit is None else np.minimum(rectified, limit)
    for both, sides in (((rectified, other), ("torch", "tf")), ((other, rectified), ("tf", "torch"))):
        made = turn(both)
        assert made is not None
        assert name_sides(made.said, sides) == f"torch's activation is relu, TensorFlow's {name}"
    left_out = turn((rectified, np.tanh(rectified)))
    assert left_out is not None and left_out.said == "the activation (tanh) is left out in {a}"


def test_functions_are_paired_by_what_they_compute() -> None:
    """Neither their names nor their order nor that of their axes; and what is constant says nothing."""
    ours = [called("a", X), called("b", Y), called("ones", np.ones(X.shape))]
    theirs = [called("ones", np.ones(X.shape)), called("c", Y.swapaxes(1, 2)), called("d", X * (1 + 1e-10))]
    assert list(align_functions(ours, theirs, [])) == [(0, 2, (0, 1, 2)), (1, 1, (0, 2, 1))]
    assert list(align_functions(ours, theirs, [(0, 2)])) == [(1, 1, (0, 2, 1))]


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("kernel", _KERNELS)
def test_a_constant_image_stays_constant_when_it_is_resized(kernel: str, place: str) -> None:
    assert np.allclose(_weights(5, 8, _KERNELS[kernel], _PLACES[place]).sum(1), 1)


def test_two_steps_in_another_order() -> None:
    """A token is put before the others, and positions are added: before that, it gets none."""
    token, positions = RNG.normal(size=(1, 1, 12)), RNG.normal(size=(1, 7, 12))
    beside = np.concatenate([np.broadcast_to(token, (4, 1, 12)), X], 1)
    moved = np.concatenate([beside[:, :1], X + positions[:, 1:]], 1)
    gap = (
        [called("cat", beside), called("add", beside + positions)],
        [called("AddV2", X + positions[:, 1:]), called("ConcatV2", moved)],
    )
    held = {"`token`": token, "`pos`": positions}
    found = identify_between(before(x=X), ((beside + positions).mean(1), moved.mean(1)), gap, held)
    assert found == (
        "{a} joins `token` and the output of `x` and then adds `pos` and the step before, "
        "{b} adds rows 1 to 6 of `pos` and the output of `x` and then joins `token` and the step before"
    )


def recurrent(gates: int, ways: int, is_last: bool) -> Aligned:
    """A layer that returns its last position, or all."""
    draw, shapes = (
        np.random.default_rng(1),
        {"kernel": (12, 5 * gates), "recurrent": (5, 5 * gates), "bias": (5 * gates,)},
    )
    cells = {
        f"level{name}/{role}": draw.normal(size=shape) / 3
        for name in ("", "_reverse")[:ways]
        for role, shape in shapes.items()
    }
    whole, _ = _run(X, _levels(cells), _usual(gates), is_last)
    return Aligned(
        called("rnn", whole), called("rnn", whole), "recurrent", (X, X), (whole, whole), params=(cells, cells)
    )


@pytest.mark.parametrize(
    ("gates", "ways", "held"),
    [
        (4, 1, ["cell state"]),
        (4, 2, ["state forward", "cell state forward", "state backward", "cell state backward"]),
        (3, 1, []),
        (3, 2, ["state forward", "state backward"]),
    ],
)
def test_what_a_recurrent_layer_holds_at_its_end(gates: int, ways: int, held: list[str]) -> None:
    layer = recurrent(gates, ways, is_last=False)
    found = dict(ends(layer, 0, len(X)))
    assert [*found] == [f"the last {each} of `rnn`" for each in held]
    if ways == 2:
        assert np.array_equal(found["the last state forward of `rnn`"], layer.output[0][:, -1, :5])
        assert np.array_equal(found["the last state backward of `rnn`"], layer.output[0][:, 0, 5:])
    assert [*ends(dataclasses.replace(layer, output=(X, X)), 0, len(X))] == []


@pytest.mark.parametrize("is_last", [False, True])
def test_a_cell_state_is_told_from_an_output(is_last: bool) -> None:
    layer = recurrent(4, 1, is_last)
    (_, memory), whole = next(ends(layer, 0, len(X))), layer.output[1]
    found = identify_between([layer], (memory, whole if is_last else whole[:, -1]))
    assert found is not None and not isinstance(found, str)
    assert name_sides(say(*found), ("torch", "tf")) == (
        "torch takes the last cell state of `rnn`, TensorFlow "
        + ("takes the output of `rnn`" if is_last else "pools by the last position")
    )


def test_relative_positions_in_the_other_direction() -> None:
    at = np.arange(6)
    ids = np.abs(at[None] - at[:, None]) + 8 * (at[None] > at[:, None])
    found, same = turn((ids, ids.T)), turn((ids, ids))
    assert found is not None and same is None
    assert found.said == "{b} counts from one position to another in the other direction"


def test_steps_that_both_sides_take_are_no_cause() -> None:
    """A step is held against one that the other side lacks as well, and zeros are no multiple of anything."""
    chain = [called("tanh", np.tanh(X)), called("silu", X / (1 + np.exp(-X))), called("exp", np.exp(Y))]
    noise = RNG.normal(size=(2, *X.shape))
    assert identify_between(before(x=X, y=Y), (noise[0], noise[1]), (chain, chain[2:])) is None
    assert identify_step([("x", X)], 0 * X) is None
