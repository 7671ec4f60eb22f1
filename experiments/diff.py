"""Says whether two recorded scripts took the same steps, and where and why they first differ: `samestep diff A B`."""

from collections.abc import Sequence

from samestep.common.errors import ConfigError, ParityFailed, Unavailable
from samestep.experiments.cli import github_actions
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser
from samestep.experiments.printing.formats import add_format, write

_ABOUT = """Compare two records that `samestep record` wrote, or record two commands and compare them: the data, the
hyper-parameters, the initial weights, then loss, gradients and update of every step. The effect of rounding is measured: A's
command, or B's if A's script has changed since, is run again a few times for its first steps, from weights that are perturbed in
their last bit; these reruns are kept in the record. Exit code: 0 if the steps are the same, even if rounding is amplified; 4 if
they are not; 3 if the records cannot tell, and then the command that can is printed; 1 if a command failed; 2 if the request is
wrong."""
_SIDE = "the directory of a record, or a command in quotes, which is first recorded into runs/"
_FLOAT64 = "run both commands again in float64 and compare those runs: what still differs is not rounding"
_WEIGHTS = "start B from the initial weights of A; the only choice is A"
_STEPS = "how many steps the perturbed reruns take, at most (default: 20)"
MOST_STEPS = 10**6


def main(arguments: Sequence[str]) -> int:
    """Compares and prints; returns the exit code of the verdict.

    Raises:
        SamestepError: A record cannot be read, or a command failed.
    """
    parser = Parser(prog="samestep diff", description=_ABOUT)
    parser.examples = (
        "samestep diff runs/one runs/two",
        'samestep diff "python train.py" "torchrun --nproc-per-node 2 train.py"',
        "samestep diff runs/one runs/two --float64",
    )
    parser.add_argument("a", metavar="A", help=_SIDE)
    parser.add_argument("b", metavar="B", help="the record or command to compare A with")
    parser.add_argument("--float64", action="store_true", help=_FLOAT64)
    parser.add_argument("--weights-from", choices=["A"], help=_WEIGHTS)
    parser.add_argument("--steps", type=int, default=20, metavar="N", help=_STEPS)
    add_format(parser)
    given = parser.parse_args(arguments)
    check_steps(given.steps)
    from samestep.experiments.printing.diff_report import diff_document  # here: --help imports no NumPy
    from samestep.experiments.recording.diffing import diff, in_float64
    from samestep.experiments.recording.sides import read_sides

    a, b = read_sides(given.a, given.b, given.weights_from is not None)
    if given.float64:
        a, b = in_float64((a, b))
    found = diff(a, b, given.steps)
    asked = [given.a, given.b, *["--float64"] * given.float64, *["--weights-from", "A"] * bool(given.weights_from)]
    document = diff_document(found, asked)
    print(write(document, given.format), flush=True)
    github_actions.show(document)
    is_doubtful = found.verdict.exit_code == Unavailable.exit_code or bool(found.verdict.but_for)
    if github_actions.is_in_workflow() and is_doubtful and found.verdict.exit_code != ParityFailed.exit_code:
        github_actions.annotate("warning", document.name, found.verdict.headline)
    return found.verdict.exit_code


def check_steps(number: int) -> None:
    """Refuses an impossible number of steps.

    Raises:
        ConfigError: It is less than one, or too large.
    """
    if not 1 <= number <= MOST_STEPS:
        raise ConfigError(f"--steps {number} is not from 1 to {MOST_STEPS}.")


if __name__ == "__main__":
    run_command(main)
