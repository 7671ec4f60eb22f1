"""What `samestep model` prints: the parameters, other findings about a model, and the strategies that can train it."""

import dataclasses
from collections.abc import Iterator, Sequence

from samestep.common.catalog import strategies_of
from samestep.common.errors import count, name_some
from samestep.common.workload.models.description import Description
from samestep.common.workload.models.spec import ArraySpec, Param
from samestep.experiments.printing.column_table import Column, table
from samestep.experiments.printing.formats import Case, Document
from samestep.experiments.printing.text import fill, paragraphs, screen_width, shape

_MOST_NAMED = 5
_REDUCED = {
    "targets": "the mean over targets",
    "examples": "the mean over examples",
    "mean": "a mean over examples",
    "sum": "a sum",
    "own": "a sum over what `reduction` counts",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Understood:
    """The findings about a model in one framework.

    Attributes:
        framework: Its framework.
        description: The description that a worker made.
        rows: Each strategy, with why it cannot take the model; "" if it can.
    """

    framework: str
    description: Description
    rows: dict[str, str]


def model_document(source: str, found: Sequence[Understood]) -> Document:
    """Makes the document of a model.

    Args:
        source: The model, as the user named it.
        found: The findings about it, one for each framework.
    """
    rows = [
        {"row": row, "takes_it": not why, "why_not": why}
        for understood in found
        for row, why in understood.rows.items()
    ]
    record = {
        "model": source,
        "frameworks": {
            each.framework: {**dataclasses.asdict(each.description), "facts": list(_facts(each))} for each in found
        },
        "rows": rows,
    }
    cases = [Case(row["row"], "skipped" if row["why_not"] else "passed", row["why_not"]) for row in rows]
    return Document("samestep model", lambda: "\n\n".join(map(_text, found)), record, rows, cases)


def _text(found: Understood) -> str:
    about = found.description
    params = list(about.params.items())
    columns: Sequence[Column[tuple[str, Param]]] = (
        Column("parameter", lambda row: row[0]),
        Column("shape", lambda row: shape(row[1].shape)),
        Column("role", lambda row: row[1].role),
        Column("remark", lambda row: ", ".join(_remarks(about, *row))),
    )
    size = sum(param.size for _, param in params)
    lines = [f"{found.framework}: {count(size, 'number')} in {count(len(params), 'parameter')}.", *_facts(found)]
    takes = [row for row, why in found.rows.items() if not why]
    lines.append(f"Strategies that can train it: {', '.join(takes) or 'none'}.")
    lines += [why if why.startswith(row) else f"{row}: {why}" for row, why in found.rows.items() if why]
    return paragraphs(table(columns, params, screen_width()), "\n".join(fill(line, indent="  ") for line in lines))


def _remarks(about: Description, name: str, param: Param) -> Iterator[str]:
    if param.frozen:
        yield "frozen"
    if name in about.unused:
        yield "no gradient"
    if param.split is not None:
        yield f"cut along axis {param.split} by the tensor plan"
    if name in about.dtypes:
        yield f"{about.dtypes[name]} in the file"


def _facts(found: Understood) -> Iterator[str]:
    """Yields a sentence for each finding that matters to a strategy of the framework."""
    about, axes = found.description, {axis for row in strategies_of(found.framework) for axis in row.axes}
    yield f"Inputs: {_array(about.inputs)}. Targets: {_array(about.targets)}."
    ignored = "; targets below 0 do not count" if about.ignores else ""
    yield f"Loss: {about.loss}, {_REDUCED[about.reduction]}{ignored}. Metric: {about.metric}."
    if about.returns != "outputs":
        yield f"It returns {'its own loss' if about.returns == 'loss' else 'several tensors, all of which go into its loss'}."
    if about.optimizer is not None:
        groups, rate = count(len(about.optimizer.groups), "group"), f"at rate {about.optimizer.learning_rate:g}"
        yield f"Optimizer: the file's, {f'with {groups}, the first ' if about.optimizer.groups else ''}{rate}."
    segments = [segment.name.replace("/", ".") for segment in about.segments]
    if "pipe" in axes:
        yield f"Segments for pipelines: {_listed(segments) if len(segments) > 1 else 'none are known'}."
    if "shard" in axes:
        yield f"Blocks that FSDP gathers one by one: {_listed([block.name.replace('/', '.') for block in about.blocks])}."
    habits = about.habits
    if about.casts:
        yield f"Casts to float32, which --dtype float64 leaves out: {_listed(about.casts)}."
    yield f"Random: {_listed(habits.randoms)}{'' if habits.are_stilled else ', not all of which --no-dropout holds still'}."
    featured = [path for layers in about.featured.values() for path in layers]
    stateful = [*featured, *habits.running, *habits.restless]
    yield f"Stateful: {_listed(stateful)}. Buffers: {_listed(list(about.buffers))}."
    yield f"Mixes the examples of a batch: {_listed([*featured, *habits.mixing, *about.sums])}."
    if about.written:
        yield f"Writes parameters in its forward pass: {_listed(about.written)}."
    if not habits.is_steady:
        yield "Called again with the same seed, weights and buffers, it gives other outputs."
    if about.branches:
        yield "Its forward pass looks at numbers, so other parameters may lack a gradient in another step."
    if about.rounded.refused:
        yield f"It takes no --precision: {about.rounded.refused}."


def _array(array: ArraySpec) -> str:
    if array.several:
        return ", ".join(f"{name} {_array(one)}" for name, one in array.several)
    below = "" if array.is_open else f" below {array.ids}"
    kind = "real numbers" if array.ids is None else f"whole numbers{below}"
    return f"{kind} {list(array.shape)}" if array.shape else f"{kind}, one an example"


def _listed(names: Sequence[str]) -> str:
    return name_some(list(dict.fromkeys(names)), _MOST_NAMED) if names else "none"
