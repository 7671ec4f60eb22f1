"""Covering arrays: few rows in which every pair of values of two factors occurs, instead of the product of all factors."""

import itertools
from collections.abc import Callable, Mapping, Sequence

Row = dict[str, str]
"""Factor -> its value; a factor that is not in it may still have any."""
Pair = frozenset[tuple[str, str]]


def pairs_of(row: Row, kinds: Mapping[str, str]) -> set[Pair]:
    """Returns each value of a row alone, and the pairs of kinds that it has; what has no kind, "", is in no pair.

    Args:
        row: As of a covering array.
        kinds: Value -> what stands for it in a pair; a value that is not in it stands for itself.
    """
    told = [(factor, kinds.get(value, value)) for factor, value in row.items() if kinds.get(value, value)]
    alone = {frozenset([each]) for each in row.items()}
    return alone | {frozenset(each) for each in itertools.combinations(told, 2)}


def cover(factors: Mapping[str, Sequence[str]], kinds: Mapping[str, str], is_taken: Callable[[Row], bool]) -> list[Row]:
    """Finds rows that have every value, and every pair of kinds of values, that any row can have; the same ones each time.

    Each row begins with a value or pair that no row has yet, and takes of each further factor what adds most. Those whose
    pairs all others have between them are left out at the end.

    Args:
        factors: Name -> values; the first one is taken where none adds more.
        kinds: Value -> what stands for it in a pair, if not the value: few kinds make few rows.
        is_taken: Whether there is a row with the values that are given.
    """
    begun: list[Row] = [{factor: value} for factor, values in factors.items() for value in values]
    begun += [one | other for one, other in itertools.combinations(begun, 2) if one.keys() != other.keys()]
    rows: list[Row] = []
    had: set[Pair] = set()
    for row in begun:
        if pairs_of(row, kinds) <= had or not is_taken(row):
            continue
        for factor in (name for name in factors if name not in row):
            possible = filter(is_taken, (row | {factor: value} for value in factors[factor]))
            row = max(possible, key=lambda each: len(pairs_of(each, kinds) - had))
        had |= pairs_of(row, kinds)
        rows.append(row)
    for row in rows[:]:
        others = [pairs_of(other, kinds) for other in rows if other is not row]
        if pairs_of(row, kinds) <= set().union(*others):
            rows.remove(row)
    return rows
