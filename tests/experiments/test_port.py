"""`samestep port`: right ports pass, wrong ones are named by their layer and their cause."""

import dataclasses
import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import samestep
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.files.safetensors import read_safetensors
from samestep.common.judging.conclusion import conclude_missed
from samestep.common.porting.case import CONSTANTS, DIFFERENT, SAME, PortVerdict
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.models import converting, porting
from samestep.common.runtime.parent.models.weight_transfer import transfer_weights
from samestep.common.runtime.records import RunResult
from samestep.experiments.cli import github_actions
from samestep.experiments.port import main
from samestep.experiments.printing.formats import write
from samestep.experiments.printing.port_report import port_document
from tests.conftest import RunCell
from tests.own import port_catalogue as small
from tests.own import ports
from tests.own.checkpoint import checkpoint
from tests.ported import Ported, folder_of, port_all, request_of, tracing

pytestmark = [pytest.mark.torch, pytest.mark.tf, pytest.mark.timeout(300)]
ZOO = Path(__file__).parents[1] / "own" / "ports.py"
DECIDED = ("raw_turned", "norm_turned")
"""Have what only running it decides: a square kernel, and a norm over as many channels as rows and columns."""


def request(name: str, steps: int) -> RunConfig:
    return request_of(ZOO, name, ports.OF[name], steps)


def walk(launcher: Launcher, folder: Path, names: Iterable[str], steps: int) -> dict[str, PortVerdict]:
    found = port_all(launcher, folder, {name: request(name, steps) for name in names}, ports.MODELS)
    return {name: verdict for name, (_, verdict) in found.items()}


def check(verdicts: dict[str, PortVerdict]) -> None:
    wrong = {}
    for name, found in verdicts.items():
        expected = (DIFFERENT, *ports.WRONG[name][1:]) if name in ports.WRONG else ()
        kind = expected[0] if expected else CONSTANTS if name in ports.ROUNDED else SAME
        is_right = found.kind == kind
        if expected:
            is_right &= (found.source, found.target) == expected[1:3] and expected[3] in found.sentence
        if not is_right:
            wrong[name] = found.sentence
    assert wrong == {}


FEW = ("mlp", "bias", "adam", "pooled")
"""Of kinds that the catalogue of small ports has not; `make test-slow` takes every one."""
NEW = ("function that drops", "function that drops alone", "cross", "norm of two axes", "bilinear", "bilinear products")
GATES = ("gated", "gates", "gate", "silu gate", "frozen", "frozen in torch", "frozen in keras")
SMALL = (
    "norm",
    "half residual",
    "layer without a mask",
    "temperature",
    "shared keys",
    "negative samples",
    *NEW,
    *GATES,
)
"""Of most kinds of cause in that catalogue."""
TRAINED = (*DECIDED, "accepting")
"""Those that take a few steps."""


@dataclasses.dataclass(frozen=True)
class Walked:
    """Ports of many models, whose processes describe and trace them one after the other."""

    folder: Path
    found: dict[str, Ported]

    def verdicts(self, names: Iterable[str]) -> dict[str, PortVerdict]:
        return {name: self.found[name][1] for name in names}


