"""Where a run is to be started, as `--for` names it: an engine and its settings, as in `slurm:nodes=2,partition=all`."""

import dataclasses
import re
from collections.abc import Mapping

from samestep.common.errors import ConfigError, unknown


@dataclasses.dataclass(frozen=True)
class EngineSetting:
    """A setting of an engine.

    Attributes:
        default: Its default; "" if it is then left out.
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
        start: The command that submits it to the engine, in which FILE stands for it.
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
        """As it is written behind `--on`, without what stays as it is."""
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
        text: As in `slurm:nodes=2,partition=all`, or `ray://HOST:PORT`.

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
    for each in filter(None, rest.split(",")):
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
