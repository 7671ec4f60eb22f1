"""Which device a rank takes, and what nn.DataParallel exchanges, without a GPU: what CUDA would answer is made up."""

import copy
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from samestep.common.errors import WorkerFailed
from samestep.common.ledger import Exchange, exchanges_of
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.torch_impl import devices
from samestep.torch_impl.observing.recorder import SendRecorder
from samestep.torch_impl.replicas import CountedDataParallel

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("gpus", "ranks", "rank", "may_share", "wanted"),
    [
        (0, 2, 1, True, "cpu"),
        (2, 2, 1, False, "cuda:1"),
        (1, 2, 1, False, "cpu"),  # for every rank alike: no group mixes devices
        (1, 2, 0, False, "cpu"),
        (1, 2, 1, True, "cuda:0"),
        (2, 3, 2, True, "cuda:0"),
    ],
)
def test_every_rank_takes_the_same_kind_of_device(
    monkeypatch: pytest.MonkeyPatch, gpus: int, ranks: int, rank: int, may_share: bool, wanted: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    device = devices.use_device(parse(RunConfig()), may_share)
    assert str(device) == wanted
    assert devices.is_shared(device) == (device.type == "cuda" and gpus < ranks)


@pytest.mark.parametrize(
    ("gpus", "wanted"), [(1, ("processes that share a GPU", "gloo")), (2, ("one process per device", "nccl"))]
)
def test_ranks_report_the_backend_that_they_joined_with(
    monkeypatch: pytest.MonkeyPatch, gpus: int, wanted: tuple[str, str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    joined: list[str] = []
    monkeypatch.setattr(devices, "meet", lambda run: None)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, **group: joined.append(backend))
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "host"}.items():
        monkeypatch.setenv(name, value)
    hardware = devices.join_group(parse(RunConfig(strategy="ddp", devices=2)), torch.device("cuda", 0))
    assert (hardware.note, hardware.backend) == wanted
    assert joined == [hardware.backend]


@pytest.mark.parametrize("count", [2, 3])
def test_a_rank_that_is_started_twice_is_told_by_both(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Both processes that call themselves rank 1 name each other, instead of the rank that is missing."""
    server = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {"RANK": "1", "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.port)}
    for name, value in (environment | {"SAMESTEP_TIMEOUT_SECONDS": "2"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(devices, "_own_name", lambda: threading.current_thread().name)
    run = parse(RunConfig(strategy="ddp", devices=count, batch_size=48))

    def told() -> str:
        with pytest.raises(WorkerFailed) as caught:
            devices.meet(run)
        return str(caught.value)

    with ThreadPoolExecutor(2, thread_name_prefix="process") as pool:
        heard = [future.result() for future in [pool.submit(told), pool.submit(told)]]
    assert len(set(heard)) == 1
    holder, other = sorted(re.findall(r"process_\d", heard[0]))
    assert (holder, other) == ("process_0", "process_1")
    assert heard[0].startswith("rank 1 was started twice, as process_")


def test_data_parallel_has_five_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = nn.Linear(4, 3)
    recorder = SendRecorder("data")
    counted = CountedDataParallel(inner, [], recorder)
    counted.device_ids, counted.dim = [0, 1], 0
    plain = nn.DataParallel
    monkeypatch.setattr(plain, "scatter", lambda self, x, kw, ids: (tuple((s,) for s in x[0].chunk(2)), ({}, {})))
    monkeypatch.setattr(plain, "replicate", lambda self, module, ids: [copy.deepcopy(module) for _ in ids])
    monkeypatch.setattr(plain, "gather", lambda self, outputs, device: torch.cat(outputs))
    recorder.start()
    shards, _ = counted.scatter((torch.ones(6, 4),), None, [0, 1])
    replicas = counted.replicate(inner, [0, 1])
    outputs = [replica(*shard) for replica, shard in zip(replicas, shards, strict=True)]
    gathered = counted.gather(outputs, 0)
    assert gathered.shape == (6, 3)
    gathered.sum().backward()
    params = 4 * (4 * 3 + 3)
    assert set(exchanges_of(recorder.stop())) == {
        Exchange("scatter_inputs", 1, 4 * 3 * 4),
        Exchange("broadcast_parameters", 1, params),
        Exchange("gather_outputs", 1, 4 * 3 * 3),
        Exchange("scatter_output_gradients", 1, 4 * 3 * 3),
        Exchange("reduce_gradients", 1, params),
    }
