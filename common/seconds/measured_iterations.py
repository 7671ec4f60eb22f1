"""The measured iterations of vTrain (`common/seconds/vtrain`, MIT licence): what ran, and how long it took.

Rows with up to 8 GPUs were measured on one server, the others on a cluster.

The rows on one server are predicted without recomputation, although the paper says that they have it: with it, the large ones
would have exceeded the peak of an A100, given what their other kernels must move. Their head, if the vocabulary is not split,
takes four times as long as its FLOPs would: 50257 is not a multiple of 8, and nothing seems to pad it there.

References:
    Bang et al., arXiv 2312.12391 (vTrain).
"""

import csv
import dataclasses
import io
import math
from collections.abc import Mapping
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, read_text
from samestep.common.flags import FieldValues
from samestep.common.seconds.layout import Layout
from samestep.common.workload.models.block_sizes import BlockSizes

FOLDER = Path(__file__).parent / "vtrain"
SERVER_GPUS = 8
VOCABULARY = 50257
_MOST_BYTES = 2**24
"""The most bytes of a file of rows: some 200,000 of them."""
COLUMNS = {
    "gpus": "# GPUs",
    "batch_size": "global batch",
    "microbatch_size": "micro batch",
    "width": "hidden size",
    "heads": "attention heads",
    "layers": "# layers",
    "context": "sequence length",
    "tensor": "tensor parallelism",
    "data": "data parallelism",
    "pipe": "pipeline parallelism",
}
"""Field of the model or the layout -> its column."""
SECONDS = "iteration time (ms)"
_OF_MODEL = ("layers", "width", "heads", "context")
"""The fields of the model; the others, except the number of GPUs, belong to the layout."""


@dataclasses.dataclass(frozen=True)
class MeasuredIteration:
    """A measured iteration.

    Attributes:
        shape: The model. Megatron pads its vocabulary to a multiple of 128 for each part.
        layout: How it was spread.
        seconds: How long it took.
    """

    shape: BlockSizes
    layout: Layout
    seconds: float

    @property
    def is_one_node(self) -> bool:
        """Whether it ran on one server."""
        return self.layout.num_gpus <= SERVER_GPUS

    @property
    def family(self) -> str:
        """The name of all models of this hidden size."""
        return f"hidden {self.shape.width}"

    @property
    def model(self) -> str:
        """The name of the model."""
        return f"{self.family}, {self.shape.layers} layers"

    @property
    def problem(self) -> str:
        """The model, GPUs and batch for which a layout is chosen."""
        shape, layout = self.shape, self.layout
        sizes = f"{shape.heads} heads, {shape.context}: {layout.num_gpus} GPUs, {layout.batch_size}"
        return f"{self.model}, {sizes}"

    @property
    def layout_name(self) -> str:
        """The sizes along the axes, as in t8 d2 p1."""
        return f"t{self.layout.tensor} d{self.layout.data} p{self.layout.pipe}"

    @property
    def pass_seconds(self) -> float:
        """The seconds of a step for each micro-batch of a replica."""
        return self.seconds / self.layout.microbatches

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that the row counts in: one node or many, and the model on them."""
        nodes = "one node" if self.is_one_node else "many nodes"
        return nodes, f"{nodes}, {self.family}"

    def __str__(self) -> str:
        spread = f"{self.layout.num_gpus} GPUs, {self.layout_name}"
        return f"{self.model}, {spread}, batch {self.layout.batch_size}/{self.layout.microbatch_size}"


def read_rows(path: Path) -> list[MeasuredIteration]:
    """Reads measured iterations.

    Args:
        path: A CSV file with vTrain's columns; others are ignored.

    Raises:
        ConfigError: It cannot be read, lacks columns, or a value is not a positive number.
    """
    try:
        reader = csv.DictReader(io.StringIO(read_text(path, _MOST_BYTES, "utf-8-sig"), newline=""))
        found, lines = reader.fieldnames or (), list(reader)
    except (Unreadable, csv.Error) as error:
        raise ConfigError(f"{path} cannot be read: {error}; name a CSV file of measured iterations.") from None
    wanted = (*COLUMNS.values(), SECONDS)
    if missing := [name for name in wanted if name not in found]:
        raise ConfigError(f"{path} lacks the columns {', '.join(missing)}; a file of rows has {', '.join(wanted)}.")
    if not lines:
        raise ConfigError(f"{path} has no rows.")
    return [_row(line, f"{path}, line {number}") for number, line in enumerate(lines, start=2)]


def _row(line: Mapping[str, str], where: str) -> MeasuredIteration:
    values: dict[str, float] = {}
    for name in (*COLUMNS.values(), SECONDS):
        try:
            values[name] = float(line[name])
        except (TypeError, ValueError):
            values[name] = math.nan
        whole = name == SECONDS or values[name] == values[name] // 1
        if not (0 < values[name] < math.inf and whole):
            raise ConfigError(
                f"{where}: {name} is '{line[name]}'; give a positive {'number' if whole else 'whole number'}."
            )
    sizes: FieldValues = {field: int(values[name]) for field, name in COLUMNS.items()}
    gpus, *of_model = (sizes.pop(field) for field in ("gpus", *_OF_MODEL))
    layout = Layout(**sizes, forward_passes=2 if gpus > SERVER_GPUS else 1)
    if layout.num_gpus != gpus:
        raise ConfigError(f"{where}: {layout.tensor} x {layout.data} x {layout.pipe} ranks are not {gpus} GPUs.")
    if layout.batch_size % (layout.data * layout.microbatch_size):
        by = f"{layout.data} x {layout.microbatch_size}"
        raise ConfigError(f"{where}: batch {layout.batch_size} does not divide into {by}.")
    shape = _shape(*of_model, parts=128 * layout.tensor if gpus > SERVER_GPUS or layout.tensor > 1 else 1)
    return MeasuredIteration(shape, layout, values[SECONDS] / 1e3)


def _shape(layers: int, width: int, heads: int, context: int, parts: int) -> BlockSizes:
    """Returns a GPT whose vocabulary is padded to a multiple of `parts`."""
    vocabulary = -(-VOCABULARY // parts) * parts
    return BlockSizes(layers, width, heads, heads, 4 * width, False, context, vocabulary)
