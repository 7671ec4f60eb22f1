import dataclasses

import pytest

from samestep.common.errors import ConfigError
from samestep.common.mesh import Mesh
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import arguments, as_config, parse
from samestep.common.techniques import Techniques

TORCH = RunConfig(framework="torch", workload="synthetic-mlp")
ORACLE = RunConfig(framework="numpy", strategy="oracle", workload="synthetic-mlp", dtype="float64")


def mesh(strategy: str, **fields: object) -> Mesh:
    return parse(dataclasses.replace(TORCH, strategy=strategy, **fields)).mesh


def refusal(config: RunConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(config)
    return str(caught.value)


def test_devices_lie_along_the_first_axis_of_the_strategy():
    assert mesh("fsdp", devices=3) == Mesh((("shard", 3),))


def test_without_a_word_about_devices_there_is_one():
    assert mesh("tp") == Mesh((("tensor", 1),))
    assert mesh("single") == parse(ORACLE).mesh == Mesh((("data", 1),))


def test_a_mesh_is_taken_as_written():
    taken = mesh("hybrid", mesh="tensor=2,data=2", options={"microbatches": 1})
    assert taken == Mesh((("tensor", 2), ("data", 2)))


def test_devices_and_mesh_may_both_be_given_if_they_agree():
    assert mesh("hybrid", devices=4, mesh="data=2,tensor=2", options={"microbatches": 1}).size == 4


def test_devices_that_disagree_with_the_mesh_are_refused():
    message = refusal(dataclasses.replace(TORCH, strategy="ddp", devices=3, mesh="data=2"))
    assert message == "--devices 3 disagrees with --mesh data=2 (2 devices); give one of them."


def test_an_axis_the_strategy_does_not_have_is_refused_with_those_it_has():
    message = refusal(dataclasses.replace(TORCH, strategy="fsdp", mesh="tensor=2"))
    assert "'tensor'" in message
    assert "torch:fsdp does not split along it" in message
    assert "Choose from: shard, data, context, expert." in message


def test_a_strategy_without_axes_runs_on_one_device():
    assert refusal(dataclasses.replace(ORACLE, devices=2)).startswith("numpy:oracle runs on one device, not on 2")


def test_defaults_are_the_workload_s():
    run = parse(ORACLE)
    assert (run.batch_size, run.steps) == (run.workload.batch_size, run.workload.steps)
    assert (run.optimizer.name, run.optimizer.learning_rate) == next(iter(run.workload.learning_rates.items()))
    assert (run.name, run.num_devices, run.item_bytes, run.passes) == ("numpy:oracle", 1, 8, 1)


def test_a_dtype_that_the_strategy_cannot_train_in_is_refused():
    message = refusal(dataclasses.replace(ORACLE, dtype="float32"))
    assert message == "numpy:oracle trains in float64, not in float32; give --dtype float64."


def test_a_batch_that_does_not_divide_among_micro_batches_is_refused_with_its_neighbours():
    message = refusal(dataclasses.replace(ORACLE, batch_size=7, techniques=Techniques(accumulation_steps=2)))
    assert message == "global batch 7 does not divide among 1 devices x 2 micro-batches; use --batch-size 6 or 8."


def test_what_a_run_is_written_as_is_parsed_to_the_same_run():
    asked = dataclasses.replace(ORACLE, optimizer="adamw", seed=3, techniques=Techniques(clip_norm=0.5), parity=False)
    run = parse(asked)
    complete = as_config(run, launch_of(asked))
    assert parse(complete) == run
    assert complete.parity is False


def test_the_flags_that_repeat_a_run_leave_out_its_defaults_and_where_its_files_go():
    asked = dataclasses.replace(ORACLE, out="somewhere", techniques=Techniques(accumulation_steps=2))
    flags = arguments(as_config(parse(asked), launch_of(asked)))
    assert flags[:6] == ["--framework", "numpy", "--strategy", "oracle", "--workload", "synthetic-mlp"]
    assert flags[-2:] == ["--accumulation-steps", "2"]
    assert "somewhere" not in flags


def test_options_are_names_and_values():
    assert refusal(dataclasses.replace(TORCH, options=None)) == "options is None, not an object of names and values."
