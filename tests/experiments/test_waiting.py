"""Who watches a terminal is told what takes a while; who reads a pipe is not."""

import pytest

from samestep.experiments.advise import main

ASKED = ["--workload", "gpt3-175b", "--nodes", "16", "--batch-size", "512", "--mesh", "pipe=8,tensor=8"]


@pytest.mark.parametrize(
    ("is_terminal", "said"), [(True, "\rRanking the layouts of gpt3-175b on 16 nodes of a100-80gb ..."), (False, "")]
)
def test_a_terminal_is_told_what_is_done(
    is_terminal: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    assert main(ASKED) == 0
    err = capsys.readouterr().err
    assert err.startswith(said) and err.endswith("\n" if said else "")
    assert all(each.startswith(said[1:].removesuffix(" ...")) for each in err.split("\r")[1:])
