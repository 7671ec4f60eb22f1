"""samestep advise: every layout that has room and no other, ranked by its time, with what would change the first."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.common.catalog import strategy_info
from samestep.common.errors import ConfigError
from samestep.common.evidence.costs.machine import Machine, load_machine
from samestep.common.mesh import Mesh
from samestep.common.request import RunConfig
from samestep.common.run import parse_prediction
from samestep.common.strategy import Run
from samestep.experiments import advise as command
from samestep.experiments.advice import SLOWER, Advice, advise
from samestep.experiments.advice_text import document, report
from samestep.experiments.candidates import SPLIT, WHOLE, Candidate, search
from samestep.experiments.prediction import needed_bytes
from samestep.experiments.step_times import seconds_of

ROOT = Path(__file__).parents[2]
SMALL = "synthetic-gpt+layers=6+width=64+heads=4+context=32+vocabulary=64"
SECONDS = 6.0
"""Three times what 64 devices may take; of processor time, so that a loaded machine changes little."""


def base(workload: str = SMALL, batch_size: int | None = None) -> Run:
    return parse_prediction(RunConfig(workload=workload, batch_size=batch_size), "bf16")


def small_machine(memory: float, gpus: int = 4) -> Machine:
    return dataclasses.replace(load_machine("a100-80gb"), gpus_per_node=gpus, memory_bytes=memory)


@pytest.fixture(scope="module")
def advice() -> Advice:
    return advise(base(batch_size=24), small_machine(4e6), 2)


# --- what has room ----------------------------------------------------------------------------------------------------


def test_a_candidate_needs_what_the_ledger_of_its_strategy_says() -> None:
    found = search(base(batch_size=24), 8, 1e12, {}).fitting
    assert {each.row.strategy for each in found} == {*(row.strategy for row in (*WHOLE, *SPLIT)), "pp"}
    for each in found:
        if not each.recomputes:
            footprints = each.run.strategy.cost(each.run, "nccl").footprints
            assert each.needed_bytes == max(map(needed_bytes, footprints)), each.cell


def test_recomputing_keeps_the_inputs_of_blocks_and_one_block_whole() -> None:
    by_layout: dict[tuple[str, int], dict[bool, Candidate]] = {}
    for each in search(base(batch_size=24), 8, 1e12, {}).fitting:
        by_layout.setdefault((each.cell, each.microbatch_size), {})[each.recomputes] = each
    assert all(pair[True].needed_bytes <= pair[False].needed_bytes for pair in by_layout.values())
    (ddp,) = (pair for (cell, size), pair in by_layout.items() if cell == "torch:ddp+mesh=data=8")
    rows, tokens, width, heads, item = 3, 32, 64, 4, 2
    block = tokens * (16 * width + heads + 4) * item * rows
    assert ddp[False].needed_bytes - ddp[True].needed_bytes == 6 * block - 6 * tokens * width * item * rows - (
        block - tokens * width * item * rows
    )


def test_what_has_room_depends_on_nothing_but_the_memory() -> None:
    everything = search(base(batch_size=24), 8, 1e12, {}).fitting
    memory = sorted(each.needed_bytes for each in everything)[len(everything) // 2]
    found = search(base(batch_size=24), 8, memory, {})
    assert {(e.cell, e.recomputes) for e in found.fitting} == {
        (e.cell, e.recomputes) for e in everything if e.needed_bytes <= memory
    }
    assert all(each.needed_bytes > memory for each in found.closest.values())


def test_every_layout_is_one_that_the_strategy_takes() -> None:
    for each in search(base(batch_size=24), 8, 1e12, {}).fitting:
        assert each.run.mesh.size == 8
        assert each.run.strategy is strategy_info("torch", each.row.strategy)
        each.run.strategy.needs(each.run)


# --- the ranking ------------------------------------------------------------------------------------------------------


def test_the_fastest_is_first(advice: Advice) -> None:
    seconds = [each.time.total for each in advice.ranked]
    assert seconds == sorted(seconds)
    assert advice.first.time == seconds_of(advice.first.candidate, advice.machine)
    assert [each.candidate.row.strategy for each in advice.best_of(["fsdp"])].count("fsdp") == 0


def test_what_would_change_it_is_ranked_again_on_the_changed_machine(advice: Advice) -> None:
    changed = {change.what: change for change in advice.changes}
    for what, change in changed.items():
        times = next((times for times in SLOWER if f" {times} times slower" in what), None)
        if times is None:
            continue
        rate = "network_bytes_per_second" if "between nodes" in what else "node_bytes_per_second"
        machine = dataclasses.replace(advice.machine, **{rate: getattr(advice.machine, rate) / times})
        again = advise(advice.base, machine, advice.nodes)
        assert change.first is not None and change.first.layout == again.first.layout
        assert change.first.time == again.first.time
    less = advise(advice.base, small_machine(2e6), 2)
    assert changed["with 1/2 of the memory"].first == less.first
    more = advise(dataclasses.replace(advice.base, batch_size=96), advice.machine, 2)
    assert changed["with a batch of 96"].first == more.first
    assert len(changed) == 4


def test_a_slower_network_is_never_a_gain(advice: Advice) -> None:
    slower = dataclasses.replace(advice.machine, network_bytes_per_second=advice.machine.network_bytes_per_second / 8)
    assert advise(advice.base, slower, 2).first.time.total >= advice.first.time.total


def test_a_settled_mesh_is_kept() -> None:
    found = advise(base(batch_size=24), small_machine(1e9), 2, Mesh.parse("tensor=2"))
    assert {each.candidate.run.mesh.axis("tensor") for each in found.ranked} == {2}


# --- what is printed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_fits_the_screen(advice: Advice, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    told = report(advice)
    words = [word for line in told.splitlines() if len(line) > width for word in line.split()]
    assert all(len(word) > width / 2 for word in words)  # a cell is never broken
    assert advice.first.candidate.cell in told
    assert "What would change it" in told


def test_json_has_every_layout(advice: Advice) -> None:
    from samestep.experiments.formats import write

    record = json.loads(write(document(advice), "json"))
    assert len(record["layouts"]) == len(advice.ranked)
    first = record["layouts"][0]
    parts = [value for name, value in first.items() if name.endswith("_seconds") and name != "step_seconds"]
    assert sum(parts) == pytest.approx(first["step_seconds"])


def test_64_devices_take_no_numpy_and_two_seconds(tmp_path: Path) -> None:
    whole = (
        "import sys\nfrom samestep.__main__ import main\nsys.argv = ['samestep', 'advise', *sys.argv[1:]]\n"
        "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    line = [sys.executable, "-c", whole, "--workload", "gpt3-175b", "--nodes", "8", "--format", "csv"]
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            line, env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path, stdout=out, stderr=err
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    told = (tmp_path / "err").read_text()
    assert process.returncode == 0, told[-500:]
    assert {"numpy", "torch", "tensorflow", "pydantic", "scipy"}.isdisjoint(told.split())
    assert used.ru_utime + used.ru_stime < SECONDS
    assert (tmp_path / "out").read_text().startswith("cell,strategy,mesh")


@pytest.mark.slow
def test_4096_devices() -> None:
    assert advise(base("gpt3-175b"), load_machine("a100-80gb"), 512).first.candidate.run.num_devices == 4096


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--workload gpt4", ["unknown workload 'gpt4'", "gpt3-175b"]),
        ("--workload gpt3-175b --machine a100", ["unknown machine 'a100'", "a100-80gb"]),
        ("--workload gpt3-175b --nodes 8 --mesh tensor=6", ["tensor=6", "do not divide the 64", "divides 64"]),
        ("--workload gpt3-175b --nodes 8 --mesh tensr=8", ["unknown mesh axis 'tensr'"]),
        ("--workload gpt3-175b --nodes 0", ["--nodes", "from 1 up"]),
        ("--workload synthetic-gpt --batch-size 7 --mesh data=8", ["torch:ddp", "global batch 7", "8 replicas"]),
        ("--workload llama3-70b", ["no room on 1 node", "GB of a device", "--nodes 4"]),
        ("--workload gpt3-175b --nodes 1 --format pdf", ["unknown format 'pdf'"]),
        ("--workload gpt3-175b --precision fp8", ["unknown precision 'fp8'"]),
        ("--workload gpt3-175b --depth 3", ["--depth"]),
        ("--workload digits-mlp", ["no transformer"]),
    ],
)
def test_one_line_for_what_is_impossible(line: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        command.main(line.split())
    assert all(word in str(caught.value) for word in words), caught.value
