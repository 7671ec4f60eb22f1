"""The textbooks' ranking, held against measurements."""

import dataclasses

import pytest

from samestep.common.runtime.records import RunResult
from samestep.experiments.ranking import ranking
from tests.conftest import RunCell

pytestmark = pytest.mark.torch

WORKLOAD = "digits-mlp+layers=13+width=64"


@pytest.fixture(scope="module")
def family(run_cell: RunCell) -> list[RunResult]:
    fields = {"devices": 2, "steps": 6, "optimizer": "adamw", "parity": False, "batch_size": 960}
    return [run_cell(f"torch:{row}", WORKLOAD, **fields) for row in ("zero1", "zero2", "fsdp")]


def test_each_quantity_is_held_against_what_was_measured(family: list[RunResult]) -> None:
    first, speed, between, peak, sent = ranking(family).splitlines()
    assert first == "The textbooks' ranking of ZeRO, and what was measured here:"
    assert speed.startswith("* speed (examples/s): zero1 > zero2 > fsdp; here ")
    assert between.endswith("differs: zero2 = fsdp.")
    assert "here " in peak
    assert sent.startswith("* communication (sent per step): fsdp > zero1 = zero2; here fsdp ")
    assert sent.endswith(": agrees.")


def test_it_says_where_the_measurements_differ(family: list[RunResult]) -> None:
    slow, fast = (dataclasses.replace(family[0].examples_per_second, median=rate) for rate in (10.0, 1000.0))
    zero1, zero2, fsdp = (
        dataclasses.replace(r, examples_per_second=s) for r, s in zip(family, (slow, fast, fast), strict=True)
    )
    line = ranking([zero1, zero2, fsdp]).splitlines()[1]
    assert line.endswith(
        "zero1 > zero2 > fsdp; here zero2 1,000 = fsdp 1,000 > zero1 10: "
        "differs: zero1 < zero2, zero1 < fsdp, zero2 = fsdp."
    )


def test_nothing_is_said_of_a_row_alone(family: list[RunResult]) -> None:
    assert ranking(family[:1]) == ranking([family[0], family[0]]) == ""
