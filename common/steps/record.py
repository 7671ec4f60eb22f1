"""A record: the log of the steps of any training script, with what it did to every tensor. `samestep record` writes it.

It is a directory. Each process of the script appends to its own file, `rank-N.steps`, a frame for each step: lengths, checksums,
a JSON object and an array. A frame is flushed at once, so a process that is killed loses at most its current step. The first
frame is the header. Of the user's data, only hashes are kept.
"""

import dataclasses
import functools
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from samestep.common.steps.frames import ADDED, Start, frame_of, start_of, started_frame
from samestep.common.steps.projections import PROJECTIONS, Piece

SCHEMA = 5
READ = 2, 3, 4, SCHEMA
"""The schemas that can be read. Records of schema 2 have a step's number and losses in the JSON object, and hashes that are
already mixed. Records before schema 4 include padding in the hashes of examples, and count a packed batch of PyTorch as a
different number of examples. Records before schema 5 have no arguments, and cannot distinguish targets of class 0 from ignored
ones."""
Phase = Literal["local", "stray", "gradient", "moved", "updated", "weight"]
"""The phases in which a tensor is recorded. local: this process's gradient before its exchange, if it can be seen. stray: the
gradient that a backward pass left on a tensor that this step does not update. gradient: the gradient that the optimizer was
given. moved: the weights that the last pass of the step used, if the script moved them within the step. updated: the weights
right after the update, if the script wrote others before the next step. weight: the weights with which the next step begins; at
step -1, the initial weights."""
PHASES: tuple[Phase, ...] = get_args(Phase)
MOVED, UPDATED = PHASES[3:5]
"""The phases that only scripts that write weights have."""
INITIAL = -1
"""The number of the frame of the initial weights."""
ARGUMENT = 4
"""The number of bytes that are kept for each example of one argument."""
FOLLOWER = "follower"
"""The role of tensors in a network that resembles a trained one and has no optimizer; their names begin with the network's."""


@dataclasses.dataclass(frozen=True)
class RecordedTensor:
    """A trainable tensor, or a buffer, of one process.

    Attributes:
        name: The name of the tensor, without the prefixes that wrappers add.
        dtype: The dtype in which it is trained, such as "float32".
        piece: The part of the tensor that this process holds.
        role: "parameter", "buffer", or FOLLOWER.
        layer: The type of the module that holds it, such as "Linear"; "" if unknown.
        is_trained: Whether it requires a gradient.
        network: The prefix of the name if there are several networks: the class, with a number from the second network of a class
            on.
    """

    name: str
    dtype: str
    piece: Piece
    role: str = "parameter"
    layer: str = ""
    is_trained: bool = True
    network: str = ""


@dataclasses.dataclass(frozen=True)
class RecordHeader:
    """The header of the file of one process of a script.

    Attributes:
        schema: The schema of the record.
        framework: "torch" or "tf", or "keras on torch".
        command: The whole recorded command, as words; it is the same in every process.
        directory: The directory in which the command was started.
        versions: The versions of Python and the packages that decide numbers.
        environment: The environment variables that affect numbers.
        rank: The rank of this process, from 0.
        world: The number of processes.
        tensors: The tensors of this process, in the order of the model.
        is_float64: Whether the tensors are float64.
        perturbed: The seed of a perturbation of the initial weights in their last bit; None if there was none.
        layouts: How the processes share the model, as far as the recorder sees it: "ddp", "deepspeed", "dp", "fsdp1", "fsdp2",
            "tp", "mirrored".
        products: The dtype of few digits in which products were computed, such as "bfloat16"; "" if none was seen.
        is_cast: Whether the recorder made a script with another dtype run in float64.
        is_from_input: Whether Python read its program from the standard input of the command, which can no longer be read.
    """

    schema: int
    framework: str
    command: tuple[str, ...]
    directory: str
    versions: Mapping[str, str]
    environment: Mapping[str, str]
    rank: int
    world: int
    tensors: tuple[RecordedTensor, ...]
    is_float64: bool = False
    perturbed: int | None = None
    layouts: tuple[str, ...] = ()
    products: str = ""
    is_cast: bool = False
    is_from_input: bool = False


@dataclasses.dataclass(eq=False)  # a frozen one takes five times as long to create, at every step
class RecordedStep:
    """One optimizer step, as one process saw it.

    Attributes:
        number: The number of the step, counted from 0; -1 is the frame of the initial weights.
        losses: The losses with which the backward passes of this step began; their sum is the step's loss.
        rows: The hash of each example that the model was called on in training mode, in order; None if unknown.
        scalars: Name -> number: "lr", "weight_decay" and every other scalar of the optimizer's groups ("lr/1" for the second
            group), "loss_scale", "clip_max_norm", "clip_norm" (the norm before clipping, or "clip_norm_part").
        is_skipped: Whether a gradient scaler skipped the update.
        counts: How often something happened within the step that affects none of its numbers. "schedule_steps": steps of the
            learning rate's schedule. "data_passes": passes that a DataLoader began. "passes_over": 1 if the last pass had ended
            before. "loaded_examples": examples that the pass has yielded. "more_calls": in Keras, whether several models or calls
            were given data. "evaluated_calls": calls in evaluation mode that were trained on. "backward_passes": in Keras, the
            number of passes if there are several. "written_tensors": tensors that eager code has changed since the update before.
            "written_after": tensors written after the update, of which there may be more. "restored": whether the tensors written
            after the previous update were back at their updated values when the first backward pass began. "target_kinds": a hash
            of how many numbers each target has. "class_weights": a hash of the class weights that losses are given.
        stats: Phase -> a structured array with one row for each tensor of the header; None if the tensors of the step were not
            recorded. A tensor without a gradient has NaN in the fields of that phase.
        targets: The hash of each example together with what its loss was computed from, if that is seen: targets, or the data of
            a script that calls no module. Floats are rounded to 8 binary digits, since they may have been computed.
        arguments: For calls with several arguments that hold examples, name -> 4 bytes for each example of that one argument, as
            computed by `rows.argument_sums`. The name is a keyword, a position, or the key in a batch that is a mapping.
    """

    number: int
    losses: tuple[float, ...] = ()
    rows: tuple[int, ...] | None = None
    scalars: Mapping[str, float] = dataclasses.field(default_factory=dict)
    is_skipped: bool = False
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    stats: Mapping[Phase, np.ndarray] | None = None
    targets: tuple[int, ...] | None = None
    arguments: Mapping[str, bytes] = dataclasses.field(default_factory=dict)


