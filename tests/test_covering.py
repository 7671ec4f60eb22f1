import itertools

from tests.covering import Row, cover, pairs_of

FACTORS = {
    "step": ("a", "b", "c", "d"),
    "size": ("small", "large"),
    "one": ("", "1"),
    "two": ("", "2"),
    "three": ("", "3"),
}
KINDS = {"c": "few", "d": "few"}


def allowed(row: Row) -> bool:
    """A step that does not take the second feature, and two features that exclude each other."""
    return not (row.get("step") == "b" and row.get("two")) and not (row.get("one") and row.get("three"))


def test_every_pair_that_is_allowed_is_in_a_row_and_none_that_is_not() -> None:
    rows = cover(FACTORS, KINDS, allowed)
    product = [dict(zip(FACTORS, values, strict=True)) for values in itertools.product(*FACTORS.values())]
    wanted = set().union(*(pairs_of(row, KINDS) for row in product if allowed(row)))
    assert set().union(*(pairs_of(row, KINDS) for row in rows)) == wanted
    assert all(row.keys() == FACTORS.keys() and allowed(row) for row in rows)
    assert len(rows) < len(product) / 6
    assert cover(FACTORS, KINDS, allowed) == rows


def test_no_row_is_there_in_vain() -> None:
    rows = cover(FACTORS, KINDS, allowed)
    for row in rows:
        others = [pairs_of(other, KINDS) for other in rows if other is not row]
        assert not pairs_of(row, KINDS) <= set().union(*others)


def test_what_is_of_one_kind_stands_for_each_other_but_is_run() -> None:
    pairs = pairs_of({"step": "d", "size": "small", "one": ""}, KINDS)
    assert pairs == {
        *(frozenset([each]) for each in (("step", "d"), ("size", "small"), ("one", ""))),
        frozenset([("step", "few"), ("size", "small")]),
    }
