"""Where a run is to be started, as `--for` names it: an engine and its settings, as in `slurm:nodes=2,partition=all`."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from samestep.common.errors import ConfigError, unknown


@dataclasses.dataclass(frozen=True)
class EngineScript:
    """What starts a run under an engine.

    Attributes:
        file: The name of the script or manifest; its template is this and `.j2`.
        start: The line that hands it to the engine; FILE stands for it.
        settings: The name of each setting but `nodes` -> its default; "" if it is left out then.
        is_even: Whether every node has to start as many processes as the others.
    """

    file: str
    start: str
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_even: bool = False


SCRIPTS = {
    "slurm": EngineScript(
        "slurm.sh", "sbatch FILE", dict.fromkeys(("partition", "time", "account", "gpus", "mem"), "")
    ),
    "mpi": EngineScript("mpi.sh", "bash FILE", {"hostfile": ""}),
    "torchrun": EngineScript("torchrun.sh", "bash FILE", {"port": "29500"}, is_even=True),
    "ray": EngineScript("ray_job.py", "python FILE", {"address": "auto"}),
    "k8s": EngineScript("job.yaml", "kubectl apply -f FILE", {"image": "samestep", "claim": "runs"}),
    "trainjob": EngineScript(
        "trainjob.yaml",
        "kubectl apply -f FILE",
        {"image": "samestep", "claim": "runs", "runtime": "torch-distributed"},
        is_even=True,
    ),
    "skypilot": EngineScript("sky.yaml", "sky launch FILE", {"image": "", "bucket": "runs"}, is_even=True),
}
"""By the name of the engine."""
_VALUE = re.compile(r"[A-Za-z0-9_./:@+-]+")
"""What a setting may be: it goes into scripts."""


@dataclasses.dataclass(frozen=True)
class Target:
    """An engine, and what is asked of it.

    Attributes:
        engine: A key of SCRIPTS.
        nodes: How many machines.
        settings: The other settings, all of them.
    """

    engine: str
    nodes: int
    settings: Mapping[str, str]

    def __str__(self) -> str:
        """As it is written behind `--on`, without what stays as it is."""
        own = [f"{name}={value}" for name, value in self.settings.items() if value != self.script.settings[name]]
        return ":".join(filter(None, (self.engine, ",".join([f"nodes={self.nodes}"] * (self.nodes > 1) + own))))

    @property
    def script(self) -> EngineScript:
        """What starts a run there."""
        return SCRIPTS[self.engine]


def read_target(flag: str, text: str) -> Target:
    """Reads a target.

    Args:
        flag: The flag that names it, for messages.
        text: As in `slurm:nodes=2,partition=all`, or `ray://HOST:PORT`.

    Raises:
        ConfigError: There is no such engine or setting, or a value cannot be.
    """
    engine, _, rest = text.partition(":")
    if engine not in SCRIPTS:
        raise unknown("engine", engine, SCRIPTS)
    settings = {"nodes": "1", **SCRIPTS[engine].settings}
    if engine == "ray" and rest.startswith("//"):
        rest = f"address={text}"
    for each in filter(None, rest.split(",")):
        name, equals, value = each.partition("=")
        if name not in settings:
            raise unknown(f"setting of {engine}", name, settings)
        if not equals or not _VALUE.fullmatch(value):
            raise ConfigError(f"{flag} {text}: '{each}' is not NAME=VALUE; write it as in {name}=2, without blanks.")
        settings[name] = value
    nodes = settings.pop("nodes")
    if not re.fullmatch("[1-9][0-9]{0,3}", nodes):
        raise ConfigError(f"{flag} {text}: nodes is '{nodes}'; give a whole number from 1 to 9999.")
    return Target(engine, int(nodes), settings)


def split_target(arguments: Sequence[str], flag: str) -> tuple[list[str], Target | None]:
    """Takes a flag that names a target out of a command line.

    Args:
        arguments: Without the program.
        flag: `--for` or `--on`.

    Returns:
        The other arguments, and the target; None if the flag is not there.

    Raises:
        ConfigError: The flag is there twice, or names nothing.
    """
    rest, texts, words = [], [], iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name != flag:
            rest.append(word)
        else:
            texts.append(value if equals else next(words, ""))
    if len(texts) > 1:
        raise ConfigError(f"{flag} is given twice; a run is started in one place.")
    return rest, read_target(flag, texts[0]) if texts else None
