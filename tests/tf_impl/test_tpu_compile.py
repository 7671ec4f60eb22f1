"""Compiled for a real TPU without one: the project's own step, its bytes and its collectives; and never called a run.

Where jax and libtpu are absent, what needs them is skipped, with the line that installs them.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.ledger import Collective
from samestep.common.mesh import Mesh
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.records import RunResult, load_result
from samestep.common.workload.models.spec import num_params
from samestep.common.workload.table import resolve
from samestep.experiments import run
from samestep.experiments.printing import tables
from samestep.experiments.printing.aot_report import compiled
from samestep.tf_impl.tpu.hlo import collectives
from samestep.tf_impl.tpu.tpu_topology import COMPILER_ENVIRONMENT, GENERATIONS, Topology, require_compiler
from tests.cells import SIZED, slow, traced_once
from tests.conftest import RunCell
from tests.results import alone

pytestmark = pytest.mark.tf
LARGE = "synthetic-mlp+width=32768+layers=4"
EACH = {
    "v3": ("v3:2x2", 8),
    "v4": ("v4:2x2x1", 8),
    "v5e": ("v5e:2x4", 8),
    "v5p": ("v5p:2x2x1", 4),
    "v6e": ("v6e:1x1", 1),
}
GRIDS = [grid for grid, _ in EACH.values()]


@pytest.fixture
def compiler() -> None:
    try:
        require_compiler()
    except Unavailable as error:
        pytest.skip(str(error))


def python(*line: str) -> str:
    line, environment = (sys.executable, *line), os.environ | COMPILER_ENVIRONMENT
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def compile_cell(run_cell: RunCell, topology: str, workload: str, **fields: object) -> RunResult:
    result = run_cell(f"tf:tpu+tpu_topology={topology}", workload, **fields)
    assert (result.status, result.losses, result.steps) == ("compiled", (), 0)
    assert result.examples_per_second is result.step_seconds_median is result.metric_value is None
    assert result.parity.passed is None
    return result


@pytest.fixture(scope="module")
def left(run_cell: RunCell, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, pathlib.Path]:
    """A compiled step: what the launcher returned, and its directory."""
    path = tmp_path_factory.mktemp("left") / "run"
    return compile_cell(run_cell, "v5e:2x2", SIZED["mlp"], out=str(path)), path


# --- what is compiled -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_step_that_is_lowered_is_the_oracles() -> None:
    found = [json.loads(line) for line in python("-m", "tests.tf_impl.lowered_worker").splitlines()]
    assert [each["model"] for each in found] == [*SIZED, "mlp"]
    for each in found:
        assert each["losses"] == pytest.approx(each["oracle"], rel=1e-12), each["model"]
        assert each["weights_off"] < 1e-10, each["model"]


@pytest.mark.parametrize("model", ["transformer", *slow(*(model for model in SIZED if model != "transformer"))])
def test_every_model_compiles(run_cell: RunCell, model: str) -> None:
    result = compile_cell(run_cell, "v5e:2x2", traced_once("tf", SIZED[model]), optimizer="adamw")
    found, spec = result.compiled, resolve(result.workload).model
    assert found is not None
    assert found.fits
    params = 4 * num_params(spec)
    assert [each.name for each in found.collectives] == ["all-reduce"]
    assert found.collectives[0].bytes == params  # the gradients, each once, and nothing else
    assert 3 * params < found.argument_bytes < found.needed_bytes < found.hbm_bytes
    step_flops = 3 * 48 * sum(segment.flops for segment in spec.segments())  # the backward pass counts twice
    assert 0.5 < found.flops / (step_flops / 4) < 5 or model in ("ranker", "cnn")
    assert result.config.devices == 4
    assert result.device_note == "compiled for v5e:2x2, nothing ran"


@pytest.mark.slow
def test_flops_are_those_of_the_model(run_cell: RunCell) -> None:
    """Six to a weight and example: two forwards, four backwards, of which the first layer's inputs need none."""
    result = compile_cell(run_cell, "v5e:2x2", "synthetic-mlp+width=1024+layers=4", optimizer="sgd", batch_size=256)
    expected = 6 * num_params(resolve(result.workload).model) * 256 / 4
    assert result.compiled is not None
    assert result.compiled.flops == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("generation", ["v3", *slow(*(each for each in GENERATIONS if each != "v3"))])
def test_every_generation_compiles(run_cell: RunCell, generation: str) -> None:
    """With jax 0.10.2 and libtpu 0.0.42, through what is private in them: `tpu.compile_worker._compile`."""
    topology, cores = EACH[generation]
    result = compile_cell(run_cell, topology, SIZED["mlp"])
    found = result.compiled
    assert found is not None
    assert found.fits
    assert found.hbm_bytes == round(GENERATIONS[generation].hbm_gib * 2**30)
    assert result.config.devices == cores
    params = 4 * num_params(resolve(result.workload).model)
    assert [each.bytes for each in found.collectives] == ([params] if cores > 1 else [])


