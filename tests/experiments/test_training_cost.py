"""What a whole training comes to: the arithmetic of a model as its paper has it, days, price and energy."""

import dataclasses

import pytest

from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse_prediction
from samestep.common.seconds.machine import load_machine
from samestep.experiments.advise import main
from samestep.experiments.advising.training_cost import StepCost, Training

MACHINE = load_machine("a100-80gb")
GPT3 = parse_prediction(RunConfig(workload="gpt3-175b"), "bf16")


def test_the_share_of_the_peak_is_that_of_the_published_formula():
    """72 B s l h^2 (1 + s / 6 h + V / 12 l h), recomputation apart: Narayanan et al., arXiv 2104.04473, section 3."""
    model, seconds, devices = GPT3.workload.model, 32.0, 1024
    width, layers, tokens = model.width, model.layers, model.context
    flops = 72 * GPT3.batch_size * tokens * layers * width**2
    flops *= 1 + tokens / (6 * width) + model.vocabulary / (12 * layers * width)
    expected = flops / (seconds * devices * 312e12)
    found = StepCost(GPT3, seconds, MACHINE, devices)
    assert found.flops_utilization == pytest.approx(expected, rel=1e-5)  # the formula leaves out the lookup of tokens
    assert (
        found.say_rate()
        == f"That is 98,304 tokens per second and {100 * expected:.0f} % of the peak FLOP/s of the devices (MFU, with "
        "attention counted in full)."
    )


def test_a_whole_training_is_told_in_days_price_and_energy():
    tokens_a_step = GPT3.batch_size * 2048
    found = StepCost(GPT3, 20.0, MACHINE, 100, Training(tokens_a_step * 8640.0, 2.0))
    assert found.say_whole() == (
        "27.18 billion tokens take 2.0 days and 4,800 device hours, which cost 9,600; the devices draw at most 1.92 MWh. "
        "Restarts and evaluation come on top."
    )
    little = StepCost(GPT3, 20.0, MACHINE, 100, Training(tokens_a_step * 9.0, 0.5)).say_whole()
    assert "take 0.05 hours and 5 device hours, which cost 2.5;" in little
    unknown = dataclasses.replace(MACHINE, device_watts=None)
    assert "draw" not in StepCost(GPT3, 20.0, unknown, 100, Training(1e9)).say_whole()
    assert StepCost(GPT3, 20.0, MACHINE, 100).say_whole() == ""


@pytest.mark.parametrize(
    ("workload", "training", "reason"),
    [
        ("gpt3-175b", Training(price=2.0), "--price 2 has nothing to buy; give --tokens as well"),
        ("digits-mlp", Training(1e9), "digits-mlp takes no sequences of tokens; leave out --tokens"),
    ],
)
def test_what_has_no_cost_is_refused(workload, training, reason):
    with pytest.raises(ConfigError, match=reason):
        training.check(parse_prediction(RunConfig(workload=workload), "bf16"))


def test_an_advice_says_what_its_first_layout_comes_to(capsys):
    main(["--workload", "llama3-8b", "--nodes", "4", "--tokens", "1e12", "--price", "2"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "of the devices (MFU, with attention counted in full). 1 trillion tokens take" in printed
    assert "which cost" in printed
