"""Ports many models with two processes of each framework in all: one that describes them, one that traces them."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import samestep
from samestep.common.porting.case import PortCase, PortVerdict
from samestep.common.request import RunConfig
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.models import porting
from samestep.common.runtime.parent.models.description_request import run_tasks
from tests.one_batch_worker import WALK

Ported = tuple[PortCase, PortVerdict]


def request_of(file: Path, name: str, data: str, steps: int) -> RunConfig:
    model, given = f"{file}:M_{name.replace(' ', '_')}", f"{file}:data_{data}"
    return RunConfig(model=model, data=given, batch_size=16, steps=steps, timeout_seconds=600)


def folder_of(folder: Path, name: str) -> Path:
    """The folder of one port of many."""
    return folder / "described" / name


def tracing(launcher: Launcher, config: RunConfig) -> porting.Trace:
    """Traces what tasks ask for, each in a process of its own."""
    return functools.partial(run_tasks, config=config, server=launcher._server_for_models)


def port_all(
    launcher: Launcher,
    folder: Path,
    configs: Mapping[str, RunConfig],
    models: Mapping[str, samestep.Model],
    accepted: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Ported]:
    """Each with its verdict; what its model accepts, or is accepted beside that, is compensated for in processes of its own."""
    config = next(iter(configs.values()))

    def do(walks: Path, tasks: Mapping[Path, str]) -> None:
        for task, side in tasks.items():
            (walks / side).mkdir(parents=True, exist_ok=True)
            (walks / side / f"{task.parent.name}-{task.name}").symlink_to(task)
            (walks / side / WALK).touch()
        tracing(launcher, config)({walks / side: side for side in porting.SIDES})

    described = {name: folder_of(folder, name) for name in configs}
    asked: dict[Path, str] = {}
    for name, path in described.items():
        path.mkdir(parents=True)
        asked |= porting.ask_descriptions(path, configs[name])
    do(folder / "describe", asked)
    traces = {name: porting.ask_traces(path, configs[name]) for name, path in described.items()}
    do(folder / "trace", {path: side for tasks, _ in traces.values() for path, side in tasks.items()})
    cases = {name: porting.read_case(path, traces[name][1]) for name, path in described.items()}
    again = tracing(launcher, config)
    return {
        name: porting.accept(described[name], case, (*models[name].accept, *(accepted or {}).get(name, ())), again)
        for name, case in cases.items()
    }
