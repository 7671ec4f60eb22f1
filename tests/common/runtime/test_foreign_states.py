"""`--start-from` of folders that torch and TensorFlow wrote, read without either, and without doing what a pickle asks for."""

import dataclasses
import os
import pickle
import random
import re
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.files.dcp import METADATA, read_dcp
from samestep.common.files.reading import Unreadable
from samestep.common.files.safetensors import write_safetensors
from samestep.common.files.symbols import Symbol, read_symbols, whole_numbers
from samestep.common.files.tensor_bundle import LATEST, latest, read_tensor_bundle
from samestep.common.program import TrainState
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.checkpoints.committed import digest_saved
from samestep.common.runtime.checkpoints.usual_names import to_usual, usual_name
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.start import initial_state, read_start

WRITTEN = Path(__file__).parents[2] / "data" / "foreign.zip"
"""`dcp`: torch 2.13, two ranks, `fully_shard` and AdamW after 5 steps, saved as `get_state_dict` has it.

`tf`: tensorflow 2.21, the same numbers in a `tf.train.Checkpoint` of `model`, `optimizer` and `step`, by a CheckpointManager.
"""
ASKED = RunConfig(
    framework="numpy", strategy="oracle", dtype="float64", optimizer="adamw", workload="digits-mlp+width=3", steps=8
)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    with zipfile.ZipFile(WRITTEN) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def everything(state: TrainState) -> dict[str, list]:
    groups = {"params": state.params, **state.slots}
    return {f"{group} {name}": array.tolist() for group, arrays in groups.items() for name, array in arrays.items()}


def test_both_hold_the_same_state(folders: Path) -> None:
    run = parse(ASKED)
    torchs, tensorflows = (read_start(run, str(folders / name)) for name in ("dcp", "tf"))
    assert torchs.step == tensorflows.step == 5 and torchs.updates == 5 and not torchs.counts
    assert everything(torchs) == everything(tensorflows)
    bias = torchs.params["layers/0/bias"]
    assert bias[0] == np.float32(-0.09311854094266891), "as torch printed it when it wrote the folder"


def test_another_optimizer_is_refused(folders: Path) -> None:
    arrays = read_tensor_bundle(latest(folders / "tf"))
    assert {name.partition("/")[0] for name in arrays} == {"model", "optimizer", "step", "save_counter"}
    momentum = parse(dataclasses.replace(ASKED, optimizer="sgd"))
    with pytest.raises(ConfigError, match=r"holds first_moment, second_moment, but sgd continues from momentum"):
        read_start(momentum, str(folders / "tf"))


def test_a_weight_that_two_modules_share_is_read_once(tmp_path: Path) -> None:
    run, file = parse(ASKED), tmp_path / "shared.safetensors"
    state = initial_state(run, launch_of(ASKED))
    arrays = {usual_name(name): to_usual(name, array) for name, array in state.params.items()}
    write_safetensors(file, arrays | {"head.weight": arrays["layers.0.weight"]})
    read = read_start(run, str(file)).params
    assert read.keys() == state.params.keys()
    assert all(np.array_equal(read[name], array) for name, array in state.params.items())
    write_safetensors(file, arrays | {"head.weight": arrays["layers.0.weight"] + 1})
    message = rf"its head.weight is \[3, 64\], that of {re.escape(run.workload.name)} is not there; give weights of"
    with pytest.raises(ConfigError, match=message):
        read_start(run, str(file))


@pytest.mark.parametrize("kind", ["dcp", "tf"])
def test_another_model_is_refused(folders: Path, kind: str) -> None:
    wider = parse(dataclasses.replace(ASKED, workload="digits-mlp+width=4"))
    with pytest.raises(ConfigError, match=r"holds another model: its layers/0/.* that of digits-mlp\+width=4 is"):
        read_start(wider, str(folders / kind))
    done = parse(dataclasses.replace(ASKED, steps=5))
    with pytest.raises(ConfigError, match=r"is at step 5; --steps counts from zero"):
        read_start(done, str(folders / kind))


def truncate(name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, size)


