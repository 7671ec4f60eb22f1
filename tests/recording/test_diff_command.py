"""`samestep diff` from end to end, on real scripts, and the gate of a pull request as docs/record.md has it."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "scripts" / "judged.py"
PLAIN = [sys.executable, str(SCRIPT)]
_, GATE = (ROOT / "docs" / "record.md").read_text().split("\n### Gate a pull request\n")
TO_COMMIT, TO_GATE = re.findall(r"^(?:- run: )?samestep (.+)$", GATE, re.MULTILINE)
TWO = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]


def samestep(*words: str, program: str = "samestep", **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    common = {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", program, *words],
        capture_output=True,
        text=True,
        env=os.environ | common | environment,
        timeout=280,
    )


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("diff")


def record(below: Path, name: str, command: list[str]) -> str:
    """A record, made once."""
    if not (below / name).exists():
        ended = samestep("record", "--out", str(below / name), "--", *command)
        assert ended.returncode == 0, ended.stderr
    return str(below / name)


def gated(line: str, *flags: str) -> list[str]:
    """A line of the page, whose train.py is the script."""
    return shlex.split(line.replace("python train.py", shlex.join([*PLAIN, *flags])))


@pytest.fixture
def a(below: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The record that is committed."""
    monkeypatch.chdir(below)
    if not (below / "records").exists():
        ended = samestep(*gated(TO_COMMIT))
        assert ended.returncode == 0, ended.stderr
        assert sum(path.stat().st_size for path in (below / "records").rglob("*") if path.is_file()) < 64 * 2**10
    return str(below / "records" / "train")


@pytest.mark.slow
def test_one_process_and_two_are_the_same(below: Path, a: str) -> None:
    found = samestep("diff", a, record(below, "two", TWO))
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("same: 5 steps\n")
    assert "times what rounding makes" in found.stdout


def test_the_gate_lets_the_same_step_pass(below: Path, a: str) -> None:
    """Its five reruns are forked off one process; those of the slow tests, and of an interrupted diff, are commands."""
    found = samestep(*gated(TO_GATE, "--accumulate"), program="tests.recording.forked_reruns")
    assert found.returncode == 0, found.stdout + found.stderr
    assert [path.name.endswith("judged") for path in (below / "runs").iterdir()] == [True]


def test_the_gate_names_a_mistake(a: str) -> None:
    found = samestep(*gated(TO_GATE, "--accumulate", "--undivided"), GITHUB_ACTIONS="true")
    assert found.returncode == 4, found.stdout + found.stderr
    assert found.stdout.startswith("not the same: step 0, loss: the loss and every gradient of B are 4.000 times A's")
    assert "::error title=samestep diff::not the same: step 0" in found.stderr


@pytest.mark.slow
def test_a_mistake_without_a_name_is_located(below: Path, a: str) -> None:
    found = samestep("diff", a, record(below, "off", [*PLAIN, "--off"]), "--format", "json")
    assert found.returncode == 4, found.stdout + found.stderr
    verdict = json.loads(found.stdout)["verdict"]
    assert (verdict["kind"], verdict["first"]["step"], verdict["first"]["phase"]) == ("unnamed", 0, "gradient")
    assert verdict["first"]["layer"] == "2"
    assert {row["name"] for row in verdict["rows"] if row["differs"]} == {"0.weight", "2.bias"}


@pytest.mark.slow
def test_bf16_sees_little_and_float64_decides(below: Path) -> None:
    one, other = (record(below, f"bf16{flag}", [*PLAIN, "--bf16", *flag.split()]) for flag in ("", "--accumulate"))
    found = samestep("diff", one, other)
    assert found.returncode == 3, found.stdout + found.stderr
    assert found.stdout.startswith("cannot tell") and "--float64" in found.stdout
    decided = samestep("diff", one, other, "--float64")
    assert decided.returncode == 0, decided.stdout + decided.stderr


@pytest.mark.slow
def test_bf16_is_no_mistake_beside_float32(below: Path, a: str) -> None:
    found = samestep("diff", a, record(below, "bf16", [*PLAIN, "--bf16"]))
    assert found.returncode == 3, found.stdout + found.stderr
    assert found.stdout.startswith("cannot tell\n") and "--float64" in found.stdout
    assert "B computes products in bfloat16, and the other does not" in found.stdout


@pytest.mark.slow
def test_weights_and_examples_of_bf16_are_no_other_ones(below: Path, a: str) -> None:
    other = record(below, "narrow", [*PLAIN, "--narrow"])
    found = samestep("diff", a, other)
    assert found.returncode == 3, found.stdout + found.stderr
    assert found.stdout.startswith("cannot tell")
    decided = samestep("diff", a, other, "--float64")
    assert decided.stdout.startswith("same: 5 steps\n"), decided.stdout + decided.stderr


@pytest.mark.slow
def test_a_large_mistake_is_seen_beside_bf16(below: Path, a: str) -> None:
    found = samestep("diff", a, record(below, "bf16-sum", [*PLAIN, "--bf16", "--accumulate", "--undivided"]))
    assert found.returncode == 4, found.stdout + found.stderr
    assert found.stdout.startswith("not the same: step 0, loss: ")


@pytest.mark.slow
@pytest.mark.tf
def test_a_script_of_torch_and_one_of_keras_are_the_same(below: Path) -> None:
    torch, keras = (
        record(below, name, [sys.executable, str(SCRIPT.with_name(f"{name}.py"))])
        for name in ("torch_mlp", "keras_mlp")
    )
    found = samestep("diff", torch, keras)
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("same: 4 steps\n")
    assert "A is a record of torch, B of tf" in found.stdout


@pytest.mark.slow
def test_other_initial_weights_are_taken_from_a(below: Path, a: str) -> None:
    other = record(below, "seed", [*PLAIN, "--other-seed"])
    found = samestep("diff", a, other, "--steps", "9", "--format=github")
    said = " ".join(found.stdout.split())  # lengths of paths decide where a line is wrapped
    assert found.returncode == 4 and f"samestep diff {a} {other} --weights-from A" in said
    assert found.stdout.startswith("not the same: before the first step, initial weights")
    again = samestep("diff", a, other, "--weights-from", "A")
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.parametrize(
    ("b", "message"),
    [
        ("nothing", "is neither a record nor a command"),
        ("python 'open", "is not a command: No closing quotation"),
        ("nothere train.py", "command 'nothere' is not found"),
    ],
)
def test_bad_requests_have_one_line(a: str, b: str, message: str) -> None:
    found = samestep("diff", a, b)
    assert found.returncode == 2
    assert message in found.stderr and len(found.stderr.splitlines()) == 1 and not found.stdout
