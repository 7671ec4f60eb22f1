"""The verdict on two implementations, from made-up traces: no measure is too odd for it, and configurations count."""

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest

from samestep.common.porting import words
from samestep.common.porting.accepting import compensate
from samestep.common.porting.case import DIFFERENT, SAME
from samestep.common.porting.model_trace import CLIP_EPSILON, ModelTrace
from samestep.common.porting.port_verdict import judge_port
from samestep.common.porting.training.roots import explain_root
from samestep.experiments.printing.formats import FORMATS, write
from samestep.experiments.printing.port_report import port_document
from tests.common.porting.made_up_ports import (
    MEASURES,
    case,
    trace,
    weights,
    with_dropout,
    with_measure,
    with_place,
    with_settings,
)

ODD = (math.nan, math.inf, -math.inf, 0.0, 1e300)
SETTINGS = (*ODD, None, 1, "x", True, (1, 1), ((0, 1), (0, 1)), ("the output of `a`",), ("b", "a"))


def test_what_computes_the_same_is_the_same_model() -> None:
    assert judge_port(case()).kind == SAME


@pytest.mark.parametrize("measure", MEASURES)
def test_no_measure_is_too_odd_to_be_judged_and_said(measure: str) -> None:
    """One side or both have it; where one has, the two are not the same model. Everything can be printed."""
    for value, sides in itertools.product(ODD, (("torch",), ("tf",), ("torch", "tf"))):
        made = case(**{side: with_measure(side, measure, value) for side in sides})
        verdict = judge_port(made)
        for form in FORMATS:
            assert write(port_document(made, verdict), form)
        assert "None" not in verdict.sentence
        if len(sides) == 1 and not re.fullmatch("calls/./gradient", measure):  # those of parameters decide
            assert verdict.kind == DIFFERENT, (measure, value, sides)


@pytest.mark.parametrize("name", [*words._SAY, *words._DOES])
def test_every_setting_can_be_said_whatever_it_is(name: str) -> None:
    """On either side it may be anything, or be missing."""
    for one, other in itertools.product((*SETTINGS, ...), repeat=2):
        ours, theirs = ({} if value is ... else {name: value} for value in (one, other))
        said = words.say(ours, theirs)
        assert isinstance(said, str)
        assert "None" not in said


def test_an_activation_that_stops_where_no_number_came_is_noted() -> None:
    """The outputs are equal, so the two are the same model on these data."""

    def made(side: str, kind: str, **settings: object) -> ModelTrace:
        return dataclasses.replace(
            trace(side),
            calls=tuple(
                dataclasses.replace(call, kind=kind, settings=settings) if call.kind in ("Tanh", "tanh") else call
                for call in trace(side).calls
            ),
        )

    found = judge_port(case(torch=made("torch", "ReLU6"), tf=made("tf", "ReLU", max_value=None)))
    assert found.kind == SAME
    assert any("the first grows up to 6, the second without limit" in note for note in found.notes)
    same = judge_port(case(torch=made("torch", "ReLU6"), tf=made("tf", "ReLU", max_value=6.0)))
    assert not any("grows" in note for note in same.notes)


def test_a_missing_residual_is_said() -> None:
    whole, lacking = ({"activation": "none", "terms": terms} for terms in (("x", "y"), ("y",)))
    assert words.say(whole, lacking) == "{b} does not add x"
    assert words.say(lacking, whole) == "{a} does not add x"
    assert words.say({"pools": "mean"}, lacking) == "{a} pools by the mean, {b} takes y"
    assert words.say({**whole, "after": True}, whole) == "the activation comes after the sum in {a} only"


def test_a_normalisation_that_is_called_twice_still_shows_its_momentum() -> None:
    """Its mean moves to no share of the way to one batch's; where both sides move it alike, they are the same."""
    twice = {side: trace(side) for side in ("torch", "tf")}
    for side, momentum in (("torch", 0.1), ("tf", 0.01)):
        held, seen = weights()["norm/running_mean"], trace(side).calls[1].inputs[0].mean(0)
        moved = held + momentum * (seen + 1.5 * np.arange(3) - held)
        buffers = {**twice[side].buffers, "norm/running_mean": moved}
        twice[side] = dataclasses.replace(twice[side], buffers=buffers)
    verdict = judge_port(case(**twice))
    assert (verdict.kind, verdict.phase) == (DIFFERENT, "buffers")
    same = dataclasses.replace(twice["tf"], buffers=twice["torch"].buffers)
    assert judge_port(case(torch=twice["torch"], tf=same)).kind == SAME


# --- what numbers do not show -----------------------------------------------------------------------------------------

KEPT = "torch drops 0.2 of the elements, TensorFlow 0.8 of the elements, which is what torch keeps"


