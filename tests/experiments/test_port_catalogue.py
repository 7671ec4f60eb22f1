"""The catalogue of small ports: every mistake is located, nearly every one named and none wrongly; right ones raise no alarm."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from samestep.common.porting.case import DIFFERENT, PortVerdict
from samestep.common.runtime.parent.launcher import Launcher
from tests.own import port_catalogue as catalogue
from tests.ported import port_all, request_of

pytestmark = [pytest.mark.torch, pytest.mark.tf]


def walk(launcher: Launcher, folder: Path, names: Iterable[str], steps: int) -> dict[str, PortVerdict]:
    configs = {name: request_of(catalogue.FILES[name], name, catalogue.OF[name], steps) for name in names}
    return {name: verdict for name, (_, verdict) in port_all(launcher, folder, configs, catalogue.MODELS).items()}


def alarms(found: dict[str, PortVerdict]) -> dict[str, str]:
    """Right ports that are called different."""
    return {name: each.sentence for name, each in found.items() if name in catalogue.RIGHT and each.kind == DIFFERENT}


def is_located(name: str, found: PortVerdict) -> bool:
    """A mistake lies in the piece, or between the front and the head, or in the loss or the update."""
    names = {found.source.partition(".")[0], *found.target.split("/")}
    is_after = found.phase in ("loss", "update", "curve", "dropout")
    return found.kind == DIFFERENT and (is_after or bool(names - {"front"}))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_whole_catalogue(launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = walk(launcher, tmp_path, catalogue.MODELS, steps=10)
    wrong = {name: (found[name], cause) for name, (_, cause) in catalogue.WRONG.items()}
    located = [name for name, (verdict, _) in wrong.items() if is_located(name, verdict)]
    named = [name for name, (verdict, cause) in wrong.items() if cause and cause in verdict.cause]
    wrongly = {name: each.sentence for name, (each, cause) in wrong.items() if each.cause and cause not in each.cause}
    assert "without that" not in found["penalty"].cause
    with capsys.disabled():
        print(
            f"\n{len(wrong)} wrong ports: {len(located)} located, {len(named)} named, {len(wrongly)} named wrongly; "
            f"{len(catalogue.RIGHT)} right ones: {len(alarms(found))} alarms"
        )
    assert alarms(found) == {} and wrongly == {}
    assert len(wrong) >= 60 and [name for name in wrong if name not in located] == []
    assert len(catalogue.RIGHT) >= 20 and len(named) >= 5 / 6 * len(wrong), [
        name for name in wrong if name not in named
    ]
