"""What is private upstream, as it was in torch 2.13; a later version that differs fails here first."""

import contextlib
import importlib.metadata
import importlib.util
import io
import textwrap
import warnings
from pathlib import Path

import pytest
import torch

from samestep.common.runtime.parent.launcher import Launcher
from tests.forked_scripts import run_forked

pytestmark = pytest.mark.torch

ALONE = """
    import torch, torch.distributed as dist
    from torch import nn
    from samestep.torch_impl import upstream

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
"""


def told(script: str) -> str:
    """What a script prints in this process; its group of one rank is left again."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings(action="ignore"):
            exec(textwrap.dedent(ALONE) + textwrap.dedent(script), {})
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    return printed.getvalue().strip()


def test_the_version() -> None:
    assert importlib.metadata.version("torch").startswith(("2.11.", "2.12.", "2.13."))


def test_ddp_logging_data_of_torch_2_13() -> None:
    script = """
        ddp = nn.parallel.DistributedDataParallel(model)
        for _ in range(3):
            ddp(torch.ones(2, 3)).sum().backward()
        logged = upstream.ddp_logging_data(ddp)
        print(0 <= logged["avg_backward_compute_comm_overlap_time"] <= logged["avg_backward_comm_time"] < 10e9)
    """
    assert told(script) == "True"


def test_rank_of_parameter_of_torch_2_13() -> None:
    script = """
        from torch.distributed.optim import ZeroRedundancyOptimizer
        zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
        print(upstream.rank_of_parameter(zero) == {p: 0 for p in model.parameters()})
    """
    assert told(script) == "True"


def test_outside_modes_of_torch_2_13() -> None:
    script = """
        from torch.utils._python_dispatch import TorchDispatchMode

        seen = []
        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(func)
                return func(*args, **(kwargs or {}))

        with Watch():
            with upstream.outside_modes():
                torch.ones(2).add(1)
            unseen = len(seen)
            torch.ones(2).add(1)
        print(unseen, len(seen))
    """
    assert told(script) == "0 2"


def test_is_in_backward_of_torch_2_13() -> None:
    script = """
        seen = []
        x = torch.ones(1, requires_grad=True) * 2
        x.register_hook(lambda gradient: seen.append(upstream.is_in_backward()))
        x.backward()
        print(seen, upstream.is_in_backward())
    """
    assert told(script) == "[True] False"


def test_process_group_of_torch_2_13() -> None:
    """As operators are given it: by its name, or scripted."""
    script = """
        world = dist.group.WORLD
        given = [world, world.group_name, world.boxed()]
        print({upstream.process_group(each).group_name == world.group_name for each in given})
    """
    assert told(script) == "{True}"


def test_registered_parameters_of_torch_2_13() -> None:
    """What a block gathers takes the place of its shards; what comes back are the shards themselves."""
    script = """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        layer = fully_shard(model[0], mesh=init_device_mesh("cpu", (1,)))
        seen = upstream.registered_parameters(layer)
        shards = dict(seen)
        layer.unshard()
        gathered = dict(seen)
        layer.reshard()
        print(list(seen), [seen[name] is shards[name] for name in seen], [gathered[name] is shards[name] for name in seen])
    """
    assert told(script) == "['weight', 'bias'] [True, True] [False, False]"


def test_registered_buffers_of_torch_2_13() -> None:
    script = """
        norm = nn.BatchNorm1d(4)
        seen, first = upstream.registered_buffers(norm), norm.running_mean
        norm.running_mean = first.clone()
        print(list(seen), seen["running_mean"] is first, seen["running_mean"] is norm.running_mean)
    """
    assert told(script) == "['running_mean', 'running_var', 'num_batches_tracked'] False True"


def test_end_of_prediction_of_torch_2_13() -> None:
    """After a prediction every parameter is a shard again, and no block is gathered that nobody asked for."""
    script = """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import DTensor
        mesh = init_device_mesh("cpu", (1,))
        for layer in model:
            fully_shard(layer, mesh=mesh, reshard_after_forward=False)
        fully_shard(model, mesh=mesh, reshard_after_forward=False)
        with torch.no_grad():
            model(torch.ones(2, 3))
        gathered = [not isinstance(p, DTensor) for p in model.parameters()]
        upstream.end_of_prediction(model)
        print(all(gathered), all(isinstance(p, DTensor) for p in model.parameters()))
    """
    assert told(script) == "True True"


def test_reduce_zeros_of_torch_2_13() -> None:
    """A parameter that nothing reads has a gradient of zeros, so that all ranks exchange as much."""
    script = """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        model.later = nn.Linear(2, 2)
        model.forward = lambda x: model[1](model[0](x))
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        upstream.reduce_zeros(model)
        model(torch.ones(2, 3)).sum().backward()
        print(model.later.weight.grad.full_tensor().tolist(), model[0].weight.grad is None)
    """
    assert told(script) == "[[0.0, 0.0], [0.0, 0.0]] False"


def test_operators_of_fully_shard_of_torch_2_13() -> None:
    """The peak of gathered parameters is seen through them."""
    script = """
        import torch.distributed.fsdp
        print(torch.ops.fsdp.all_gather_copy_in.default, torch.ops.fsdp.split_with_sizes_copy.default)
    """
    assert told(script) == "fsdp.all_gather_copy_in.default fsdp.split_with_sizes_copy.default"


@pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None,
    reason="deepspeed is not installed: pip install 'samestep[deepspeed]'",
)
def test_without_shared_memory_op_of_deepspeed_0_19(launcher: Launcher, tmp_path: Path) -> None:
    """Nothing is compiled, and what a row sends goes over gloo."""
    script = """
        import os
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        upstream.without_shared_memory_op()
        import deepspeed
        deepspeed.init_distributed()
        print(deepspeed.comm.comm.cdb.shm_comm_op, deepspeed.__version__[:5], sep="\\n")
    """
    script = textwrap.dedent(ALONE) + textwrap.dedent(script)
    strategy = "samestep.torch_impl.strategies.deepspeed"  # the session's runs have it imported as well
    found = run_forked(launcher, "torch", tmp_path, script, "deepspeed", [strategy])
    assert found.splitlines()[-2:] == ["None", "0.19."]


def test_the_hooks_on_top_of_torch_2_13() -> None:
    script = """
        from torch.autograd.graph import saved_tensors_hooks
        with saved_tensors_hooks(lambda tensor: 1, lambda held: 2):
            with saved_tensors_hooks(lambda tensor: 3, lambda held: 4):
                pack, unpack = upstream.saved_tensors_hooks_on_top()
        print(pack(torch.ones(1)), unpack(None))
    """
    assert told(script) == "3 4"


def test_without_numbers_of_torch_2_13() -> None:
    script = """
        with upstream.without_numbers(), torch.autocast("cpu", torch.bfloat16):
            made = model(torch.ones(2, 3))
        print(type(made).__name__, made.dtype, tuple(made.shape))
    """
    assert told(script) == "FakeTensor torch.bfloat16 (2, 2)"


def test_before_other_post_hooks_of_torch_2_13() -> None:
    script = """
        update, said = torch.optim.SGD(model.parameters(), 1.0), []
        update.register_step_post_hook(lambda *_: said.append("first"))
        upstream.before_other_post_hooks(update, lambda *_: said.append("second"))
        update.step()
        print(*said)
    """
    assert told(script) == "second first"
