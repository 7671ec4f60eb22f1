"""`benchmarks.judging.random_scripts` draws scripts, tells lawful variants from mistakes, and counts what is said of them."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.judging.random_scripts import pairs, table_of
from benchmarks.judging.random_settings import LAWFUL, MISTAKES
from samestep.common.mistakes.table import MISTAKES as KNOWN

JUDGE = """
import json, sys
from pathlib import Path
from benchmarks.judging.forked_scripts import begin
from benchmarks.judging.random_scripts import judged

store = Path(sys.argv[1])
begin(store)
print(json.dumps([judged(store, (203, variant)) for variant in sys.argv[2:]]))
"""


def row(config: int, variant: str, kind: str, outcome: str) -> dict[str, object]:
    return {"pair": [config, variant], "kind": kind, "outcome": outcome, "headline": f"of {variant}"}


def test_alarms_and_wrong_names_are_listed() -> None:
    table = table_of(
        [
            row(0, "ddp", "same", "not seen"),
            row(1, "ddp", "amplified", "not seen"),
            row(1, "foreach", "unnamed", "no name"),
            row(1, "no_zero", "named", "named"),
            row(2, "no_zero", "named", "wrongly named"),
            row(2, "rate_off", "unknown", "cannot tell"),
        ]
    ).splitlines()
    assert "| ddp | 2 | 1 | 1 | 0 | 0 | 0 | 0 |" in table
    assert "| all lawful | 3 | 1 | 1 | 0 | 1 | 0 | 0 |" in table
    assert "| all mistakes | 3 | 0 | 0 | 1 | 0 | 1 | 1 |" in table
    assert table[-2:] == ["ALARM [1, 'foreach']: of foreach", "WRONG NAME [2, 'no_zero']: of no_zero"]


def test_every_variant_is_drawn_and_every_right_name_is_known() -> None:
    drawn = list(pairs(0, 199))
    assert {variant for _, variant in drawn} == {*LAWFUL, *MISTAKES}
    assert len(drawn) == len({*drawn})
    assert {*itertools.chain.from_iterable(names for names, _ in MISTAKES.values())} <= {each.name for each in KNOWN}


@pytest.mark.torch
def test_a_lawful_variant_is_the_same_and_a_mistake_is_named(tmp_path: Path) -> None:
    words = [sys.executable, "-c", JUDGE, str(tmp_path), "foreach", "no_decay"]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert [each["outcome"] for each in json.loads(said)] == ["not seen", "named"]