@pytest.mark.parametrize(
    ("dropouts", "cause"),
    [
        ({"drop": ("elements", 0.2)}, ""),
        ({"drop": ("elements", 0.8)}, KEPT),
        ({"drop": ("channels", 0.2)}, "torch drops 0.2 of the elements, TensorFlow 0.2 of the channels"),
        ({"drop": ("elements", 0.0)}, "torch drops 0.2 of the elements, TensorFlow nothing there"),
        ({}, "torch drops 0.2 of the elements, TensorFlow nothing there"),
        ({"attention/dropout": ("elements", 0.2)}, ""),  # a layer that drops itself what its counterpart's child drops
        (
            {"drop": ("elements", 0.2), "other": ("elements", 0.1)},
            "torch drops nothing there, TensorFlow 0.1 of the elements",
        ),
    ],
)
def test_what_is_dropped_has_to_be_the_same(dropouts: dict[str, tuple[str, float]], cause: str) -> None:
    verdict = judge_port(case(tf=with_dropout("tf", **dropouts)))
    assert verdict.kind == (DIFFERENT if cause else SAME), verdict.sentence
    assert verdict.cause == cause
    assert not cause or verdict.phase == "dropout"


def test_dropout_before_a_normalisation_is_not_dropout_after_it() -> None:
    kernel, normal, _, _ = (call.output for call in trace("tf").calls)
    verdict = judge_port(case(torch=with_place("torch", normal, "act"), tf=with_place("tf", kernel, "norm")))
    assert (verdict.kind, verdict.phase) == (DIFFERENT, "dropout"), verdict.sentence
    assert verdict.cause == "torch drops elements of the output of `norm`, TensorFlow of the input of `norm`"


def test_dropout_beside_a_relu_a_factor_or_a_reshape_is_the_same() -> None:
    normal = trace("tf").calls[1].output
    for array in (normal, np.maximum(normal, 0.0), 3.0 * normal, normal.reshape(-1)):
        verdict = judge_port(case(torch=with_place("torch", normal, "act"), tf=with_place("tf", array, "")))
        assert (verdict.kind, verdict.notes) == (SAME, ()), verdict.sentence


def test_a_place_that_is_not_known_is_said_and_is_no_alarm() -> None:
    kernel, _, active, _ = (call.output for call in trace("tf").calls)
    verdict = judge_port(case(torch=with_place("torch", kernel, "norm"), tf=with_place("tf", active, "")))
    assert verdict.kind == SAME and "the place of dropout was not compared" in " ".join(verdict.notes)


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({}, ""),
        ({"clipnorm": None, "weight_decay": 0.0, "use_ema": False, "ema_momentum": 0.99}, ""),
        ({"beta_2": 0.99}, "beta_2: 0.999 in torch, 0.99 in TensorFlow"),
        (
            {"beta_2": 0.99, "amsgrad": True},
            "beta_2: 0.999 in torch, 0.99 in TensorFlow; amsgrad: off in torch, on in TensorFlow",
        ),
        ({"epsilon": 1e-7}, "epsilon: 1e-08 in torch, 1e-07 in TensorFlow"),
        ({"learning_rate": 0.01}, "learning rate: 0.001 in torch, 0.01 in TensorFlow"),
        ({"clipvalue": 0.5}, "clipvalue: none in torch, 0.5 in TensorFlow"),
        ({"weight_decay": 0.5, "is_decoupled": True}, "weight decay: none in torch, 0.5 in TensorFlow"),
        (
            {"on": "bias", "weight_decay": 0.5, "is_decoupled": True},
            "weight decay on biases: none in torch, 0.5 in TensorFlow",
        ),
        ({"kind": "SGD"}, "the optimizer: Adam in torch, SGD in TensorFlow"),
        ({"kind": "MyOwn", "beta_2": 0.5}, ""),  # what its settings mean is not known
        ({"beta_2": math.nan}, "beta_2: 0.999 in torch, nan in TensorFlow"),
    ],
)
def test_hyper_parameters_are_compared_before_numbers(settings: dict[str, object], cause: str) -> None:
    """The first step of these traces is the same: of most settings it says nothing."""
    verdict = judge_port(case(tf=with_settings("tf", **settings)))
    assert verdict.kind == (DIFFERENT if cause else SAME), verdict.sentence
    assert verdict.cause == cause
    assert not cause or "its gradients agree, so does the first step, later ones do not" in verdict.sentence


def test_a_decay_in_the_gradient_is_another_one() -> None:
    verdict = judge_port(
        case(
            torch=with_settings("torch", weight_decay=0.5, is_decoupled=False),
            tf=with_settings("tf", weight_decay=0.5, is_decoupled=True),
        )
    )
    assert verdict.cause == (
        "weight decay in the gradient: 0.5 in torch, none in TensorFlow; weight decay: none in torch, 0.5 in TensorFlow"
    )


def test_what_only_keras_adds_to_the_loss_is_named_however_small() -> None:
    for size in (1.0, 1e-9):
        tf = dataclasses.replace(trace("tf"), loss=1.5 + size, added={"L2 of 0.5 on `fc/kernel`": size})
        verdict = judge_port(case(tf=tf))
        assert (verdict.phase, verdict.cause) == ("loss", "L2 of 0.5 on `fc/kernel` is in the loss of Keras only")


