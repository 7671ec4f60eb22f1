"""A checkpoint of the torch model comes along: Keras' own reader gives its model what the torch model computes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ConfigError, ParityFailed
from samestep.common.files.safetensors import read_safetensors, write_safetensors
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.models.converting import WeightsFile
from samestep.experiments.port import main
from tests.own import ports
from tests.own.checkpoint import checkpoint
from tests.ported import request_of

pytestmark = [pytest.mark.torch, pytest.mark.tf, pytest.mark.timeout(300)]
ZOO = Path(__file__).parents[1] / "own" / "ports.py"
READ = """
import sys, numpy as np
sys.path.insert(0, sys.argv[2])
from tests.own.whole_ports.perceptron_models import tf_mlp
model = tf_mlp()
model.load_weights(sys.argv[1])
np.savez(sys.argv[3], made=model(np.ones((2, 6), "float32")).numpy())
"""


@pytest.mark.slow
def test_keras_reads_what_torch_had(launcher: Launcher, tmp_path: Path) -> None:
    path, arrays = checkpoint(tmp_path)
    launcher.port(request_of(ZOO, "mlp", ports.OF["mlp"], 0), (), WeightsFile(path, "keras"))
    root = str(Path(__file__).parents[2])
    run = [sys.executable, "-c", READ, str(tmp_path / "old.weights.h5"), root, str(tmp_path / "made.npz")]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    x = np.ones((2, 6))
    for number in (0, 2, 4):
        x = x @ arrays[f"{number}.weight"].T + arrays[f"{number}.bias"]
        x = np.tanh(x) if number < 4 else x
    assert np.allclose(np.load(tmp_path / "made.npz")["made"], x, atol=1e-5)


KEPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import torch
from samestep.common.files.safetensors import read_safetensors, write_safetensors
from tests.own import ports
model = ports.MODELS[sys.argv[3]].torch()
if sys.argv[4:]:
    model.load_state_dict({name: torch.from_numpy(each.copy()) for name, each in read_safetensors(Path(sys.argv[4])).items()})
write_safetensors(Path(sys.argv[1]), {name: each.numpy() for name, each in model.state_dict().items()})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["batch_norm", "depthwise", "gru", "bidirectional", "packed_gpt", "unpacked_gpt", "whole_gpt"]
)
def test_a_checkpoint_goes_there_and_back(name: str, launcher: Launcher, tmp_path: Path) -> None:
    """What returns is loaded strictly by torch and holds the same numbers; of two biases, only their sum came along."""
    old, root = tmp_path / "old.safetensors", str(Path(__file__).parents[2])

    def keep(*files: Path) -> dict[str, np.ndarray]:
        command = [sys.executable, "-c", KEPT, str(files[0]), root, name, *map(str, files[1:])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return read_safetensors(files[0])

    before, request = keep(old), request_of(ZOO, name, ports.OF[name], 0)
    accepted = ports.MODELS[name].accept
    launcher.port(request, accepted, WeightsFile(old, "keras"))
    launcher.port(request, accepted, WeightsFile(tmp_path / "old.weights.h5", "torch"))
    after = keep(tmp_path / "loaded.safetensors", tmp_path / "old.torch.safetensors")
    assert after.keys() == before.keys()
    for each in before:
        pair = [each, each.replace("bias_ih", "bias_hh")]
        one, other = (sum(held[part] for part in dict.fromkeys(pair)) for held in (before, after))
        assert "bias_hh" in each or np.allclose(one, other, rtol=1e-6, atol=1e-7), each


@pytest.mark.slow
def test_what_differs_or_does_not_fit_is_not_written(launcher: Launcher, tmp_path: Path) -> None:
    path, arrays = checkpoint(tmp_path)
    with pytest.raises(
        ParityFailed, match="nothing is written, since the two are not the same model: first difference"
    ):
        launcher.port(request_of(ZOO, "activation", ports.OF["activation"], 0), (), WeightsFile(path, "keras"))
    write_safetensors(path, {name: value for name, value in arrays.items() if name != "2.bias"})
    with pytest.raises(ConfigError, match=r"lacks 2\.bias of the torch model; give its own checkpoint"):
        launcher.port(request_of(ZOO, "mlp", ports.OF["mlp"], 0), (), WeightsFile(path, "keras"))
    assert [each.name for each in tmp_path.iterdir()] == ["old.safetensors"]


def test_flags_that_belong_together(tmp_path: Path) -> None:
    for given in (["--to", "keras"], ["--weights", "x.safetensors"]):
        with pytest.raises(ConfigError, match="--weights FILE and --to FRAMEWORK belong together; give both"):
            main(["--model", "net.py", *given])
    none = str(tmp_path / "none.pt")
    with pytest.raises(ConfigError, match=r"is not a \.safetensors file"):
        main(["--model", "net.py", "--weights", none, "--to", "keras"])
    with pytest.raises(ConfigError, match=r"is not a \.weights\.h5 or \.safetensors file"):
        main(["--model", "net.py", "--weights", none, "--to", "torch"])
    with pytest.raises(ConfigError, match="jax"):
        main(["--model", "net.py", "--weights", none, "--to", "jax"])


@pytest.mark.slow
def test_a_file_that_is_none_of_keras_is_one_line(launcher: Launcher, tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"junk", b"\x89HDF\r\n\x1a\n" + bytes(600))):
        path = tmp_path / f"{number}.weights.h5"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="does not hold the weights of the tf=") as caught:
            launcher.port(request_of(ZOO, "mlp", ports.OF["mlp"], 0), (), WeightsFile(path, "torch"))
        assert "\n" not in str(caught.value)
