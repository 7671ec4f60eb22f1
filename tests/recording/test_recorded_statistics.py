"""The torch projections are those of the statement in NumPy, and those of pieces add up to that of the whole."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samestep.common.steps.joined_ranks import JoinedRanks
from samestep.common.steps.keras.variable_layout import layout_of
from samestep.common.steps.projections import Piece, sum_of_bits
from samestep.common.steps.record import SCHEMA, RecordedStep, RecordedTensor, RecordHeader, header_frame
from tests.recording.projecting import project

SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)


def flat(shape: tuple[int, ...], start: int, end: int) -> Piece:
    return Piece(shape, (start,), (end - start,), is_flat=True)


@given(SHAPES, st.data())
@settings(deadline=None, max_examples=60)
def test_the_projections_of_any_cut_add_up(shape: tuple[int, ...], data: st.DataObject) -> None:
    values = np.random.default_rng(0).normal(size=shape)
    border = data.draw(st.integers(0, values.size))
    parts = [project(values.ravel()[:border], flat(shape, 0, border))]
    parts += [project(values.ravel()[border:], flat(shape, border, values.size))]
    np.testing.assert_allclose(sum(parts), project(values), atol=1e-12)
    for dim, size in enumerate(shape):
        cut = data.draw(st.integers(0, size))
        total = np.zeros(8)
        for start, end in ((0, cut), (cut, size)):
            place = tuple(slice(start, end) if each == dim else slice(None) for each in range(len(shape)))
            starts = tuple(start if each == dim else 0 for each in range(len(shape)))
            total += project(values[place], Piece(shape, starts, values[place].shape))
        np.testing.assert_allclose(total, project(values), atol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("is_of_host", [True, False], ids=["host", "device"])
def test_torch_computes_what_the_statement_says(is_of_host: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from samestep.torch_impl.recording import statistics
    from samestep.torch_impl.recording.statistics import Statistics

    monkeypatch.setattr(statistics, "is_of_host", lambda *kind: is_of_host)
    monkeypatch.setattr(statistics, "_TOGETHER", 50)  # two of the matrices of 24, and none of the larger ones
    shapes = [
        (),
        (1,),
        (7,),
        (7,),
        (7,),
        (4, 6),
        (4, 6),
        (4, 3, 2),
        (3, 2, 2, 2),
        (300, 400),
        (5, 1),
        (3, 40000),
        (9000, 9),
    ]
    generator = np.random.default_rng(0)
    arrays = [np.asarray(generator.normal(size=shape), np.float32) for shape in shapes]
    pieces = [Piece.whole(shape) for shape in shapes]
    whole = generator.normal(size=(4, 6, 5)).astype(np.float32)
    cuts = [
        flat((4, 6, 5), 13, 97),
        flat((4, 6, 5), 31, 33),
        Piece((4, 6, 5), (0, 2, 0), (4, 3, 5)),
        Piece((4, 6, 5), (3, 0, 1), (1, 6, 2)),
    ]
    arrays += [whole.ravel()[13:97], whole.ravel()[31:33], whole[:, 2:5], whole[3:4, :, 1:3], whole.ravel()[:0]]
    pieces += [*cuts, flat((4, 6, 5), 0, 0)]
    values = [torch.from_numpy(np.array(each)) for each in arrays]
    found = Statistics(pieces, False)([*values[:3], None, *values[4:]]).resolve()
    for place, (array, piece) in enumerate(zip(arrays, pieces, strict=True)):
        if place == 3:
            assert np.isnan(found[place]["square"]) and np.isnan(found[place]["projections"]).all()
            continue
        norm = max(np.linalg.norm(array), 1e-30)
        # Products may add one number after the other: the roundings of as many float32 sums as there are rows, which are a walk.
        bound = 1e-6 if is_of_host else 6e-8 * max(300, len(array) if array.ndim else 1) ** 0.5
        np.testing.assert_allclose(found[place]["projections"], project(array, piece), atol=bound * norm)
        np.testing.assert_allclose(found[place]["square"], norm**2 if array.size else 0.0, rtol=1e-6)
        assert found[place]["bits"] == sum_of_bits(array), piece


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_dtypes_are_projected_as_they_are(dtype: str) -> None:
    import torch

    from samestep.torch_impl.recording.statistics import Statistics

    value = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    found = Statistics([Piece.whole((6, 5))], dtype == "float64")([value]).resolve()
    np.testing.assert_allclose(found[0]["projections"], project(value.double().numpy()), rtol=1e-5, atol=1e-5)
    words = value.view(torch.int16).numpy() if value.element_size() == 2 else value.numpy()
    assert found[0]["bits"] == sum_of_bits(words)


def test_options_survive_the_environment() -> None:
    from samestep.common.steps.recording import RecordOptions

    options = RecordOptions("out", ("python", "train.py"), every=3, perturb=1, notes="n")
    assert RecordOptions.from_json(options.to_json()) == options
    assert RecordOptions.from_json(json.dumps({"out": "out", "new": 1})) == RecordOptions("out")


@pytest.mark.torch
def test_autocast_does_not_reach_the_statistics() -> None:
    import torch

    from samestep.torch_impl.recording.statistics import Statistics

    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(64, 48, generator=generator), torch.randn(3000, generator=generator)]
    with torch.autocast("cpu", torch.bfloat16):
        found = Statistics([Piece.whole(tuple(each.shape)) for each in values], False)(values).resolve()
    for row, value in zip(found, values, strict=True):
        apart = np.abs(row["projections"] - project(value.numpy())).max()
        assert apart < 1e-5 * float(value.norm())  # of bf16, 1e-3


@pytest.mark.torch
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("parts", [1, 2])
def test_numbers_that_are_not_finite_are_told_from_no_numbers_at_all(value: float, parts: int) -> None:
    """The bits of so many add up to a multiple of 2**32, which was taken for a gradient that is not there."""
    import torch

    from samestep.torch_impl.recording.statistics import Statistics

    pieces = [flat((1024,), start, start + 1024 // parts) for start in range(0, 1024, 1024 // parts)]
    headers, steps = [], []
    for rank, piece in enumerate(pieces):
        stats = Statistics([piece] * 2, False)([torch.full(piece.size, value), None]).resolve()
        tensors = tuple(RecordedTensor(name, "float32", piece) for name in ("there", "absent"))
        headers.append(RecordHeader(SCHEMA, "torch", (), "/", {}, {}, rank, parts, tensors))
        steps.append(RecordedStep(0, stats={"gradient": stats}))
    sums = JoinedRanks.of(headers, "it").step(steps).sums
    assert sums is not None and [bool(bits) for bits in sums["gradient"].bits] == [True, False]


@pytest.mark.tf
def test_tensorflow_tells_nan_from_no_numbers_at_all() -> None:
    import tensorflow as tf

    from samestep.tf_impl.recording.statistics import Statistics, unpack

    statistics = Statistics([layout_of("Dense", "bias", (1024,))] * 2, False)
    there, absent = unpack(statistics([tf.fill([1024], np.nan), None]).numpy(), False)
    assert there["bits"] != 0 and absent["bits"] == 0


@pytest.mark.torch
def test_signs_are_made_once_for_tensors_of_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    from samestep.torch_impl.recording.statistics import Statistics, blocks

    made: list[int] = []
    monkeypatch.setattr(blocks, "signs", lambda dim, start, size: made.append(dim) or np.ones((size, 8), np.float32))
    cut = Piece((4, 3, 2), (0, 1, 0), (4, 1, 2))
    Statistics([Piece.whole((4, 3)), cut] * 50, is_float64=False)
    assert len(made) <= 4  # rows, and columns of either


def test_a_header_is_spelled_as_fast_as_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = tuple(RecordedTensor(f"{number}.weight", "float32", Piece.whole((8, 8))) for number in range(200))
    header = RecordHeader(SCHEMA, "torch", (), "/", {}, {}, 0, 1, tensors)
    monkeypatch.setattr(copy, "deepcopy", lambda value: pytest.fail("every number of every tensor is copied"))
    assert b'{"header": {"schema"' in header_frame(header)
