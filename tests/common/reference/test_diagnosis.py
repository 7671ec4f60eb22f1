"""The diagnosis says what is so: no mistake is named that is none, and each known one is named where it makes a difference."""

import dataclasses
import itertools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samestep.common.batch import Batch, batches
from samestep.common.flags import flags, read_fields
from samestep.common.judging.parity import spell_apart
from samestep.common.program import Arrays, TrainState
from samestep.common.reference import diagnosis
from samestep.common.reference.diagnosis import ReplayedStep, diagnose
from samestep.common.reference.distance import StepOutcome, distance, take
from samestep.common.reference.known import KNOWN, SILENT_BUGS
from samestep.common.reference.mutants import MUTANTS, Context, Mutant
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.workload.data.dataset import load
from tests.cells import optimizers_of

MODELS = (
    "synthetic-mlp+width=8",
    "synthetic-gpt+layers=1+heads=2+width=8+context=4+vocabulary=7",
    "synthetic-mlp+width=8+norm=batch",
)
Fault = Callable[[TrainingProgram], object]
"""Makes a program wrong in a way that is none of the known mistakes."""


def described(model: str, optimizer: str, devices: int = 4, **more: object) -> Run:
    """A run, in float64 unless told otherwise, that only the oracle trains here."""
    config = RunConfig(strategy="ddp", workload=model, optimizer=optimizer, devices=devices, batch_size=16, steps=5)
    return parse(dataclasses.replace(config, **{"dtype": "float64", **more}))


def stream(run: Run, count: int) -> list[Batch]:
    split = load(run.workload.data)
    return list(itertools.islice(batches(split.train_inputs, split.train_targets, run.batch_size, run.seed), count))


def in_dtype(state: TrainState, dtype: str) -> TrainState:
    """A state as a run of that dtype holds it."""
    params, *slots = (
        {name: value.astype(dtype) for name, value in arrays.items()}
        for arrays in (state.params, *state.slots.values())
    )
    buffers = {name: value.astype(dtype) for name, value in state.buffers.items()}
    return dataclasses.replace(state, params=params, slots=dict(zip(state.slots, slots, strict=True)), buffers=buffers)


def told(run: Run, bad: int, fault: Fault) -> str:
    """The diagnosis of a run with a fault, whose losses or weights were found off at a step."""

    def replay(steps: int) -> tuple[list[float], TrainState]:
        program = TrainingProgram(run)
        fault(program)
        for batch in stream(run, steps):
            program.step(batch)
            program.restore(in_dtype(program.state(), run.dtype))
        return program.losses(), program.state()

    return diagnose(run, 0, bad, TrainingProgram(run).state(), replay)


# --- the faults -------------------------------------------------------------------------------------------------------


def changed(change: Callable[[str, np.ndarray], np.ndarray], program: TrainingProgram) -> None:
    """Changes the gradients by name."""
    right = program.gradients

    def gradients(batch: Batch) -> tuple[float, Arrays]:
        loss, values = right(batch)
        return loss, {name: change(name, g) for name, g in values.items()}

    program.gradients = gradients


def scaled(factor: float) -> Fault:
    return lambda program: changed(lambda name, g: g * factor, program)


def one_scaled(factor: float) -> Fault:
    def fault(program: TrainingProgram) -> None:
        first = next(iter(program.params))
        changed(lambda name, g: g * factor if name == first else g, program)

    return fault


def shaken(size: float, seed: int) -> Fault:
    """Gradients with noise of a size, relative to each."""

    def shake(name: str, g: np.ndarray) -> np.ndarray:
        noise = np.random.default_rng([seed, len(name)]).normal(size=g.shape)
        return g + size * noise * np.linalg.norm(g) / np.linalg.norm(noise)

    return lambda program: changed(shake, program)


def perturbed(size: float, seed: int) -> Fault:
    """A forward and a backward pass with other weights than those that are updated."""

    def fault(program: TrainingProgram) -> None:
        right = program.gradients

        def gradients(batch: Batch) -> tuple[float, Arrays]:
            kept, draw = program.params, np.random.default_rng(seed)
            program.params = {name: w * (1 + size * draw.normal(size=w.shape)) for name, w in kept.items()}
            try:
                return right(batch)
            finally:
                program.params = kept

        program.gradients = gradients

    return fault


def faster(factor: float) -> Fault:
    def fault(program: TrainingProgram) -> None:
        rate = program.optimizer.learning_rate * factor
        program.optimizer = dataclasses.replace(program.optimizer, learning_rate=rate)

    return fault


def assert_scaled(sentence: str, factor: float, step: int) -> None:
    found = re.fullmatch(rf"step {step}: every gradient is (?:1 ([+-]) (\S+)|(\S+)) times the oracle's", sentence)
    assert found, sentence
    spelled = float(found[3]) - 1 if found[3] else float(f"{found[1]}{found[2]}")
    assert spelled == pytest.approx(factor - 1, rel=0.06, abs=6e-4 if found[3] else 0.0)


