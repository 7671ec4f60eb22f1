"""`samestep.record` records what is trained within a `with`."""

import subprocess
import sys
from pathlib import Path

import pytest

import samestep
from tests.recording.records import ROOT, read

SCRIPT = """
import warnings
import torch
import samestep
model = torch.nn.ModuleDict({"used": torch.nn.Linear(3, 2), "unused": torch.nn.Linear(2, 2)})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model["used"](torch.ones(4, 3)).sum().backward()
        optimizer.step()
train(1)
for name, steps in (("one", 2), ("two", 3)):
    with warnings.catch_warnings(record=True) as warned, samestep.record(name, every=2) as directory:
        train(steps)
    assert [str(each.message) for each in warned] == ["had no gradient at any update: unused.weight, unused.bias."], warned
train(1)
print(directory.name)
"""


@pytest.mark.torch
def test_what_is_trained_within_is_recorded(tmp_path: Path) -> None:
    line = [sys.executable, "-c", SCRIPT]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "two\n"), done.stderr
    assert [len(read(tmp_path / name)[0][1]) for name in ("one", "two")] == [1 + 2, 1 + 3]


def test_without_a_framework_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(samestep.Unavailable, match="import torch or keras before"), samestep.record(tmp_path / "out"):
        pass
