"""Cost models of very many ranks: what they group equals what they would count rank by rank."""

import itertools
import math
import random

import pytest

from samestep.common.costs.deepspeed import _gradient_elements
from samestep.common.costs.shards import shard_elements, sharded_holders
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.workload.models.spec import Param, Segment
from samestep.common.workload.pipeline_schedule import Stages, group_segments


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 7, 16, 40, 1000])
def test_shards_in_a_row_are_those_that_torch_makes(shards: int) -> None:
    held = [
        Param((3, 7), "kernel"),
        Param((7,), "bias"),
        Param((40, 5), "table"),
        Param((6, 16), "kernel"),
        Param(
            (4, 6, 9), "kernel", stacked=4
        ),  # the first dim is torch's as well, and does not divide where the last one does
        Param((4, 9), "bias", stacked=4),
    ]
    one_by_one = []
    for shard in range(shards):
        elements = 0
        for param in held:
            rows = param.shape[-1] if param.role == "kernel" and not param.stacked else param.shape[0]
            each = math.ceil(rows / shards)
            elements += len(range(rows)[shard * each : (shard + 1) * each]) * math.prod(param.shape) // rows
        one_by_one.append(elements)
    assert [n for n, count in shard_elements(held, shards) for _ in range(count)] == one_by_one


def test_a_shard_has_gradients_and_state_of_what_it_holds() -> None:
    """Of three columns the first of two ranks has two, of four it has two: no share of the whole says so."""
    run = parse(RunConfig(framework="torch", strategy="fsdp", optimizer="adamw", devices=2))
    used, unread, fixed = (
        Param((6, 3), "kernel"),
        Param((6, 4), "kernel", skipped=True),
        Param((3,), "bias", frozen=True),
    )
    still = Param((5,), "scale", unreached=True)
    first, second = sharded_holders(run, [used, unread, fixed, still], [used, unread, still])
    assert [each.params_bytes for each in (first, second)] == [4 * (12 + 12 + 2 + 3), 4 * (6 + 12 + 1 + 2)]
    assert [each.gradients_bytes for each in (first, second)] == [4 * 12, 4 * 6]
    assert [each.optimizer_bytes for each in (first, second)] == [8 * (12 + 3), 8 * (6 + 2)]


@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8, 31, 200])
def test_a_stretch_keeps_the_gradients_that_reach_into_it(devices: int) -> None:
    sizes = [5, 40, 1, 1, 7, 100, 3]
    stretch = -(-sum(sizes) // (2 * devices)) * 2
    one_by_one = []
    for first in range(0, devices * stretch, stretch):
        last = first + stretch
        spans = zip(itertools.accumulate(sizes, initial=0), itertools.accumulate(sizes), strict=False)
        touching = sum(end - start for start, end in spans if start < last and first < end)
        one_by_one.append(touching + max(0, last - max(first, sum(sizes))))
    assert [n for n, count in _gradient_elements(sizes, stretch, devices) for _ in range(count)] == one_by_one


def grouped_slowly(segments: tuple[Segment, ...], num_stages: int) -> Stages:
    """The definition: of all starts of the last stage the best, by what the largest stage has, then by all starts."""
    best: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {(0, 0): (0, ())}
    for stage, end in itertools.product(range(1, num_stages + 1), range(1, len(segments) + 1)):
        found = [
            (max(cost, sum(s.flops for s in segments[start:end])), (*starts, start))
            for start in range(end)
            for cost, starts in ([best[stage - 1, start]] if (stage - 1, start) in best else [])
        ]
        if found:
            best[stage, end] = min(found)
    starts = (*best[num_stages, len(segments)][1], len(segments))
    return tuple(segments[start:end] for start, end in itertools.pairwise(starts))


def test_stages_are_those_of_the_definition() -> None:
    draw = random.Random(0)
    for _ in range(300):
        count, most = draw.randint(1, 10), draw.choice([1, 3, 100])
        segments = tuple(Segment(str(number), draw.randint(0, most)) for number in range(count))
        for num_stages in range(1, count + 1):
            assert group_segments(segments, num_stages) == grouped_slowly(segments, num_stages)


def test_the_largest_parameter_left_goes_to_the_first_rank_that_has_least() -> None:
    run = parse(RunConfig(strategy="zero1", devices=32, workload="digits-mlp+width=32", optimizer="sgd"))
    owned = [0] * 32
    for size in sorted((param.size for param in run.workload.model.params().values()), reverse=True):
        owned[owned.index(min(owned))] += 4 * size
    assert [each.optimizer_bytes for each in run.strategy.cost(run, "gloo").devices()] == owned