@pytest.mark.slow
def test_a_tensor_axis_cuts_what_a_core_holds(run_cell: RunCell) -> None:
    wide = "synthetic-mlp+width=1024+layers=4"
    whole, cut = (
        compile_cell(run_cell, "v5e:2x2", wide, mesh=f"data={4 // parts},tensor={parts}", optimizer="sgd")
        for parts in (1, 4)
    )
    predicted = [row.params_bytes + row.optimizer_bytes for row in (r.predicted.footprints[0] for r in (whole, cut))]
    assert [r.compiled.argument_bytes for r in (whole, cut)] == [pytest.approx(state, rel=0.1) for state in predicted]
    assert predicted[0] > 3.9 * predicted[1]
    assert "all-reduce" in {each.name for each in cut.compiled.collectives}
    assert cut.compiled.flops == pytest.approx(whole.compiled.flops, rel=0.25)  # the same work, on as many cores


@pytest.mark.slow
def test_a_transformer_is_cut_along_both_axes(run_cell: RunCell) -> None:
    result = compile_cell(run_cell, "v5e:2x2", SIZED["transformer"], mesh="data=2,tensor=2")
    assert Mesh.parse(result.mesh).axis("tensor") == 2
    assert result.compiled is not None
    assert result.compiled.fits
    assert result.compiled.collectives


def test_memory_is_what_the_compiler_grants(compiler: None) -> None:
    """Libtpu 0.0.42. The compiler names what it grants a core only when a program needs more."""
    asks = (
        "from samestep.tf_impl.tpu.compile_worker import Request, compile_stablehlo\n"
        "size = 'tensor<65536x1024x1024xf32>'\n"
        "text = f'func.func @main(%a: {size}) -> {size} {{ %0 = stablehlo.add %a, %a : {size}\\n return %0 : {size} }}'\n"
        f"for name in {list(GRIDS)}:\n"
        "    found = compile_stablehlo(Request(name, 1, 1, ()), text.encode())\n"
        "    print(name, found.hbm_bytes, found.fits, found.needed_bytes)"
    )
    wanted = [f"{name} {Topology.parse(name).hbm_bytes} False {2 * 256 * 2**30}" for name in GRIDS]
    assert python("-c", asks).splitlines() == wanted


# --- what is told -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_that_does_not_fit_is_a_result(
    compiler: None, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    line = f"--framework tf --strategy tpu --tpu-topology v5e:2x2 --optimizer adamw --workload {LARGE}"
    assert run.main([*line.split(), "--out", str(tmp_path / "run")]) == 0
    result = load_result(tmp_path / "run")
    assert result.compiled is not None
    assert not result.compiled.fits
    assert result.compiled.needed_bytes > 3 * 4 * num_params(resolve(result.workload).model) > result.compiled.hbm_bytes
    assert result.device_note.endswith("nothing ran: needs 28.04 GiB, v5e has 15.75 GiB")
    told = capsys.readouterr().out
    assert f"{LARGE} does not fit: needs 28.04 GiB, v5e has 15.75 GiB.\n" in told
    assert "compiles" in told
    assert "examples/s" not in told


def test_a_table_ranks_no_compiled_row(left: tuple[RunResult, pathlib.Path]) -> None:
    result, path = left
    assert load_result(path) == result
    assert "optimal_seconds" not in (path / "result.json").read_text()
    row = next(
        line
        for line in tables.comparison(alone([result]), width=200).splitlines()
        if "tf:tpu+tpu_topology=v5e:2x2" in line
    )
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == ["compiled"]
    assert "devices 4, dtype float32." in tables.caption(alone([result]), width=200)
    assert tables.verdict([result]) == "No run was judged."
    assert "| 1 all-reduce of " in compiled([result])
    assert "nothing ran" not in compiled([dataclasses.replace(result, compiled=None)])


def test_the_compiler_has_a_process_without_tensorflow(left: tuple[RunResult, pathlib.Path]) -> None:
    _, path = left
    (path / "compiled.json").unlink()
    look = (
        "import os, sys; from samestep.tf_impl.tpu import compile_worker; "
        f"compile_worker.main({str(path)!r}, os.getppid()); "
        "print([name for name in ('jax', 'tensorflow', 'keras', 'torch') if name in sys.modules])"
    )
    assert python("-c", look) == "['jax']\n"
    assert json.loads((path / "compiled.json").read_text())["fits"]


# --- what is refused --------------------------------------------------------------------------------------------------


def asked(topology: str, **fields: object) -> RunConfig:
    options = {"tpu_topology": topology, "tpu": fields.pop("tpu", None)}
    return RunConfig("tf", "tpu", SIZED["mlp"], batch_size=48, options=options, **fields)


