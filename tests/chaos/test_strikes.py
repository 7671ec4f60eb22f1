"""Strikes from outside (`tests/chaos/strikes.py`): one real one, how they are drawn and judged, and what the page shows."""

import dataclasses
import json
import signal
from pathlib import Path

import pytest

from tests.chaos import strikes_page
from tests.chaos.cells import request, rows
from tests.chaos.page import PAGE, PART, kept_part
from tests.chaos.strikes import DOUBLES, MEMBERS, Strike, Struck, known_strikes, random_strikes, read_store
from tests.chaos.struck import _judge, strike

RIGHT = "samestep: the torch fork server made no progress for 6 s; it is stopped, as by SIGSTOP"
STOPPED = Strike("torch:ddp", "server", "SIGSTOP", "import")
TOLD = Struck(STOPPED, "server", "SIGSTOP", "import", 6.5, True, 0, RIGHT, "", 6.0, 1.0)


@pytest.mark.torch
def test_two_signals_during_the_import_are_told_and_leave_nothing(tmp_path: Path) -> None:
    found = strike(Strike("torch:ddp", "command", "SIGTERM SIGINT", "import"), tmp_path)
    assert (found["hit"], found["phase"], found["orphans"]) == ("command", "import", 0)
    assert found["is_right"], found["said"]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("who", MEMBERS)
def test_a_member_that_is_stopped_during_the_import_is_told(tmp_path: Path, who: str) -> None:
    found = strike(dataclasses.replace(STOPPED, who=who), tmp_path)
    assert (found["hit"], found["phase"], found["orphans"]) == (who, "import", 0)
    assert found["is_right"], found["said"]


@pytest.mark.parametrize(
    ("hit", "fault", "code", "said", "is_right"),
    [
        ("server", "SIGSTOP", 1, RIGHT, True),
        ("server", "SIGSTOP", 1, "samestep: importing torch took more than 120 s", False),
        ("server", "SIGSTOP", 1, "samestep: rank-0 made no progress for 6 s; it is stopped, as by SIGSTOP", False),
        ("keeper", "SIGSTOP", 1, RIGHT, False),
        ("server", "SIGSTOP", 0, RIGHT, False),
        ("command", "SIGINT SIGINT", 130, "samestep: interrupted; nothing is left running.", True),
        ("command", "SIGINT SIGTERM", 143, "samestep: ended by SIGTERM; nothing is left running.", False),
        ("command", "SIGTERM SIGINT", 143, "samestep: ended by SIGTERM; these processes could not be ended", False),
        ("command", "SIGKILL", -9, "", True),
        ("command", "SIGKILL", 1, "", False),
    ],
)
def test_what_is_said_is_judged(hit: str, fault: str, code: int, said: str, is_right: bool) -> None:
    numbers = [signal.Signals[name] for name in fault.split()]
    assert _judge(hit, numbers, request("torch:ddp"), code, [said], False) == (is_right, "")


def test_what_is_late_or_leaves_a_process_is_not_good() -> None:
    assert TOLD.is_good
    for bad in ({"seconds": 9.1}, {"orphans": 1}, {"is_right": False}):
        assert not dataclasses.replace(TOLD, **bad).is_good


def test_every_row_has_its_turn_and_a_seed_draws_the_same_again() -> None:
    drawn = list(random_strikes(200, 1))
    assert drawn[:20] == list(random_strikes(20, 1))
    assert {each.row for each in drawn[: len(rows())]} == set(rows())
    assert {each.who for each in drawn} == {"command", "process", *MEMBERS}
    assert set(DOUBLES) <= {each.fault for each in drawn}
    assert all(each.is_random for each in drawn)
    assert not any(each.is_random for each in known_strikes())


def test_the_store_keeps_the_last_outcome(tmp_path: Path) -> None:
    lines = [json.dumps(dataclasses.asdict(dataclasses.replace(TOLD, seconds=each))) for each in (99.0, 6.5)]
    (tmp_path / "store").write_text("\n".join(lines))
    assert read_store(tmp_path / "store") == {STOPPED: TOLD}


def test_the_part_takes_its_place_and_the_rest_of_the_page_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "faults.md"
    page.write_text("# Title\n\n## Exceptions\n\nNone.\n\n## What each fault is, and what you read\n\nText.\n")
    monkeypatch.setattr(strikes_page, "PAGE", page)
    for _ in range(2):
        strikes_page.write_part([TOLD, dataclasses.replace(TOLD, orphans=1)], 1)
        written = page.read_text()
        assert written.startswith("# Title\n\n## Exceptions\n\nNone.\n\n" + PART)
        assert written.endswith("\n\n## What each fault is, and what you read\n\nText.\n")
        assert written.count(PART) == 1
        assert "1 of 2 strikes at known moments" in written
        assert "NOT as wanted: `torch:ddp` SIGSTOP server import" in written


def test_the_page_has_the_import_the_server_and_two_signals() -> None:
    part = kept_part()
    assert PART in PAGE.read_text()
    assert "NOT as wanted" not in part
    for wanted in known_strikes():
        whom = {**strikes_page.WHOM}[wanted.who]
        assert f"| `{wanted.fault}`" in part and whom in part and f"| {wanted.moment}" in part