def replace(name: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_bytes()
        assert old in text
        (folder / name).write_bytes(text.replace(old, new))

    return change


DAMAGE = {
    "a torn description": ("dcp", truncate(METADATA, 900), "it is not a pickle that can be read"),
    "a missing rank": ("dcp", lambda folder: (folder / "__1_0.distcp").unlink(), "there is no such file"),
    "a torn rank": ("dcp", truncate("__1_0.distcp", 9000), "__1_0.distcp ends before what .metadata says is in it"),
    "a rank's file elsewhere": (
        "dcp",
        replace(METADATA, b"\x8c\x0c__1_0.distcp", b"\x8c\x0c../../passwd"),
        "it names a file outside of it: ../../passwd",
    ),
    "another dtype": ("dcp", replace(METADATA, b"\x8c\x07float32", b"\x8c\x07float64"), "another shape or dtype than"),
    "a changed byte": ("dcp", replace("__0_0.distcp", b"data/0", b"data/1"), ""),
    "a torn table": ("tf", truncate("ckpt-1.index", 500), "ckpt-1.index is not what TensorFlow writes"),
    "a torn file of numbers": ("tf", truncate("ckpt-1.data-00000-of-00001", 500), "-of-00001 ends before"),
    "no file of numbers": (
        "tf",
        lambda folder: (folder / "ckpt-1.data-00000-of-00001").unlink(),
        "there is no such file",
    ),
    "a name elsewhere": (
        "tf",
        replace(LATEST, b'path: "ckpt-1"', b'path: "../k-1"'),
        "names no checkpoint in the same folder",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_told_in_one_line(folders: Path, what: str) -> None:
    kind, damage, why = DAMAGE[what]
    before = digest_saved(folders / kind)
    damage(folders / kind)
    assert digest_saved(folders / kind) != before, "curves of references are kept under this name"
    with pytest.raises(ConfigError, match=rf"--start-from .*: .*{why}.*; give another folder\.") as told:
        read_start(parse(ASKED), str(folders / kind))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", [f"dcp/{METADATA}", "dcp/__0_0.distcp", "tf/ckpt-1.index", f"tf/{LATEST}"])
def test_no_byte_ends_in_a_traceback(folders: Path, name: str) -> None:
    """What is read is read, or refused: never another exception, whichever bytes are changed."""
    draw, whole = random.Random(name), (folders / name).read_bytes()
    read = read_dcp if name.startswith("dcp") else lambda folder: read_tensor_bundle(latest(folder))
    refused = 0
    for _ in range(25):
        changed = bytearray(whole)
        for _ in range(draw.choice((1, 3))):
            changed[draw.randrange(len(whole))] = draw.randrange(256)
        (folders / name).write_bytes(changed)
        try:
            read((folders / name).parent)
        except Unreadable:
            refused += 1
    assert refused > 2


class Evil:
    """What a pickle can ask for."""

    def __reduce__(self) -> tuple:
        return os.mkdir, ("evil",)


def test_nothing_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = read_symbols(pickle.dumps(Evil()))
    assert isinstance(found, Symbol) and found.name == "posix.mkdir" and found.arguments == ("evil",)
    assert not (tmp_path / "evil").exists()
    pickle.loads(pickle.dumps(Evil()))
    assert (tmp_path / "evil").exists(), "and this is what would have been called"


def test_a_key_that_takes_years_to_hash_is_refused() -> None:
    """Tuples within tuples, each twice: 2^50 of them, in 200 bytes."""
    nested = b"(t" + b"2\x86" * 50
    began = time.monotonic()
    with pytest.raises(Unreadable, match="not a pickle that can be read"):
        read_symbols(b"\x80\x04}" + nested + b"Ns.")
    with pytest.raises(Unreadable, match="not a pickle that can be read"):
        read_symbols(b"\x80\x04r\xff\xff\xff\xff.")  # an index that a reader in C would make room for
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("found", [None, "8", [1.5], [-1], [True], {}])
def test_what_is_no_shape_is_refused(found: object) -> None:
    with pytest.raises(Unreadable, match="something else where a shape belongs"):
        whole_numbers(found)


def test_a_run_of_ours_comes_first(folders: Path) -> None:
    """A folder of another name in a run directory is none of these."""
    shutil.copytree(folders / "dcp", folders / "run/checkpoints")
    with pytest.raises(ConfigError, match=r"no readable state.npz"):
        read_start(parse(ASKED), str(folders / "run"))


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        pytest.param("torch:zero1", "tf", marks=pytest.mark.torch),
        pytest.param("tf:mirrored", "dcp", marks=[pytest.mark.tf, pytest.mark.slow]),
        pytest.param("torch:pp", "dcp", marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("tf:parameter_server", "tf", marks=[pytest.mark.tf, pytest.mark.slow]),
    ],
)
def test_a_strategy_goes_on_from_there(launcher: Launcher, folders: Path, cell: str, kind: str) -> None:
    fields = {"devices": 2, "batch_size": 48, "parity": True, "out": str(folders / "run")}
    asked = RunConfig(workload=ASKED.workload, optimizer="adamw", steps=12, start_from=str(folders / kind), **fields)
    config = Cell.parse(cell).apply_to(asked)
    result = launcher.run(parse(config), launch_of(config))
    assert result.first_step == 5 and len(result.losses) == 7
    assert result.parity.passed, result.parity.reason
