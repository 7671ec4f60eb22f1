"""Every optimizer is a unit: its files, and what it says of itself."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from samestep.common.workload.models.spec import Param, Role
from samestep.common.workload.optimizers.spec import OptimizerSpec
from samestep.common.workload.optimizers.table import DEFAULT, OPTIMIZERS, mistakes_of, optimizer_named
from tests.product import FILES, ROOT, files_with, of_other_units

FOREIGN = {
    "common/porting/training/configurations.py",
    "torch_impl/describing/configured.py",
    "torch_impl/defects/deepspeed_clipping.py",
}
"""What classes of torch and Keras are called: for a user's optimizer, and in a script that shows a defect."""

every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


def drawn(spec: OptimizerSpec, role: Role = "kernel") -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """A weight, a gradient, and a state in the midst of training."""
    stream = np.random.default_rng(0)
    shapes = spec.state(Param((40, 30), role))
    weight, gradient = stream.normal(size=(2, 40, 30))
    return weight, gradient, {slot: stream.random(shape) / 100 for slot, shape in shapes.items()}


@every_optimizer
def test_it_is_named_in_the_files_that_contributing_names_and_in_no_other(name: str) -> None:
    row = re.search(r"^\| an optimizer \| (\d+) \| ([^|]+) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert row is not None
    named = {each.replace("NAME", name) for each in re.findall(r"`([^`]+)`", row[2])}
    own = {file for file in FILES if Path(file).name == f"{name}.py"}
    found = own | files_with(name) | files_with(optimizer_named(name).__name__)
    found -= of_other_units(name, "optimizers", OPTIMIZERS)
    assert found - FOREIGN <= named
    assert len(named) == int(row[1])
    assert len(own) == 3  # the statement, and an implementation in each mirror


@every_optimizer
def test_its_state_has_its_slots_in_their_order(name: str) -> None:
    spec = optimizer_named(name)(0.1)
    kept = [tuple(spec.state(param)) for param in (Param((4,), "bias"), Param((4, 3), "kernel"))]
    for slots in kept:
        assert slots == tuple(slot for slot in spec.slots if slot in slots)
    assert set(spec.slots) == {slot for slots in kept for slot in slots}
    assert spec.name == name
    assert spec.default_rate > 0


@every_optimizer
def test_an_elementwise_update_of_a_part_is_the_part_of_the_update(name: str) -> None:
    spec = optimizer_named(name)(0.1)
    w, g, state = drawn(spec)
    part, part_state = w[1:3].copy(), {s: value[1:3].copy() if len(value) > 1 else value for s, value in state.items()}
    spec.update(5, part, g[1:3], part_state)
    spec.update(5, w, g, state)
    alike = [np.array_equal(part, w[1:3])] + [np.array_equal(part_state[s], state[s][1:3]) for s in state]
    assert spec.is_elementwise == all(alike)


@every_optimizer
def test_its_average_of_gradients_is_the_one_it_names(name: str) -> None:
    spec = optimizer_named(name)(0.1)
    w, g, state = drawn(spec)
    if spec.gradient_average is None:
        assert not any("first_moment" in slot or "momentum" in slot for slot in spec.slots)
        return
    slot, keep, take = spec.gradient_average
    expected = keep * state[slot] + take * g
    spec.update(5, w, g, state)
    np.testing.assert_allclose(state[slot], expected, rtol=1e-15)


@every_optimizer
def test_it_counts_steps_if_it_says_so(name: str) -> None:
    spec, reached = optimizer_named(name)(0.1), []
    for step in (1, 7):
        w, g, state = drawn(spec, "table")
        spec.update(step, w, g, state)
        reached.append(w)
    assert spec.counts_steps is not np.array_equal(*reached)


@every_optimizer
def test_a_parameter_without_a_gradient_rests_if_it_says_so(name: str) -> None:
    spec = optimizer_named(name)(0.1)
    w, g, state = drawn(spec)
    before = w.copy()
    spec.update(1, w, 0 * g, {slot: 0 * value for slot, value in state.items()})
    assert spec.rests is np.array_equal(w, before)


@every_optimizer
def test_its_first_step_is_as_long_for_a_small_gradient_if_it_moves_by_the_sign(name: str) -> None:
    spec, moves = optimizer_named(name)(0.1), []
    for size in (1.0, 1e-3):
        w, g, state = drawn(spec)
        w[:] = 0
        spec.update(1, w, size * g, {slot: 0 * value for slot, value in state.items()})
        moves.append(np.linalg.norm(w))
    assert spec.moves_by_sign is bool(np.isclose(*moves, rtol=1e-3))


@every_optimizer
def test_each_mistake_is_another_update(name: str) -> None:
    spec = optimizer_named(name)(0.1)
    for wrong, said in mistakes_of(name).items():
        right, mistaken = (drawn(spec) for _ in range(2))
        spec.update(3, *right)
        wrong(spec, 3, *mistaken)
        assert not np.allclose(right[0], mistaken[0], rtol=1e-12, atol=0), said


def test_only_hyper_parameters_are_fields_beside_the_name_and_the_rate() -> None:
    assert DEFAULT in OPTIMIZERS
    for kind in map(optimizer_named, OPTIMIZERS):
        *numbers, name = (field.name for field in dataclasses.fields(kind))
        assert numbers[0] == "learning_rate"
        assert name == "name"
        assert all(isinstance(getattr(kind(0.1), field), float) for field in numbers if field != "spares_vectors")
