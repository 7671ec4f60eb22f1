"""What a step sends and keeps on 512 ranks that are not there is what was predicted."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("cell", ["torch:fsdp+mesh=shard=512", "torch:fsdp+mesh=data=64,shard=8"])
def test_512_ranks_are_as_predicted(cell: str) -> None:
    line = [sys.executable, "-m", "benchmarks.fake_ranks", cell]
    done = subprocess.run(line, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=200, check=True)
    _, _, row = done.stdout.splitlines()
    _, name, ranks, exchanges, predicted, state, predicted_state, _ = (each.strip() for each in row.split("|"))
    assert (name, ranks) == (f"`{cell}`", "512")
    assert exchanges == predicted and "reduce_scatter" in exchanges
    assert state == predicted_state and int(state.replace(",", "")) > 0
