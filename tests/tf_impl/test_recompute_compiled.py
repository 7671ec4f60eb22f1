"""What XLA makes of recomputation."""

import subprocess
import sys

import pytest


@pytest.mark.tf
@pytest.mark.slow
def test_xla_computes_the_inner_block_again() -> None:
    """If it found the products of both passes to be the same and kept the first, `--recompute --compile` had to be refused."""
    line = [sys.executable, "-m", "tests.tf_impl.recomputed_worker"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=200, check=True)
    kept, computed = map(int, done.stdout.split())
    assert computed > kept