# --- no wrong name ----------------------------------------------------------------------------------------------------

optimizers = st.sampled_from(["sgd", "adamw"])
sizes = st.floats(-8.5, -0.5).map(lambda exponent: 10**exponent)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    st.sampled_from(["scaled", "one scaled", "shaken", "perturbed", "faster", "nothing"]),
    st.sampled_from(MODELS),
    optimizers,
    st.sampled_from([1, 2, 4]),
    sizes,
    st.sampled_from([-1, 1]),
    st.integers(0, 3),
)
def test_a_fault_that_is_no_known_mistake_gets_no_wrong_name(
    kind: str, model: str, optimizer: str, devices: int, size: float, sign: int, bad: int
) -> None:
    run, factor, step = described(model, optimizer, devices), 1 + sign * size, max(0, bad - 1)
    first = next(iter(run.workload.model.params()))
    faults = {
        "scaled": scaled(factor),
        "one scaled": one_scaled(factor),
        "shaken": shaken(size, bad),
        "perturbed": perturbed(size, bad),
        "faster": faster(factor),
        "nothing": lambda program: None,
    }
    sentence = told(run, bad, faults[kind])
    known = [mutant.name for mutant in MUTANTS if mutant.sentence.format(devices=devices) in sentence]
    assert known == [], sentence
    if kind == "scaled":
        assert_scaled(sentence, factor, step)
    elif kind == "nothing":
        assert sentence.startswith("every step agrees with the oracle's"), sentence
    else:
        wanted = {
            "one scaled": f"the gradient of {first} is off by ",
            "shaken": "the gradient of ",
            "perturbed": "the gradient of |the forward pass gives a loss of ",
            "faster": "loss and gradients agree with the oracle's: the update differs",
        }
        assert re.match(rf"step {step}: ({wanted[kind]})", sentence), sentence


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.sampled_from(MODELS), optimizers, sizes, st.integers(0, 3))
def test_float32_blurs_a_fault_but_gives_it_no_wrong_name(model: str, optimizer: str, size: float, bad: int) -> None:
    run = described(model, optimizer, dtype="float32")
    sentence = told(run, bad, scaled(1 + size))
    if sentence.startswith("step"):
        assert_scaled(sentence, 1 + size, max(0, bad - 1))
    else:
        assert size < 0.02, sentence


@pytest.mark.parametrize("factor", [1 + 1e-8, 1 + 1e-7, 1 + 1e-5, 1 - 1e-5, 0.3])
def test_a_scaled_gradient_of_the_first_step_is_not_that_of_the_step_before(factor: float) -> None:
    assert_scaled(told(described(MODELS[0], "sgd"), 1, scaled(factor)), factor, 0)


def test_a_scaled_gradient_that_only_the_weights_show_after_many_steps_of_adam_is_no_other_update() -> None:
    run = described(MODELS[0], "adamw", steps=39)
    assert_scaled(told(run, 38, scaled(1 + 1e-7)), 1 + 1e-7, 37)


@pytest.mark.parametrize("clip_norm", [1e-3, 1e3])
def test_a_gradient_that_was_clipped_is_held_against_a_clipped_one(clip_norm: float) -> None:
    run = described(MODELS[0], "sgd", techniques=Techniques(clip_norm=clip_norm))
    assert "the update differs" in told(run, 2, faster(1.001))


def test_a_ratio_near_one_is_spelled_by_its_deviation() -> None:
    spelled = [diagnosis._spell_ratio(ratio) for ratio in (2.0, 0.3, 1.02, 1.001, 1 + 1e-5, 1 - 1e-7)]
    assert spelled == [
        "2.000 times",
        "0.300 times",
        "1.020 times",
        "1 + 1.0e-03 times",
        "1 + 1.0e-05 times",
        "1 - 1.0e-07 times",
    ]


def test_losses_are_spelled_so_that_they_differ() -> None:
    assert spell_apart(1.3, 1.25) == ("1.3", "1.25")
    assert spell_apart(2.33774189, 2.33774189 * (1 + 1e-12)) == ("2.33774189", "2.337741890002")
    one, other = spell_apart(1.0, float(np.nextafter(1.0, 2.0)))
    assert float(one) != float(other)
    sentence = told(described(MODELS[0], "sgd"), 0, perturbed(1e-9, 0))
    found = re.search(r"a loss of (\S+) where the oracle's gives (\S+) from", sentence)
    assert found, sentence
    assert found[1] != found[2]


# --- every known mistake ----------------------------------------------------------------------------------------------

MARGIN = 100
"""How many times the noise a mistake has to matter for it to be named."""


