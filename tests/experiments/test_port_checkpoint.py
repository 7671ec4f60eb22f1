"""A checkpoint of the torch model comes along: Keras' own reader gives its model what the torch model computes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ConfigError, ParityFailed
from samestep.common.files.safetensors import write_safetensors
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments.port import main
from tests.own import ports
from tests.ported import request_of

pytestmark = [pytest.mark.torch, pytest.mark.tf, pytest.mark.timeout(300)]
ZOO = Path(__file__).parents[1] / "own" / "ports.py"
SHAPES = {
    "0.weight": (16, 6),
    "0.bias": (16,),
    "2.weight": (12, 16),
    "2.bias": (12,),
    "4.weight": (3, 12),
    "4.bias": (3,),
}
READ = """
import sys, numpy as np
sys.path.insert(0, sys.argv[2])
from tests.own import ports
model = ports.tf_mlp()
model.load_weights(sys.argv[1])
np.savez(sys.argv[3], made=model(np.ones((2, 6), "float32")).numpy())
"""


def checkpoint(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    draw = np.random.default_rng(7)
    arrays = {name: draw.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    write_safetensors(folder / "old.safetensors", {**arrays, "ema": np.ones(2, np.float32)})
    return folder / "old.safetensors", arrays


def test_keras_reads_what_torch_had(launcher: Launcher, tmp_path: Path) -> None:
    path, arrays = checkpoint(tmp_path)
    launcher.port(request_of(ZOO, "mlp", ports.OF["mlp"], 0), (), path)
    about = json.loads((tmp_path / "old.weights.json").read_text())
    assert about["verdict"].startswith("the same model") and about["unused"] == ["ema"]
    assert about["weights"][0] == {
        "torch": ["0.weight"],
        "keras": ["dense/kernel"],
        "shapes": [[6, 16]],
        "change": "transposed",
    }
    root = str(Path(__file__).parents[2])
    run = [sys.executable, "-c", READ, str(tmp_path / "old.weights.h5"), root, str(tmp_path / "made.npz")]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    x = np.ones((2, 6))
    for number in (0, 2, 4):
        x = x @ arrays[f"{number}.weight"].T + arrays[f"{number}.bias"]
        x = np.tanh(x) if number < 4 else x
    assert np.allclose(np.load(tmp_path / "made.npz")["made"], x, atol=1e-5)
    with pytest.raises(ConfigError, match=r"old\.weights\.h5 and .*old\.weights\.json is there already; move it away"):
        main(["--model", "net.py", "--weights", str(path), "--to", "keras"])


@pytest.mark.slow
def test_what_differs_or_does_not_fit_is_not_written(launcher: Launcher, tmp_path: Path) -> None:
    path, arrays = checkpoint(tmp_path)
    with pytest.raises(
        ParityFailed, match="nothing is written, since the two are not the same model: first difference"
    ):
        launcher.port(request_of(ZOO, "activation", ports.OF["activation"], 0), (), path)
    write_safetensors(path, {name: value for name, value in arrays.items() if name != "2.bias"})
    with pytest.raises(ConfigError, match=r"lacks 2\.bias of the torch model; give its own checkpoint"):
        launcher.port(request_of(ZOO, "mlp", ports.OF["mlp"], 0), (), path)
    assert [each.name for each in tmp_path.iterdir()] == ["old.safetensors"]


def test_flags_that_belong_together(tmp_path: Path) -> None:
    for given in (["--to", "keras"], ["--weights", "x.safetensors"], ["--weights", "x.safetensors", "--to", "torch"]):
        with pytest.raises(ConfigError, match=r"--weights FILE\.safetensors and --to keras belong together"):
            main(["--model", "net.py", *given])
    with pytest.raises(ConfigError, match=r"is not a \.safetensors file"):
        main(["--model", "net.py", "--weights", str(tmp_path / "none.pt"), "--to", "keras"])
