import itertools
import math
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samestep.common.errors import ConfigError
from samestep.common.workload.initial import init
from samestep.common.workload.models.cnn import CnnSpec
from samestep.common.workload.models.mlp import MlpSpec
from samestep.common.workload.models.parameters import linear
from samestep.common.workload.models.ranker import RankerSpec
from samestep.common.workload.models.spec import DataSizes, Segment, num_params
from samestep.common.workload.models.transformer import TransformerSpec
from samestep.common.workload.pipeline_schedule import group_segments
from samestep.common.workload.split import even_split_table

MODELS = [
    MlpSpec(),
    MlpSpec(layers=12),
    MlpSpec(norm="batch"),
    CnnSpec(),
    CnnSpec(norm="batch"),
    CnnSpec(image=(8, 12, 3)),
    TransformerSpec(),
    TransformerSpec(layers=11),
    RankerSpec(),
    RankerSpec(hash_buckets=0),
]
LARGE = TransformerSpec(layers=105, heads=128, width=20480, context=2048, vocabulary=51200)
"""The shape of Megatron-Turing NLG, 530 billion parameters (Smith et al., arXiv 2201.11990)."""

all_models = pytest.mark.parametrize("model", MODELS, ids=repr)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (MlpSpec(features=3, width=5, layers=3, outputs=2), (3 * 5 + 5) + (5 * 5 + 5) + (5 * 2 + 2)),
        (
            CnnSpec(image=(8, 4, 3), filters=2, hidden=5, outputs=6),
            (27 * 2 + 2) + (18 * 4 + 4) + (8 * 5 + 5) + (5 * 6 + 6),
        ),
        (MlpSpec(features=3, width=5, layers=3, outputs=2, norm="batch"), (3 * 5 + 10) + (5 * 5 + 10) + (5 * 2 + 2)),
        (
            CnnSpec(image=(8, 4, 3), filters=2, hidden=5, outputs=6, norm="batch"),
            (27 * 2 + 4) + (18 * 4 + 8) + (8 * 5 + 5) + (5 * 6 + 6),
        ),
        (RankerSpec((3, 4), 5, embedding=2, hidden=6), 12 * 2 + (6 * 6 + 6) + (6 * 3 + 3) + (3 + 1)),
        (
            TransformerSpec(layers=2, heads=2, width=4, context=3, vocabulary=5),
            # A block's vectors, in widths: two norms of 2, the biases of query, value and output, up's 4, down's 1.
            (5 + 3) * 4 + 2 * (12 * 16 + (2 * 2 + 3 + 4 + 1) * 4) + 2 * 4 + 4 * 5,
        ),
    ],
    ids=repr,
)
def test_the_number_of_parameters_is_counted_by_hand(model, expected):
    assert num_params(model) == expected


@all_models
def test_the_number_of_parameters_is_the_sum_over_what_init_draws(model):
    assert num_params(model) == sum(value.size for value in init(model, 0).values())


@all_models
def test_init_gives_every_parameter_its_shape_in_order(model):
    shapes = [(name, param.shape) for name, param in model.params().items()]
    assert [(name, value.shape) for name, value in init(model, 3).items()] == shapes


@all_models
def test_initial_values_survive_a_trip_through_float32(model):
    for value in init(model, 1).values():
        assert value.dtype == np.float64
        np.testing.assert_array_equal(value.astype(np.float32).astype(np.float64), value)


@all_models
def test_initial_values_follow_from_the_seed(model):
    first, again, other = init(model, 5), init(model, 5), init(model, 6)
    drawn = [name for name, param in model.params().items() if param.std]
    assert drawn
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert not any(np.array_equal(first[name], other[name]) for name in drawn)


def test_a_parameter_is_drawn_from_its_own_name_whatever_else_there_is():
    shallow, deep = init(TransformerSpec(layers=2), 0), init(TransformerSpec(layers=5), 0)
    gain = math.sqrt(5 / 2)
    for name, value in shallow.items():
        scale = gain if name.endswith(("attention/output/kernel", "mlp/down/kernel")) else 1.0
        np.testing.assert_allclose(deep[name] * scale, value, rtol=2e-7)  # each was rounded to float32 once, by 6e-8


@all_models
def test_no_two_parameters_share_their_numbers(model):
    drawn = [value.ravel()[:8] for name, value in init(model, 0).items() if model.params()[name].std]
    ranks = {tuple(value / value[0]) for value in drawn if len(value) == 8}
    assert len(ranks) == sum(len(value) == 8 for value in drawn)


def test_no_two_names_of_a_large_model_share_a_stream():
    names = LARGE.params()
    assert len({zlib.crc32(name.encode()) for name in names}) == len(names)


def test_initial_values_have_the_spread_that_the_spec_states():
    model = MlpSpec(features=1024, width=64)
    values = init(model, 0)
    kernel = values["layers/0/kernel"]
    # He et al. 2015; the sample's deviation of 65,536 draws scatters by 1 / sqrt(2 * 65,536) = 0.3 percent.
    assert kernel.std() == pytest.approx(math.sqrt(2 / 1024), rel=0.015)
    assert abs(kernel.mean()) < 5 * kernel.std() / 256
    assert not values["layers/0/bias"].any()
    assert (init(TransformerSpec(), 0)["head/norm/scale"] == 1).all()


@all_models
def test_a_split_axis_is_an_axis_of_the_parameter(model):
    params = model.params()
    table = even_split_table(model, 1)
    assert table
    assert all(0 <= axis < len(params[name].shape) for name, axis in table.items())
    assert set(table) == {name for name, param in params.items() if param.split is not None}


