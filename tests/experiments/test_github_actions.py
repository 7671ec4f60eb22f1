"""What a workflow of GitHub shows: an annotation for each row that did not pass, and the table in the summary of the job."""

from pathlib import Path

import pytest

from samestep.experiments.cli import github_actions
from samestep.experiments.printing.formats import Case, Document

DOCUMENT = Document(
    name="samestep compare",
    text=lambda: "| strategy |\n|---|\n| torch:ddp |",
    record={},
    rows=[],
    cases=[
        Case("torch:ddp"),
        Case("torch:hybrid+mesh=pipe=2,tensor=2", "failure", "step 3 is\n100% off"),
        Case("tf:mirrored", "error", "rank-1 died"),
        Case("tf:tpu", "skipped", "unavailable"),
    ],
)


@pytest.fixture
def summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return path


def test_rows_that_did_not_pass_are_annotated(summary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    github_actions.show(DOCUMENT)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "::error title=samestep compare%2C torch%3Ahybrid+mesh=pipe=2%2Ctensor=2::step 3 is%0A100%25 off",
        "::error title=samestep compare%2C tf%3Amirrored::rank-1 died",
    ]


def test_the_summary_of_the_job_gets_the_table(summary: Path) -> None:
    github_actions.show(DOCUMENT)
    assert summary.read_text() == "before\n### samestep compare\n\n| strategy |\n|---|\n| torch:ddp |\n\n"


def test_a_summary_that_cannot_be_written_is_a_warning(summary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary.unlink()
    github_actions.show(DOCUMENT)
    assert "::warning title=samestep compare::the summary of the job could not be written" in capsys.readouterr().err


def test_elsewhere_nothing_is_shown(
    summary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS")
    github_actions.show(DOCUMENT)
    assert capsys.readouterr().err == ""
    assert summary.read_text() == "before\n"
