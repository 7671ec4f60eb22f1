"""tpu without a TPU: emulated, and called so by every table; and a TPU that is not there is told at once."""

import dataclasses
import pathlib
import threading
import time

import pytest

from samestep.common.errors import ConfigError, Unavailable, WorkerFailed
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.processes.network import free_ports
from samestep.common.techniques import Techniques
from samestep.experiments.printing import tables
from samestep.experiments.printing.columns import cell
from samestep.tf_impl.tpu import probe as tpu_probe
from tests.cells import SHALLOW, SIZED
from tests.conftest import RunCell
from tests.results import alone, made
from tests.tf_impl.conftest import RunTroubled, memory

pytestmark = pytest.mark.tf
EMULATED = "emulated: XLA on CPU"


def test_emulation_costs_what_was_predicted_and_is_called_one(run_cell: RunCell) -> None:
    techniques = Techniques(accumulation_steps=2, clip_norm=0.5)
    result = run_cell("tf:tpu", SHALLOW, devices=2, dtype="float64", steps=5, techniques=techniques)
    assert result.parity.passed, result.parity.reason
    assert memory(result.processes) == memory(result.predicted.devices())
    assert tuple(result.exchanges) == result.predicted.exchanges
    assert result.device_note.startswith(EMULATED)
    assert result.emulation == EMULATED
    assert cell(result) == "tf:tpu+accumulation_steps=2+clip_norm=0.5 (emulated)"
    assert "* tf:tpu is emulated: XLA on CPU" in tables.comparison(alone([result]))


def test_only_an_emulation_is_called_one() -> None:
    emulated = made("tf:tpu")
    on_tpu = dataclasses.replace(emulated.config, options=emulated.config.options | {"tpu": "local"})
    assert cell(emulated) == "tf:tpu (emulated)"
    assert cell(dataclasses.replace(emulated, config=on_tpu, emulation="")) == "tf:tpu+tpu=local"


def test_xla_really_compiles_it(run_troubled: RunTroubled, tmp_path: pathlib.Path) -> None:
    """A loss that calls Python trains under mirrored (`test_replicas_run_side_by_side`); XLA cannot compile it."""
    with pytest.raises(WorkerFailed, match="PyFunc"):
        run_troubled("replicas_meet", "tf:tpu", SHALLOW, devices=2, steps=5, out=str(tmp_path / "run"))
    assert "on XLA_CPU_JIT: PyFuncStateless" in (tmp_path / "run" / "rank-0.log").read_text()


def check(tpu: str, **fields: object) -> None:
    asked = RunConfig("tf", "tpu", SIZED["mlp"], devices=2, batch_size=48, options={"tpu": tpu}, **fields)
    check_launch(parse(asked), launch_of(asked))


def test_a_dead_address_is_told_in_the_parent() -> None:
    tpu = f"grpc://127.0.0.1:{free_ports(1)[0]}"
    start = time.monotonic()
    with pytest.raises(Unavailable, match=r"nobody answers there \(Connection refused\); start the TPU"):
        check(tpu)
    assert time.monotonic() - start < 30
    check(tpu, prepare=True)  # it will run elsewhere


def test_silence_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def silent(*arguments: object) -> None:
        ended.wait(20)
        raise OSError

    monkeypatch.setattr(tpu_probe, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(tpu_probe.socket, "create_connection", silent)
    with pytest.raises(Unavailable, match="the name server is silent"):
        check("grpc://tpu:8470")
    ended.set()


def test_a_wheel_without_tpu_kernels_is_told_in_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpu_probe, "_installed", lambda name: name == "libtpu")
    with pytest.raises(Unavailable, match="pip uninstall tensorflow && pip install tensorflow-tpu"):
        check("local")
    with pytest.raises(Unavailable, match="pip install google-api-python-client oauth2client"):
        check("my-tpu")


def test_a_machine_without_a_tpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpu_probe, "_installed", lambda name: True)
    monkeypatch.setattr(tpu_probe, "_DEVICES", ("no-such-device*",))
    with pytest.raises(Unavailable, match="this machine has no TPU"):
        check("local")


@pytest.mark.parametrize("tpu", ["", "grpc://host", "grpc://:8470", "grpc://host:0", "http://host:8470", "a b"])
def test_what_is_no_address_is_refused(tpu: str) -> None:
    with pytest.raises(ConfigError, match=f"--tpu is '{tpu}'; give"):
        check(tpu)
