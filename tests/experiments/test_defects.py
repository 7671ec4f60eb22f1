"""What was found wrong upstream: the list, the scripts, the page that shows them, and what becomes of a defect that went."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from documenting import defects
from samestep.common.errors import Unavailable, WorkerFailed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "found.md").read_text()
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
NAMES = list(defects.defects())


def told(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "documenting.defects", *arguments]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


def block(name: str, language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", SECTIONS[name], re.DOTALL)
    return text


def test_without_a_name_each_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert defects.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert max(map(len, lines)) <= 120


def test_an_unknown_name_is_one_line_with_the_choices() -> None:
    done = told("hierarchical-copy")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    offer = "samestep: unknown defect 'hierarchical-copy'. Did you mean 'hierarchical_copy'? Choose from: "
    shown, _, left = line.removeprefix(offer).partition(" and ")
    assert shown.split(", ") == NAMES[: shown.count(", ") + 1]
    assert left == f"{len(NAMES) - shown.count(', ') - 1} more."


def test_the_page_has_a_section_of_each() -> None:
    assert sorted(SECTIONS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_lines_that_run(name: str) -> None:
    assert block(name, "python") == defects.defects()[name].script.read_text()
    assert block(name, "text").strip()


def test_the_tests_that_guard_them_are_there() -> None:
    assert [name for name, section in SECTIONS.items() if "Guarded by" not in " ".join(section.split())] == []
    guards = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(guards) >= len(NAMES)
    for path, test in guards:
        assert re.search(rf"^def {test}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{test}"


@pytest.mark.parametrize("name", NAMES)
def test_a_script_is_short_and_says_what_to_do(name: str) -> None:
    defect = defects.defects()[name]
    assert defect.summary.endswith(".")
    assert defect.advice
    assert {"torch", "tensorflow"} & {*defect.packages}
    assert len(defect.script.read_text().splitlines()) <= 40


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("hierarchical_copy", marks=[pytest.mark.tf, pytest.mark.slow]),
        pytest.param("dtensor_conv2d", marks=[pytest.mark.torch, pytest.mark.slow]),
    ],
)
def test_the_installed_version_is_as_the_page_says(name: str) -> None:
    done = told(name)
    assert done.returncode == 0, done.stderr
    *seen, failure = block(name, "text").splitlines()
    assert done.stdout.splitlines()[2:-2] == [*seen, failure.removeprefix("AssertionError: ")]
    assert f"\nPresent in {', '.join(defects.defects()[name].packages)} " in done.stdout


def defect_of(tmp_path: Path, code: str, packages: tuple[str, ...] = ("numpy",)) -> defects.Defect:
    script = tmp_path / "script.py"
    script.write_text(code)
    return defects.Defect(script, "It is wrong.", "Do it otherwise.", packages)


def test_a_defect_that_went_is_not_present_any_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert not defects.look_for(defect_of(tmp_path, "print('one and one is', 1 + 1)\nassert 1 + 1 == 2, 'not 2'"))
    summary, _, seen, _, verdict = capfd.readouterr().out.splitlines()
    assert (summary, seen) == ("It is wrong.", "one and one is 2")
    assert re.fullmatch(r"Not present any more in numpy [\d.]+\.", verdict)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ValueError('no such thing')", "ended with exit code 1: ValueError: no such thing"),
        ("import os; os.abort()", "ended with exit code -6: it wrote nothing"),
        ("def check():\n    assert False, 'of a library'\ncheck()", "ended with exit code 1: AssertionError"),
    ],
)
def test_a_script_that_fails_otherwise_shows_nothing(tmp_path: Path, code: str, says: str) -> None:
    with pytest.raises(WorkerFailed, match=re.escape(f"script.py {says}")):
        defects.look_for(defect_of(tmp_path, code))


def test_a_script_that_does_not_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defects, "TIMEOUT_SECONDS", 0.2)
    with pytest.raises(WorkerFailed, match="did not end within"):
        defects.look_for(defect_of(tmp_path, "import time; time.sleep(60)"))


@pytest.mark.parametrize("package", ["torch", "tensorflow", "deepspeed"])
def test_without_its_package_it_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else object())
    with pytest.raises(Unavailable, match=f"{package} is not installed: pip install"):
        defects.look_for(defect_of(tmp_path, "", (package,)))
