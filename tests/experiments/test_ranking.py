"""The textbooks' ranking, held against measurements."""

import dataclasses
import re
from pathlib import Path

import pytest

from samestep.common.catalog import catalogue
from samestep.common.runtime.records import DeviceRow, RunResult, Throughput
from samestep.experiments.comparing.ranking import QUANTITIES, ranking
from tests.conftest import RunCell
from tests.results import made

ROOT = Path(__file__).parents[2]
NAMES = ("torch:zero1", "torch:zero2", "torch:fsdp")
SLOW, MIDDLE, FAST = (100.0, 90.0, 110.0), (200.0, 180.0, 220.0), (300.0, 280.0, 330.0)
MIB = 2**20


@pytest.fixture(autouse=True)
def wide_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")


def ranked(*rates: tuple[float, float, float] | None) -> list[str]:
    """What is said of zero1, zero2 and fsdp with these speeds, a sentence a quantity."""
    return ranking([[made(name, rate)] for name, rate in zip(NAMES, rates, strict=True)]).splitlines()


def test_speeds_agree_where_no_window_of_one_run_was_as_fast_as_any_of_the_other() -> None:
    title, speed, *_ = ranked(FAST, MIDDLE, SLOW)
    assert title == "The textbooks' ranking of ZeRO, and what was measured here:"
    assert speed == (
        "* speed (examples/s): zero1 > zero2 > fsdp; "
        "here zero1 300 [280..330] > zero2 200 [180..220] > fsdp 100 [90.0..110]: agrees."
    )


def test_speeds_that_are_the_other_way_round_differ_and_why_is_said_with_the_page() -> None:
    speed = ranked(SLOW, MIDDLE, FAST)[1]
    assert "differs: zero1 < zero2, zero1 < fsdp, zero2 < fsdp (on cores that the ranks share, speeds change" in speed
    assert speed.endswith("; see docs/pytorch.md#why-the-measured-order-differs-from-the-textbooks-order).")


def test_speeds_whose_windows_overlap_are_not_separated() -> None:
    """The two runs of one command that once said "agrees" and "differs" with intervals that overlapped."""
    for zero2, fsdp in (
        ((5542.0, 4100.0, 6300.0), (4784.0, 3900.0, 5800.0)),
        ((3662.0, 3000.0, 5100.0), (5013.0, 4200.0, 6000.0)),
    ):
        speed = ranked((9000.0, 8000.0, 9900.0), zero2, fsdp)[1]
        assert speed.endswith(": not separated by their windows: zero2 and fsdp.")
        assert re.search(r"here zero1 9.00k \[.*\] > \w+ .* ~ \w+ ", speed)
        assert not {"agrees", "differs"} & set(re.findall(r"\w+", speed))


def test_each_value_that_varies_is_a_ranking_of_its_own() -> None:
    results = [made(name, rate) for name, rate in zip(NAMES, [FAST, MIDDLE, SLOW], strict=True)]
    rows = [
        [dataclasses.replace(result, config=dataclasses.replace(result.config, bandwidth=bandwidth))]
        for bandwidth in ("100mbit", "1gbit")
        for result in results
    ]
    lines = ranking(rows).splitlines()
    assert lines[0] == "The textbooks' ranking of ZeRO with bandwidth 100mbit, and what was measured here:"
    assert sum("bandwidth 1gbit" in line for line in lines) == 1
    speeds = [line for line in lines if "speed" in line]
    assert len(speeds) == 2 and all(line.endswith("agrees.") for line in speeds)
    alone = ranking(rows[:4])  # one row of another bandwidth is no second ranking
    assert alone.count("The textbooks' ranking") == 1 and "with bandwidth" not in alone


def test_windows_that_just_touch_overlap() -> None:
    touching = ranked((300.0, 220.0, 330.0), MIDDLE, SLOW)[1]
    assert touching.endswith(": not separated by their windows: zero1 and zero2.")


