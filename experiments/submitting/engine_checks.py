"""Checks whether an engine can take a run from this machine, before anything is written."""

import importlib.util
import re
import shutil
import socket
from pathlib import Path

from samestep.common.errors import ConfigError, Unavailable
from samestep.experiments.submitting.targets import Target

CONNECT_SECONDS = 5.0
_COMMANDS = {"slurm": ("sbatch", "slurm-client"), "mpi": ("mpirun", "openmpi-bin")}
"""The command that submits a run to an engine, and the Debian package that has it."""


def check_reach(target: Target) -> None:
    """Refuses an engine that cannot take a run from here.

    Raises:
        ConfigError: The file with the hosts does not exist.
        Unavailable: The engine's command does not exist, or nothing answers at its address.
    """
    command, package = _COMMANDS.get(target.engine, ("", ""))
    if command and not shutil.which(command):
        raise Unavailable(f"{command} is not on this machine; start the run where it is, or: apt-get install {package}")
    hostfile = target.settings.get("hostfile")
    if hostfile and not Path(hostfile).is_file():
        raise ConfigError(
            f"--on {target}: there is no file '{hostfile}'; write one with a line a host, as in 'node-1 slots=2'."
        )
    if target.engine == "ray":
        _check_ray(target.settings["address"])


def _check_ray(address: str) -> None:
    if importlib.util.find_spec("ray") is None:
        raise Unavailable("ray is not installed: pip install 'samestep[ray]'")
    if at := re.fullmatch(r"(?:ray://)?(.+):(\d+)", address):
        try:
            socket.create_connection((at[1], int(at[2])), CONNECT_SECONDS).close()
        except OSError as error:
            why = f"nothing answers at {address} ({error})"
            start = "ray start --head --ray-client-server-port=10001"
            raise Unavailable(f"{why}; start Ray there, as in '{start}'.") from None
