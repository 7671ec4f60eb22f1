"""Steps that ranks take alone: what NumPy states of them, what is refused, and what a state keeps."""

import dataclasses
import itertools

import numpy as np
import pytest

from samestep.common.batch import Batch, batches
from samestep.common.errors import ConfigError
from samestep.common.program import WEIGHT, TrainState
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse, parse_prediction
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.worker.loop import _num_apart, _sizes
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.local_steps.ranks import averaged, find_flaw, kept, of_rank
from samestep.common.techniques.local_steps.statement import outer_step

MLP = "digits-mlp+width=8"
DILOCO = Techniques(local_steps=4, outer_rate=0.7, outer_momentum=0.9)


def described(techniques: Techniques, **fields: object) -> Run:
    config = RunConfig("torch", "ddp", MLP, 2, dtype="float64", batch_size=16, steps=8, techniques=techniques)
    return parse(dataclasses.replace(config, **fields))


def stream(run: Run, count: int) -> list[Batch]:
    split = run.workload.data.load()
    return list(itertools.islice(batches(split.train_inputs, split.train_targets, run.batch_size, run.seed), count))


def trained(run: Run, count: int = 8) -> tuple[list[float], TrainState]:
    program = TrainingProgram(run)
    for batch in stream(run, count):
        program.step(batch)
    return program.losses(), program.state()


@pytest.mark.parametrize("devices", [2, 4])
def test_one_step_with_sgd_is_a_step_by_the_mean_of_the_gradients(devices: int) -> None:
    plain, alone = (
        trained(described(each, optimizer="sgd", devices=devices)) for each in (Techniques(), Techniques(local_steps=1))
    )
    assert alone[0] == pytest.approx(plain[0], rel=1e-14)
    for name, value in plain[1].params.items():
        np.testing.assert_allclose(alone[1].params[name], value, atol=1e-14)


def test_the_loss_of_a_step_is_the_mean_of_what_the_ranks_see() -> None:
    """The ranks of a first period are two runs of one device, each on its half of every batch."""
    run = described(Techniques(local_steps=4), optimizer="adamw")
    halves = [TrainingProgram(dataclasses.replace(run, techniques=Techniques())) for _ in range(2)]
    for batch in stream(run, 4):
        for place, program in enumerate(halves):
            program.step(batch.part(place, 2))
    means = np.mean([program.losses() for program in halves], axis=0)
    losses, state = trained(run, 4)
    assert losses == pytest.approx(means.tolist(), rel=1e-14)
    for name, value in state.params.items():
        np.testing.assert_allclose(value, (halves[0].params[name] + halves[1].params[name]) / 2, atol=1e-15)


def test_the_outer_step_is_sgd_with_nesterov_momentum() -> None:
    """By hand: the mean of the moves is -1, then again; 0.7 (1 + 0.9) = 1.33, and 0.7 (1 + 0.9 (0.9 + 1)) = 1.897."""
    shared, momentum = {"w": np.array([0.0])}, {"w": np.array([0.0])}
    for wanted in (-1.33, -1.33 - 1.897):
        ranks = [{"w": shared["w"] - 0.5}, {"w": shared["w"] - 1.5}]
        shared, momentum = outer_step(DILOCO, shared, momentum, ranks)
        assert shared["w"] == pytest.approx(wanted)


def test_ranks_go_apart_within_a_period_and_meet_at_its_end() -> None:
    run = described(DILOCO)
    within, ends = trained(run, 6)[1], trained(run, 8)[1]
    apart = [kept(within, WEIGHT, rank)["layers/0/kernel"] for rank in range(2)]
    assert np.abs(apart[0] - apart[1]).max() > 1e-6
    assert "differs between rank 0 and rank 1" in find_flaw(within)
    assert find_flaw(ends) == ""
    met = [kept(ends, WEIGHT, rank)["layers/0/kernel"] for rank in range(2)]
    np.testing.assert_array_equal(met[0], met[1])


