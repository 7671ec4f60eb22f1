"""The engine that `--for` or `--on` names, as in `slurm:nodes=2,partition=all`, and the script or manifest that starts a run."""

import dataclasses
import functools
import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import jinja2

from samestep.common.errors import ConfigError, unknown
from samestep.common.files.writing import replacing
from samestep.common.flags import split_list
from samestep.common.strategy import Run

_TEMPLATES = Path(__file__).parent / "templates"


@dataclasses.dataclass(frozen=True)
class EngineSetting:
    """A setting of an engine.

    Attributes:
        default: Its default; "" if the script leaves it out by default.
        form: A regular expression of its values. They go into scripts, so none has blanks or quotes.
        example: A value, for messages.
    """

    default: str = ""
    form: str = r"[A-Za-z0-9_./:@+-]+"
    example: str = ""


@dataclasses.dataclass(frozen=True)
class EngineScript:
    """The script that starts a run under an engine.

    Attributes:
        file: The name of the script or manifest, whose template has `.j2` appended.
        start: The command that submits the script to the engine, with FILE in place of the script.
        settings: The settings besides `nodes`, by name.
        is_even: Whether every node has to start the same number of processes.
        unreadable: The characters that it cannot read in a path.
    """

    file: str
    start: str
    settings: Mapping[str, EngineSetting] = dataclasses.field(default_factory=dict)
    is_even: bool = False
    unreadable: str = ""


_SLURM = {
    "partition": EngineSetting(example="all"),
    "time": EngineSetting(form=r"(\d+-)?\d+(:\d+){0,2}|UNLIMITED", example="1:30:00"),
    "account": EngineSetting(example="physics"),
    "gpus": EngineSetting(form=r"([A-Za-z][\w.-]*:)?\d+", example="8"),
    "mem": EngineSetting(form=r"\d+[KMGT]?", example="16G"),
}
_POD = {
    "image": EngineSetting("samestep", example="registry/samestep:1"),
    "claim": EngineSetting("runs", example="runs"),
}
_PORT = r"[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5]"
_ADDRESS = EngineSetting("auto", rf"auto|local|(ray://)?[\w.-]+:({_PORT})", "ray://head:10001")
SCRIPTS = {
    "slurm": EngineScript("slurm.sh", "sbatch FILE", _SLURM, unreadable="\\\n"),
    "mpi": EngineScript("mpi.sh", "bash FILE", {"hostfile": EngineSetting(example="hosts")}),
    "torchrun": EngineScript(
        "torchrun.sh", "bash FILE", {"port": EngineSetting("29500", _PORT, "29500")}, is_even=True
    ),
    "ray": EngineScript("ray_job.py", "python FILE", {"address": _ADDRESS}),
    "k8s": EngineScript("job.yaml", "kubectl apply -f FILE", _POD),
    "trainjob": EngineScript(
        "trainjob.yaml",
        "kubectl apply -f FILE",
        {**_POD, "runtime": EngineSetting("torch-distributed", example="torch-distributed")},
        is_even=True,
    ),
    "skypilot": EngineScript(
        "sky.yaml",
        "sky launch FILE",
        {"image": EngineSetting(example="registry/samestep:1"), "bucket": EngineSetting("runs", example="runs")},
        is_even=True,
    ),
}
"""Name of the engine -> its script."""
STARTED = ("slurm", "mpi", "torchrun", "ray")
"""The engines with which samestep starts runs, for `--on`; `--for` writes the script of any engine."""
_NODES = EngineSetting("1", ".+", "2")


@dataclasses.dataclass(frozen=True)
class Target:
    """An engine with its settings.

    Attributes:
        engine: A key of SCRIPTS.
        nodes: The number of machines.
        settings: All other settings.
    """

    engine: str
    nodes: int
    settings: Mapping[str, str]

    def __str__(self) -> str:
        """Returns the target as it is written after `--on`, without settings that have their defaults."""
        own = [
            f"{name}={value}" for name, value in self.settings.items() if value != self.script.settings[name].default
        ]
        return ":".join(filter(None, (self.engine, ",".join([f"nodes={self.nodes}"] * (self.nodes > 1) + own))))

    @property
    def script(self) -> EngineScript:
        """The script or command that starts a run on this engine."""
        return SCRIPTS[self.engine]


