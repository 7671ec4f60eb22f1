"""What a compiled program sends between its cores, read from the compiler's text of it. Imports no framework."""

import collections
import math
import re

from samestep.common.ledger import Collective

_INSTRUCTION = re.compile(r"^ *(?:ROOT )?(%[\w.-]+) = (.*?) ([a-z][\w-]*)\((.*)$")
_COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+)[a-z\d]*\[([\d,]*)\]")


def collectives(hlo: str) -> tuple[Collective, ...]:
    """What a compiled program's collectives are handed in one step, by kind.

    One that runs beside other work stands in several fusions, under one channel.
    """
    sizes: dict[str, int] = {}
    found: dict[tuple[str, str], int] = {}
    for name, shape, operation, rest in (
        match.groups() for match in map(_INSTRUCTION.match, hlo.splitlines()) if match
    ):
        sizes[name] = _nbytes(shape)
        kind = operation.removesuffix("-start")
        if kind in _COLLECTIVES:
            handed = re.findall(r"%[\w.-]+", rest.partition(")")[0])
            channel = re.search(r"channel_id=(\d+)", rest)
            found[kind, channel[1] if channel else name] = sum(sizes[operand] for operand in handed)
    counts = collections.Counter(kind for kind, _ in found)
    return tuple(
        Collective(kind, counts[kind], sum(size for (each, _), size in found.items() if each == kind))
        for kind in sorted(counts)
    )


def _nbytes(shape: str) -> int:
    """The bytes of an HLO shape, arrays or tuples of them, without padding."""
    total = 0
    for kind, dims in _ARRAY.findall(shape):
        bits = 8 if kind == "pred" else int(re.sub(r"\D", "", kind))
        total += math.prod(int(dim) for dim in dims.split(",") if dim) * bits // 8
    return total
