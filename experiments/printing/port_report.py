"""What `samestep port` prints: the parameters, the layers side by side, and the verdict."""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.array_layouts import apart
from samestep.common.porting.case import DIFFERENT, PortCase, PortVerdict
from samestep.common.porting.functions import FUNCTION, moves
from samestep.common.porting.matching.pairing import Pair
from samestep.experiments.printing.column_table import Column, table
from samestep.experiments.printing.formats import Case as Reported
from samestep.experiments.printing.formats import Document
from samestep.experiments.printing.text import fill, paragraphs, screen_width, shape

_WHOLE = (
    " The table says how far the worst element is off, and the last line how far the tensor as a whole is: the length of the "
    "difference, relative to that of the first model's tensor."
)


def port_document(case: PortCase, verdict: PortVerdict) -> Document:
    """Makes the report of a port.

    Args:
        case: Both implementations.
        verdict: The verdict on them.
    """
    a, b = case.frameworks
    rows = [
        {
            a: layer.source.name,
            b: layer.target.name,
            **{name: _number(value) for name, value in _off(layer).items()},
        }
        for layer in case.layers
    ]
    pairs = [
        {
            a: [held.native for held in pair.source],
            b: [held.native for held in pair.target],
            "shape": list(pair.source[0].shape),
            "permutation": pair.permutation,
        }
        for pair in case.matching.pairs
    ]
    names = {"source": a, "target": b}
    record = {
        "verdict": {names.get(name, name): value for name, value in dataclasses.asdict(verdict).items()},
        "accepted": list(case.accepted),
        "parameters": pairs,
        "layers": rows,
        "losses": {a: case.source.losses, b: case.target.losses},
    }
    is_wrong = verdict.kind == DIFFERENT
    judged = Reported("port", "failure" if is_wrong else "passed", verdict.sentence if is_wrong else "")
    return Document("samestep port", lambda: _text(case, verdict), record, rows, [judged])


def _number(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None


def _off(layer: Aligned) -> dict[str, float | None]:
    """Returns the differences of the two, relative to the largest element; None where one has nothing to compare."""
    return {
        name: None if both is None else apart(*both)
        for name, both in (("inputs", layer.inputs), ("outputs", layer.output), ("gradients", layer.gradient))
    }


def _spell(value: float | None) -> str:
    return "" if value is None else "shape" if np.isinf(value) else f"{value:.0e}" if value else "0"


def _parameters(frameworks: Sequence[str]) -> Sequence[Column[Pair]]:
    a, b = frameworks
    return (
        Column(a, lambda pair: ", ".join(held.native for held in pair.source)),
        Column(b, lambda pair: ", ".join(held.native for held in pair.target)),
        Column("shape", lambda pair: shape(pair.source[0].shape)),
        Column("permutation", lambda pair: pair.permutation),
    )


_DEVIATIONS: Sequence[Column[Aligned]] = (
    Column("input", lambda layer: _spell(_off(layer)["inputs"]), drop_priority=1),
    Column("outputs", lambda layer: _spell(_off(layer)["outputs"])),
    Column("gradients", lambda layer: _spell(_off(layer)["gradients"])),
)


def _text(case: PortCase, verdict: PortVerdict) -> str:
    (a, b), width = case.frameworks, screen_width()
    layers = (Column(a, lambda layer: layer.source.name), Column(b, lambda layer: layer.target.name), *_DEVIATIONS)
    computing = [layer for layer in case.layers if not (layer.family == FUNCTION and moves(layer.source))]
    grids = [table(_parameters(case.frameworks), case.matching.pairs, width), table(layers, computing, width)]
    lacking = [
        f"only in {framework}: {held.native} {list(held.shape)}"
        for framework, only in ((a, case.matching.only_source), (b, case.matching.only_target))
        for held, *_ in only
    ]
    said = [
        "Deviations in float64, relative to the largest element. Dropout is off, and tensors that start as constants, such as "
        "biases of zero, were changed a little, so they count."
        + _WHOLE
        * bool(re.search("(outputs|input|their gradients) differs? by", verdict.sentence)),
        f"loss of the first batch: {a} {case.source.loss:.12g}, {b} {case.target.loss:.12g}",
        *_curve(case),
        *lacking,
        *verdict.notes,
    ]
    lines = "\n".join(fill(line, indent="  ") for line in said)
    return paragraphs(*grids, lines, fill(verdict.sentence))


def _curve(case: PortCase) -> list[str]:
    if not case.source.losses:
        return []
    (a, b), last = case.frameworks, (case.source.losses[-1], case.target.losses[-1])
    return [f"loss of step {len(case.source.losses) - 1}: {a} {last[0]:.12g}, {b} {last[1]:.12g}"]
