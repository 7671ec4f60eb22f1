"""What `samestep port` prints: the parameters, the layers side by side, and the verdict."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.case import DIFFERENT, Case, Verdict
from samestep.common.porting.layouts import apart
from samestep.common.porting.matching.pairing import Pair
from samestep.experiments.printing.formats import Case as Reported
from samestep.experiments.printing.formats import Document
from samestep.experiments.printing.text import Column, cells, fill, fit, github, screen_width


def port_document(case: Case, verdict: Verdict) -> Document:
    """Makes the report of a port.

    Args:
        case: Both implementations.
        verdict: Of these.
    """
    rows = [
        {
            "torch": layer.torch.name,
            "tf": layer.tf.name,
            **{name: _number(value) for name, value in _off(layer).items()},
        }
        for layer in case.layers
    ]
    pairs = [
        {
            "torch": [held.native for held in pair.torch],
            "tf": [held.native for held in pair.tf],
            "shape": list(pair.torch[0].shape),
            "permutation": pair.permutation,
        }
        for pair in case.matching.pairs
    ]
    record = {
        "verdict": dataclasses.asdict(verdict),
        "parameters": pairs,
        "layers": rows,
        "losses": {"torch": case.torch.losses, "tf": case.tf.losses},
    }
    is_wrong = verdict.kind == DIFFERENT
    judged = Reported("port", "failure" if is_wrong else "passed", verdict.sentence if is_wrong else "")
    return Document("samestep port", lambda: _text(case, verdict), record, rows, [judged])


def _number(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None


def _off(layer: Aligned) -> dict[str, float | None]:
    """How far the two are apart, relative to the largest element; None where one has nothing to compare."""
    return {
        name: None if both is None else apart(*both)
        for name, both in (("inputs", layer.inputs), ("outputs", layer.output), ("gradients", layer.gradient))
    }


def _spell(value: float | None) -> str:
    return "" if value is None else "shape" if np.isinf(value) else f"{value:.0e}" if value else "0"


_PARAMETERS: Sequence[Column[Pair]] = (
    Column("torch", lambda pair: ", ".join(held.native for held in pair.torch)),
    Column("tf", lambda pair: ", ".join(held.native for held in pair.tf)),
    Column("shape", lambda pair: str(list(pair.torch[0].shape))),
    Column("permutation", lambda pair: pair.permutation),
)
_LAYERS: Sequence[Column[Aligned]] = (
    Column("torch", lambda layer: layer.torch.name),
    Column("tf", lambda layer: layer.tf.name),
    Column("what goes in", lambda layer: _spell(_off(layer)["inputs"]), gives_way=1),
    Column("outputs", lambda layer: _spell(_off(layer)["outputs"])),
    Column("gradients", lambda layer: _spell(_off(layer)["gradients"])),
)


def _text(case: Case, verdict: Verdict) -> str:
    width = screen_width()
    tables = []
    for columns, rows in ((_PARAMETERS, case.matching.pairs), (_LAYERS, case.layers)):
        shown = fit(columns, rows, width)  # type: ignore[arg-type,type-var,misc]
        tables.append(github(*cells(shown, rows), width))  # type: ignore[arg-type,type-var,misc]
    lacking = [
        f"only in {framework}: {held.native} {list(held.shape)}"
        for framework, only in (("torch", case.matching.only_torch), ("tf", case.matching.only_tf))
        for held, *_ in only
    ]
    said = [
        "Deviations in float64, relative to the largest element; dropout is off, and what is constant at the start, such as "
        "a bias of zero, is moved a little.",
        f"loss of the first batch: torch {case.torch.loss:.12g}, tf {case.tf.loss:.12g}",
        *_curve(case),
        *lacking,
        *verdict.notes,
    ]
    lines = "\n".join(fill(line, width, "  ") for line in said)
    return "\n\n".join([*tables, lines, fill(verdict.sentence, width)])


def _curve(case: Case) -> list[str]:
    if not case.torch.losses:
        return []
    last, steps = (case.torch.losses[-1], case.tf.losses[-1]), len(case.torch.losses)
    return [f"loss of step {steps}: torch {last[0]:.12g}, tf {last[1]:.12g}"]
