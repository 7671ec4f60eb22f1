"""The order of additions: the same for any number of devices that each add up a subtree."""

import functools

import pytest

from samestep.common.tree import Tree, add_up


def spelled(one: str, other: str) -> str:
    return f"({one}{other})"


def test_neighbors_first() -> None:
    assert add_up("abcdefgh", spelled) == "(((ab)(cd))((ef)(gh)))"
    assert add_up("a", spelled) == "a"
    assert add_up("abcdefg", spelled) == "(((ab)(cd))((ef)g))"


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_subtotals_of_devices_are_subtrees(devices: int) -> None:
    each = 8 // devices
    own = [add_up("abcdefgh"[rank * each : (rank + 1) * each], spelled) for rank in range(devices)]
    assert add_up(own, spelled) == add_up("abcdefgh", spelled)
    assert functools.reduce(spelled, own) != add_up("abcdefgh", spelled) or devices < 3


def test_it_begins_anew() -> None:
    tree = Tree(spelled)
    for parts in ("abcd", "ef"):
        for part in parts:
            tree.push(part)
        assert tree.pop() == add_up(parts, spelled)
