"""Who watches a terminal is told what takes a while; who reads a pipe is not."""

import pytest

from samestep.experiments.advise import main

ASKED = ["--workload", "gpt3-175b", "--nodes", "64", "--batch-size", "1536"]


@pytest.mark.parametrize(
    ("is_terminal", "said"), [(True, "Ranking the layouts of gpt3-175b on 64 nodes of a100-80gb ...\n"), (False, "")]
)
def test_a_terminal_is_told_what_is_done(
    is_terminal: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    assert main(ASKED) == 0
    assert capsys.readouterr().err == said
