"""The oracle as a Program: state and restore, micro-batches, clipping, what it reports."""

import dataclasses

import numpy as np
import pytest

from samestep.common.techniques import Techniques
from samestep.common.workload.initial import init
from samestep.common.workload.models.cnn import CnnSpec
from samestep.common.workload.models.mlp import MlpSpec
from samestep.common.workload.models.ranker import RankerSpec
from samestep.common.workload.models.spec import num_params
from samestep.common.workload.models.transformer import TransformerSpec

MODELS = [
    MlpSpec(features=4, width=6, layers=3, outputs=3),
    CnnSpec(image=(8, 4, 1), filters=2, hidden=4, outputs=3),
    TransformerSpec(layers=1, heads=2, width=8, context=4, vocabulary=6),
    RankerSpec((3, 4), 5, embedding=2, hidden=4),
    MlpSpec(features=4, width=6, layers=3, outputs=2, loss="mean_squared_error"),
]

all_models = pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.name}-{model.loss}")
both_optimizers = pytest.mark.parametrize("optimizer", ["sgd", "adamw"])


def values(program):
    state = program.state()
    return [state.params, *state.slots.values()]


def assert_equal(found, expected):
    for mine, theirs in zip(values(found), values(expected), strict=True):
        assert list(mine) == list(theirs)
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)


@all_models
@both_optimizers
def test_a_run_that_continues_from_a_state_is_the_uninterrupted_one_bit_by_bit(
    training, oracle_config, model, optimizer
):
    config = dataclasses.replace(oracle_config, optimizer=optimizer)
    whole, batches = training(model, config, num_batches=7)
    for batch in batches[:4]:
        whole.step(batch)
    state = whole.state()
    continued, rest = training(model, config, first=state.step, num_batches=3)
    continued.params = init(model, 99)  # whatever it starts with does not matter
    continued.restore(state)
    losses = whole.losses()
    for batch, again in zip(batches[4:], rest, strict=True):
        assert batch.step == again.step
        whole.step(batch)
        continued.step(again)
    assert len(losses) == 4
    assert whole.losses() == continued.losses()
    assert whole.state().step == continued.state().step == 7
    assert_equal(continued, whole)


def test_a_state_is_a_copy_in_both_directions(training, oracle_config):
    program, batches = training(MODELS[0], oracle_config, num_batches=2)
    state = program.state()
    before = {name: value.copy() for name, value in state.params.items()}
    program.step(batches[0])
    program.restore(state)
    program.step(batches[1])
    for name, value in before.items():
        np.testing.assert_array_equal(state.params[name], value)
        assert not np.array_equal(program.params[name], value)


@all_models
@pytest.mark.parametrize("count", [2, 3])
def test_micro_batches_take_the_same_step(training, oracle_config, model, count):
    taken = []
    for accumulation_steps in (1, count):
        config = dataclasses.replace(oracle_config, techniques=Techniques(accumulation_steps=accumulation_steps))
        program, (batch,) = training(model, config, batch_size=12)
        loss, gradients = program.gradients(batch)
        program.step(batch)
        taken.append((loss, gradients, program.state().params))
    (loss, gradients, params), (micro_loss, micro_gradients, micro_params) = taken
    # Sums of at most 12 * 4 terms of order 1 in another order: a few times 1.1e-16 each.
    assert micro_loss == pytest.approx(loss, rel=1e-14)
    for name in params:
        np.testing.assert_allclose(micro_gradients[name], gradients[name], rtol=0, atol=1e-14)
        np.testing.assert_allclose(micro_params[name], params[name], rtol=0, atol=1e-14)


def norm(arrays):
    return float(np.sqrt(sum((array**2).sum() for array in arrays.values())))


def moved(training, config, clip_norm):
    """The way that one step of sgd at rate 1, whose momentum is still empty, moves the weights: minus the gradient."""
    config = dataclasses.replace(config, optimizer="sgd", learning_rate=1.0, techniques=Techniques(clip_norm=clip_norm))
    program, (batch,) = training(MODELS[2], config)
    before = program.state().params
    program.step(batch)
    return {name: value - before[name] for name, value in program.state().params.items()}


def test_a_gradient_above_the_clip_norm_is_scaled_down_to_it_as_a_whole(training, oracle_config):
    free = moved(training, oracle_config, None)
    limit = norm(free) / 3
    clipped = moved(training, oracle_config, limit)
    # Weights of order 1 give each difference an error of 1.1e-16, twice.
    assert norm(clipped) == pytest.approx(limit, rel=1e-13)
    for name, value in free.items():
        np.testing.assert_allclose(clipped[name], value / 3, rtol=0, atol=1e-15)


def test_a_gradient_below_the_clip_norm_is_left_alone(training, oracle_config):
    free = moved(training, oracle_config, None)
    for name, value in moved(training, oracle_config, 1.01 * norm(free)).items():
        np.testing.assert_array_equal(value, free[name])


def test_a_gradient_of_nothing_but_zeros_can_be_clipped(training, oracle_config):
    config = dataclasses.replace(oracle_config, techniques=Techniques(clip_norm=1.0))
    program, _ = training(MODELS[0], config)
    before = program.state().params
    program.apply({name: np.zeros_like(value) for name, value in before.items()})
    for name, value in program.state().params.items():
        np.testing.assert_array_equal(value, before[name])


def test_losses_are_handed_over_once(training, oracle_config):
    program, batches = training(MODELS[0], oracle_config, num_batches=3)
    for batch in batches:
        program.step(batch)
    assert len(program.losses()) == 3
    assert program.losses() == []


@all_models
def test_the_loss_falls_on_a_batch_that_is_seen_again_and_again(training, oracle_config, model):
    program, (batch,) = training(model, dataclasses.replace(oracle_config, optimizer="adamw"))
    for _ in range(100):
        program.step(batch)
    losses = program.losses()
    assert losses[-1] < 0.8 * losses[0]


@all_models
def test_a_program_starts_from_the_spec_s_weights_and_predicts_a_logit_row_per_target(training, oracle_config, model):
    program, (batch,) = training(model, dataclasses.replace(oracle_config, seed=4))
    for name, value in init(model, 4).items():
        np.testing.assert_array_equal(program.params[name], value)
    logits = program.predict(batch.rows()[0])
    classes = (model.targets().ids,) if model.loss == "cross_entropy" else ()
    assert logits.shape == (6, *model.targets().shape, *classes)
    assert logits.dtype == np.float64


@both_optimizers
def test_the_footprint_counts_every_array_in_bytes(training, oracle_config, optimizer):
    program, _ = training(MODELS[2], dataclasses.replace(oracle_config, optimizer=optimizer))
    (footprint,) = program.footprint()
    size = 8 * num_params(MODELS[2])
    assert (footprint.params_bytes, footprint.params_peak_bytes, footprint.gradients_bytes) == (size, size, size)
    assert footprint.optimizer_bytes == {"sgd": 1, "adamw": 2}[optimizer] * size


def test_an_observed_step_is_a_step_that_exchanges_nothing(training, oracle_config):
    (observed, batches), (stepped, _) = (training(MODELS[0], oracle_config) for _ in range(2))
    observed.observe(batches[0])
    assert observed.sends() == ()
    stepped.step(batches[0])
    assert_equal(observed, stepped)
