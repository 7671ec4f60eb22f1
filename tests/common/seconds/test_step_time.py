"""The cost model of a step's seconds: laws that hold on any machine, and bytes that are those of the ledgers."""

import dataclasses
import itertools

import pytest

from samestep.common.costs.sizes import all_reduce_bytes
from samestep.common.request import RunConfig
from samestep.common.run import parse_prediction
from samestep.common.seconds.block_time import BlockPart, block_time, embedding_seconds, head_time
from samestep.common.seconds.exchange_seconds import all_reduce_seconds, last_of, send_seconds
from samestep.common.seconds.layout import Layout
from samestep.common.seconds.machine import load_machine
from samestep.common.seconds.step_time import step_time
from samestep.common.workload.models.block_sizes import BlockSizes

A100 = load_machine("a100-80gb")
GPT = BlockSizes(24, 2048, 16, 16, 8192, False, 1024, 51200)
SEVEN_BILLION = BlockSizes(36, 4096, 32, 32, 4 * 4096, False, 2048, 51200)
LAYOUT = Layout(batch_size=64, microbatch_size=2, data=2, tensor=2, pipe=2, forward_passes=2)
IDEAL = dataclasses.replace(
    A100,
    **{name: 1.0 for name in vars(A100) if name.endswith("share")},
    **{name: 0.0 for name in vars(A100) if name.endswith("_seconds")},
)
"""A machine that reaches every peak and launches in no time."""


def with_layout(**changes: object) -> Layout:
    return dataclasses.replace(LAYOUT, **changes)


def test_one_gpu_only_computes_and_updates() -> None:
    parts = step_time(GPT, Layout(batch_size=8, microbatch_size=1), A100).parts()
    assert {name for name, seconds in parts.items() if seconds} == {"compute", "optimizer"}


@pytest.mark.parametrize(("forward_passes", "passes"), [(1, 3), (2, 4)])
def test_no_layout_beats_the_peak(forward_passes: int, passes: int) -> None:
    """Not even on a machine that wastes nothing."""
    flops = 2 * passes * 64 * GPT.context * GPT.layers * GPT.block_params
    for data, tensor, pipe in itertools.product((1, 2, 4), (1, 2, 8), (1, 2, 4)):
        layout = with_layout(data=data, tensor=tensor, pipe=pipe, forward_passes=forward_passes, fused_attention=True)
        assert step_time(GPT, layout, IDEAL).total > flops / (layout.num_gpus * A100.peak_flops_per_second)


@pytest.mark.parametrize("rate", ["peak_flops_per_second", "node_bytes_per_second", "memory_bytes_per_second"])
def test_a_faster_machine_is_faster(rate: str) -> None:
    faster = dataclasses.replace(A100, **{rate: 2 * getattr(A100, rate)})
    layout = with_layout(microbatch_size=8)
    assert step_time(GPT, layout, faster).total < step_time(GPT, layout, A100).total


def test_a_faster_network_matters_only_across_nodes() -> None:
    faster = dataclasses.replace(A100, network_bytes_per_second=2 * A100.network_bytes_per_second)
    assert step_time(GPT, LAYOUT, faster) == step_time(GPT, LAYOUT, A100)
    wider = with_layout(data=16)
    assert step_time(GPT, wider, faster).data_exchange < step_time(GPT, wider, A100).data_exchange


def test_a_tenth_of_the_work_is_bound_by_the_host() -> None:
    small, tiny = (dataclasses.replace(GPT, width=width, hidden=4 * width, vocabulary=8) for width in (256, 128))
    layout = Layout(batch_size=1, microbatch_size=1)
    seconds = [step_time(shape, layout, A100).compute for shape in (small, tiny)]
    assert seconds[0] == pytest.approx(seconds[1], rel=0.01)
    assert seconds[0] == pytest.approx(24 * A100.block_host_seconds, rel=0.01)


