import re

import pytest

from benchmarks.cost.page import PAGE, parts, take, written


def test_every_part_has_its_place_on_the_page() -> None:
    taken = {
        name: {"command": f"of {name}", "commit": "abc1234", "text": f"| told by {name} |"} for name in parts(False)
    }
    page = written(PAGE.read_text(), taken)
    for name in taken:
        assert (
            f"<!-- {name} -->\n`python -m of {name}`, at commit abc1234:\n\n| told by {name} |\n<!-- /{name} -->"
            in page
        )
    tables = [line for line in page.splitlines() if line.startswith("|")]
    assert len(tables) == len(taken), "no table is written by hand"
    assert parts(True).keys() == parts(False).keys() == set(re.findall(r"<!-- ([\w-]+) -->", page))


@pytest.mark.parametrize("words", [["benchmarks.missing"], ["timeit", "-n1", "-r1", "import time; time.sleep(60)"]])
def test_of_a_part_that_fails_or_lasts_the_page_keeps_what_it_says(words: list[str]) -> None:
    taken = take(words, 0.5 if "timeit" in words else 60)
    assert taken["text"] == ""
    page = PAGE.read_text()
    assert written(page, {"steps": taken}) == page


def test_a_part_is_what_its_command_prints() -> None:
    taken = take(["timeit", "-n1", "-r1", "pass"], 60)
    assert str(taken["text"]).startswith("1 loop, best of 1")
    assert taken["command"] == "timeit -n1 -r1 pass"
