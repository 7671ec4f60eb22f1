"""The oracle's batch normalization: its derivatives, its statistics, and what it keeps of them."""

import dataclasses

import numpy as np
import pytest

from samestep.common.errors import ConfigError
from samestep.common.features.batch_norm.statistics import EPSILON, MOMENTUM
from samestep.common.reference.features.batch_norm import BatchNorm
from samestep.common.reference.step_context import StepContext
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.workload.models.cnn import CnnSpec
from samestep.common.workload.models.mlp import MlpSpec

MODELS = [
    MlpSpec(features=3, width=5, layers=3, outputs=3, norm="batch"),
    CnnSpec(image=(4, 8, 2), filters=2, hidden=4, outputs=3, norm="batch"),
]
PARAMS = {"norm/scale": np.array([1.5, -2.0, 1.0]), "norm/bias": np.array([0.0, 3.0, -1.0])}
RUNNING = {"norm/running_mean": np.array([1.0, 0.0, -2.0]), "norm/running_var": np.array([4.0, 1.0, 0.25])}


@pytest.mark.parametrize("examples", [8, 4, 0], ids=["the whole batch", "halves", "running"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_its_gradients_are_finite_differences(training, oracle_config, model, examples) -> None:
    """To 1e-7 relative: a difference over 2e-6 of a loss of order 1, which is right to 1e-15, is right to 5e-10."""
    program, (batch,) = training(model, oracle_config, batch_size=8)
    program.examples, draw = examples, np.random.default_rng(0)
    for value in program.params.values():
        value += 0.3 * draw.normal(size=value.shape)
    _, gradients = program.gradients(batch)
    for name, value in program.params.items():
        direction = gradients[name] + np.linalg.norm(gradients[name]) * draw.normal(size=value.shape)
        direction /= np.linalg.norm(direction)
        losses = []
        for sign in (1, -1):
            program.params[name] = value + sign * 1e-6 * direction
            losses.append(program.gradients(batch)[0])
        program.params[name] = value
        claimed = float((gradients[name] * direction).sum())
        assert (losses[0] - losses[1]) / 2e-6 == pytest.approx(claimed, rel=1e-6, abs=1e-8), name


@pytest.fixture
def taken():
    """Makes what a layer computes of an array, of so many examples at a time."""

    def forward(x, examples):
        context = StepContext(examples=examples)
        y, _ = BatchNorm("norm", context).forward(PARAMS | RUNNING, x)
        return y, context.statistics.get("norm", [])

    return forward


def test_each_part_is_normalised_by_its_own_statistics(taken) -> None:
    x = np.random.default_rng(0).normal(3, 2, size=(6, 4, 3))
    y, seen = taken(x, 2)
    for number, (mean, variance) in enumerate(seen):
        part = x[2 * number :][:2].reshape(-1, 3)
        np.testing.assert_allclose(mean, part.mean(0), rtol=1e-14)
        np.testing.assert_allclose(variance, part.var(0, ddof=1), rtol=1e-14)
        wanted = (part - part.mean(0)) / np.sqrt(part.var(0) + EPSILON) * PARAMS["norm/scale"] + PARAMS["norm/bias"]
        np.testing.assert_allclose(y[2 * number :][:2].reshape(-1, 3), wanted, rtol=1e-12)
    assert len(seen) == 3


def test_in_evaluation_the_running_statistics_are_used_and_nothing_is_noted(taken) -> None:
    x = np.random.default_rng(0).normal(size=(6, 3))
    y, seen = taken(x, 0)
    normal = (x - RUNNING["norm/running_mean"]) / np.sqrt(RUNNING["norm/running_var"] + EPSILON)
    np.testing.assert_allclose(y, normal * PARAMS["norm/scale"] + PARAMS["norm/bias"], rtol=1e-14)
    assert seen == []


def test_the_running_statistics_are_those_of_the_first_replica_a_micro_batch_after_the_other(
    training, oracle_config
) -> None:
    config = dataclasses.replace(oracle_config, workload="digits-mlp+norm=batch", devices=3, batch_size=12)
    program, (batch,) = training(MODELS[0], config, batch_size=12)
    techniques = dataclasses.replace(program.run.techniques, accumulation_steps=2)
    program.run = dataclasses.replace(program.run, techniques=techniques)
    program.examples = 2
    program.step(batch)
    inputs = program.run.workload.data.load().train_inputs[batch.indices]
    kernel = training(MODELS[0], config, batch_size=12)[0].params["layers/0/kernel"]  # before the update
    wanted = {"running_mean": np.zeros(5), "running_var": np.ones(5)}
    for micro in range(2):
        y = inputs[2 * micro :][:2].reshape(2, -1) @ kernel
        for kind, value in (("running_mean", y.mean(0)), ("running_var", y.var(0, ddof=1))):
            wanted[kind] = (1 - MOMENTUM) * wanted[kind] + MOMENTUM * value
    for kind, value in wanted.items():
        np.testing.assert_allclose(program.buffers[f"layers/0/norm/{kind}"], value, rtol=1e-13)


def test_one_example_has_no_variance() -> None:
    config = RunConfig(strategy="ddp", workload="digits-mlp+norm=batch", devices=2, batch_size=2)
    with pytest.raises(ConfigError, match="leaves each replica's micro-batch one example, which has no variance"):
        parse(config)
    assert parse(dataclasses.replace(config, batch_norm="sync"))
    assert parse(dataclasses.replace(config, workload="synthetic-cnn+norm=batch"))


def test_sync_sees_one_micro_batch_and_recomputation_none_twice() -> None:
    asked = RunConfig(strategy="ddp", workload="digits-mlp+norm=batch", devices=2)
    techniques = {"accumulation_steps": 2}
    with pytest.raises(ConfigError, match="--batch-norm sync sees one micro-batch at a time"):
        parse(_with(asked, "sync", techniques))
    with pytest.raises(ConfigError, match=r"running statistics of \+norm=batch twice a step"):
        parse(_with(asked, "local", {"recompute": True}))
    with pytest.raises(ConfigError, match="divide by the deviation of 3 numbers"):
        parse(_with(dataclasses.replace(asked, batch_size=6), "local", {"precision": "bf16"}))


def test_the_oracle_has_several_devices_only_where_they_matter() -> None:
    asked = RunConfig(
        framework="numpy", strategy="oracle", workload="digits-mlp+norm=batch", dtype="float64", devices=2
    )
    assert parse(asked).num_devices == 2
    for other in ({"batch_norm": "sync"}, {"workload": "digits-mlp"}):
        with pytest.raises(ConfigError, match="numpy:oracle runs on one device, not on 2"):
            parse(dataclasses.replace(asked, **other))


def _with(config: RunConfig, batch_norm: str, techniques: dict[str, object]) -> RunConfig:
    given = dataclasses.replace(config.techniques, **techniques)
    return dataclasses.replace(config, batch_norm=batch_norm, techniques=given)