def test_without_the_compiler_it_is_unavailable_at_once() -> None:
    tried = (
        "import sys; sys.modules['jax'] = sys.modules['libtpu'] = None\n"
        "from samestep.experiments.run import main; from samestep.common.errors import Unavailable\n"
        f"try: main('--framework tf --strategy tpu --tpu-topology v5e:2x2 --workload {SIZED['mlp']}'.split())\n"
        "except Unavailable as error: print(error)\n"
        "print('tensorflow' in sys.modules)"
    )
    assert python("-c", tried).splitlines() == [
        "--tpu-topology needs Google's TPU compiler, and jax and libtpu are not installed: pip install 'samestep[tpu]'",
        "False",
    ]


@pytest.mark.parametrize(
    ("topology", "fields", "told"),
    [
        ("v7x:2x2", {}, r"unknown TPU generation 'v7x'.*Choose from: v3, v4, v5e, v5p, v6e\."),
        ("", {}, r"unknown TPU generation ''"),
        ("v5e", {}, r"--tpu-topology is 'v5e'; give the chips of v5e along its 2 dimensions, as in v5e:2x2\."),
        ("v5e:0x2", {}, r"--tpu-topology is 'v5e:0x2'; give the chips"),
        ("v5e:2x2x2", {}, r"--tpu-topology is 'v5e:2x2x2'; give the chips"),
        ("v4:2", {}, r"along its 3 dimensions, as in v4:2x2x1\."),
        ("v5e:2x3", {}, r"--tpu-topology is 'v5e:2x3'; the first two sizes are each 1 or even"),
        ("v5e:2x2", {"devices": 2}, r"v5e:2x2 has 4 cores, not 2; leave out --devices, or give --devices 4"),
        ("v3:1x1", {"mesh": "data=1"}, r"v3:1x1 has 2 cores, not 1"),
        ("v5e:2x2", {"dtype": "float64"}, r"compiles in float32: a TPU has no float64"),
        ("v5e:2x2", {"tpu": "local"}, r"--tpu local trains and --tpu-topology v5e:2x2 only compiles"),
        ("v5e:8x8", {}, r"global batch 48 does not divide among 64 devices; use --batch-size 64\."),
        ("v5e:2x4", {"mesh": "data=1,tensor=8"}, None),
        ("v5e:4x16", {"mesh": "data=1,tensor=64"}, r"does not split into 64 equal parts"),
    ],
)
def test_bad_input_is_one_line(topology: str, fields: dict[str, object], told: str | None) -> None:
    if told is None:
        parse(asked(topology, prepare=True, **fields))
        return
    with pytest.raises(ConfigError, match=told) as error:
        parse(asked(topology, prepare=True, **fields))
    assert "\n" not in str(error.value)


def test_training_is_along_data_only() -> None:
    with pytest.raises(ConfigError, match=r"trains along data only, not on data=1,tensor=2; --tpu-topology compiles"):
        parse(RunConfig("tf", "tpu", SIZED["mlp"], mesh="data=1,tensor=2", batch_size=48))


# --- reading the compiler ---------------------------------------------------------------------------------------------

HLO = """
%fused_start (p.1: f32[8]) -> bf16[4,32] {
  %p.1 = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %all-gather.1 = bf16[4,32]{1,0:T(8,128)(2,1)} all-gather(%p.1), channel_id=7, dimensions={1}
}
%fused_done (p.2: f32[8]) -> bf16[4,32] {
  %p.2 = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %all-gather.2 = bf16[4,32]{1,0:T(8,128)(2,1)} all-gather(%p.2), channel_id=7, dimensions={1}
}
ENTRY %main {
  %a = f32[64,32]{0,1:T(8,128)S(1)} parameter(0)
  %b = (f32[32]{0:T(128)}, s32[]{:T(128)}) fusion(%a), kind=kLoop, calls=%fused_start
  %c = f32[32]{0:T(128)} get-tuple-element(%b), index=0
  %all-reduce.3 = (f32[64,32]{0,1:T(8,128)S(1)}, /*index=1*/f32[32]{0:T(128)}) all-reduce(%a, /*index=1*/%c), to_apply=%add
  %all-reduce.4 = f32[32]{0:T(128)} all-reduce(%c), to_apply=%add
  %start = (f32[32]{0:T(128)}, f32[32]{0:T(128)}) collective-permute-start(%c), channel_id=9
  ROOT %done = f32[32]{0:T(128)} collective-permute-done(%start)
}
"""


def test_collectives_are_counted_once_by_what_they_are_handed() -> None:
    assert collectives(HLO) == (
        Collective("all-gather", 1, 4 * 8 * 2),
        Collective("all-reduce", 2, 64 * 32 * 4 + 2 * 32 * 4),
        Collective("collective-permute", 1, 32 * 4),
    )