@functools.lru_cache(2)
def stats_dtype(is_float64: bool) -> np.dtype:
    """Returns the dtype of a tensor's row in a phase: 48 bytes, or 80 for a run in float64.

    Args:
        is_float64: Whether the script was run in float64.
    """
    return np.dtype(
        [("projections", "<f8" if is_float64 else "<f4", (PROJECTIONS,)), ("square", "<f8"), ("bits", "<u8")]
    )


def absent(size: int, dtype: np.dtype) -> np.ndarray:
    """Returns the rows of tensors that have no numbers in a phase.

    Args:
        size: The number of tensors.
        dtype: The result of `stats_dtype`.
    """
    stats = np.zeros(size, dtype)
    stats["projections"], stats["square"] = np.nan, np.nan
    return stats


def rank_file(rank: int) -> str:
    """Returns the name of the file of one process."""
    return f"rank-{rank}.steps"


def header_frame(header: RecordHeader) -> bytes:
    """Returns the first frame of a file."""
    return frame_of({"header": header}, b"")


def added_frame(tensors: Sequence[RecordedTensor], weights: np.ndarray) -> bytes:
    """Returns the frame of tensors that a script created after its first step. Later frames include these tensors.

    Args:
        tensors: The new tensors, which come after all earlier ones.
        weights: Their initial weights.
    """
    return frame_of({"tensors": tensors}, weights.tobytes(), ADDED)


def step_frame(step: RecordedStep, sums: tuple[bytes | None, bytes | None] | None = None) -> bytes:
    """Returns the frame of a step.

    Args:
        step: The step.
        sums: Sums of examples, and of examples with their targets, that `rows.mix` has not mixed yet; they replace the step's
            hashes.
    """
    stats, (rows, targets) = step.stats, sums or (_packed(step.rows), _packed(step.targets))
    sizes = len(step.losses), None if rows is None else len(rows) // 8, None if targets is None else len(targets) // 8
    scalars, counts, phases = tuple(step.scalars.items()), tuple(step.counts.items()), tuple(stats or ())
    arguments = (
        tuple([(name, len(each) // ARGUMENT) for name, each in step.arguments.items()]) if step.arguments else ()
    )
    parts = [struct.pack(f"<q{sizes[0]}d", step.number, *step.losses), rows or b"", targets or b""]
    if arguments:
        parts.append(b"".join(step.arguments.values()).ljust(size_of(dict(arguments)), b"\0"))
    array = b"".join([*parts, *[each.tobytes() for each in stats.values()]] if stats else parts)
    start = _started(len(array), sizes, sums is None, scalars, step.is_skipped, counts, phases, arguments)
    return started_frame(start, array)


def _packed(hashes: Sequence[int] | None) -> bytes | None:
    return None if hashes is None else struct.pack(f"<{len(hashes)}Q", *hashes)


@functools.lru_cache(16)
def _started(
    size: int,
    sizes: tuple[int, int | None, int | None],
    is_mixed: bool,
    scalars: tuple[tuple[str, float], ...],
    is_skipped: bool,
    counts: tuple[tuple[str, int], ...],
    phases: tuple[Phase, ...],
    arguments: tuple[tuple[str, int], ...],
) -> Start:
    """Returns the start of a frame. It is cached, as consecutive steps share it and writing its JSON takes half of the time."""
    (losses, rows, targets), more = sizes, {"is_skipped": is_skipped, "counts": dict(counts), "phases": phases}
    given = {"losses": losses, "rows": rows, "targets": targets, "is_mixed": is_mixed, "scalars": dict(scalars)}
    return start_of(json.dumps(given | more | ({"arguments": dict(arguments)} if arguments else {})), size)


def size_of(arguments: Mapping[str, int]) -> int:
    """Returns the number of bytes that a step's arguments take in its frame, padded to a multiple of 8.

    Args:
        arguments: The number of examples of each argument.
    """
    return -(-ARGUMENT * sum(arguments.values()) // 8) * 8


def rank_files(directory: Path) -> list[Path]:
    """Returns the files of the processes in a record, by rank."""
    found = {path: path.name.removeprefix("rank-").removesuffix(".steps") for path in directory.glob("rank-*.steps")}
    return sorted((path for path, rank in found.items() if rank.isdecimal()), key=lambda path: int(found[path]))
