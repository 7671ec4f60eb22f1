"""`samestep demo` finds the mistake that it plants, names it, and leaves nothing."""

import tempfile
from pathlib import Path

import pytest

from documenting import demo_picture
from samestep.common.errors import ConfigError
from samestep.common.reference.known import KNOWN
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments import demo
from samestep.torch_impl.planted import PLANTED
from tests.lent import LentLauncher

SENTENCES = {mutant.name: mutant.sentence.format(devices=2) for mutant in KNOWN}
DEFAULT = "clip_by_local_norm"


@pytest.mark.torch
@pytest.mark.parametrize(
    "mistake", [pytest.param(name, marks=[] if name == DEFAULT else [pytest.mark.slow]) for name in PLANTED]
)
def test_a_planted_mistake_is_found_and_named(
    launcher: Launcher,
    mistake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "samestep.common.runtime.parent.launcher.Launcher", lambda worker: LentLauncher(launcher, worker)
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("COLUMNS", str(demo_picture.COLUMNS))
    assert demo.main([] if mistake == DEFAULT else ["--mistake", mistake]) == 0
    told = capsys.readouterr().out
    assert told.count("  same step") == 2
    assert told.count("NOT the same step") == 1
    assert SENTENCES[mistake] in " ".join(told.split())
    assert not list(tmp_path.glob("samestep-demo-*"))
    if mistake == DEFAULT:
        stale = "run: python -m documenting.demo_picture"
        assert demo_picture.shown(demo_picture.PICTURE.read_text()) == [demo_picture.PROMPT, *told.splitlines()], stale


def test_every_planted_mistake_is_a_known_one() -> None:
    assert set(PLANTED) <= set(SENTENCES)


def test_an_unknown_mistake_is_one_line_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown mistake 'sum_for_maen'\. Did you mean 'sum_for_mean'\?"):
        demo.main(["--mistake", "sum_for_maen"])
