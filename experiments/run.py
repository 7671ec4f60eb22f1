"""One run: `python -m experiments.run --framework tf --strategy mirrored`."""

import re
import shlex
import time
from collections.abc import Sequence

from common.config import RunConfig
from common.mesh import Mesh
from common.runtime.check import check
from common.runtime.launcher import Launcher, prepare
from common.runtime.topology import ProcessSpec
from common.runtime.verdict import raise_if_missed
from common.strategy import strategy_info
from experiments import tables
from experiments.arguments import parse_run, run_command
from experiments.compiled import compiled
from experiments.progress import shown


def main(arguments: Sequence[str]) -> int:
    """Checks, runs, prints; returns the exit code.

    Raises:
        SamestepError: The request is wrong, the run failed, or it was not the same step.
    """
    launched_at = time.time()
    config, workload = check(parse_run(arguments, "python -m experiments.run"))
    print(header(config), flush=True)
    if config.prepare:
        print(preparation(config))
        return 0
    with Launcher() as launcher, shown(config, f"{config.framework}:{config.strategy}") as progress:
        result = launcher.run(config, workload, progress, launched_at)
        run = launcher.last_run
    judged = result.parity.passed is not None
    verdict = tables.verdict([result]) if judged else f"Parity was not judged: {result.parity.reason}."
    print(f"\n{compiled([result]) or tables.comparison([result])}\n\n{verdict}")
    if told := tables.measures(result):
        print(told)
    print(f"Run: {run}\nAgain: {result.command}", flush=True)
    raise_if_missed(result)
    return 0


def header(config: RunConfig) -> str:
    """What is about to run, in one line."""
    mesh = Mesh.parse(config.mesh or "data=1")
    shards = mesh.axis("data") * mesh.axis("shard")
    batch = f"global batch {config.batch_size} = {shards} x {(config.batch_size or 0) // shards}"
    devices = f"{mesh.size} device{'s' if mesh.size > 1 else ''}" + (f" ({mesh})" if "," in str(mesh) else "")
    rate = f"{config.optimizer} at rate {config.learning_rate:g}"
    does, steps = "trains", f"{config.steps} steps"
    if strategy_info(config.framework, config.strategy).compiled_cores(config.options):
        does, steps = "compiles", "one step"
    if config.start_from is not None:
        steps += f" in all, from where {config.start_from} ends"
    return (
        f"{config.framework}:{config.strategy} {does} {config.workload} on {devices}: {batch}, "
        f"{steps}, {rate}, {config.dtype}, seed {config.seed}"
    )


def preparation(config: RunConfig) -> str:
    """Writes the run directory and returns the lines that start the run without our launcher."""
    run = prepare(config)
    specs = strategy_info(config.framework, config.strategy).topology(config)
    worker = f"-m common.runtime.worker {shlex.quote(str(run))}"
    lines = [f"Prepared {run}. Start it by one of these; the process with rank 0 writes {run}/result.json."]
    if "RANK" in specs[0].environment:
        lines += ["", "torchrun:", f"  torchrun --standalone --nproc-per-node {len(specs)} {worker}"]
    lines += ["", "by hand, one line a process" + (" (put your own host and port):" if len(specs) > 1 else ":")]
    lines += [f"  {_by_hand(spec)}python {worker}" for spec in specs]
    return "\n".join(lines)


def _by_hand(spec: ProcessSpec) -> str:
    values = (f"{name}='{value}'" for name, value in spec.environment.items())
    return re.sub(r"\$\{([a-z]+)(\d+)\}", _blank, "".join(f"{value} " for value in values))


def _blank(placeholder: re.Match[str]) -> str:
    """`${host0}` as what to write over: HOST, HOST1, HOST2, ..."""
    return placeholder[1].upper() + placeholder[2].removeprefix("0")


if __name__ == "__main__":
    run_command(main)
