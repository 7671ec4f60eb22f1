"""Blocks that a forward pass calls several times, and computes again in the backward pass by its own code."""

import pytest

from samestep.common.workload.models.description import read_description
from tests.conftest import RunCell
from tests.own.catalogue import Kind

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("row", ["fsdp", pytest.param("zero2", marks=pytest.mark.slow)])
def test_what_is_gathered_for_each_call_is_predicted(run_cell: RunCell, row: str) -> None:
    asked = Kind("REPEATED", "points", file="repeated_zoo.py", data_file="torch_zoo.py").asked()
    result = run_cell(f"torch:{row}", "digits-mlp", devices=2, dtype="float64", steps=6, **asked)
    assert result.parity.passed, result.parity.reason
    sent = sum(process.sent_bytes_per_step for process in result.processes)
    assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.01)
    found = read_description(str(result.config.described))
    assert [block.name for block in found.blocks] == ["blocks/0", "blocks/1", "blocks/2"]  # the first has more
    assert {found.uses[block.name].calls for block in found.blocks} == {2}


@pytest.mark.parametrize(("name", "blocks"), [("OUT", []), ("IN", ["blocks/1"]), ("AGAIN", [])])
def test_what_is_read_outside_of_a_block_is_gathered_with_its_surroundings(
    run_cell: RunCell, name: str, blocks: list[str]
) -> None:
    """FSDP would end with SIGSEGV, find a shard where it needs a whole parameter, or get gradients wrong."""
    asked = Kind(name, "points", file="repeated_zoo.py", data_file="torch_zoo.py").asked()
    result = run_cell("torch:fsdp", "digits-mlp", devices=2, dtype="float64", steps=3, **asked)
    assert result.parity.passed, result.parity.reason
    assert [block.name for block in read_description(str(result.config.described)).blocks] == blocks
