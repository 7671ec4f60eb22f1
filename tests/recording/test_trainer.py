"""The Trainer of transformers, recorded without a changed line: twice, in micro-batches, in bf16, and in two processes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recording.records import SCRIPTS, read, record

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
PAIRS = {
    "twice": ("causal", (), "causal"),
    "accumulated": ("causal", (), "causal --batch 4 --accumulate 2"),
    "bf16": ("causal --bf16", (), "causal --bf16"),
    "two processes": ("causal", TORCHRUN, "causal --batch 4"),
    "seq2seq": ("seq2seq", (), "seq2seq --batch 4 --accumulate 2"),
    "seq2seq in two processes": ("seq2seq", TORCHRUN, "seq2seq --batch 4"),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_it_takes_the_same_steps(tmp_path: Path, pair: str) -> None:
    for package in ("transformers", "accelerate"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'samestep[models]'")
    one, launcher, other = PAIRS[pair]
    for name, start, words in (("a", (), one), ("b", launcher, other)):
        script = (str(SCRIPTS / "trainer.py"), *words.split())
        done = record("--out", str(tmp_path / name), "--", sys.executable, *start, *script, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        for _, steps in read(tmp_path / name):
            assert len(steps) == 5 and all(each.losses and each.rows and "lr" in each.scalars for each in steps[1:])
    line = [sys.executable, "-m", "samestep", "diff", "a", "b"]
    done = subprocess.run(line, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=400, check=False)
    assert done.stdout.startswith("same: 4 steps") and done.returncode == 0, done.stdout + done.stderr
