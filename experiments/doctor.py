"""Says what this machine can run, and with `--gpu` proves every strategy on its GPUs: `samestep doctor --gpu`."""

import dataclasses
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.catalog import framework_info, lacks, strategies_of
from samestep.common.errors import Unavailable, count
from samestep.common.files.output_file import check_output, save
from samestep.common.request import FRAMEWORKS
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser
from samestep.experiments.printing.formats import Case, Document, add_format, write
from samestep.experiments.printing.text import github, paragraphs, screen_width, size

if TYPE_CHECKING:
    from samestep.experiments.doctoring.checks import Gpu  # --help needs no NumPy

REPORT = "gpu-report.json"
COMMAND = "samestep doctor --gpu"
_ABOUT = (
    "Show which frameworks, GPUs and strategies this machine has. With --gpu, train every strategy on its GPUs in every "
    f"precision, twice, compare each step with the oracle's, and write {REPORT}; one GPU is enough. Exit code: 3 if there is no "
    "GPU, 4 if a strategy did not take the same step, 1 if one failed."
)


def main(arguments: Sequence[str]) -> int:
    """Prints what this machine has, or with `--gpu` what its GPUs compute; returns 0.

    Raises:
        Unavailable: `--gpu` was given, and no framework sees a GPU.
        ParityFailed: A row did not take the same step.
        WorkerFailed: A row failed, or a framework cannot be imported.
    """
    parser = Parser(prog="samestep doctor", description=_ABOUT)
    parser.add_argument("--gpu", action="store_true", help="train every strategy on the GPUs of this machine")
    parser.add_argument(
        "-o", metavar="FILE", dest="out", default=REPORT, help="with --gpu: the report (default: %(default)s)"
    )
    add_format(parser)
    given = parser.parse_args(arguments)
    from samestep.experiments.doctoring.checks import find_gpus  # here: --help imports no NumPy

    gpus = find_gpus()
    if given.gpu:
        return prove(gpus, Path(given.out), given.format)
    print(write(_overview(gpus), given.format))
    return 0


def prove(gpus: Mapping[str, "Sequence[Gpu]"], report: Path, form: str) -> int:
    """Runs every check on the GPUs, prints the table and writes the report; returns 0.

    Args:
        gpus: The GPUs that each framework sees.
        report: The file of the report.
        form: One of the formats of the table.

    Raises:
        Unavailable: There is no GPU.
        ConfigError: The report cannot be written.
        ParityFailed: A row did not take the same step.
        WorkerFailed: A row failed.
    """
    if not any(gpus.values()):
        who = " and ".join(framework_info(each).title for each in gpus)
        sees = f"{who} {'see' if len(gpus) > 1 else 'sees'} no GPU" if gpus else "no framework is installed"
        raise Unavailable(f"{sees}; on CPU cores `samestep compare` proves every row.")
    check_output(report)
    from samestep.experiments.comparing import execution  # here, like the others: --help imports no NumPy
    from samestep.experiments.doctoring.checks import list_checks, settings
    from samestep.experiments.doctoring.gpu_report import document

    cells = ",".join(map(str, list_checks(gpus)))
    found = execution.compare(execution.ask(None, {**settings(), "strategies": cells}))
    told = document(found, gpus)
    save(write(told, "json"), report)
    print(write(told, form), flush=True)
    print(f"\nReport: {report}", file=sys.stdout if form == "github" else sys.stderr, flush=True)
    if found.interrupt:
        raise found.interrupt
    if failure := dataclasses.replace(found, named=()).failure:  # what a row cannot do is said in the table
        raise failure
    return 0


def _overview(gpus: Mapping[str, "Sequence[Gpu]"]) -> Document:
    """Makes the document of what is here."""
    from samestep.common.files.reading import memory_bytes
    from samestep.experiments.doctoring.gpu_report import say_gpus

    cores, memory = len(os.sched_getaffinity(0)), memory_bytes()
    facts = {"samestep": metadata.version("samestep"), "Python": platform.python_version()}
    facts |= {"processor": f"{count(cores, 'core')}, {size(memory)} of memory"}
    for framework in (each for each in FRAMEWORKS if framework_info(each).extra):
        info, reasons = framework_info(framework), [lacks(framework, row.name) for row in strategies_of(framework)]
        here, missing = lacks(framework, "single"), {}
        if framework in gpus:
            here = f"{metadata.version(info.module)}, {say_gpus(gpus[framework])}"
            missing = dict.fromkeys(filter(None, reasons))
        facts[info.title] = here
        facts[f"strategies of {framework}"] = "; ".join([f"{reasons.count('')} of {len(reasons)}", *missing])
    lines = [f"To check the strategies on the GPUs: {COMMAND}"] if any(gpus.values()) else []
    lines += ["To check the strategies on CPU cores: samestep compare"]

    def text() -> str:
        table = github(["what", "here"], [[name, value] for name, value in facts.items()], screen_width())
        return paragraphs(table, "\n".join(lines))

    rows = [{"what": name, "here": value} for name, value in facts.items()]
    return Document("samestep doctor", text, {"facts": facts, "gpus": gpus}, rows, [Case(name) for name in facts])


if __name__ == "__main__":
    run_command(main)
