"""Shows what samestep understands about your model, before anything trains: `samestep model net.py --data arrays.npz`."""

import dataclasses
import sys
from collections.abc import Sequence

from samestep.common.catalog import strategies_of
from samestep.common.errors import ConfigError, SamestepError, Unavailable
from samestep.common.flags import flag, read_fields
from samestep.common.request import MAX_DEVICES, MAX_SECONDS, MAX_SEED, RunConfig
from samestep.common.run import parse
from samestep.common.workload.declared import absolute_source
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser, add_flags
from samestep.experiments.comparing.comparison_request import FRAMEWORKS_COMPARED
from samestep.experiments.printing.formats import add_format, write


@dataclasses.dataclass(frozen=True)
class ModelRequest:
    """The request of a description: the fields of a run's request that it has, with its own defaults."""

    data: str | None = flag(None, "a .npz file, or FILE.py:FUNCTION, which returns the arrays")
    devices: int = flag(2, "number of devices of the strategies that are checked", least=1, most=MAX_DEVICES)
    batch_size: int | None = flag(None, "examples per step of these strategies", least=1)
    seed: int = flag(0, "determines the initial weights", least=0, most=MAX_SEED)
    timeout_seconds: float = flag(60.0, "end a model that takes longer to be built", least=1, most=MAX_SECONDS)


_ABOUT = (
    "Build your model once, and show what was understood: its parameters and their roles, its segments and "
    "blocks, its loss, what in it is random, is stateful or mixes examples, which rows can train it, and why the "
    "others cannot. Nothing is trained."
)


def main(arguments: Sequence[str]) -> int:
    """Describes and prints.

    Raises:
        SamestepError: The request is wrong, or the model cannot be built.
    """
    parser = Parser(prog="samestep model", description=_ABOUT)
    parser.examples = ("samestep model net.py --data mine.npz",)
    parser.elsewhere = {"--model": "The file has no flag here: samestep model FILE."}
    parser.add_argument("model", metavar="FILE", help="FILE.py, or FILE.py:NAME of the samestep.Model in it")
    add_flags(parser, "model", ModelRequest)
    add_format(parser)
    given = vars(parser.parse_args(arguments))
    form, model = given.pop("format"), given.pop("model")
    config = RunConfig(model=model, **dataclasses.asdict(read_fields(ModelRequest, given)))
    absolute_source(model)  # a wrong name is told before anything is imported
    from samestep.common.runtime.parent.launcher import Launcher  # here: --help imports no NumPy
    from samestep.common.workload.models.description import read_description
    from samestep.experiments.printing.model_report import Understood, model_document

    print("Building the model ...", file=sys.stderr, flush=True)
    with Launcher() as launcher:
        found = []
        for framework in FRAMEWORKS_COMPARED:
            if found and framework not in found[0].description.frameworks:
                continue
            try:
                asked = launcher.describe(dataclasses.replace(config, framework=framework))
            except Unavailable as error:
                print(f"samestep: {error}", file=sys.stderr)
                continue
            except ConfigError as error:
                if f"has no model for {framework}" in str(error):
                    continue
                raise
            found.append(Understood(framework, read_description(str(asked.described)), rows_of(asked)))
    print(write(model_document(model, found), form))
    return 0


def rows_of(described: RunConfig) -> dict[str, str]:
    """Returns every strategy of a framework, with why it cannot take a model; "" if it can.

    Args:
        described: The request that names the model and its description.
    """
    found = {}
    for row in strategies_of(described.framework):
        devices = described.devices if row.axes else 1
        try:
            parse(dataclasses.replace(described, strategy=row.name, devices=devices))
            found[f"{described.framework}:{row.name}"] = ""
        except SamestepError as error:
            found[f"{described.framework}:{row.name}"] = str(error)
    return found


if __name__ == "__main__":
    run_command(main)