def test_a_run_goes_on_within_a_period_as_if_it_had_not_stopped() -> None:
    run = described(DILOCO, optimizer="adamw")
    losses, _ = trained(run, 8)
    program = TrainingProgram(run)
    program.restore(trained(run, 6)[1])
    for batch in stream(run, 8)[6:]:
        program.step(batch)
    assert program.losses() == losses[6:]  # bit for bit: the state has every number, and the same arithmetic follows


def test_another_number_of_ranks_goes_on_from_the_means() -> None:
    state = trained(described(DILOCO), 6)[1]
    own = [of_rank(state, rank).params["layers/0/kernel"] for rank in range(2)]
    np.testing.assert_allclose(averaged(state).params["layers/0/kernel"], (own[0] + own[1]) / 2, atol=1e-16)
    np.testing.assert_array_equal(state.params["layers/0/kernel"], averaged(state).params["layers/0/kernel"])


@pytest.mark.parametrize(
    ("techniques", "fields", "line"),
    [
        ({"local_steps": 0}, {}, "--local-steps is 0; give a whole number from 1 up."),
        ({"local_steps": -3}, {}, "--local-steps is -3; give a whole number from 1 up."),
        ({"local_steps": "four"}, {}, "--local-steps is 'four'; give a whole number."),
        ({"local_steps": 2}, {"devices": 1}, "needs several ranks, and there is one; add --devices 2."),
        ({"outer_rate": 0.7}, {}, "--outer-rate 0.7 applies to the step after each period; add --local-steps, or"),
        (
            {"local_steps": 2, "outer_momentum": 1.0},
            {},
            "--outer-momentum is 1.0; give a finite number from 0 up, at most",
        ),
        ({"local_steps": 2, "compress": "int8"}, {}, "--compress int8 and --local-steps 2 both exchange gradients"),
        ({"local_steps": 2, "fixed_order": 4}, {}, "--local-steps 2 and --fixed-order 4 both exchange gradients"),
        (
            {"local_steps": 2, "precision": "fp16"},
            {"dtype": "float32"},
            "agree on the scale of the loss in every step; use",
        ),
        ({"local_steps": 2}, {"workload": f"{MLP}+norm=batch"}, "also keeps buffers, which would differ between ranks"),
        (
            {"local_steps": 2},
            {"workload": "prose-gpt+ignored=0.5"},
            "divided by a number that differs between ranks; leave out --local-steps,",
        ),
        (
            {"local_steps": 2},
            {"strategy": "fsdp", "mesh": "data=2,shard=2", "devices": None},
            "no row lets groups of ranks take steps alone (DiLoCo over FSDP); torch:ddp takes such steps, with the whole",
        ),
        ({"local_steps": 2}, {"strategy": "zero1"}, "each rank has only a part of the optimizer state"),
    ],
)
def test_what_ranks_cannot_do_alone_is_refused_in_a_line(
    techniques: dict[str, object], fields: dict[str, object], line: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        described(Techniques(**techniques), **fields)
    assert line in str(caught.value)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("steps", "line"),
    [
        (
            5,
            "--local-steps 5 does not divide the run's 8 steps, so its ranks would end with different weights; use --steps 5 "
            "or 10.",
        ),
        (20, "--local-steps 20 is more than the run's 8 steps; give at most 8, or --steps 20."),
    ],
)
def test_a_run_ends_with_a_period(steps: int, line: str) -> None:
    config = RunConfig("torch", "ddp", MLP, 2, steps=8, techniques=Techniques(local_steps=steps))
    with pytest.raises(ConfigError) as caught:
        check_launch(parse(config), launch_of(config))
    assert str(caught.value) == line
    parse_prediction(config)  # of a step, whatever the run's last


@pytest.mark.parametrize(
    ("first", "steps", "windows"), [(0, 16, [4, 4, 4, 4]), (6, 16, [2, 4, 4]), (0, 10, [4, 4, 2]), (0, 4, [4])]
)
def test_windows_are_whole_periods(first: int, steps: int, windows: list[int]) -> None:
    """A replay may end within one."""
    run = described(DILOCO, steps=steps)
    apart = _num_apart(run, first)
    assert [apart, *_sizes(run.steps - first - apart, 4)] == windows