def test_a_column_cut_takes_the_bias_along_and_a_row_cut_leaves_it_whole():
    assert [param.split for param in linear("a", 3, 4, "column").values()] == [1, 0]
    assert [param.split for param in linear("a", 3, 4, "row").values()] == [0, None]
    assert [param.split for param in linear("a", 3, 4).values()] == [None, None]


def test_an_mlp_alternates_columns_and_rows_and_keeps_an_odd_last_layer_whole():
    splits = [even_split_table(MlpSpec(layers=5), 1).get(f"layers/{layer}/kernel") for layer in range(5)]
    assert splits == [1, 0, 1, 0, None]


@all_models
def test_every_model_has_at_least_four_segments(model):
    assert len(model.segments()) >= 4
    assert all(segment.flops > 0 for segment in model.segments())


@all_models
def test_every_parameter_belongs_to_exactly_one_segment_and_segments_follow_the_order_of_the_parameters(model):
    names = [segment.name for segment in model.segments()]
    owners = [[segment for segment in names if name.startswith(segment + "/")] for name in model.params()]
    assert all(len(found) == 1 for found in owners)
    assert [name for name, _ in itertools.groupby(found[0] for found in owners)] == names


@pytest.mark.parametrize(
    ("model", "flops"),
    [
        (MlpSpec(features=3, width=5, layers=4, outputs=2), [2 * 3 * 5, 2 * 5 * 5, 2 * 5 * 5, 2 * 5 * 2]),
        # A convolution multiplies and adds once per element of its kernel and pixel of its output.
        (
            CnnSpec(image=(8, 4, 3), filters=2, hidden=5, outputs=6),
            [2 * 27 * 2 * 32, 2 * 18 * 4 * 8, 2 * 8 * 5, 2 * 5 * 6],
        ),
        (RankerSpec((3, 4), 5, embedding=2, hidden=6), [6, 2 * 6 * 6, 2 * 6 * 3, 2 * 3]),
        # Of a block's attention: scores and mixture, 2 * 3 * 3 * 4 each; all else is kernels, at three positions.
        (TransformerSpec(1, 2, 4, 3, 5), [12, 3 * 2 * 12 * 16 + 2 * (2 * 3 * 3 * 4), 3 * 2 * 4 * 5]),
    ],
    ids=repr,
)
def test_flops_are_counted_by_hand(model, flops):
    assert [segment.flops for segment in model.segments()] == flops


def test_530_billion_parameters_answer_at_once_and_allocate_nothing():
    tracemalloc.start()
    start = time.perf_counter()
    count, segments, table = num_params(LARGE), LARGE.segments(), even_split_table(LARGE, 1)
    flops = 3 * sum(segment.flops for segment in segments)  # the backward pass counts twice the forward pass
    seconds = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    width, layers, tokens = 20480, 105, 2048
    assert count == layers * (12 * width**2 + 12 * width) + width * (2 * 51200 + tokens + 2)
    assert round(count / 1e9) == 531
    dense = 6 * tokens * (12 * layers * width**2 + width * 51200)
    assert flops == dense + 3 * (4 * layers * tokens**2 * width + tokens * width)
    assert len(segments) == 107
    assert len(table) == layers * 9 + 2
    assert seconds < 5  # a hundredth of it on an idle core; an allocation of 1 TB would not come back at all
    assert peak < 10 * 2**20  # the table of names


flops_lists = st.lists(st.integers(0, 50), min_size=1, max_size=8)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(flops_lists, st.data())
def test_stages_are_contiguous_complete_and_as_even_as_can_be(flops, data):
    segments = tuple(Segment(f"layers/{index}", each) for index, each in enumerate(flops))
    count = data.draw(st.integers(1, len(segments)))
    grouped = group_segments(segments, count)
    assert len(grouped) == count
    assert all(grouped)
    assert tuple(segment for stage in grouped for segment in stage) == segments
    every_way = (
        max(sum(flops[start:end]) for start, end in itertools.pairwise((0, *inner, len(flops))))
        for inner in itertools.combinations(range(1, len(flops)), count - 1)
    )
    assert max(sum(segment.flops for segment in stage) for stage in grouped) == min(every_way)


def test_a_large_model_is_cut_into_stages_at_once():
    grouped = group_segments(LARGE.segments(), 35)
    assert max(len(stage) for stage in grouped) <= 4
    assert sum(len(stage) for stage in grouped) == 107


def test_a_model_takes_the_sizes_of_its_data():
    assert MlpSpec().fitted(DataSizes((8, 8, 1), 3)) == MlpSpec(features=64, outputs=3)
    assert CnnSpec().fitted(DataSizes((8, 12), 3)) == CnnSpec(image=(8, 12, 1), outputs=3)
    assert CnnSpec().fitted(DataSizes((32, 32, 3), 7)) == CnnSpec(image=(32, 32, 3), outputs=7)
    assert TransformerSpec().fitted(DataSizes((16,), 97)) == TransformerSpec(context=16, vocabulary=97)
    assert RankerSpec().fitted(DataSizes((2,), 2, (5, 6))) == RankerSpec((5, 6), hash_buckets=0)


@pytest.mark.parametrize(
    ("model", "sizes", "named"),
    [
        (CnnSpec(), DataSizes((64,), 10), "[64]"),
        (CnnSpec(), DataSizes((6, 8, 1), 10), "[6, 8, 1]"),
        (TransformerSpec(), DataSizes((8, 8), 10), "[8, 8]"),
        (RankerSpec(), DataSizes((4,), 2), "whole-number ids"),
    ],
)
def test_data_that_a_model_cannot_take_are_refused_in_one_line(model, sizes, named):
    with pytest.raises(ConfigError) as caught:
        model.fitted(sizes)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_width_that_does_not_divide_into_the_heads_is_refused():
    with pytest.raises(ConfigError, match="width 30 does not divide into 4 heads; give a multiple of 4"):
        TransformerSpec(width=30)