def test_each_pass_takes_the_slower_of_host_and_gpu() -> None:
    """Where one pass waits for the host and the other for the GPU, a block takes longer than either alone needs for both."""
    times = {}
    for factor in (0.0, 1.0, 100.0):
        machine = dataclasses.replace(A100, block_host_seconds=factor * A100.block_host_seconds)
        times[factor] = block_time(GPT, BlockPart(2), machine).alone
    gpu, host = times[0.0], A100.block_host_seconds
    assert times[100.0] == pytest.approx(100 * host)
    assert max(gpu, host) <= times[1.0] < gpu + host
    tuned = dataclasses.replace(A100, block_host_seconds=gpu)  # both need as long in all, in other shares of the passes
    assert block_time(GPT, BlockPart(2), tuned).alone > 1.02 * gpu


def test_separate_kernels_move_the_bytes_of_each_norm_and_sum() -> None:
    """Two norms and two sums a block: 10 numbers forward, where fused ones have 5, and 16 backward, where they have 8."""
    fused, separate = (
        block_time(GPT, BlockPart(8, fused_attention=True, separate_kernels=each), A100).alone for each in (False, True)
    )
    moved = (10 + 16 - 5 - 8) * 8 * GPT.context * GPT.width * 2
    assert separate - fused == pytest.approx(moved / (A100.memory_bytes_per_second * A100.memory_share))


def test_the_head_exchanges_what_megatrons_does() -> None:
    """The gradients of its input, and three numbers of each token; the sum of the embedding on the first stage."""
    rows, tensor = 4, 8
    stream, token = rows * 1024 * 2048 * 2, rows * 1024 * 4
    head = head_time(GPT, rows, tensor, IDEAL)
    wanted = all_reduce_seconds(IDEAL, stream, tensor) + 3 * all_reduce_seconds(IDEAL, token, tensor)
    assert head.seconds - head.alone == pytest.approx(wanted)
    assert embedding_seconds(GPT, rows, tensor, IDEAL) == pytest.approx(all_reduce_seconds(IDEAL, stream, tensor))
    assert head_time(GPT, rows, 1, A100).seconds == head_time(GPT, rows, 1, A100).alone
    late = dataclasses.replace(IDEAL, wait_seconds=1e-3)
    assert head_time(GPT, rows, tensor, late).seconds - head.seconds == pytest.approx(4e-3 * last_of(tensor))


def test_a_pipeline_waits_for_one_embedding_and_every_head() -> None:
    shape = dataclasses.replace(GPT, layers=2)
    for pipe, embeddings in ((1, 8), (2, 1)):
        layout = Layout(batch_size=8, microbatch_size=1, tensor=2, pipe=pipe)
        block, head = block_time(shape, BlockPart(1, 2), A100), head_time(shape, 1, 2, A100)
        blocks = 8 * 2 / pipe * (block.seconds - block.alone) + 8 * (head.seconds - head.alone)
        wanted = blocks + embeddings * embedding_seconds(shape, 1, 2, A100)
        assert step_time(shape, layout, A100).tensor_exchange == pytest.approx(wanted)


def test_an_unpadded_vocabulary_is_slow() -> None:
    odd, padded = (head_time(dataclasses.replace(GPT, vocabulary=size), 1, 1, A100).alone for size in (50257, 50304))
    assert odd == pytest.approx(padded / A100.unaligned_share, rel=0.01)


@pytest.mark.parametrize(
    "schedule", ["gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zbv_zero_bubble"]
)
def test_the_bubble_is_that_of_the_schedule(schedule: str) -> None:
    plain, other = (step_time(GPT, with_layout(schedule=name), A100) for name in ("1f1b", schedule))
    shares = {"interleaved_1f1b": 1 / 2, "interleaved_zero_bubble": 1 / 6, "zbv_zero_bubble": 1 / 6}
    assert other.pipeline_bubble == pytest.approx(plain.pipeline_bubble * shares.get(schedule, 1.0))
    assert other.compute == plain.compute


