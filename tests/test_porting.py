"""docs/porting.md: each block is run, in an empty folder, in the order of the page, and prints what the page says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.common.workload.accepted import ACCEPTABLE
from tests.own import port_catalogue, ports

PAGE = (Path(__file__).parents[1] / "docs" / "porting.md").read_text()
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", PAGE, re.DOTALL)
ACCEPTED = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", PAGE, re.MULTILINE))
SAID = re.findall(
    r"^    (first difference.*|the same model: .*)$", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL), re.MULTILINE
)


@pytest.mark.torch
@pytest.mark.tf
@pytest.mark.timeout(300)
@pytest.mark.slow
def test_each_block_of_the_page(tmp_path: Path) -> None:
    printed = []
    for kind, block in BLOCKS:
        if kind == "python":
            file = re.match(r"# (\w+\.py)\n", block)
            assert file is not None
            (tmp_path / file[1]).write_text(block)
            continue
        program, *arguments = shlex.split(block, comments=True)
        assert program == "samestep"
        done = subprocess.run(
            [sys.executable, "-m", "samestep", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == (4 if "# ends with 4" in block else 0), done.stderr
        printed.append(done.stdout.strip().rpartition("\n\n")[2])
    assert list(map(plain, printed)) == list(map(plain, SAID))


def plain(text: str) -> str:
    """Without what differs from machine to machine, and without line breaks."""
    return re.sub(r"\d+ %", "N %", " ".join(text.split()))


def test_the_page_lists_what_may_be_accepted() -> None:
    assert {name: ACCEPTED.get(name) for name in ACCEPTABLE} == dict(ACCEPTABLE)


def test_each_cause_of_the_page_is_planted() -> None:
    rows = re.findall(r"^\| [^|]+ \| `([^|]+)` \| [^|]*\|$", PAGE.partition("## Causes")[2], re.MULTILINE)
    causes = [*(cause for *_, cause in ports.WRONG.values()), *(cause for _, cause in port_catalogue.WRONG.values())]
    planted = [re.sub(r"[`\d.]+|(relu|tanh)\b", "", cause) for cause in causes if cause]
    said = [re.sub(r"[`\d.]+|(relu|tanh)\b", "", row) for row in rows]
    assert len(rows) >= 17
    assert [row for row in said if not any(cause in row for cause in planted)] == []
