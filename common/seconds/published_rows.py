"""What other projects published of their own steps, beside predictions: seconds, and bytes of the fullest GPU.

Sources are in `common/seconds/published/README.md`. Nothing is fitted to these figures: what nobody measured of a GPU is that of
`a100-80gb`.
"""

import csv
import dataclasses
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from samestep.common.files.reading import read_text
from samestep.common.seconds.block_time import Shape
from samestep.common.seconds.held_bytes import MegatronLayout, megatron_bytes, sharded_bytes
from samestep.common.seconds.machine import Machine, load_machine
from samestep.common.seconds.step_time import Layout, step_time
from samestep.common.seconds.validation import Compared

_FOLDER = Path(__file__).parent / "published"
_FLOAT8 = 70.9 / 80.3
"""The shares of the peak of the best products in float8 and in bfloat16 on an H100 (`common/seconds/published/README.md`)."""
_FIRST_FLASH_ATTENTION = 0.5
"""The speed of FlashAttention by that of FlashAttention-2, which is "around 2x" (Dao, arXiv 2307.08691, abstract)."""


def _lines(name: str) -> Iterator[Mapping[str, str]]:
    with io.StringIO(read_text(_FOLDER / f"{name}.csv"), newline="") as file:
        yield from csv.DictReader(file)


def _shape(line: Mapping[str, str]) -> Shape:
    numbers = {
        name: int(line[name]) for name in ("layers", "width", "heads", "key_heads", "hidden", "context", "vocabulary")
    }
    return Shape(**numbers, is_gated=line.get("is_gated") == "1")


def _layout(line: Mapping[str, str]) -> Layout:
    numbers = {name: int(line[name]) for name in ("batch_size", "microbatch_size", "data", "shard", "tensor", "pipe")}
    return Layout(
        **numbers,
        schedule=line["schedule"],
        forward_passes=1 + int(line["recomputes"]),
        overlaps=True,
        fused_attention=True,
        separate_kernels="compile" not in line["row"],
    )


def _steps(name: str, machine: Machine) -> Iterator[Compared]:
    """Yields the rows of a table of tokens a second, as seconds of a step, and of GiB where it has them."""
    for line in _lines(name):
        shape, layout, title = _shape(line), _layout(line), line["row"]
        fast = _in_float8(machine) if line["peak_factor"] == "2" else machine
        tokens = layout.batch_size * shape.context / layout.num_gpus
        seconds = tokens / float(line["tokens_per_second_per_gpu"])
        kind = "float8" if line["peak_factor"] == "2" else "bfloat16"
        yield Compared(
            f"{title}: seconds",
            (f"seconds of a step, {kind}",),
            seconds,
            step_time(shape, layout, fast).total,
        )
        if line["gib"]:
            yield Compared(
                f"{title}: GiB", ("GiB of the fullest GPU",), float(line["gib"]), sharded_bytes(shape, layout) / 2**30
            )


def _in_float8(machine: Machine) -> Machine:
    """Returns the machine if its matrices are of float8; the attention is not."""
    return dataclasses.replace(
        machine,
        peak_flops_per_second=2 * machine.peak_flops_per_second,
        matrix_share=_FLOAT8 * machine.matrix_share,
        fused_attention_share=machine.fused_attention_share / 2,
    )


def torchtitan() -> list[Compared]:
    """Llama 3.1 on 8 to 512 H100: seconds of a step, and GiB that PyTorch reserved."""
    return list(_steps("torchtitan", load_machine("h100-96gb")))


def llm_foundry() -> list[Compared]:
    """MPT on 8 to 64 H100: seconds of a step."""
    return list(_steps("llm-foundry", _with_first_flash_attention(load_machine("h100-80gb"))))


def llm_foundry_a100() -> list[Compared]:
    """MPT on 8 to 64 A100, in nodes that are connected by 1,600 Gbit/s: seconds of a step."""
    machine = dataclasses.replace(load_machine("a100-80gb"), network_bytes_per_second=200e9)
    return list(_steps("llm-foundry-a100", _with_first_flash_attention(machine)))


def _with_first_flash_attention(machine: Machine) -> Machine:
    return dataclasses.replace(machine, fused_attention_share=_FIRST_FLASH_ATTENTION * machine.fused_attention_share)


def megatron() -> list[Compared]:
    """GPT on H100: the bytes that its tests expect."""
    found = []
    for line in _lines("megatron"):
        numbers = {name: int(line[name]) for name in ("tensor", "pipe", "chunks", "data", "microbatch_size")}
        flags = {name: line[name] == "1" for name in ("is_tied", "shards_optimizer", "fused_attention", "is_local")}
        held = megatron_bytes(_shape(line), MegatronLayout(**numbers, **flags))
        for kind, bytes_ in zip(("allocated", "peak"), held, strict=True):
            found.append(Compared(f"{line['row']}: {kind}", (f"{kind} bytes",), float(line[f"{kind}_bytes"]), bytes_))
    return found