def test_of_one_gpipe_the_bubble_is_the_textbooks() -> None:
    """(p-1)/(m+p-1) of the step, of a model that is nothing but blocks."""
    blocks = dataclasses.replace(GPT, vocabulary=8)
    machine = dataclasses.replace(A100, node_bytes_per_second=1e12, node_share=1.0)
    layout = Layout(batch_size=32, microbatch_size=4, pipe=4)
    time = step_time(blocks, layout, machine)
    assert time.pipeline_bubble / (time.compute + time.pipeline_bubble) == pytest.approx(3 / 11, rel=0.01)


def test_what_overlaps_costs_less_and_never_nothing() -> None:
    for sharding in range(4):
        apart = step_time(GPT, with_layout(data=4, pipe=1, sharding=sharding), A100)
        together = step_time(GPT, with_layout(data=4, pipe=1, sharding=sharding, overlaps=True), A100)
        assert 0 < together.data_exchange < apart.data_exchange


def test_shards_of_all_replicas_are_full_sharding() -> None:
    alone = with_layout(pipe=1, tensor=1, data=1, shard=8, sharding=3)
    full = with_layout(pipe=1, tensor=1, data=8, shard=1, sharding=3)
    assert step_time(GPT, alone, A100).total == pytest.approx(step_time(GPT, full, A100).total)


def test_links() -> None:
    assert all_reduce_seconds(A100, 1e9, 8) == pytest.approx(all_reduce_bytes(1e9, 8) / 240e9)
    assert all_reduce_seconds(A100, 1e9, 16) == pytest.approx(all_reduce_bytes(1e9, 16) / 90e9)
    assert all_reduce_seconds(A100, 1e9, 8, stride=8) == pytest.approx(all_reduce_bytes(1e9, 8) / 90e9 * 8)
    assert send_seconds(A100, 1e9, 1, 8) == pytest.approx(1e9 / 240e9)
    assert send_seconds(A100, 1e9, 8, 16) == pytest.approx(8e9 / 90e9)
    assert send_seconds(A100, 1e9, 4, 16) == pytest.approx(4e9 / 90e9)  # the last four of a node send to the next one
    assert send_seconds(A100, 1e9, 1, 64) == pytest.approx(1e9 / 90e9)
    assert last_of(4) == pytest.approx(1 + 1 / 2 + 1 / 3 + 1 / 4)


def test_the_bytes_along_data_are_the_ledgers() -> None:
    """DDP's gradients of 7.5 billion parameters, at a rate that makes bytes of seconds."""
    run = parse_prediction(
        RunConfig(framework="torch", strategy="ddp", workload="megatron-7.5b", mesh="data=8", batch_size=64), "bf16"
    )
    sent = run.strategy.cost(run, "nccl").sent_bytes_per_step / 8
    time = step_time(SEVEN_BILLION, Layout(batch_size=64, microbatch_size=8, data=8), A100)
    assert time.data_exchange * A100.node_bytes_per_second * A100.node_share == pytest.approx(sent, rel=0.005)


def test_the_exchanges_along_tensor_are_the_ledgers() -> None:
    """Two all-reduces a block and micro-batch forward, two backward, and one of the embedding that is not worth a term."""
    config = RunConfig(
        framework="torch", strategy="hybrid", workload="megatron-7.5b", mesh="pipe=2,tensor=4", batch_size=8
    )
    run = parse_prediction(config, "bf16")
    count, rows = run.options.microbatches, 8 // run.options.microbatches
    sends = [send for send in run.strategy.cost(run, "nccl").sends if send.group == "tensor"]
    sizes = {send.bytes // send.count for send in sends}
    assert sizes == {rows * 2048 * 4096 * 2}
    number = {phase: sum(send.count for send in sends if send.phase == phase) for phase in ("forward", "backward")}
    assert number == {"forward": count * (2 * 18 + 1), "backward": count * 2 * 18}
    still = dataclasses.replace(IDEAL, node_bytes_per_second=A100.node_bytes_per_second)
    block = block_time(SEVEN_BILLION, BlockPart(rows, 4), still)
    assert block.seconds - block.alone == pytest.approx(4 * all_reduce_seconds(still, *sizes, 4))
