"""The workflows and the action: what they take from elsewhere is pinned, and what they call is there."""

import re
import shlex
from pathlib import Path

import pytest

from samestep.experiments import compare

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "action.yml", *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_action_is_pinned_to_a_commit(file: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", file.read_text())
    assert used
    assert [
        name for name, said in used if name != "./" and not re.fullmatch(r".+@[0-9a-f]{40} # v[\d.]+", name + said)
    ] == []


@pytest.mark.parametrize(
    ("file", "pattern"),
    [("action.yml", r"default: (--dtype.*)"), (".github/workflows/nightly.yml", r"arguments: (.*)")],
)
def test_the_arguments_are_flags_of_compare(file: str, pattern: str) -> None:
    found = re.search(pattern, (ROOT / file).read_text())
    assert found is not None
    assert vars(compare._parser().parse_args(shlex.split(found[1])))["dtype"] == "float64"
