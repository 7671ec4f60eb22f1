"""The workflows and the action: what they take from elsewhere is pinned, and what they call is there."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

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


def test_the_parts_of_the_slow_tests_are_all_of_them() -> None:
    slow = yaml.safe_load((ROOT / ".github" / "workflows" / "weekly.yml").read_text())["jobs"]["slow"]
    (total,) = re.findall(r"make test-slow .*PART=\$\{\{ matrix\.part \}\}/(\d+)$", slow["steps"][-1]["run"])
    assert slow["strategy"]["matrix"]["part"] == list(range(1, int(total) + 1))


def test_the_notes_of_a_release_are_its_part_of_the_changelog(tmp_path: Path) -> None:
    """The lines of the workflow, on a changelog with two versions."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    (check,) = (step["run"] for step in workflow["jobs"]["release"]["steps"] if "CHANGELOG" in step.get("name", ""))
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 1.2.0\n\n* New.\n\n## 1.1.0\n\n* Old.\n")

    def passes(tag: str) -> bool:
        line = ["bash", "--noprofile", "-e", "-o", "pipefail", "-c", check]
        return subprocess.run(line, cwd=tmp_path, env={**os.environ, "GITHUB_REF_NAME": tag}).returncode == 0

    assert passes("v1.2.0")
    assert (tmp_path / "notes.md").read_text().strip() == "* New."
    assert not passes("v1.3.0")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## Unreleased\n\n* New.\n")
    assert not passes("v1.2.0")
