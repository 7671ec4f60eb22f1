"""The cost model of a step's seconds: laws that hold on any machine."""

import dataclasses

import pytest

from samestep.common.evidence.costs.machine import load_machine
from samestep.common.evidence.costs.step_time import Layout, Shape, step_time

A100 = load_machine("a100-80gb")
GPT = Shape(24, 2048, 16, 16, 8192, False, 1024, 51200)
LAYOUT = Layout(batch_size=64, microbatch_size=2, data=2, tensor=2, pipe=2, recomputes=True)


def test_one_gpu_only_computes_and_updates() -> None:
    parts = step_time(GPT, Layout(batch_size=8, microbatch_size=1), A100).parts()
    assert {name for name, seconds in parts.items() if seconds} == {"compute", "optimizer"}


def test_no_machine_computes_faster_than_its_peak() -> None:
    flops = 6 * 64 * GPT.context * GPT.layers * GPT.block_params
    layout = dataclasses.replace(LAYOUT, recomputes=False)
    assert step_time(GPT, layout, A100).total > flops / (8 * A100.peak_flops_per_second)


@pytest.mark.parametrize("rate", ["peak_flops_per_second", "node_bytes_per_second", "memory_bytes_per_second"])
def test_a_faster_machine_is_faster(rate: str) -> None:
    faster = dataclasses.replace(A100, **{rate: 2 * getattr(A100, rate)})
    assert step_time(GPT, LAYOUT, faster).total < step_time(GPT, LAYOUT, A100).total
