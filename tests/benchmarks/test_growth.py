"""The exponents that `benchmarks/cost/growth.py` prints."""

import pytest

from benchmarks.cost.growth_table import Cost, exponent, table


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_what_a_start_costs_is_no_growth(power: float) -> None:
    found = [Cost("rows", size, launcher_seconds=5 + 0.1 * (size - 10) ** power) for size in (10, 30, 100)]
    assert float(exponent(found, lambda cost: cost.launcher_seconds)) == pytest.approx(power, abs=0.01)


def test_what_stays_has_none_and_what_failed_is_no_part_of_it() -> None:
    found = [Cost("steps", size, launcher_seconds=2.0) for size in (10, 20, 30)]
    assert exponent(found, lambda cost: cost.launcher_seconds) == "0"
    shown = table([*found, Cost("steps", 40, error="it died")])
    assert "it died" in shown and shown.count("steps: exponent") == 1
