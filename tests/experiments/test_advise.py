"""samestep advise: every layout that has room and no other, ranked by its time, with what would change the first."""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from samestep.common.axes.used import check_split
from samestep.common.catalog import strategy_info
from samestep.common.cell import Cell, parse_cells
from samestep.common.costs.pipeline import hybrid, hybrid_footprints
from samestep.common.costs.saved_activations.activations import pipeline_activation_bytes
from samestep.common.costs.sizes import MESSAGES, sent_bytes
from samestep.common.errors import ConfigError, Unavailable
from samestep.common.flags import Scalar
from samestep.common.ledger import Send
from samestep.common.mesh import AXES, Mesh
from samestep.common.request import RunConfig
from samestep.common.run import parse_prediction
from samestep.common.seconds.core_time import Cores, with_microbatches
from samestep.common.seconds.host_links import PAYLOAD, busiest, over_hosts, with_links
from samestep.common.seconds.layout import Layout
from samestep.common.seconds.machine import Machine, load_machine
from samestep.common.seconds.step_time import StepTime
from samestep.common.seconds.validation import carried_rows
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.workload.models.decoder import DecoderSpec
from samestep.common.workload.models.mlp import MlpSpec
from samestep.common.workload.models.spec import Param, layer, num_params
from samestep.experiments import advise as command
from samestep.experiments import predict
from samestep.experiments.advising import candidate_meshes, candidates, device_memory
from samestep.experiments.advising.advice import Advice, advise
from samestep.experiments.advising.advice_reasons import changed, others, say_room, trust, why
from samestep.experiments.advising.advice_text import document, next_step, report
from samestep.experiments.advising.candidate_meshes import (
    COMPOSED,
    EXPERTS,
    FULLY,
    MEGATRON,
    POSITIONS,
    SHARDED_EXPERTS,
    SPLIT,
    SPREAD,
    WHOLE,
    ComposedOptions,
    RankedStrategy,
)
from samestep.experiments.advising.candidates import MOST_MICROBATCHES, Condition, has_room, search, search_under
from samestep.experiments.advising.local_machine import LocalMachine, load_here, make_here, path, store
from samestep.experiments.advising.local_times import on_one, seconds_here
from samestep.experiments.advising.prediction import Assumptions, needed_bytes, predict_row
from samestep.experiments.advising.ranking import SLOWER, Change, Timed, longest_wait
from samestep.experiments.advising.step_times import candidate_of, seconds_of
from samestep.experiments.cli.command_line import read_request

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
    assert {each.row.title for each in found} == {
        *(row.title for row in (*WHOLE, *SPLIT, SPREAD, POSITIONS, MEGATRON)),
        "pp",
    }
    for each in (each for each in found if not each.row.composed):
        footprints = each.run.strategy.cost(each.run, "nccl").footprints
        assert each.needed_bytes == max(map(needed_bytes, footprints)), each.cell


def test_what_is_advised_is_what_predict_takes() -> None:
    known = [each for each in search(base(batch_size=96), 8, 2.2e6, {}).fitting if not each.row.composed]
    for each in known[::9]:
        config = read_request(Cell.parse(each.cell), {"workload": SMALL, "batch_size": 96})
        found = predict_row(each.cell, config, Assumptions(backend="nccl", weights="bf16"))
        assert (found.run, found.needed_bytes) == (each.run, each.needed_bytes)