def seen_with(run: Run, mutant: Mutant, number: int) -> tuple[float, str]:
    """A step of a mutant with rounding's noise: how far it is from the right one, and its diagnosis."""
    *before, batch, after = stream(run, number + 2)
    program = TrainingProgram(run)
    for each in before:
        program.step(each)
    context = Context(run.num_devices, after)
    if before:
        program.losses()
        earlier = TrainingProgram(run)
        for each in before[:-1]:
            earlier.step(each)
        state, gradients = earlier.state(), earlier.gradients(before[-1])[1]
        context = Context(run.num_devices, after, gradients, state, first=number - 1)
    replayed = ReplayedStep(program.state(), batch, context)
    right = take(TrainingProgram(run, replayed.before), batch)
    wrong = TrainingProgram(run, replayed.before)
    if not mutant.apply(wrong, replayed.context):
        return 0.0, ""
    step = take(wrong, batch)
    draw = np.random.default_rng(0)
    for name, value in step.after.params.items():
        moved = value - replayed.before.params[name]
        value += 1e-13 * draw.normal(size=value.shape) * np.abs(moved)
    difference = distance(run, replayed.before, step, right)
    if difference < MARGIN:
        return difference, ""  # nobody looks at it
    return difference, diagnosis._compare(run, replayed, StepOutcome(step.loss * (1 + 1e-15), step.after))


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one", "all"])
@pytest.mark.parametrize("mutant", [mutant for mutant in KNOWN if mutant.cell], ids=lambda mutant: mutant.name)
def test_a_silent_bug_is_named_in_its_cell(mutant: Mutant, every: bool) -> None:
    """Each with one optimizer, in turn, with which it matters; `make test-slow` takes both."""
    workload, given = mutant.cell, {}
    for name in (*flags(Techniques), "batch_norm"):
        workload, found, value = workload.partition(f"+{name}=") if f"+{name}=" in workload else (workload, "", "")
        given |= {name: value} if found else {}
    fields = {"batch_norm": given.pop("batch_norm", "local"), "techniques": read_fields(Techniques, given)}
    rate = {"adamw": None, "sgd": 0.05} if "decayed" not in given else {"adamw": None}  # sgd has no decay
    optimizers = sorted(rate, reverse=KNOWN.index(mutant) % 2 == 0)
    seen = (
        seen_with(described(workload, optimizer, 2, learning_rate=rate[optimizer], **fields), mutant, 3)
        for optimizer in optimizers
    )
    found = (sentence for difference, sentence in seen if difference >= MARGIN)
    matters = [*found] if every else [*itertools.islice(found, 1)]
    assert matters
    assert all(sentence == mutant.sentence.format(devices=2) for sentence in matters), matters


def test_there_are_thirty_silent_bugs_and_no_name_twice() -> None:
    assert len(SILENT_BUGS) >= 30
    assert len({mutant.name for mutant in KNOWN}) == len({mutant.sentence for mutant in KNOWN}) == len(KNOWN)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["pairs", "all"])
@pytest.mark.parametrize("mutant", [mutant for mutant in KNOWN if not mutant.cell], ids=lambda mutant: mutant.name)
def test_a_known_mistake_is_named_where_it_matters(mutant: Mutant, every: bool) -> None:
    """Each mistake with each pair of a model, an optimizer and a step; `make test-slow` takes their product."""
    optimizers = optimizers_of(mutant.name)
    product = itertools.product(enumerate(MODELS[:2]), enumerate(optimizers), enumerate((0, 3)))
    places = [
        (model, optimizer, step)
        for (a, model), (b, optimizer), (c, step) in product
        if every or len(optimizers) < 2 or (a + b + c) % 2 == 0
    ]
    cells = [*places, (MODELS[2], optimizers[0], 3)]
    found = [seen_with(described(model, optimizer), mutant, number) for model, optimizer, number in cells]
    matters = [sentence for difference, sentence in found if difference >= MARGIN]
    assert matters
    assert all(sentence == mutant.sentence.format(devices=4) for sentence in matters), matters


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("same_data_on_every_worker", {"strategy": "hybrid", "mesh": "data=2,tensor=2", "devices": 4}),
        ("divided_by_microbatches", {"strategy": "pp", "options": {"microbatches": 4}, "devices": 2}),
    ],
)
def test_a_mistake_is_named_where_replicas_are_fewer_than_devices(name: str, asked: dict[str, object]) -> None:
    run = described("synthetic-gpt+layers=2+heads=2+width=8+context=4+vocabulary=8", "sgd", **asked)
    (mutant,) = [mutant for mutant in KNOWN if mutant.name == name]
    assert mutant.sentence in told(run, 1, lambda program: mutant.apply(program, Context(devices=2)))


def test_there_are_as_many_mutants_as_the_page_says() -> None:
    assert len(MUTANTS) == 28


def test_the_page_of_silent_bugs_has_each_with_its_sentence() -> None:
    page = (Path(__file__).parents[3] / "docs" / "silent-bugs.md").read_text()
    counted = (
        f"{len(KNOWN)} known mistakes (the {len(SILENT_BUGS)} above, and {len(MUTANTS)} of sums, updates and layers)"
    )
    assert counted in " ".join(page.split())
    for mutant in SILENT_BUGS:
        assert f"| `{mutant.name}` |" in page
        assert mutant.sentence.replace("{devices}", "N") in page
        assert f"`{mutant.cell}`" in page
