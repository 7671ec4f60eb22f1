"""Ports many models with two processes of each framework in all: one that describes them, one that traces them."""

from collections.abc import Mapping
from pathlib import Path

import samestep
from samestep.common.porting.case import PortVerdict
from samestep.common.request import RunConfig
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.models import porting
from samestep.common.runtime.parent.models.description_request import run_tasks
from tests.one_batch_worker import WALK


def request_of(file: Path, name: str, data: str, steps: int) -> RunConfig:
    model, given = f"{file}:M_{name.replace(' ', '_')}", f"{file}:data_{data}"
    return RunConfig(model=model, data=given, batch_size=16, steps=steps, timeout_seconds=600)


def port_all(
    launcher: Launcher, folder: Path, configs: Mapping[str, RunConfig], models: Mapping[str, samestep.Model]
) -> dict[str, PortVerdict]:
    """The verdict of each; what its model accepts is compensated for in processes of its own."""
    config = next(iter(configs.values()))

    def do(walks: Path, tasks: Mapping[Path, str]) -> None:
        for task, side in tasks.items():
            (walks / side).mkdir(parents=True, exist_ok=True)
            (walks / side / f"{task.parent.name}-{task.name}").symlink_to(task)
            (walks / side / WALK).touch()
        run_tasks({walks / side: side for side in porting.SIDES}, config, launcher._server_for_models)

    described = {name: folder / "described" / name for name in configs}
    asked: dict[Path, str] = {}
    for name, path in described.items():
        path.mkdir(parents=True)
        asked |= porting.ask_descriptions(path, configs[name])
    do(folder / "describe", asked)
    traces = {name: porting.ask_traces(path, configs[name]) for name, path in described.items()}
    do(folder / "trace", {path: side for tasks, _ in traces.values() for path, side in tasks.items()})

    def again(tasks: Mapping[Path, str]) -> None:
        run_tasks(tasks, config, launcher._server_for_models)

    cases = {name: porting.read_case(path, traces[name][1]) for name, path in described.items()}
    return {name: porting.accept(described[name], case, models[name].accept, again)[1] for name, case in cases.items()}
