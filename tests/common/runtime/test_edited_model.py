"""A user's file that was edited since its reference was kept: another function of the same weights has another reference."""

from pathlib import Path

import pytest

from samestep.common.judging.reference_run import reference_of
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.judging.reference_curves import curve_folder
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.workload import code

pytestmark = pytest.mark.torch

NET = """
import samestep

def net():
    from torch import nn
    import bend_of_mine

    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), bend_of_mine.Bend(), nn.Linear(8, 10))

model = samestep.Model(torch=net)
"""
ZOO = Path(__file__).parents[2] / "own" / "keras_zoo.py"


def test_an_edit_beside_the_file_is_judged_by_another_reference(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, folders = tmp_path / "net.py", []
    net.write_text(NET)
    for bend in ("Tanh", "Tanh", "ReLU"):
        net.with_name("bend_of_mine.py").write_text(f"from torch import nn\n\nBend = nn.{bend}\n")
        monkeypatch.setattr(launcher._descriptions, "_found", {})  # as a new command's
        config = launcher.describe(RunConfig("torch", "ddp", devices=2, model=str(net), data=f"{ZOO}:images"))
        folders.append(curve_folder(reference_of(parse(config)), launch_of(config), "of the data"))
    assert folders[0] == folders[1] != folders[2]
    (site := tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(str(site))
    for package in ("layers_of_mine-1.1.dist-info", "losses_of_mine-0.2-py3.11.egg-info"):  # upgrades
        (site / package).mkdir()
        folders.append(curve_folder(reference_of(parse(config)), launch_of(config), "of the data"))
    assert len(set(folders)) == 4


def test_where_a_file_lies_is_no_other_code(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        (folder / code.CODE).write_text(f'{{"{folder}/net.py": "abc", "/elsewhere.py": "0"}}')
    assert code.digests(str(folders[0])) == code.digests(str(folders[1])) == ["0", "abc"]
