"""Writes the script or manifest that starts a prepared run under an engine."""

import functools
import json
import re
import shlex
import sys
from pathlib import Path

import jinja2

from samestep.common.errors import ConfigError
from samestep.common.files.writing import replacing
from samestep.common.strategy import Run
from samestep.experiments.submitting.targets import Target

_TEMPLATES = Path(__file__).parent / "templates"


def write_script(target: Target, run: Run, directory: Path) -> Path:
    """Writes the script that starts a run into its directory; returns its path.

    Args:
        target: The engine and its settings.
        run: What was prepared.
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
        run: What was prepared.
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
    return template.render(
        target.settings,
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
