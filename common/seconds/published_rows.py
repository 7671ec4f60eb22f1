"""What other projects published about their own steps, compared with predictions: seconds, and bytes of the fullest GPU.

Sources are in `common/seconds/published/README.md`. Two shares of an H100 are fitted to llm-foundry's steps (`python -m
benchmarks.predicting.fit_h100`), and no step is predicted with shares that have seen its model. Nothing else is fitted to these
figures: rates of a GPU that were not measured are those of `a100-80gb`.
"""

import csv
import dataclasses
import functools
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from samestep.common.files.reading import read_text, read_toml
from samestep.common.flags import FieldValues
from samestep.common.mesh import Mesh
from samestep.common.seconds.held_bytes import MegatronLayout, megatron_bytes, sharded_bytes
from samestep.common.seconds.layout import Layout
from samestep.common.seconds.machine import Machine, load_machine
from samestep.common.seconds.step_time import step_time
from samestep.common.seconds.validation import Compared
from samestep.common.workload.models.block_sizes import BlockSizes

_FOLDER = Path(__file__).parent / "published"
LEFT_OUT = _FOLDER / "left-out.toml"
CAUSES = _FOLDER / "causes.toml"
"""Table -> figure whose prediction is far off -> why."""
FAR = 0.15
"""The error from which a published figure is listed with its cause."""
_FLOAT8 = 70.9 / 80.3
"""The shares of the peak of the best products in float8 and in bfloat16 on an H100 (`common/seconds/published/README.md`)."""
_FIRST_FLASH_ATTENTION = 0.5
"""The speed of FlashAttention relative to that of FlashAttention-2, which is "around 2x" (Dao, arXiv 2307.08691, abstract)."""


def _lines(name: str) -> Iterator[Mapping[str, str]]:
    return csv.DictReader(io.StringIO(read_text(_FOLDER / f"{name}.csv"), newline=""))


def _numbers(line: Mapping[str, str], names: str) -> FieldValues:
    return {name: int(line[name]) for name in names.split()}


def _shape(line: Mapping[str, str]) -> BlockSizes:
    numbers = _numbers(line, "layers width heads key_heads hidden context vocabulary")
    return BlockSizes(**numbers, is_gated=line.get("is_gated") == "1")


def _layout(line: Mapping[str, str]) -> Layout:
    return Layout(
        **_numbers(line, "batch_size microbatch_size data shard tensor pipe"),
        schedule=line["schedule"],
        beside=Mesh.of_replicas(1, split={"context": int(line.get("parts") or 1)}),
        forward_passes=1 + float(line["recomputes"]),
        overlaps=True,
        fused_attention=True,
        separate_kernels="compile" not in line["row"],
    )


@dataclasses.dataclass(frozen=True)
class PublishedStep:
    """A published step.

    Attributes:
        row: The row of the table.
        shape: The shape of the model.
        layout: How it was spread.
        seconds: How long it took.
        is_float8: Whether products were in float8, else in bfloat16.
        gib: The GiB that PyTorch reserved on the fullest GPU; None if not published.
    """

    row: str
    shape: BlockSizes
    layout: Layout
    seconds: float
    is_float8: bool = False
    gib: float | None = None

    @property
    def model(self) -> str:
        """The model, which is the first word of the row."""
        return self.row.split()[0]

    @property
    def rate(self) -> float:
        """The tokens per second and GPU."""
        return self.layout.batch_size * self.shape.context / self.layout.num_gpus / self.seconds

    def compared(self, machine: Machine) -> Compared:
        """Predicts its seconds.

        Args:
            machine: The machine that it ran on.
        """
        used = _in_float8(machine) if self.is_float8 else machine
        kind = "float8" if self.is_float8 else "bfloat16"
        predicted = step_time(self.shape, self.layout, used).total
        return Compared(f"{self.row}: seconds", (f"seconds of a step, {kind}",), self.seconds, predicted)


@functools.cache
def published_steps(name: str) -> tuple[PublishedStep, ...]:
    """Reads a table of tokens per second: "torchtitan" for Llama 3.1, or "llm-foundry" or "llm-foundry-a100" for MPT."""
    found = []
    for line in _lines(name):
        shape, layout = _shape(line), _layout(line)
        seconds = layout.batch_size * shape.context / layout.num_gpus / float(line["tokens_per_second_per_gpu"])
        gib = float(line["gib"]) if line["gib"] else None
        found.append(PublishedStep(line["row"], shape, layout, seconds, line["peak_factor"] == "2", gib))
    return tuple(found)


