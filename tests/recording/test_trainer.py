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
SAME, TWICE = "same: 4 steps", "not the same: step 0, loss: B's loss is 2.000 times A's"
EXIT_CODES = {SAME: 0, TWICE: 4}
PAIRS = {
    "twice": ("causal", (), "causal", SAME),
    "accumulated": ("causal", (), "causal --batch 4 --accumulate 2", SAME),
    "bf16": ("causal --bf16", (), "causal --bf16", SAME),
    "two processes": ("causal", TORCHRUN, "causal --batch 4", SAME),
    "seq2seq twice": ("seq2seq", (), "seq2seq", SAME),
    "seq2seq accumulated": ("seq2seq", (), "seq2seq --batch 4 --accumulate 2", TWICE),
    "seq2seq in two processes": ("seq2seq", TORCHRUN, "seq2seq --batch 4", TWICE),
}
"""transformers 5.24: the Trainer leaves it to T5 to divide its loss by all tokens of a step, since its forward pass takes any
keyword, but T5 takes the mean of its own batch."""


@pytest.mark.parametrize("pair", PAIRS)
def test_what_is_said_of_two_runs(tmp_path: Path, pair: str) -> None:
    for package in ("transformers", "accelerate"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'samestep[models]'")
    one, launcher, other, said = PAIRS[pair]
    for name, start, words in (("a", (), one), ("b", launcher, other)):
        script = (str(SCRIPTS / "trainer.py"), *words.split())
        done = record("--out", str(tmp_path / name), "--", sys.executable, *start, *script, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        for _, steps in read(tmp_path / name):
            assert len(steps) == 5 and all(each.losses and each.rows and "lr" in each.scalars for each in steps[1:])
    line = [sys.executable, "-m", "samestep", "diff", "a", "b"]
    done = subprocess.run(line, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=400, check=False)
    assert done.stdout.startswith(said) and done.returncode == EXIT_CODES[said], done.stdout + done.stderr
