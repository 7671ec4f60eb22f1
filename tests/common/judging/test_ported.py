"""`compare` judges a TensorFlow run whose reference is a torch model by what `samestep port` finds: they conclude alike."""

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from samestep.common.errors import ConfigError
from samestep.common.judging import ported
from samestep.common.judging.parity import Attribution, Parity, judge
from samestep.common.judging.reference_run import Curve
from samestep.common.porting.case import CONSTANTS, DIFFERENT, SAME
from samestep.common.porting.port_verdict import judge_port
from samestep.common.program import TrainState
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.models.descriptions import Ports
from samestep.common.strategy import Run
from samestep.common.workload.models.description import DATA, Description, write_description
from samestep.common.workload.models.spec import ArraySpec, Param, Segment
from tests.common.judging.curves import curve_of
from tests.common.porting.made_up_ports import case, trace, with_measure

WANTED = (1.5, 1.25, 1.0)
WEIGHTS = {"w": np.ones(1)}
STATE = TrainState(3, WEIGHTS, {})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of TensorFlow on two devices, whose model has one of torch beside it."""
    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(32, 4)), draw.integers(0, 3, 32)
    for folder, framework in ((tmp_path, "tf"), (tmp_path / "torch", "torch")):
        folder.mkdir(exist_ok=True)
        description = Description(
            source="/net.py:model",
            framework=framework,
            frameworks=("torch", "tf"),
            loss="cross_entropy",
            metric="accuracy",
            params={"fc/kernel": Param((4, 3), "kernel")},
            segments=(Segment("", 0, (3,), ("fc/kernel",)),),
            blocks=(),
            inputs=ArraySpec((4,), None),
            targets=ArraySpec((), 3),
        )
        write_description(folder, description, {"fc/kernel": draw.normal(size=(4, 3))}, {})
        split = {"train_inputs": inputs, "train_targets": targets, "test_inputs": inputs, "test_targets": targets}
        np.savez(folder / DATA, **split)
    asked = {"framework": "tf", "strategy": "mirrored", "devices": 2, "dtype": "float64", "batch_size": 16, "steps": 3}
    return parse(RunConfig(model="net.py", data=str(tmp_path / DATA), described=str(tmp_path), **asked))


def of_constants() -> ported.PortedModel:
    """A port whose activation is 4e-10 off, as GELU is in Keras, and all that comes after it."""
    made = trace("tf")
    calls = [
        dataclasses.replace(call, output=call.output * (1 + 4e-10 * (n >= 2))) for n, call in enumerate(made.calls)
    ]
    calls[3] = dataclasses.replace(calls[3], inputs=(calls[2].output,))
    tf = dataclasses.replace(made, calls=tuple(calls), outputs=made.outputs * (1 + 4e-10))
    found = case(tf=tf)
    return found, judge_port(found)


def of_accepted() -> ported.PortedModel:
    """A port that is the same model but for what is accepted, which its curve does not show."""
    found = dataclasses.replace(case(), accepted=("epsilon",))
    return found, judge_port(found)


def of(**changed: object) -> ported.PortedModel:
    found = case(**changed)
    return found, judge_port(found)


PORTS = {
    SAME: of(),
    CONSTANTS: of_constants(),
    "accepted": of_accepted(),
    DIFFERENT: of(tf=with_measure("tf", "calls/1/output", 0.0)),
    "dropout": of(tf=dataclasses.replace(trace("tf"), stilled={})),
}


def judged(run: Run, port: str, off: float, itself: float = 0.0, weights: float = 0.0) -> Parity:
    """The verdict on a run that is off from torch's curve, and by something else from its own model's on one device."""
    losses = [loss * (1 + off) for loss in WANTED]
    parity = judge("torch:single", "float64", 0, losses, WANTED, WEIGHTS, None)

    def steps(like: Run) -> Curve:
        assert like.name == "tf:single"
        return curve_of([loss * (1 + itself) for loss in losses], STATE)

    taken = ported.ComparedSteps(losses, WANTED, {"w": np.ones(1) + weights})
    return ported.judge_with_port(
        run, parity, taken, SimpleNamespace(steps=steps), lambda *_: PORTS[port], lambda: Attribution("a suspect")
    )


@pytest.mark.parametrize(
    ("port", "off", "passes"),
    [
        (SAME, 5e-11, True),
        (SAME, 5e-9, False),
        ("accepted", 1e-3, True),
        (CONSTANTS, 9e-11, True),
        (CONSTANTS, 5e-9, True),
        (CONSTANTS, 1e-6, False),
        (DIFFERENT, 9e-11, False),
        ("dropout", 9e-11, False),
    ],
)
def test_a_run_passes_if_its_port_is_the_same_model_and_explains_the_deviation(
    run: Run, port: str, off: float, passes: bool
) -> None:
    verdict = PORTS[port][1]
    assert verdict.kind == {"dropout": DIFFERENT, "accepted": SAME}.get(port, port)
    found = judged(run, port, off)
    assert found.passed is passes
    assert verdict.sentence in found.reason
    assert "the run's distance from tf:single is 0" in found.reason
    if passes:
        assert off * (1 - 1e-9) <= found.loss_bound <= max(off, 30 * 4.1e-10)
    else:
        assert found.reason.startswith(
            f"your model is not the same function as torch's. The losses are off by {off:.1e}; the run's"
        )


@pytest.mark.parametrize(("port", "said"), [(SAME, "a suspect"), (CONSTANTS, "a suspect"), (DIFFERENT, "in addition")])
def test_a_wrong_strategy_is_not_excused_by_its_port(run: Run, port: str, said: str) -> None:
    """It is off from its own model on one device, by less than the port might explain, or in its weights alone."""
    for how in ({"itself": 5e-11}, {"weights": 1e-6}):
        found = judged(run, port, 9e-11, **how)
        assert found.passed is False
        assert found.reason.startswith("a suspect")
        assert said in found.reason


@pytest.mark.parametrize(("port", "off", "passes"), [(CONSTANTS, 9e-11, True), (DIFFERENT, 9e-11, False)])
def test_float64_decides_for_a_run_in_float32(run: Run, port: str, off: float, passes: bool) -> None:
    """Its own curve is off by rounding that was amplified; whether its port is the same model shows in float64."""
    losses = [loss * (1 + 1e-4) for loss in WANTED]
    parity = judge("torch:single", "float32", 0, losses, WANTED, WEIGHTS, None)

    def steps(like: Run) -> Curve:
        assert like.dtype == "float64"
        return curve_of([loss * (1 + off) for loss in WANTED], STATE)

    single = dataclasses.replace(run, dtype="float32")
    taken, again = ported.ComparedSteps(losses, WANTED, WEIGHTS), SimpleNamespace(steps=steps)
    found = ported.judge_with_port(
        single, parity, taken, again, lambda *_: PORTS[port], lambda: Attribution("a suspect")
    )
    assert (found.passed, found.is_amplified) == (passes, passes)
    assert PORTS[port][1].sentence in found.reason


def test_a_model_without_a_twin_and_a_curve_that_is_no_number_have_no_port(run: Run) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("nothing is to be asked")

    nan = judge("torch:single", "float64", 0, [math.nan], [1.0], WEIGHTS, None)
    assert ported.judge_port_of(run, nan, ported.ComparedSteps([math.nan], [1.0], WEIGHTS), fail, fail) is None
    alone = dataclasses.replace(
        run, workload=dataclasses.replace(run.workload, model=run.workload.model.facts.counterpart)
    )
    off = judge("torch:single", "float64", 0, [1.1], [1.0], WEIGHTS, None)
    assert ported.judge_port_of(alone, off, ported.ComparedSteps([1.1], [1.0], WEIGHTS), fail, fail) is None


def test_a_port_is_asked_once_for_all_rows_and_not_again_if_it_fails(run: Run) -> None:
    asked: list[RunConfig] = []

    def port(config: RunConfig) -> ported.PortedModel:
        asked.append(config)
        if config.steps == 3:
            raise ConfigError("it cannot be built")
        return PORTS[SAME]

    ports = Ports(port)
    launch = launch_of(RunConfig(model="net.py", data="net.py:load"))
    other = dataclasses.replace(run, dtype="float32")
    assert [ports.ask(launch, each, 2) for each in (run, other)] == [PORTS[SAME]] * 2
    assert [ports.ask(launch, each, 3) for each in (run, other)] == [None] * 2
    assert [config.steps for config in asked] == [2, 3]
    assert (asked[0].batch_size, asked[0].optimizer) == (16, "adamw")
    assert asked[0].learning_rate == run.optimizer.learning_rate
