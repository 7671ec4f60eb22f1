"""What a process holds while its model is built, and a model that one process cannot hold."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import Unavailable
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.workload.models.spec import num_params
from samestep.common.workload.table import resolve
from tests.forked_scripts import run_forked
from tests.torch_impl.limited_worker import MORE_BYTES

pytestmark = pytest.mark.torch

BUILT = "synthetic-mlp+width=256+layers=30"
BUILD = """
    import weakref
    import torch, torch.distributed as dist
    from torch.distributed.tensor import DTensor
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torch.utils._python_dispatch import TorchDispatchMode
    from samestep.common.request import RunConfig
    from samestep.common.run import parse
    from samestep.common.workload import initial
    from samestep.torch_impl.axes.device_mesh import device_mesh
    from samestep.torch_impl.axes.shard import find_blocks, shard
    from samestep.torch_impl.building import build_fresh_model
    from samestep.torch_impl.step_context import StepContext

    drawn, most_drawn, draw = [], 0, initial.draw

    def watched(name, param, seed):
        global most_drawn
        value = draw(name, param, seed)
        drawn.append(weakref.ref(value))
        most_drawn = max(most_drawn, sum(each().nbytes for each in drawn if each() is not None))
        return value

    initial.draw = watched

    class Alive(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.storages, self.peak = {}, 0
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented  # it has no memory but its local part's, which comes next
            result = func(*args, **(kwargs or {}))
            for each in torch.utils._pytree.tree_leaves(result):
                if isinstance(each, torch.Tensor) and each.device.type == "cpu":
                    self.storages[StorageWeakRef(each.untyped_storage())] = each.untyped_storage().nbytes()
            self.storages = {key: size for key, size in self.storages.items() if not key.expired()}
            self.peak = max(self.peak, sum(self.storages.values()))
            return result

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    run, cpu = parse(RunConfig(strategy="fsdp", workload=BUILT, devices=4)), torch.device("cpu")
    sharded = lambda model: shard(run, model, device_mesh(run, cpu), True, find_blocks(run, model))
    for distribute in (lambda model: None, sharded):
        with Alive() as alive:
            model = build_fresh_model(run, cpu, StepContext(), distribute)
        print(alive.peak, most_drawn)
        del model
"""


def test_fsdp_builds_its_shard_and_one_parameter_at_a_time(launcher: Launcher, tmp_path: Path) -> None:
    """Beside the shard there is one parameter: as it was drawn, in float64; rounded; and permuted into torch's layout."""
    script = textwrap.dedent(BUILD).replace("BUILT", repr(BUILT))
    at_once, _, in_shards, drawn = map(int, run_forked(launcher, "torch", tmp_path, script).split())
    largest, whole = 4 * 256 * 256, 4 * num_params(resolve(BUILT).model)
    assert at_once > whole
    padding = 2**10  # ten classes do not divide among four
    assert whole / 4 < in_shards < whole / 4 + 3 * largest + padding < 0.4 * whole
    assert drawn == 2 * largest  # in float64


TOO_LARGE = "synthetic-mlp+width=1024+layers=22"
"""Parameters, gradients and momentum take 241 MiB on one device, 60 MiB on each of four."""
MORE = 180 * 2**20


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    """A launcher whose workers may have `MORE` bytes beside what they have once torch is imported."""
    # glibc otherwise keeps what was freed, and how much that is varies; read when the fork server starts.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(2**20))
    with Launcher(worker="tests.torch_impl.limited_worker") as launcher:
        yield launcher


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_model_that_one_process_cannot_hold_trains_on_four(limited: Launcher, tmp_path) -> None:
    shared = {"workload": TOO_LARGE, "optimizer": "sgd", "batch_size": 64, "steps": 2, "parity": False}
    runs = []
    for cell, devices in (("torch:single", 1), ("torch:fsdp", 4)):
        asked = Cell.parse(cell).apply_to(
            RunConfig(devices=devices, out=str(tmp_path / cell), timeout_seconds=120.0, **shared)
        )
        runs.append((parse(asked), launch_of(asked)))
    single, fsdp = (run.strategy.cost(run, "gloo").footprints[0] for run, _ in runs)
    assert single.state_bytes > MORE > 2 * fsdp.state_bytes  # said beforehand
    environment = {MORE_BYTES: str(MORE)}
    with pytest.raises(Unavailable) as caught:
        limited.run(*runs[0], environment=environment)
    told = str(caught.value)
    assert told.startswith("rank-0 ran out of memory (RLIMIT_DATA 0.")
    assert "parameters, gradients and optimizer state alone need 0.24 GiB" in told
    assert "\n" not in told
    result = limited.run(*runs[1], environment=environment)
    assert len(result.losses) == 2
    assert result.processes[0].state_bytes == fsdp.state_bytes