SGD = {"kind": "SGD", "lr": 0.5, "momentum": 0.9}


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((0.5, 0.25), "the learning rate of step 2 is 0.5 in torch, 0.25 in TensorFlow"),
        ((0.5, 0.5), ""),
    ],
)
def test_a_curve_that_leaves_the_other_is_held_against_the_rates(rates: tuple[float, ...], said: str) -> None:
    sides = [dataclasses.replace(trace(side), rates=(0.5, 0.5)) for side in ("torch", "tf")]
    sides[1] = dataclasses.replace(sides[1], rates=rates, losses=(1.5, 1.25, 1.125))
    found = judge_port(case(torch=sides[0], tf=sides[1]))
    assert (found.phase, found.cause) == ("curve", said)


def test_momentum_follows_a_schedule_otherwise() -> None:
    held = dict.fromkeys(trace("torch").optimizer, SGD)
    sides = [dataclasses.replace(trace(side), rates=(0.5, 0.25, 0.125), optimizer=held) for side in ("torch", "tf")]
    sides[1] = dataclasses.replace(sides[1], losses=(1.5, 1.25, 1.125))
    found = judge_port(case(torch=sides[0], tf=sides[1]))
    assert found.cause.startswith("the rates are the same, and momentum follows them differently: torch multiplies")


def test_epsilon_under_a_root_and_after_it() -> None:
    gradient = np.array([0.5, -0.25, 0.125, 1.0])
    ours, theirs = {"kind": "RMSprop", "lr": 0.5, "alpha": 0.75, "eps": 0.01}, {
        "kind": "RMSprop", "learning_rate": 0.5, "rho": 0.75, "epsilon": 0.01
    }  # fmt: skip
    after, under = -0.5 * gradient / (0.5 * np.abs(gradient) + 0.01), -0.5 * gradient / np.sqrt(gradient**2 / 4 + 0.01)
    assert explain_root((ours, theirs), gradient, (after, under)) == "{b} adds epsilon under the root, {a} after it"
    assert explain_root((ours, theirs), gradient, (after, after)) == ""
    assert explain_root((ours, theirs), gradient, (after, 2 * under)) == ""


NORM = "where it clips by a norm, torch divides by that norm plus 1e-06, TensorFlow by the norm itself"


@pytest.mark.parametrize(
    ("torch", "tf", "off", "cause"),
    [
        ({"global_clipnorm": 1.0, CLIP_EPSILON: 1e-6}, {"global_clipnorm": 1.0}, 0.0, ""),
        ({"global_clipnorm": 1.0, CLIP_EPSILON: 1e-6}, {"global_clipnorm": 1.0}, 1.0, NORM),
        ({"global_clipnorm": 1.0, CLIP_EPSILON: 1e-6}, {"global_clipnorm": 1.0}, 2.0, ""),
        ({"global_clipnorm": 1.0, CLIP_EPSILON: 1e-6}, {}, 1.0, "global_clipnorm: 1 in torch, none in TensorFlow"),
        (
            {"global_clipnorm": 1.0, CLIP_EPSILON: 1e-6},
            {"global_clipnorm": 2.0},
            1.0,
            "global_clipnorm: 1 in torch, 2 in TensorFlow",
        ),
    ],
)
def test_what_is_added_to_a_norm_is_the_cause_of_as_much_and_no_more(
    torch: dict[str, object], tf: dict[str, object], off: float, cause: str
) -> None:
    """The gradients are so small that a millionth is a part of their norm that shows in the first step."""
    sides = {"torch": with_settings("torch", kind="SGD", **torch), "tf": with_settings("tf", kind="SGD", **tf)}
    gradients = {name: 1e-3 * value for name, value in sides["tf"].gradients.items()}
    size = math.sqrt(sum(float(np.square(value).sum()) for value in gradients.values()))
    start = weights()
    stepped = {
        side: {
            name: start[name] - gradient * (1 - off * 1e-6 / size * (side == "torch"))
            for name, gradient in gradients.items()
        }
        for side in sides
    }
    made = {side: dataclasses.replace(each, gradients=gradients, stepped=stepped[side]) for side, each in sides.items()}
    made = {
        side: dataclasses.replace(each, optimizer={n: {**h, "lr": 1.0} for n, h in each.optimizer.items()})
        for side, each in made.items()
    }
    verdict = judge_port(case(**made))
    assert (verdict.kind, verdict.cause) == (DIFFERENT if off or cause else SAME, cause)


def test_a_curve_is_told_of_what_is_added_to_a_norm() -> None:
    """Adam's first step does not depend on the size of gradients, later ones do."""
    sides = {
        "torch": with_settings("torch", global_clipnorm=1.0, **{CLIP_EPSILON: 1e-6}),
        "tf": dataclasses.replace(with_settings("tf", global_clipnorm=1.0), losses=(1.5, 1.25, 1.0 + 1e-6)),
    }
    verdict = judge_port(case(**sides))
    assert (verdict.phase, verdict.cause) == ("curve", NORM)
    assert compensate(case(**sides), verdict, [CLIP_EPSILON])[CLIP_EPSILON].optimizer["fc/kernel"] == {
        CLIP_EPSILON: 0.0
    }