def read_target(flag: str, text: str) -> Target:
    """Reads a target.

    Args:
        flag: The flag that names it, for messages.
        text: A target such as `slurm:nodes=2,partition=all`, or `ray://HOST:PORT`.

    Raises:
        ConfigError: There is no such engine or setting, or a value is invalid.
    """
    engine, _, rest = text.partition(":")
    if engine not in SCRIPTS:
        raise unknown("engine", engine, STARTED if flag == "--on" else SCRIPTS)
    known = {"nodes": _NODES, **SCRIPTS[engine].settings}
    settings = {name: each.default for name, each in known.items()}
    if engine == "ray" and rest.startswith("//"):
        rest = f"address={text}"
    for each in split_list(rest, f"{flag} '{text}'", "setting", f"{engine}:nodes=2") if rest else ():
        name, _, value = each.partition("=")
        if name not in known:
            raise unknown(f"setting of {engine}", name, known)
        if not re.fullmatch(known[name].form, value, re.ASCII):
            wrong = f"'{value}' is no {name}" if value else f"{name} has no value"
            raise ConfigError(f"{flag} {text}: {wrong}; write it as in {name}={known[name].example}, without blanks.")
        settings[name] = value
    nodes = settings.pop("nodes")
    if not re.fullmatch("[1-9][0-9]{0,3}", nodes):
        raise ConfigError(f"{flag} {text}: nodes is '{nodes}'; give a whole number from 1 to 9999.")
    return Target(engine, int(nodes), settings)


def write_script(target: Target, run: Run, directory: Path) -> Path:
    """Writes the script that starts a run into its directory; returns its path.

    Args:
        target: The engine and its settings.
        run: The run that was prepared.
        directory: The run directory.
    """
    path = directory / target.script.file
    text = render(target, run, directory)
    with replacing(path) as file:
        file.write(text.encode())
    return path


def check_nodes(target: Target, run: Run) -> None:
    """Refuses more nodes than a run has processes.

    Args:
        target: The engine and its settings.
        run: The run to start there.

    Raises:
        ConfigError: Some nodes would have no process.
    """
    processes = len(run.strategy.topology(run))
    if target.nodes > processes:
        fewer = f"give nodes from 1 to {processes}" if processes > 1 else "leave out nodes"
        raise ConfigError(
            f"{target.engine}: nodes={target.nodes} is more than the processes of the run, {processes}; {fewer}, or --devices "
            f"{target.nodes} or more and a strategy with a process for each, such as torch:ddp."
        )


def render(target: Target, run: Run, directory: Path) -> str:
    """Returns the text of the script that starts a run.

    Args:
        target: The engine and its settings.
        run: The run that was prepared.
        directory: The run directory.

    Raises:
        ConfigError: The processes do not divide among the nodes, or the engine cannot read the directory's path.
    """
    check_nodes(target, run)
    processes = len(run.strategy.topology(run))
    if target.script.is_even and processes % target.nodes:
        raise ConfigError(
            f"{target.engine}: the {processes} processes of the run do not divide among nodes={target.nodes}; give others."
        )
    path = directory.absolute()
    if wrong := set(str(path)) & set(target.script.unreadable):
        raise ConfigError(
            f"{target.engine} cannot read {wrong.pop()!r} in {str(path)!r}; name another directory by --out."
        )
    template = _environment().get_template(f"{target.script.file}.j2")
    files = {
        name: str(Path(value).absolute()) for name, value in target.settings.items() if name == "hostfile" and value
    }
    return template.render(
        {**target.settings, **files},  # the script may be started from any folder
        nodes=target.nodes,
        processes=processes,
        per_node=-(-processes // target.nodes),
        cores=max(1, run.num_devices * run.threads // processes),
        directory=str(path),
        name=re.sub(r"[^a-z0-9]+", "-", f"samestep-{path.name}".lower())[:50].strip("-"),
        cell=run.name,
        python=sys.executable,
    )


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"shell": shlex.quote, "quoted": functools.partial(json.dumps, ensure_ascii=False)}
    return made
