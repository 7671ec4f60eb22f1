"""What compensates for an accepted difference, from made-up traces: torch is asked to do what TensorFlow does."""

import dataclasses

import numpy as np
import pytest

from samestep.common.porting.accepting import _of_settings, compensate
from samestep.common.porting.alignment import Aligned
from samestep.common.porting.case import DIFFERENT, PortCase
from samestep.common.porting.model_trace import Amendments, LayerCall
from samestep.common.porting.port_verdict import judge_port
from samestep.common.porting.turning import Turned
from samestep.common.porting.ways.formulas import leaky
from samestep.common.workload.accepted import ACCEPTABLE
from tests.common.porting.made_up_ports import case, trace, weights, with_dropout, with_settings


def amended(made: PortCase, *names: str) -> dict[str, Amendments]:
    verdict = judge_port(made)
    assert verdict.kind == DIFFERENT
    return dict(compensate(made, verdict, names or ACCEPTABLE))


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"beta_2": 0.99}, "beta_2", 0.99),
        ({"amsgrad": True}, "amsgrad", True),
        ({"learning_rate": 0.5}, "learning_rate", 0.5),
        ({"weight_decay": 0.5, "is_decoupled": True}, "weight_decay", 0.5),
        ({"epsilon": 1e-7}, "epsilon", 1e-7),
    ],
)
def test_a_setting_of_an_optimizer(settings: dict[str, object], name: str, value: object) -> None:
    found = amended(case(tf=with_settings("tf", **settings)), name)
    assert found.keys() == {name}
    assert {*found[name].optimizer} == {"fc/kernel", "fc/bias", "norm/scale", "norm/bias"}
    assert all(each == {name: value} for each in found[name].optimizer.values())
    assert found[name].is_adding_early == (name == "epsilon")


def test_the_momentum_of_running_statistics() -> None:
    held, seen = weights()["norm/running_mean"], trace("tf").calls[1].inputs[0].mean(0)
    buffers = {**trace("tf").buffers, "norm/running_mean": held + 0.01 * (seen - held)}
    found = amended(case(tf=dataclasses.replace(trace("tf"), buffers=buffers)))
    assert found["momentum"].modules["norm"]["momentum"] == pytest.approx(0.01)


def test_the_slope_of_a_leaky_relu_has_all_of_its_digits() -> None:
    x = np.random.default_rng(0).normal(size=(4, 6))
    made = [LayerCall(name=name, kind="LeakyReLU", settings={}, inputs=(x,), output=x) for name in "ab"]
    one, other = (leaky(slope)(x) for slope in (0.01, 0.12345678))
    found = Aligned(*made, "activation", (x, x), (one, other), params=({}, {}))
    assert _of_settings(found) == {"slope": {"negative_slope": 0.12345678}}


def test_what_keras_adds_to_the_loss() -> None:
    assert amended(case(tf=dataclasses.replace(trace("tf"), loss=1.75, added={"L2": 0.25}))) == {
        "added_loss": Amendments(is_bare=True)
    }


def test_dropout_is_left_out_of_the_comparison() -> None:
    made = case(tf=with_dropout("tf", drop=("elements", 0.8)))
    assert amended(made) == {"dropout": Amendments()}
    accepted = dataclasses.replace(made, accepted=("dropout",))
    assert judge_port(accepted).sentence.startswith("the same model except for dropout, as accepted: ")


def test_what_nobody_accepts_is_not_compensated_for() -> None:
    made = case(tf=with_settings("tf", beta_2=0.99))
    assert compensate(made, judge_port(made), ["epsilon"]).keys() <= {"epsilon"}
    assert not any(each.optimizer for each in compensate(made, judge_port(made), ["epsilon"]).values())


def test_amendments_add_up() -> None:
    one = Amendments(modules={"a": {"eps": 1.0}}, frozen=("b",))
    both = one | Amendments(modules={"a": {"momentum": 2.0}}, frozen=("b", "c"), is_bare=True)
    assert both == Amendments(modules={"a": {"eps": 1.0, "momentum": 2.0}}, frozen=("b", "c"), is_bare=True)


def test_what_lies_between_two_layers_is_turned() -> None:
    """What goes into the second layer is twice that, or in another order: torch's second layer is to get that, too."""
    fc, norm, *rest = trace("tf").calls
    for change, name, step in (
        (lambda x: 2 * x, "scale", ("times", 2.0)),
        (lambda x: x[:, ::-1], "order", ("take", 1, (2, 1, 0))),
    ):
        given = dataclasses.replace(norm, inputs=(change(norm.inputs[0]),), output=change(norm.output) + 1)
        made = case(tf=dataclasses.replace(trace("tf"), calls=(fc, given, *rest)))
        ((found, amendments),) = amended(made, name).items()
        assert found == name and amendments.turned == {"norm": Turned((0, 1), (step,))}
