"""Every strategy on one workload, one table: `python -m experiments.compare`. The oracle is its first row."""

import shlex
from collections.abc import Sequence

from samestep.common.catalog import framework_info
from samestep.common.errors import unknown
from samestep.common.flags import flags, read_fields
from samestep.common.request import FRAMEWORKS, RunConfig, Techniques
from samestep.experiments.arguments import Parser, add_flags, run_command

_FRAMEWORKS = [framework for framework in FRAMEWORKS if framework != "numpy"]


def main(arguments: Sequence[str]) -> int:
    """Runs every cell, prints the table; 1 if a row failed, 4 if one that promises parity missed it.

    Raises:
        SamestepError: The request is wrong; nothing was started.
    """
    parser = Parser(prog="samestep compare", allow_abbrev=False, description=__doc__)
    parser.add_argument("--framework", help=f"its strategies only: {' or '.join(_FRAMEWORKS)}")
    parser.add_argument("--strategies", help="these cells only, as in torch:ddp,tf:mirrored")
    add_flags(parser, "runs", RunConfig, [n for n, field in flags(RunConfig).items() if not field.metadata["compared"]])
    add_flags(parser, "techniques", Techniques)
    given = vars(parser.parse_args(arguments))
    named, framework = given.pop("strategies"), given.pop("framework")
    if framework not in (None, *_FRAMEWORKS):
        raise unknown("framework", framework, _FRAMEWORKS)
    # Two devices: the least that has anything to exchange.
    base = read_fields(RunConfig, {"devices": 2, **given})
    from samestep.experiments.comparison import compare  # here: --help imports no NumPy

    cells = named.split(",") if named else _cells(framework)
    comparison = compare(cells, base, read_fields(Techniques, given), strict=bool(named))
    print(comparison.report(_again(arguments)), flush=True)
    return comparison.exit_code


def _again(arguments: Sequence[str]) -> str:
    """The line that repeats the comparison, without the place it was written to."""
    kept = [a for i, a in enumerate(arguments) if a.partition("=")[0] != "--out" and [*arguments, ""][i - 1] != "--out"]
    return shlex.join(["python", "-m", "samestep", "compare", *kept])


def _cells(framework: str | None) -> list[str]:
    frameworks = [framework] if framework else _FRAMEWORKS
    return [f"{name}:{row.name}" for name in frameworks for row in framework_info(name).rows]


if __name__ == "__main__":
    run_command(main)
