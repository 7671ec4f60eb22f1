"""Compiles a lowered step for a TPU that is not there, by Google's compiler.

It runs as `python -m samestep.tf_impl.tpu.compile_worker DIR PID`.

It is a separate process, with jax and libtpu and without TensorFlow, since both bring an XLA. It reads `step.json` and
`step.stablehlo` from the directory and leaves `compiled.json`. Nothing runs: libtpu describes the cores, none is needed.
"""

import dataclasses
import importlib.metadata
import itertools
import math
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from jax.experimental import topologies
from jax.extend.mlir import ir
from jax.interpreters import mlir
from jaxlib import xla_client

from samestep.common.errors import ConfigError, SamestepError, Unavailable, WorkerFailed
from samestep.common.files.reading import read_bytes, read_json
from samestep.common.ledger import Compiled
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.worker.child_processes import end_with_parent
from samestep.tf_impl.tpu.hlo import collectives
from samestep.tf_impl.tpu.tpu_topology import Topology

_MOST_BYTES = 2**30
"""The most bytes of the step as StableHLO."""
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_TOO_LARGE = re.compile(r"required for [\w ]+ \(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)")


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be compiled.

    Attributes:
        topology: The name of the topology, as in `Topology`.
        replicas: The number of copies of the step, each with a shard of the batch.
        partitions: The number of cores that share a copy.
        splits: For each argument that is state, the dimension along which it is cut over the partitions, or None. The
            step returns the state first, in the same order, and its results take the place of the arguments.
    """

    topology: str
    replicas: int
    partitions: int
    splits: tuple[int | None, ...]


def compile_stablehlo(request: Request, stablehlo: bytes) -> Compiled:
    """Compiles a step.

    Args:
        request: The cores to compile for, and how the step is split over them.
        stablehlo: The step, in MLIR's text or bytecode.

    Raises:
        ConfigError: The compiler has no such topology.
        Unavailable: These versions of jax and libtpu do not fit together.
        WorkerFailed: The compiler cannot compile the step, for a reason other than its size.
    """
    topology = Topology.parse(request.topology)
    compiler = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("libtpu", "jax"))
    module = ir.Module.parse(stablehlo, mlir.make_ir_context())
    step = next(each for each in module.body.operations if each.name.value == "main")
    annotate(step, request)
    try:
        executable = _compile(module, request, topology)
    except jax.errors.JaxRuntimeError as error:
        needed, available = _read_sizes(str(error), request)
        arguments = argument_bytes(step, request)
        return Compiled(request.topology, arguments, None, None, None, (), needed, available, False, compiler)
    hlo = _read_hlo(executable, compiler)
    memory = executable.get_compiled_memory_stats()
    live_bytes = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return Compiled(
        topology=request.topology,
        argument_bytes=memory.argument_size_in_bytes,
        temporary_bytes=memory.temp_size_in_bytes,
        code_bytes=memory.generated_code_size_in_bytes,
        flops=round(executable.cost_analysis()["flops"]),  # its optimal_seconds is negative for most programs
        collectives=collectives(hlo),
        needed_bytes=live_bytes + memory.temp_size_in_bytes + memory.generated_code_size_in_bytes,
        hbm_bytes=topology.hbm_bytes,
        fits=True,
        compiler=compiler,
    )


def _read_hlo(executable: xla_client.LoadedExecutable, compiler: str) -> str:
    try:
        return executable.hlo_modules()[0].to_string()
    except jax.errors.JaxRuntimeError:
        raise Unavailable(
            f"{compiler}: this jax cannot read what this libtpu compiles; pip install 'samestep[tpu]' brings its own."
        ) from None


def _read_sizes(error: str, request: Request) -> tuple[int, int]:
    """Returns the bytes that a step needs and those that there are, from the error of a step that is too large."""
    said = _TOO_LARGE.search(error)
    if said is None:
        first = error.strip().partition("\n")[0]
        raise WorkerFailed(f"the TPU compiler cannot compile the step for {request.topology}: {first}") from None
    needed, available = (round(float(said[i]) * _UNITS[said[i + 1]]) for i in (1, 3))
    return needed, available


def _compile(module: ir.Module, request: Request, topology: Topology) -> xla_client.LoadedExecutable:
    """Compiles through private functions: jax 0.10 publicly compiles for described devices only what it has traced."""
    try:
        devices = topologies.get_topology_desc(
            platform="tpu", topology_name=topology.name, chips_per_host_bounds=topology.chips_per_host
        ).devices
    except jax.errors.JaxRuntimeError as error:
        raise ConfigError(f"--tpu-topology {topology.name}: the compiler has no such TPU: {error}") from None
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = request.replicas, request.partitions
    grid = np.arange(request.replicas * request.partitions).reshape(request.replicas, request.partitions)
    options.device_assignment = xla_client.DeviceAssignment.create(grid)
    options.executable_build_options.use_spmd_partitioning = request.partitions > 1
    return devices[0].client.compile(module, xla_client.DeviceList(tuple(devices[: grid.size])), options)


def annotate(step: ir.Operation, request: Request) -> None:
    """Writes into a step how each argument and result is cut over the partitions, and whose memory a result takes over.

    Args:
        step: The function to annotate, in place.
        request: How the state is cut.
    """
    with step.context:
        number = ir.IntegerType.get_signless(32)
        arguments, results = (_shardings(shapes, request) for shapes in (step.type.inputs, step.type.results))
        for index in range(len(request.splits)):
            arguments[index]["tf.aliasing_output"] = ir.IntegerAttr.get(number, index)
        for name, attributes in (("arg_attrs", arguments), ("res_attrs", results)):
            step.attributes[name] = ir.ArrayAttr.get([ir.DictAttr.get(each) for each in attributes])


def _shardings(shapes: Sequence[ir.RankedTensorType], request: Request) -> list[dict[str, ir.Attribute]]:
    """Returns how each argument or result is cut: the state, which comes first, as the request says, and nothing else."""
    shardings = []
    for shape, split in itertools.zip_longest(shapes, request.splits):
        parts = [request.partitions if dim == split else 1 for dim in range(shape.rank)]
        cut = f"{{devices=[{','.join(map(str, parts))}]<=[{request.partitions}]}}"
        sharding = "{replicated}" if split is None or request.partitions == 1 else cut
        shardings.append({"mhlo.sharding": ir.StringAttr.get(sharding)})
    return shardings


def argument_bytes(step: ir.Operation, request: Request) -> int:
    """Returns the bytes of one core's arguments, without the padding, which only a compiled program has.

    Args:
        step: The function that takes the arguments.
        request: How the state is cut.
    """
    total = 0
    for each, split in itertools.zip_longest(step.type.inputs, request.splits):
        size = math.prod(each.shape) * each.element_type.width // 8
        total += size if split is None else size // request.partitions
    return total


def main(directory: str, parent: str) -> None:
    """Compiles the request in a directory, and leaves the answer or the error there.

    Args:
        directory: The directory that holds the request, and gets the answer.
        parent: The id of the process that waits for it; when that process ends, for any reason, so does this one.
    """
    end_with_parent(int(parent), signal.SIGKILL)
    run = Path(directory)
    asked = read_json(run / "step.json")
    assert isinstance(asked, dict)
    request = Request(**asked)
    try:
        values = dataclasses.asdict(compile_stablehlo(request, read_bytes(run / "step.stablehlo", _MOST_BYTES)))
    except SamestepError as error:
        values = {"error": type(error).__name__, "message": str(error)}
    write_json(run / "compiled.json", values)


if __name__ == "__main__":
    main(*sys.argv[1:])