def test_recomputation_is_tried_only_for_larger_micro_batches_than_have_room_without() -> None:
    found = search(base(batch_size=96), 8, 2.2e6, {}).fitting
    without: dict[str, int] = {}
    for each in found:
        key = f"{each.row} {each.run.mesh} {getattr(each.run.options, 'schedule', '')}"
        if each.forward_passes > 1:
            assert each.microbatch_size > without.get(key, 0)
        else:
            without[key] = max(each.microbatch_size, without.get(key, 0))
    assert any(each.forward_passes > 1 for each in found) and without


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_layout_is_found_if_any_of_its_micro_batches_has_room(share: float) -> None:
    """Held against every size of a micro-batch, with and without recomputation, each by the ledger of its strategy."""
    asked, needed = base(batch_size=48), dict[str, int]()
    for row, mesh in candidate_meshes.meshes(asked, 8):
        run = dataclasses.replace(asked, strategy=strategy_info("torch", row.strategy), mesh=mesh)
        replicas = mesh.replicas
        run = dataclasses.replace(run, options=run.strategy.options())
        schedule = "1f1b" if run.options.schedule else ""
        for count in candidate_meshes.microbatch_counts(run, 48 // replicas, schedule):
            each = with_microbatches(run, schedule, count)
            try:
                check_split(each)
            except ConfigError:
                continue
            least = max(map(needed_bytes, each.strategy.cost(each, "nccl").footprints))
            name = f"{row.strategy} {mesh}"
            needed[name] = min(least, needed.get(name, least))
    memory = sorted(needed.values())[int(share * len(needed))]
    found = search(asked, 8, memory, {})
    have_room = {f"{each.row.strategy} {each.run.mesh}" for each in found.fitting}
    assert {name for name, least in needed.items() if least <= memory} <= have_room
    assert all(each.needed_bytes <= memory for each in found.fitting)
    assert all(each.needed_bytes > memory for each in found.closest.values())


@pytest.mark.parametrize("workload", [SMALL, f"{SMALL}+experts=8", "llama3-8b", "flights-ranker"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "adafactor"])
def test_no_layout_needs_less_than_what_all_devices_hold_together(workload: str, optimizer: str) -> None:
    asked = parse_prediction(RunConfig(workload=workload, batch_size=96, optimizer=optimizer), "bf16")
    for devices in (1, 24):
        found = search(asked, devices, 1e15, {}).fitting
        assert found
        for each in found:
            assert device_memory.least_state(asked, each.row, each.run.mesh) <= each.needed_bytes, each.layout


def test_devices_that_cannot_hold_a_model_together_are_looked_at_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 405 billion parameters with their optimizer state, 2,048 devices hold more than 2 GB each, however they share."""
    monkeypatch.setattr(candidates, "places", None)
    assert not has_room(base("llama3-405b"), 2048, 2e9, {})


@pytest.mark.parametrize(
    ("asked", "machine", "nodes", "keep", "told"),
    [
        (
            base(),
            small_machine(1e3),
            2,
            None,
            r"a device has 1 kB\. Nor does it fit on twice as many nodes, and so on up to 16,384;",
        ),
        (
            base("llama3-8b", 65536),
            small_machine(1e3),
            8192,
            None,
            r"1 kB\. Nor does it fit on twice as many nodes; give ",
        ),
        (base("llama3-8b", 65536), small_machine(1e3), 16384, None, r"1 kB\. Give "),
        (
            base("llama3-8b", 512),
            small_machine(80e9, 8),
            125,
            None,
            r"leaves? are 5, .*give --batch-size 515, or --nodes 64\.$",
        ),
        (
            base("llama3-8b"),
            small_machine(80e9, 8),
            3,
            "tensor=3",
            r"on 24 devices\. torch:.*, torch:hybrid: 32 heads do not",
        ),
        (
            base("llama3-8b"),
            small_machine(80e9, 8),
            1,
            "expert=8",
            r"llama3-8b cannot be split into .* --mesh expert=8\.$",
        ),
    ],
)
def test_what_fits_nowhere_is_told_why(asked: Run, machine: Machine, nodes: int, keep: str | None, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        advise(asked, machine, nodes, keep and Mesh.parse(keep))


def test_a_batch_and_nodes_that_are_named_can_be_taken() -> None:
    machine = small_machine(80e9, 8)
    for batch, nodes in ((515, 125), (512, 64)):
        assert has_room(base("llama3-8b", batch), 8 * nodes, machine.memory_bytes, {})


def test_every_layout_that_was_measured_on_many_nodes_has_room() -> None:
    machine = load_machine("a100-80gb")
    for row in (row for row in carried_rows() if not row.is_one_node):
        shape, layout = row.shape, row.layout
        sizes = (shape.layers, shape.heads, shape.heads, shape.width, shape.hidden, shape.context)
        asked, spec = base("megatron-7.5b", layout.batch_size), DecoderSpec("gpt", *sizes, 51200)
        asked = dataclasses.replace(asked, workload=dataclasses.replace(asked.workload, model=spec))
        axes = {"data": layout.data, "pipe": layout.pipe, "tensor": layout.tensor}
        mesh = Mesh(tuple((name, size) for name, size in axes.items() if size > 1))
        count = layout.microbatches
        info = strategy_info("torch", "hybrid")
        options = info.options(schedule="1f1b" if count >= layout.pipe else "gpipe", microbatches=count)
        run = dataclasses.replace(asked, strategy=info, mesh=mesh, options=options)
        state = [needed_bytes(each) - (each.activations_bytes or 0) for each in hybrid_footprints(run)]
        run = dataclasses.replace(run, techniques=Techniques(recompute=True))  # as they ran
        kept = pipeline_activation_bytes(run, options.schedule, count)
        assert max(state) + max(each or 0 for each in kept) <= machine.memory_bytes, row


def test_every_layout_is_one_that_the_strategy_takes() -> None:
    for each in search(base(batch_size=24), 8, 1e12, {}).fitting:
        assert each.run.mesh.size == 8
        assert each.run.strategy is strategy_info("torch", each.row.strategy)
        each.run.strategy.needs(each.run)


def test_conditions_that_are_searched_together_have_the_room_of_each_alone() -> None:
    conditions = [
        Condition(base(batch_size=batch), memory) for batch, memory in ((96, 2.2e6), (96, 1.1e6), (384, 2.2e6))
    ]
    together = search_under(conditions, 8, {})
    assert together == [search(each.base, 8, each.memory, {}) for each in conditions]
    wide, narrow = ({(each.row, each.cell): each for each in found.fitting} for found in together[:2])
    assert wide.keys() & narrow.keys() and all(wide[name] is narrow[name] for name in wide.keys() & narrow.keys())


def test_a_run_is_the_candidate_that_it_was_searched_as() -> None:
    found = search(base(MIXTURE, 96), 8, 1e12, {}).fitting + search(base(batch_size=96), 8, 1e12, {}).fitting
    rows = set[RankedStrategy]()
    for each in found:
        if not each.row.composed:
            known = each.needed_bytes if each.knows_activations else 0
            again = candidate_of(each.run, known)
            assert again == dataclasses.replace(each, needed_bytes=known)
            rows.add(each.row)
    assert rows >= {*WHOLE, *SPLIT, SPREAD, POSITIONS, EXPERTS}


# --- six axes ---------------------------------------------------------------------------------------------------------

MIXTURE = "synthetic-gpt+layers=6+width=64+heads=4+context=32+vocabulary=64+experts=8+balance=0"


def test_a_mixture_is_split_along_six_axes() -> None:
    found = search(base(MIXTURE, 96), 32, 1e9, {}).fitting
    used = {name for each in found for name, size in each.run.mesh.axes if size > 1}
    assert used == set(AXES)
    assert {each.row for each in found} >= set(COMPOSED)
    assert all(each.run.mesh.size == 32 and each.needed_bytes <= 1e9 for each in found)


def test_a_composition_holds_what_its_row_does_but_for_what_it_shards() -> None:
    """Along pipe, tensor and context: the optimizer state over the replicas; along data alone it is what DDP's ranks have."""
    for text in ("data=2,pipe=2,tensor=2", "data=2,pipe=2,context=2", "data=4,pipe=2"):
        mesh = Mesh.parse(text)
        replicas = mesh.data * mesh.axis("context")
        run = dataclasses.replace(base(batch_size=48), strategy=strategy_info("torch", "hybrid"), mesh=mesh)
        plain, ours = (
            dataclasses.replace(run, options=options) for options in (run.strategy.options(), ComposedOptions())
        )
        by_row = device_memory.places(plain, SPLIT[0])
        for one, other in zip(by_row, device_memory.places(ours, MEGATRON), strict=True):
            elements = (
                one.state / 18
            )  # 2 bytes, its gradient's 2, 12 of the optimizer, and 2 of the copy that the row makes
            assert other.state == pytest.approx((4 + 12 / replicas) * elements, rel=1e-3), text
            assert other.kept is not None and one.kept is not None
            assert (other.kept == one.kept) is (mesh.tensor == 1)
            assert other.kept[0].now.size <= one.kept[0].now.size


def test_experts_are_sharded_along_expert_as_the_row_does() -> None:
    run = dataclasses.replace(base(MIXTURE, 48), strategy=strategy_info("torch", "ep"), mesh=Mesh.parse("expert=4"))
    run = dataclasses.replace(run, options=run.strategy.options())
    (row,) = device_memory.places(run, EXPERTS)
    composed = dataclasses.replace(run, strategy=strategy_info("torch", "hybrid"), options=ComposedOptions())
    (ours,) = device_memory.places(composed, MEGATRON)
    params = run.workload.model.params().values()
    dense = sum(param.size for param in params if not param.stacked)
    assert row.state - ours.state == pytest.approx(12 * dense * (1 - 1 / 4), rel=1e-3)
    assert ours.kept == row.kept


def test_rows_that_run_here_take_experts_along_their_other_axes() -> None:
    """`fsdp` holds what is no expert's once for each GPU along `expert`, which the composition shards as well."""
    found = search(base(MIXTURE, 96), 32, 1e9, {"expert": 4}).fitting
    assert {each.row.strategy for each in found if not each.row.composed} >= {"fsdp", "hybrid", "ep"}
    mesh = Mesh.parse("shard=2,expert=4")
    run = dataclasses.replace(base(MIXTURE, 48), strategy=strategy_info("torch", "fsdp"), mesh=mesh)
    run = dataclasses.replace(run, options=run.strategy.options())
    (row,), (composed,) = (device_memory.places(run, each) for each in (FULLY, SHARDED_EXPERTS))
    dense = sum(param.size for param in run.workload.model.params().values() if not param.stacked)
    assert row.kept == composed.kept
    # 2 bytes, its gradient's 2, 12 of the optimizer; but the row's blocks are gathered in two pieces, fewer bytes at once.
    more = dense * (1 / 2 - 1 / 8)
    assert 12 * more < row.state - composed.state < 16 * more


def test_shards_that_are_the_same_along_expert_are_summed_there() -> None:
    layout = Layout(batch_size=32, microbatch_size=1, shard=4, data=2, beside=Mesh((("expert", 2),)))
    along = dataclasses.replace(layout, shards_along_expert=True)
    assert (layout.group.shards, layout.group.replicas) == (4, 4)
    assert (along.group.shards, along.group.replicas) == (8, 2)
    assert layout.expert_group == along.expert_group


def test_long_sequences_have_room_along_context() -> None:
    """Llama 3 70B with 131,072 tokens on 256 H100, of rows that run here: without the axis none has room."""
    asked, memory = base("llama3-70b+context=131072", 32), load_machine("h100-80gb").memory_bytes
    for context in (1, 8):
        found = search(asked, 256, memory, {"tensor": 8, "pipe": 4, "context": context}).fitting
        assert any(not each.row.composed for each in found) is (context == 8)


@pytest.mark.slow
def test_a_trillion_parameters_are_split_along_tensor_and_pipe_first() -> None:
    """As Narayanan et al. did on as many GPUs; what fully sharded ones exchange is not hidden: at least 60 s of the links."""
    found = advise(base("megatron-1t"), load_machine("a100-80gb"), 384, with_changes=False)
    mesh = found.first.candidate.run.mesh
    assert mesh.tensor > 1 and mesh.pipe >= 32
    sharded = next(each for each in found.ranked if each.candidate.row.strategy == "fsdp")
    assert sharded.time.total > 1.15 * found.first.time.total
    assert sharded.time.data_exchange > 0.1 * sharded.time.total


def test_a_composition_is_told_with_the_first_layout_that_a_row_runs() -> None:
    found = advise(base("gpt3-175b"), load_machine("a100-80gb"), 16, Mesh.parse("pipe=8,tensor=8"), with_changes=False)
    told = " ".join(report(found).split())
    assert "+ zero1, which no row runs here: Megatron-LM does" in told
    assert re.search(r", which samestep can run and which is \d+ % slower, holds and sends:", told)


def test_what_a_row_runs_with_an_option_is_told_as_that_row() -> None:
    """Without `tensor` there is no norm to split along it, and hybrid spreads its optimizer state."""
    mesh = Mesh.parse("pipe=4,tensor=1,data=2,context=1,shard=1")
    found = advise(base("megatron-7.5b", 64), load_machine("a100-80gb"), 1, mesh, with_changes=False)
    assert {each.candidate.row for each in found.ranked} == {SPLIT[0], SPREAD}
    told = " ".join(report(found).replace("\\\n", "").split())
    assert "zero1" not in told
    assert "samestep predict torch:hybrid+schedule=interleaved_1f1b+microbatches=16+shard_optimizer=true+mesh" in told


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
    assert changed["with half of the memory"].first == less.first
    more = advise(dataclasses.replace(advice.base, batch_size=96), advice.machine, 2)
    assert changed["with a batch of 96"].first == more.first
    assert len(changed) == 4


def test_a_slower_network_is_never_a_gain(advice: Advice) -> None:
    slower = dataclasses.replace(advice.machine, network_bytes_per_second=advice.machine.network_bytes_per_second / 8)
    assert advise(advice.base, slower, 2).first.time.total >= advice.first.time.total


def test_steps_taken_alone_are_named_where_the_exchange_between_nodes_is_waited_for_and_ranked_nowhere() -> None:
    machine, mesh = small_machine(1e12), Mesh.parse("pipe=1,tensor=1,context=1")
    slow = dataclasses.replace(machine, network_bytes_per_second=machine.network_bytes_per_second / 1000)
    asked = base(batch_size=384)
    found = advise(asked, slow, 2, mesh)
    assert found.alone is not None and longest_wait(found.first.time) == "data_exchange"
    assert found.alone.time.total < found.first.time.total
    assert found.alone not in found.ranked
    alone = found.alone.candidate
    assert "local_steps=500" in alone.cell
    config = read_request(Cell.parse(alone.cell), {"workload": SMALL, "batch_size": 384})
    row = predict_row(alone.cell, config, Assumptions(backend="nccl", weights="bf16"))
    assert (row.run, row.needed_bytes) == (alone.run, alone.needed_bytes)
    told = " ".join(report(found).split())
    assert "--local-steps 500 --outer-rate 0.7 --outer-momentum 0.9 (DiLoCo), torch:ddp (data=8) takes" in told
    assert "That is another step" in told
    often = next(each for each in found.ranked if each.candidate.row == WHOLE[0])
    assert (
        found.alone.time.data_exchange < often.time.data_exchange <= 500 * found.alone.time.data_exchange
    )  # none is hidden
    assert found.alone.time.compute == often.time.compute
    tight = dataclasses.replace(slow, memory_bytes=alone.needed_bytes - 1)
    assert advise(asked, tight, 2, mesh).alone is None
    assert advise(asked, dataclasses.replace(machine, network_bytes_per_second=1e15), 2, mesh).alone is None


def test_a_layout_that_fills_the_memory_is_told_with_one_that_leaves_some(advice: Advice) -> None:
    needs = advice.first.candidate.needed_bytes
    assert say_room(dataclasses.replace(advice, machine=small_machine(2 * needs))) == ""
    roomy = next(each for each in advice.ranked if each.candidate.needed_bytes <= 0.9 * needs)
    told = say_room(dataclasses.replace(advice, machine=small_machine(needs)))
    assert f"what the framework takes comes on top; if it runs out, {roomy.layout} needs" in told
    alone = dataclasses.replace(advice, ranked=advice.ranked[:1], machine=small_machine(needs))
    assert "no layout leaves a tenth of the memory" in say_room(alone)


def test_what_computes_again_is_told_so_however_little_it_waits(advice: Advice) -> None:
    first = advice.first.candidate
    row = next(row for row in (FULLY, WHOLE[0]) if row != first.row)
    again = dataclasses.replace(
        first, row=row, run=dataclasses.replace(first.run, techniques=first.run.techniques.computing_twice())
    )
    seconds = StepTime(2 * advice.first.time.total, 0, 0, 0, 0, 0)
    (told,) = others(dataclasses.replace(advice, ranked=(advice.first, Timed(again, seconds))))
    assert told.endswith("hardly waits, and recomputes activations.")


def test_a_settled_mesh_is_kept() -> None:
    found = advise(base(batch_size=24), small_machine(1e9), 2, Mesh.parse("tensor=2"))
    assert {each.candidate.run.mesh.tensor for each in found.ranked} == {2}


def test_only_micro_batches_that_can_win_are_timed() -> None:
    """The best of those that are left out gains the rest of the bubble at most."""
    machine, asked = small_machine(1e12), base(batch_size=768)
    kept = search(asked, 8, machine.memory_bytes, {}).fitting
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "MOST_MICROBATCHES", 10**6)
        everything = search(asked, 8, machine.memory_bytes, {}).fitting
    assert len(kept) < len(everything)
    fastest, best = (min(seconds_of(each, machine).total for each in found) for found in (everything, kept))
    assert best <= (1 + 1 / MOST_MICROBATCHES) * fastest