def _in_float8(machine: Machine) -> Machine:
    """Returns the machine with matrix products in float8; attention stays in bfloat16."""
    return dataclasses.replace(
        machine,
        peak_flops_per_second=2 * machine.peak_flops_per_second,
        matrix_share=_FLOAT8 * machine.matrix_share,
        fused_attention_share=machine.fused_attention_share / 2,
    )


def torchtitan() -> list[Compared]:
    """Compares Llama 3.1: seconds of a step, with shares fitted to llm-foundry's steps, and GiB that PyTorch reserved."""
    machine, found = load_machine("h100-96gb"), list[Compared]()
    for step in published_steps("torchtitan"):
        found.append(step.compared(machine))
        bytes_ = sharded_bytes(step.shape, step.layout) / 2**30
        found.append(Compared(f"{step.row}: GiB", ("GiB of the fullest GPU",), step.gib or 0.0, bytes_))
    return found


def on_h100(constants: FieldValues) -> Machine:
    """Returns the machine of llm-foundry's steps on H100.

    Args:
        constants: Shares that replace those in the machine file.
    """
    return dataclasses.replace(_with_first_flash_attention(load_machine("h100-80gb")), **constants)


def llm_foundry() -> list[Compared]:
    """Compares MPT on 8 to 64 H100: seconds of a step, with shares of a fit that left out the steps of the model."""
    left_out = read_toml(LEFT_OUT)
    return [step.compared(on_h100(left_out[step.model])) for step in published_steps("llm-foundry")]  # pyrefly: ignore[bad-argument-type]


def llm_foundry_a100() -> list[Compared]:
    """Compares MPT on 8 to 64 A100 in nodes that are connected by 1,600 Gbit/s: seconds of a step."""
    machine = dataclasses.replace(load_machine("a100-80gb"), network_bytes_per_second=200e9)
    used = _with_first_flash_attention(machine)
    return [step.compared(used) for step in published_steps("llm-foundry-a100")]


def _with_first_flash_attention(machine: Machine) -> Machine:
    return dataclasses.replace(machine, fused_attention_share=_FIRST_FLASH_ATTENTION * machine.fused_attention_share)


def megatron() -> list[Compared]:
    """Compares GPT on H100: the bytes that Megatron-LM's tests expect."""
    found = []
    for line in _lines("megatron"):
        sizes = _numbers(line, "tensor pipe chunks data microbatch_size")
        flags = ("is_tied", "shards_optimizer", "fused_attention", "is_local")
        sizes |= {name: line[name] == "1" for name in flags}
        held = megatron_bytes(_shape(line), MegatronLayout(**sizes))
        for kind, bytes_ in zip(("allocated", "peak"), held, strict=True):
            found.append(Compared(f"{line['row']}: {kind}", (f"{kind} bytes",), float(line[f"{kind}_bytes"]), bytes_))
    return found


def megatron_a100() -> list[Compared]:
    """Compares GPT on 8 to 3,360 A100 in nodes with 8 x 200 Gbit/s, split along tensor, pipe and data: seconds of a step.

    Where a paper does not say how many sequences a micro-batch has, the fastest number of up to eight is taken.
    """
    machine = dataclasses.replace(load_machine("a100-80gb"), network_bytes_per_second=200e9)
    found = []
    for line in _lines("megatron-a100"):
        shape = _shape(line)
        sizes, given = _numbers(line, "batch_size data tensor pipe"), int(line["microbatch_size"])
        rows = sizes["batch_size"] // sizes["data"]
        layouts = [
            Layout(
                **sizes,
                microbatch_size=size,
                schedule=line["schedule"],
                forward_passes=1 + int(line["recomputes"]),
                splits_sequence=line["splits_sequence"] == "1",
            )
            for size in ([given] if given else [size for size in (1, 2, 4, 8) if rows % size == 0])
        ]
        predicted = min(step_time(shape, layout, machine).total for layout in layouts)
        measured = float(line["seconds"] or 0) or _seconds_at(float(line["teraflops_per_gpu"]), shape, layouts[0])
        kind = "in parts" if line["splits_sequence"] == "1" else "computed again"
        found.append(Compared(line["row"], (f"seconds of a step, activations {kind}",), measured, predicted))
    return found


def _seconds_at(teraflops: float, shape: BlockSizes, layout: Layout) -> float:
    """Returns the seconds of a step from the rate that Narayanan et al. print and their formula for its FLOPs (equation 3)."""
    tokens, width = layout.batch_size * shape.context, shape.width
    more = 1 + shape.context / (6 * width) + shape.vocabulary / (16 * shape.layers * width)
    return 96 * tokens * shape.layers * width**2 * more / (teraflops * 1e12 * layout.num_gpus)
