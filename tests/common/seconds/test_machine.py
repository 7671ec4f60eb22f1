"""Machine files: what they must say, and what is refused."""

import tomllib

import pytest

from samestep.common.errors import ConfigError
from samestep.common.seconds.machine import RATES, REFERENCE, load_machine, machines, parse_machine

GIVEN = [name for name, rate in RATES.items() if not rate.is_measured and not rate.may_lack]
MEASURED = [name for name, rate in RATES.items() if rate.is_measured]


@pytest.mark.parametrize("name", machines())
def test_each_machine_has_its_sources(name: str) -> None:
    machine = load_machine(name)
    assert set(machine.sources) == set(RATES)
    assert all(machine.sources.values())


def tables() -> dict[str, object]:
    return tomllib.loads(machines()["a100-80gb"].read_text())


@pytest.mark.parametrize("rate", GIVEN)
def test_a_missing_rate_is_named(rate: str) -> None:
    left = {name: value for name, value in tables().items() if name != rate}
    with pytest.raises(ConfigError, match=rf"mine\.toml has no {rate}"):
        parse_machine(left, "mine.toml")


def test_what_a_device_draws_may_be_unknown() -> None:
    left = {name: value for name, value in tables().items() if name != "device_watts"}
    assert parse_machine(left, "mine.toml").device_watts is None
    assert load_machine(REFERENCE).device_watts == 400


def test_what_was_not_measured_is_the_references() -> None:
    left = {name: value for name, value in tables().items() if name not in MEASURED}
    machine, reference = parse_machine(left, "mine.toml"), load_machine(REFERENCE)
    for name in MEASURED:
        assert getattr(machine, name) == getattr(reference, name)
        assert machine.sources[name] == f"not measured; that of {REFERENCE}"


@pytest.mark.parametrize("rate", [name for name in MEASURED if name.endswith("share")])
def test_no_share_is_above_the_peak(rate: str) -> None:
    with pytest.raises(ConfigError, match=rf"{rate} in mine\.toml is 1\.01; give from 0\.01 to 1 of "):
        parse_machine(tables() | {rate: {"value": 1.01, "source": "a guess"}}, "mine.toml")


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("value", [-1, 1e30, float("nan"), "fast", True])
def test_an_absurd_rate_is_named(rate: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"{rate} in mine\.toml is .*; give .* to "):
        parse_machine(tables() | {rate: {"value": value, "source": "a guess"}}, "mine.toml")


def test_an_unknown_rate_or_machine_lists_the_choices() -> None:
    with pytest.raises(ConfigError, match="peak_flops_per_second"):
        parse_machine(tables() | {"peak_flop_per_second": {"value": 1e12, "source": "a guess"}}, "mine.toml")
    with pytest.raises(ConfigError, match="a100-80gb"):
        load_machine("a100")
    with pytest.raises(
        ConfigError, match=r"nowhere\.toml cannot be read: there is no such file; give a file, or one of a100-80gb"
    ):
        load_machine("nowhere.toml")