# --- this machine -----------------------------------------------------------------------------------------------------

CORES = Cores(
    matmul={16: 1e9, 64: 1e10, 256: 2e10},
    element_seconds=1e-8,
    latency_seconds=dict.fromkeys(MESSAGES, 1e-4),
    exchange_bytes_per_second=dict.fromkeys(MESSAGES, 1e9),
    overhead_seconds={"torch:ddp": (1e-3, 1e-4), "torch:fsdp": (1e-3, 1e-3)},
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalMachine:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = make_here(CORES, 4, 8e9, 3e9)
    store(found)
    return found


def run_here(cell: str, **given: Scalar) -> Run:
    return parse_prediction(read_request(Cell.parse(cell), {"workload": "digits-mlp", "devices": 2, **given}))


def test_the_file_of_this_machine_is_read_as_it_was_written(here: LocalMachine) -> None:
    assert load_here() == here


def test_figures_of_another_processor_are_not_read(here: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samestep.experiments.advising.local_machine.key", lambda: "another processor")
    assert load_here() is None


def test_a_damaged_file_of_this_machine(here: LocalMachine) -> None:
    path().write_text(path().read_text().replace("element_seconds", "element_second"))
    with pytest.raises(ConfigError, match=r"is damaged.*samestep calibrate"):
        load_here()


def test_the_seconds_of_a_step_on_cores_by_hand(here: LocalMachine) -> None:
    """64 examples a rank through 4 layers of 64 to 128 units: matrices, elements, overhead, all-reduce, update."""
    found = seconds_here(run_here("torch:ddp"), here)
    flops = [2 * 64 * size for size in (64 * 128, 128 * 128, 128 * 128, 128 * 10)]
    sizes = [(each / 2) ** (1 / 3) for each in flops]
    rates = [
        1e10 + (size - 64) / (256 - 64) * 1e10 if size > 64 else 1e9 + (size - 16) / (64 - 16) * 9e9 for size in sizes
    ]
    kept = 64 * (128 + 128 + 128 + 128 + 128 + 128)
    seconds = sum(3 * each / rate for each, rate in zip(flops, rates, strict=True)) + kept * 1e-8
    assert found.compute == pytest.approx(1e-3 + 4 * 1e-4 + seconds)
    params = 4 * num_params(run_here("torch:ddp").workload.model)
    assert found.data_exchange == pytest.approx(1e-4 + params / 1e9)
    assert found.optimizer == pytest.approx(5 * params / 3e9)


def test_what_is_frozen_takes_no_time_for_gradients(here: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four layers the first and the third are frozen: they take one product and two, the others three each."""
    params, frozen = MlpSpec.params, ("layers/0", "layers/2")

    def learned(model: MlpSpec) -> dict[str, Param]:
        return {name: dataclasses.replace(each, frozen=layer(name) in frozen) for name, each in params(model).items()}

    monkeypatch.setattr(MlpSpec, "params", learned)
    run = run_here("torch:ddp", workload="digits-mlp+width=52")  # a width of no other test, of which parts are kept
    segments = run.workload.model.segments()
    cores = dataclasses.replace(CORES, matmul={16: 1e9}, element_seconds=0.0)
    found = seconds_here(run, dataclasses.replace(here, cores=cores)).compute
    products = sum(times * 64 * each.flops / 1e9 for times, each in zip((1, 3, 2, 3), segments, strict=True))
    assert found == pytest.approx(1e-3 + 4 * 1e-4 + products)


@pytest.mark.parametrize(
    ("cell", "devices"),
    [
        ("torch:fsdp+accumulation_steps=8", 2),
        ("torch:pp+schedule=1f1b+microbatches=16", 2),
        ("torch:hybrid+schedule=1f1b+microbatches=16+shard_optimizer=true+mesh=pipe=2,data=2", 4),
    ],
)
def test_exchanges_of_many_microbatches_are_those_of_the_whole_ledger(
    cell: str, devices: int, here: LocalMachine
) -> None:
    run = run_here(cell, devices=devices, batch_size=128)
    ledger = run.strategy.cost(run, "gloo")
    sends = {"all_gather": 1.0, "all_reduce": 2 / 2, "broadcast": 1.0, "reduce_scatter": 2 / 2, "send": 1.0}
    whole = sum(send.count * 1e-4 + sends[send.operation] * send.bytes / 1e9 for send in ledger.sends)
    found = seconds_here(run, here)
    assert found.data_exchange + found.pipeline_sends == pytest.approx(whole)


def linked(cell: str, here: LocalMachine) -> tuple[StepTime, StepTime, Run]:
    """The parts of a step on eight devices, alone and on two hosts of four devices with links of 8 Mbit/s."""
    run = run_here(cell, devices=8, batch_size=128)
    alone = seconds_here(run, here)
    return alone, over_hosts(alone, busiest(run, 4), with_links(here.machine, "8mbit")), run


def carried(*sends: Send, times: int = 1) -> float:
    """The seconds of what leaves a host on such a link, with what gloo sends beside it."""
    return times * sum(sent_bytes(send, "gloo", 4) for send in sends) / (1e6 * PAYLOAD)


def test_a_ring_leaves_each_host_once(here: LocalMachine) -> None:
    alone, found, run = linked("torch:ddp", here)
    sends = run.strategy.cost(run, "gloo").sends
    assert found == dataclasses.replace(alone, data_exchange=carried(*sends))
    params = 4 * num_params(run.workload.model)
    assert found.data_exchange == pytest.approx(2 * 7 / 8 * params / (1e6 * PAYLOAD), rel=0.05)
    four = run_here("torch:ddp", devices=4)
    assert busiest(four, 4) == {} and over_hosts(alone, {}, here.machine) == alone


def test_only_what_leaves_a_host_passes_its_link(here: LocalMachine) -> None:
    alone, found, run = linked("torch:hybrid+mesh=data=2,tensor=4", here)
    data = [send for send in run.strategy.cost(run, "gloo").sends if send.group == "data"]
    assert data and found == dataclasses.replace(alone, data_exchange=carried(*data, times=4)), "a ring for each device"
    alone, found, run = linked("torch:hybrid+schedule=1f1b+microbatches=2+mesh=data=4,pipe=2", here)
    first = hybrid(run, "gloo", 0).sends
    sent = [send for send in first if send.operation == "send" and not send.source]
    assert sent and found == dataclasses.replace(alone, pipeline_sends=carried(*sent, times=4))


def test_a_layout_is_timed_once_for_all_rates_of_links(here: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    slower = dataclasses.replace(here.machine, node_bytes_per_second=here.machine.node_bytes_per_second / 4)
    timer, asked = on_one(here), dataclasses.replace(run_here("torch:ddp"), mesh=Mesh(()))
    each = search(asked, 2, 1e12, {}).fitting[0]
    expected = [seconds_here(each.run, dataclasses.replace(here, machine=known)) for known in (here.machine, slower)]
    found = [timer(each, here.machine)]
    monkeypatch.setattr("samestep.experiments.advising.local_times.seconds_here", None)
    found.append(timer(each, slower))
    assert [each.parts() for each in found] == [pytest.approx(each.parts()) for each in expected]
    assert found[0].data_exchange < found[1].data_exchange


def test_advice_for_hosts_like_this_one(
    here: LocalMachine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    advised: list[Advice] = []
    find = command.find_advice
    monkeypatch.setattr(command, "find_advice", lambda *asked: advised[0] if advised else find(*asked))
    monkeypatch.setattr(command, "document", lambda advice: document(advised.append(advice) or advice))
    line = ["--machine", "here", "--nodes", "2", "--bandwidth", "8mbit", "--workload", "digits-mlp", "--format", "json"]
    assert command.main(line) == 0
    record = json.loads(capsys.readouterr().out)
    found = next(each for each in record["layouts"] if each["cell"] == "torch:ddp+mesh=data=8")
    assert found["data_exchange_seconds"] == linked("torch:ddp", here)[1].data_exchange
    assert record["machine"]["title"] == f"{here.key}, each with a link of 8mbit"
    assert command.main(line[:-2]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "on 2 nodes of" in told and "links between nodes" in told and "--on slurm:nodes=2" in told


def test_without_torch_this_machine_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(Unavailable, match="torch"):
        command.main(["--machine", "here"])


def test_advice_for_this_machine_names_what_it_was_measured_on(
    here: LocalMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--machine", "here", "--workload", "digits-mlp"]) == 0
    told = capsys.readouterr().out
    assert "The fastest is torch:" in told and here.key in " ".join(told.split())


# --- what is printed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_fits_the_screen(advice: Advice, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    told = report(advice)
    words = [word for line in told.splitlines() if len(line) > width for word in line.removesuffix(" \\").split()]
    assert all(len(word) > width / 2 for word in words)  # a cell is never broken
    assert advice.first.candidate.cell in told
    assert "Under other conditions" in told


def test_of_layouts_that_no_prediction_can_tell_apart_the_simplest_is_advised() -> None:
    told = " ".join(report(advise(base("prose-gpt"), load_machine("a100-80gb"), 1)).split())
    assert re.search(
        r"torch:ddp \(data=8\).* apart: take (it, the simpler|torch:ddp \(data=8\), the simplest) one\.", told
    )


def test_the_next_strategy_takes_more_of_one_part_and_less_of_another() -> None:
    told = why(advise(base("llama3-70b"), load_machine("a100-80gb"), 3))
    assert re.search(
        r"slower: it takes [\d.]+ s more for computing.*, but [\d.]+ s less for .*the bubble of the pipeline\.$", told
    )


def test_a_change_by_less_than_can_be_told_is_none(advice: Advice) -> None:
    """Two layouts that are as fast: neither displaces the other."""
    first, second = advice.ranked[:2]
    slower = dataclasses.replace(second.time, compute=second.time.compute + 1.05 * first.time.total - second.time.total)
    equal = dataclasses.replace(slower, compute=slower.compute - 0.045 * first.time.total)
    told = [
        changed(Change("with a change", first, dataclasses.replace(second, time=time)), second)
        for time in (slower, equal)
    ]
    assert f"{first.layout} is fastest" in told[0] and f"{second.layout} takes" in told[0]
    assert "the same layout is as fast as any" in told[1]


def test_other_gpus_are_told_what_such_predictions_were_off_by() -> None:
    of_a100, of_h100 = (
        trust(advise(base("megatron-7.5b"), load_machine(name), 2)) for name in ("a100-80gb", "h100-80gb")
    )
    assert "on many nodes of A100" in of_a100 and "H100" not in of_a100
    assert re.search(r"70 steps that others measured on H100s were off by [\d.]+ % on average", of_h100)


def test_the_command_to_go_on_with_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    found = advise(base("gpt3-175b", 512), load_machine("a100-80gb"), 16, Mesh.parse("tensor=8"))
    _, line = next_step(found, 80).split(":\n", 1)
    assert all(len(each) <= 80 or len(each.split()) == 2 for each in line.splitlines())  # a word is never broken
    assert predict.main(shlex.split(line.replace("\\\n", ""))[2:]) == 0
    assert " fits in 74.5 GiB" in " ".join(capsys.readouterr().out.split())


def test_this_machine_is_told_what_to_measure(here: LocalMachine) -> None:
    asked = parse_prediction(RunConfig(workload="digits-mlp"))
    found = advise(asked, here.machine, 1, timer=lambda each, machine: seconds_here(each.run, here))
    _, line = next_step(found, 1000).splitlines()
    command, strategies = line.split(" --workload ", 1)[0].rsplit(" ", 1)
    assert command == "samestep compare --strategies"
    assert list(map(str, parse_cells("--strategies", strategies))) == [
        each.candidate.cell for each in found.best_of()[:3]
    ]
    assert line.endswith(" --workload digits-mlp --batch-size 128 --no-parity --out runs")


def test_json_has_every_layout(advice: Advice) -> None:
    from samestep.experiments.printing.formats import write

    record = json.loads(write(document(advice), "json"))
    assert len(record["layouts"]) == len(advice.ranked)
    first = record["layouts"][0]
    parts = [value for name, value in first.items() if name.endswith("_seconds") and name != "step_seconds"]
    assert sum(parts) == pytest.approx(first["step_seconds"])


@pytest.mark.timeout(300)
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
@pytest.mark.parametrize("workload", ["gpt3-175b", "deepseek-v3"])
def test_4096_devices(workload: str) -> None:
    start = time.process_time()
    found = advise(base(workload), load_machine("a100-80gb"), 512)
    assert found.first.candidate.run.num_devices == 4096
    assert time.process_time() - start < 60  # three times what it may take


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--workload gpt4", ["unknown workload 'gpt4'", "gpt3-175b"]),
        ("--workload gpt3-175b --machine a100", ["unknown machine 'a100'", "a100-80gb"]),
        (
            "--workload gpt3-175b --machine mine.json",
            ["unknown machine 'mine.json'. A file of your own ends in .toml."],
        ),
        ("--workload gpt3-175b --nodes 8 --mesh tensor=6", ["tensor=6", "do not divide the 64", "divides 64"]),
        ("--workload gpt3-175b --nodes 8 --mesh tensr=8", ["unknown mesh axis 'tensr'"]),
        ("--workload gpt3-175b --nodes 0", ["--nodes", "from 1 up"]),
        (
            "--workload synthetic-gpt --batch-size 7 --mesh data=8",
            ["8 devices with a global batch of 7", "replicas that a possible mesh leaves are 8", "give --batch-size 8"],
        ),
        ("--workload llama3-70b", ["does not fit on 1 node", "a device has 80 GB", "--nodes 4"]),
        ("--workload gpt3-175b --nodes 1 --format pdf", ["unknown format 'pdf'"]),
        ("--workload gpt3-175b --weights fp8", ["unknown weights 'fp8'"]),
        ("--workload gpt3-175b --depth 3", ["--depth"]),
        ("--machine here --nodes 2", ["--nodes 2", "add it, as in --bandwidth 1gbit"]),
        ("--machine here --nodes 2 --bandwidth 5", ["--bandwidth is '5'", "200mbit"]),
        ("--workload gpt3-175b --nodes 8 --bandwidth 1gbit", ["--machine here", "network_bytes_per_second"]),
        ("--machine here --weights bf16", ["float32", "leave out --weights"]),
    ],
)
def test_one_line_for_what_is_impossible(line: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        command.main(line.split())
    assert all(word in str(caught.value) for word in words), caught.value
