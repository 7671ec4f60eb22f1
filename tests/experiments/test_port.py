"""`samestep port`: right ports pass, wrong ones are named by their layer and their cause."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import samestep
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.judging.conclusion import conclude_missed
from samestep.common.porting.case import CONSTANTS, DIFFERENT, SAME, PortVerdict
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.models import porting
from samestep.common.runtime.parent.models.weight_transfer import transfer_weights
from samestep.common.runtime.records import RunResult
from samestep.experiments.port import main
from samestep.experiments.printing.formats import write
from samestep.experiments.printing.port_report import port_document
from tests.conftest import RunCell
from tests.own import ports
from tests.ported import port_all, request_of

pytestmark = [pytest.mark.torch, pytest.mark.tf, pytest.mark.timeout(300)]
ZOO = Path(__file__).parents[1] / "own" / "ports.py"
DECIDED = "raw_turned"
"""Has a square kernel that only running it decides."""


def request(name: str, steps: int) -> RunConfig:
    return request_of(ZOO, name, ports.OF[name], steps)


def walk(launcher: Launcher, folder: Path, names: Iterable[str], steps: int) -> dict[str, PortVerdict]:
    return port_all(launcher, folder, {name: request(name, steps) for name in names}, ports.MODELS)


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


FEW = ("mlp", "bias", "probabilities", "adam", "returned", "ignored")
"""Of kinds that the catalogue of small ports has not; `make test-slow` takes every one."""


@pytest.fixture(scope="module")
def walked(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, PortVerdict]]:
    folder = tmp_path_factory.mktemp("ports")
    return folder, walk(launcher, folder, FEW, steps=0)


def test_wrong_ports_are_told_from_right_ones(walked: tuple[Path, dict[str, PortVerdict]]) -> None:
    check(walked[1])


def test_a_parameter_of_one_model_only_is_refused_in_runs(
    walked: tuple[Path, dict[str, PortVerdict]], launcher: Launcher
) -> None:
    torch, tf = (walked[0] / "described" / "bias" / side for side in porting.SIDES)
    with pytest.raises(ConfigError, match=r"2\.bias is in one of its two models only; `samestep port`"):
        transfer_weights(torch, tf, request("bias", 20), launcher._server_for_models)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_ports(launcher: Launcher, tmp_path: Path) -> None:
    """Every wrong port is told, and no right one is called wrong, with the curve of 100 steps."""
    assert len(ports.RIGHT) + len(ports.ROUNDED) >= 20 and len(ports.ROUNDED) >= 5 and len(ports.WRONG) >= 18
    check(walk(launcher, tmp_path, set(ports.MODELS) - {DECIDED, *ports.WRONG_UNLESS_ACCEPTED}, steps=100))


def test_what_is_accepted_is_compensated_for(launcher: Launcher) -> None:
    """The file accepts one difference and the caller another; with both of these the curves are the same."""
    case, verdict = launcher.port(request("accepting", 4), ["epsilon"])
    assert case.accepted == ("double_bias", "epsilon")
    assert verdict.sentence == (
        "the same model but for double_bias, epsilon, as accepted: every layer within 1e-12, 4 steps within 1e-10"
    )


def test_a_square_kernel_is_decided_by_running_it_both_ways(launcher: Launcher) -> None:
    case, verdict = launcher.port(request(DECIDED, 4))
    assert verdict.sentence == "the same model: every layer within 1e-12, 4 steps within 1e-10"
    assert case.matching.pairs[0].permutation == "transposed"
    text = write(port_document(case, verdict), "github")
    assert "| 0.mix    | square/mix   | [6, 6] | transposed  |" in text
    record = json.loads(write(port_document(case, verdict), "json"))
    assert record["verdict"]["kind"] == SAME and len(record["losses"]["torch"]) == 4
    assert {row["torch"]: row for row in record["layers"]}["0"]["outputs"] <= 1e-12


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
        r"not the same function: \S+, all of it the port: from tf:single it is [0-9.e-]+: the strategy is right, and "
        r"`samestep port` says: first difference: .*: torch's epsilon is 1e-05, TensorFlow's 0\.001"
    )
    assert re.fullmatch(said, result.parity.reason)
    assert (
        conclude_missed([("it", result.parity.reason)]) == "it is right; your model is not the same function as torch's"
    )


@pytest.mark.parametrize("batch_norm", ["sync", pytest.param("local", marks=pytest.mark.slow)])
def test_a_run_is_judged_as_its_port_is(run_cell: RunCell, batch_norm: str) -> None:
    """Constants in float32 are no other model; local statistics are told apart from them."""
    result = run_port(run_cell, "tf:mirrored", "normed_gelu", devices=2, batch_norm=batch_norm)
    assert result.parity.max_relative_loss > 1e-12
    if batch_norm == "sync":
        assert result.parity.passed, result.parity.reason
        assert result.parity.reason.startswith("the same model up to float32 constants in `activation`")
    else:
        said = (
            r"not the same function: \S+, all of it the local statistics of 1 BatchNorm layer .*: the strategy is right"
        )
        assert re.fullmatch(said, result.parity.reason)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match=r"needs --model FILE\.py, with a torch model and a tf model in it"):
        main([])
    with pytest.raises(ConfigError, match="--strategy"):
        main(["--strategy", "ddp"])
    said = r"unknown difference to accept 'epsilom'\. Did you mean 'epsilon'\? It stands in --accept\. .*double_bias, epsilon"
    with pytest.raises(ConfigError, match=said):
        main(["--accept", "double_bias,epsilom"])
    with pytest.raises(ConfigError, match=r"It stands in accept of your samestep\.Model"):
        samestep.Model(accept=["double bias"])