@pytest.mark.parametrize(
    "speed",
    [
        pytest.param(None, id="one step"),
        pytest.param(Throughput(300.0, 300.0, 300.0, 1), id="one window"),
        pytest.param(Throughput(300.0, None, None, 20), id="of an older result"),
    ],
)
def test_speeds_of_unknown_spread_are_not_separated(speed: Throughput | None) -> None:
    others = [made(name, rate) for name, rate in zip(NAMES[1:], (MIDDLE, SLOW), strict=True)]
    first = made(NAMES[0], examples_per_second=speed)
    assert "not separated by their windows: zero1 and zero2, zero1 and fsdp." in ranking(
        [[each] for each in (first, *others)]
    )


def keeping(name: str, kept: int, gathered: int, sent: int) -> RunResult:
    """A result whose one device keeps and sends so much."""
    base = made(name)
    device = dataclasses.asdict(base.processes[0]) | {"params_bytes": kept, "params_peak_bytes": kept + gathered}
    device |= {"gradients_bytes": 0, "optimizer_bytes": 0, "sent_bytes_per_step": float(sent)}
    return dataclasses.replace(base, processes=[DeviceRow(**device)])


def test_bytes_are_compared_as_they_were_counted() -> None:
    family = [keeping(NAMES[0], 6, 0, 6), keeping(NAMES[1], 4, 4, 6), keeping(NAMES[2], 4, 1, 8)]
    _, _, between, peak, sent = ranking([[each] for each in family]).splitlines()
    assert "here zero1 6 B > zero2 4 B = fsdp 4 B: differs: zero2 = fsdp (fully_shard shards" in between
    assert "here zero2 8 B > zero1 6 B > fsdp 5 B: differs: zero1 < zero2 (on few devices" in peak
    assert sent == (
        "* communication (sent per step): fsdp > zero1 = zero2; here fsdp 8 B > zero1 6 B = zero2 6 B: agrees."
    )


def test_byte_counts_that_nearly_agree_are_equal() -> None:
    family = [
        keeping(NAMES[0], 6 * MIB, 0, 6),
        keeping(NAMES[1], 4 * MIB, 4, 6),
        keeping(NAMES[2], 4 * MIB - 999, 1, 8),
    ]
    assert "zero2 4.0 MiB = fsdp 4.0 MiB" in ranking([[each] for each in family])


@pytest.mark.torch
def test_the_family_as_it_is_measured(run_cell: RunCell) -> None:
    fields = {"devices": 2, "steps": 6, "optimizer": "adamw", "parity": False, "batch_size": 960}
    family = [run_cell(name, "digits-mlp+layers=13+width=64", **fields) for name in NAMES]
    _, speed, between, peak, sent = ranking([[each] for each in family]).splitlines()
    assert speed.startswith("* speed (examples/s): zero1 > zero2 > fsdp; here ")
    assert "differs: zero2 = fsdp (" in between
    assert "here " in peak
    assert sent.startswith("* communication (sent per step): fsdp > zero1 = zero2; here fsdp ")
    assert sent.endswith(": agrees.")


def test_nothing_is_said_of_a_row_alone() -> None:
    alone = made(NAMES[0])
    assert ranking([[alone]]) == ranking([[alone], [alone]]) == ranking([[made("torch:ddp")], [alone]]) == ""


def test_rows_that_are_confounded_are_not_ranked_by_speed() -> None:
    family = [[made(name, rate)] for name, rate in zip(NAMES, (FAST, MIDDLE, SLOW), strict=True)]
    said = ranking(family, lambda a, b: ["dtype"] if "fsdp" in (a[0].strategy, b[0].strategy) else [])
    speed, *counted = said.splitlines()[1:]
    assert "here zero1 300 [280..330] > zero2 200 [180..220] ~ fsdp 100 [90.0..110]: not ranked" in speed
    assert speed.endswith(": not ranked (dtype): zero1 and fsdp, zero2 and fsdp.")
    assert counted == ranking(family).splitlines()[2:], "bytes are counted alike"


@pytest.mark.parametrize("width", [80, 120])
def test_the_sentences_fit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert max(map(len, ranked(SLOW, MIDDLE, FAST))) <= width


def test_every_family_says_why_a_measurement_may_differ_on_a_page_that_is_there() -> None:
    families = [row.textbook.family for _, row in catalogue() if row.textbook]
    assert families
    for family in families:
        assert set(family.differs) == set(QUANTITIES)
        page, _, anchor = family.page.partition("#")
        titles = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
