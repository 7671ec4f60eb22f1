"""What a compiled program sends between its cores, read from the compiler's text of it. Imports no framework."""

import collections
import math
import re

from samestep.common.ledger import Collective

_INSTRUCTION = re.compile(r"^ *(?:ROOT )?(%[\w.-]+) = (.*?) ([a-z][\w-]*)\((.*)$", re.MULTILINE)
_COLLECTIVE = re.compile("all-(reduce|gather|to-all)|reduce-scatter|collective-(permute|broadcast)")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+)[a-z\d]*\[([\d,]*)\]")


def collectives(hlo: str) -> tuple[Collective, ...]:
    """Returns what a compiled program's collectives are handed in one step, by kind.

    A collective that runs next to other work appears in several fusions, under one channel.
    """
    sizes: dict[str, int] = {}
    handed: dict[str, dict[str, int]] = collections.defaultdict(dict)
    for name, shape, operation, rest in _INSTRUCTION.findall(hlo):
        sizes[name] = _nbytes(shape)
        kind = operation.removesuffix("-start")
        if _COLLECTIVE.fullmatch(kind):
            operands = re.findall(r"%[\w.-]+", rest.partition(")")[0])
            channel = re.search(r"channel_id=(\d+)", rest)
            handed[kind][channel[1] if channel else name] = sum(sizes[operand] for operand in operands)
    return tuple(Collective(kind, len(each), sum(each.values())) for kind, each in sorted(handed.items()))


def _nbytes(shape: str) -> int:
    """Returns the bytes of an HLO shape, arrays or tuples of them, without padding."""
    total = 0
    for kind, dims in _ARRAY.findall(shape):
        bits = 8 if kind == "pred" else int(re.sub(r"\D", "", kind))
        total += math.prod(int(dim) for dim in dims.split(",") if dim) * bits // 8
    return total