@pytest.fixture(scope="module")
def walked(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Walked:
    folder = tmp_path_factory.mktemp("ports")
    configs = {name: request(name, steps=4 if name in TRAINED else 0) for name in (*FEW, *TRAINED)}
    configs |= {each: request_of(small.FILES[each], each, small.OF[each], 0) for each in SMALL}
    models = {**{name: ports.MODELS[name] for name in (*FEW, *TRAINED)}, **{each: small.MODELS[each] for each in SMALL}}
    return Walked(folder, port_all(launcher, folder, configs, models, {"accepting": ["epsilon"]}))


def test_wrong_ports_are_told_from_right_ones(walked: Walked) -> None:
    check(walked.verdicts(FEW))


def test_small_ports_are_told_from_right_ones(walked: Walked) -> None:
    found = walked.verdicts(SMALL)
    assert [name for name in SMALL if name in small.RIGHT and found[name].kind == DIFFERENT] == []
    wrong = {name: small.WRONG[name][1] for name in SMALL if name in small.WRONG}
    assert {name: found[name].sentence for name, cause in wrong.items() if cause not in found[name].cause} == {}


def test_two_sizes_of_a_difference_are_told_apart(walked: Walked) -> None:
    documents = {name: port_document(*walked.found[name][:2]) for name in SMALL}
    explained = {
        name for name, each in documents.items() if "how far the tensor as a whole is" in " ".join(each.text().split())
    }
    assert explained == {
        name for name in SMALL if re.search("(outputs|input) differs? by", walked.found[name][1].sentence)
    }


def test_a_workflow_annotates_a_port_that_differs(
    walked: Walked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (summary := tmp_path / "summary.md").touch()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    wrong = next(name for name in SMALL if name in small.WRONG)
    document = port_document(*walked.found[wrong][:2])
    github_actions.show(document)
    assert capsys.readouterr().err.startswith("::error title=samestep port::first difference")
    assert summary.read_text() == f"### samestep port\n\n{document.text()}\n\n"


def test_a_parameter_of_one_model_only_is_refused_in_runs(walked: Walked, launcher: Launcher) -> None:
    torch, tf = (folder_of(walked.folder, "bias") / side for side in porting.SIDES)
    with pytest.raises(ConfigError, match=r"2\.bias is in one of its two models only; `samestep port`"):
        transfer_weights(torch, tf, request("bias", 20), launcher._server_for_models)


def test_what_is_accepted_is_compensated_for(walked: Walked) -> None:
    """The file accepts one difference and the caller another; with both of these the curves are the same."""
    case, verdict = walked.found["accepting"]
    assert case.accepted == ("double_bias", "epsilon")
    assert verdict.sentence == (
        "the same model except for double_bias, epsilon, as accepted: every layer within 1e-12, 4 steps within 1e-10"
    )


def decide(walked: Walked, launcher: Launcher, name: str) -> Ported:
    trace = tracing(launcher, request(name, 4))
    return porting.decide(folder_of(walked.folder, name), *walked.found[name], (), trace)


def test_a_norm_over_channels_that_fits_both_ways_is_decided_by_running_it_both_ways(
    walked: Walked, launcher: Launcher
) -> None:
    assert walked.found["norm_turned"][1].kind == DIFFERENT
    case, verdict = decide(walked, launcher, "norm_turned")
    assert verdict.sentence == "the same model: every layer within 1e-12, 4 steps within 1e-10"
    assert [pair.permutation for pair in case.matching.pairs[2:4]] == ["channels last", "channels last"]


def test_a_square_kernel_is_decided_by_running_it_both_ways(walked: Walked, launcher: Launcher) -> None:
    case, verdict = decide(walked, launcher, "raw_turned")
    assert verdict.sentence == "the same model: every layer within 1e-12, 4 steps within 1e-10"
    assert case.matching.pairs[0].permutation == "transposed"
    text = write(port_document(case, verdict), "github")
    assert "| 0.mix    | square/mix   | [6,6] | transposed  |" in text
    record = json.loads(write(port_document(case, verdict), "json"))
    assert record["verdict"]["kind"] == SAME and len(record["losses"]["torch"]) == 4
    assert {row["torch"]: row for row in record["layers"]}["0"]["outputs"] <= 1e-12


def test_a_checkpoint_goes_there_and_back(walked: Walked, launcher: Launcher, tmp_path: Path) -> None:
    """Keras writes and reads it in between; a test of the slow ones has a process without samestep read it."""
    (old, arrays), folder = checkpoint(tmp_path), folder_of(walked.folder, "mlp")
    for path, to in ((old, "keras"), (tmp_path / "old.weights.h5", "torch")):
        converting.convert(folder, *walked.found["mlp"], converting.WeightsFile(path, to), launcher._server_for_models)
    about, back = (json.loads((tmp_path / f"old.{end}.json").read_text()) for end in ("weights", "torch"))
    assert about["verdict"].startswith("the same model") and about["unused"] == ["ema"]
    changed = {"torch": ["0.weight"], "keras": ["dense/kernel"], "change": "transposed"}
    assert about["weights"][0] == {**changed, "shapes": [[6, 16]]} and back["weights"][0] == {
        **changed,
        "shapes": [[16, 6]],
    }
    made = read_safetensors(tmp_path / "old.torch.safetensors")
    assert made.keys() == arrays.keys() and all(np.array_equal(made[name], arrays[name]) for name in arrays)
    with pytest.raises(ConfigError, match=r"old\.weights\.json would be overwritten; move them away"):
        main(["--model", "net.py", "--weights", str(old), "--to", "keras"])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_ports(launcher: Launcher, tmp_path: Path) -> None:
    """Every wrong port is told, and no right one is called wrong, with the curve of 100 steps."""
    assert len(ports.RIGHT) + len(ports.ROUNDED) >= 20 and len(ports.ROUNDED) >= 5 and len(ports.WRONG) >= 18
    check(walk(launcher, tmp_path, set(ports.MODELS) - {*DECIDED, *ports.WRONG_UNLESS_ACCEPTED}, steps=100))


# --- runs of both frameworks --------------------------------------------------------------------------------------------


def run_port(run_cell: RunCell, cell: str, name: str, **fields: object) -> RunResult:
    asked = request(name, 20)
    return run_cell(cell, "digits-mlp", model=asked.model, data=asked.data, dtype="float64", steps=5, **fields)


def test_the_rows_of_tensorflow_take_the_steps_of_the_torch_model(run_cell: RunCell, launcher: Launcher) -> None:
    result = run_port(run_cell, "tf:single", "unpacked_gpt")
    assert result.parity.passed, result.parity.reason
    assert result.parity.reference == "torch:single"
    assert result.parity.max_absolute_weight is not None and result.parity.max_absolute_weight <= 1e-10
    torch = parse(launcher.describe(Cell.parse("torch:single").apply_to(request("unpacked_gpt", 5))))
    assert result.workload_digest == torch.workload.digest


@pytest.mark.parametrize("strategy", ["single", pytest.param("mirrored", marks=pytest.mark.slow)])
def test_a_port_that_is_wrong_is_told_from_a_strategy_that_is(run_cell: RunCell, strategy: str) -> None:
    result = run_port(run_cell, f"tf:{strategy}", "epsilon")
    assert result.parity.passed is False
    said = (
        r"your model is not the same function as torch's\. The losses are off by \S+; the run's distance from tf:single is "
        r"[0-9.e-]+, and `samestep port` says: first difference: .*: torch's epsilon is 1e-05, TensorFlow's 0\.001"
    )
    assert re.fullmatch(said, result.parity.reason)
    assert (
        conclude_missed([("it", result.parity.attribution)])
        == "it is right; your model is not the same function as torch's"
    )


@pytest.mark.slow
@pytest.mark.parametrize("batch_norm", ["sync", "local"])
def test_a_run_is_judged_as_its_port_is(run_cell: RunCell, batch_norm: str) -> None:
    """Constants in float32 are no other model; local statistics are told apart from them."""
    result = run_port(run_cell, "tf:mirrored", "normed_gelu", devices=2, batch_norm=batch_norm)
    assert result.parity.max_relative_loss > 1e-12
    if batch_norm == "sync":
        assert result.parity.passed, result.parity.reason
        assert result.parity.reason.startswith("the same model up to float32 constants in `activation`")
    else:
        said = (
            r"your model is not the same function on shards: the local statistics of 1 BatchNorm layer .*\. The losses are off "
            r"by \S+; with these frozen .*"
        )
        assert re.fullmatch(said, result.parity.reason)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match=r"needs --model FILE\.py, with a torch model and a tf model in it"):
        main([])
    with pytest.raises(ConfigError, match="--strategy"):
        main(["--strategy", "ddp"])
    said = r"unknown difference to accept 'epsilom'\. Did you mean 'epsilon'\? It was given with --accept\. .*bias, epsilon"
    with pytest.raises(ConfigError, match=said):
        main(["--accept", "double_bias,epsilom"])
    with pytest.raises(ConfigError, match=r"It is given in accept of your samestep\.Model"):
        samestep.Model(accept=["double bias"])
