"""Which device a rank takes, and what nn.DataParallel exchanges, without a GPU: what CUDA would answer is made up."""

import copy

import pytest
import torch
from torch import nn

from common.config import RunConfig
from common.ledger import Exchange
from torch_impl import devices
from torch_impl.replicate import CountedDataParallel

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
    device = devices.use_device(RunConfig(), may_share)
    assert str(device) == wanted
    shared = device.type == "cuda" and gpus < ranks
    assert devices.describe_ranks(device) == ("processes that share a GPU" if shared else "one process per device")


def test_data_parallel_has_five_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = nn.Linear(4, 3)
    counted = CountedDataParallel(inner, [])
    counted.device_ids, counted.dim = [0, 1], 0
    plain = nn.DataParallel
    monkeypatch.setattr(plain, "scatter", lambda self, x, kw, ids: (tuple((s,) for s in x[0].chunk(2)), ({}, {})))
    monkeypatch.setattr(plain, "replicate", lambda self, module, ids: [copy.deepcopy(module) for _ in ids])
    monkeypatch.setattr(plain, "gather", lambda self, outputs, device: torch.cat(outputs))
    shards, _ = counted.scatter((torch.ones(6, 4),), None, [0, 1])
    replicas = counted.replicate(inner, [0, 1])
    outputs = [replica(*shard) for replica, shard in zip(replicas, shards, strict=True)]
    assert counted.gather(outputs, 0).shape == (6, 3)
    params = 4 * (4 * 3 + 3)
    assert set(counted.counts.exchanged()) == {
        Exchange("scatter_inputs", 1, 4 * 3 * 4),
        Exchange("broadcast_parameters", 1, params),
        Exchange("gather_outputs", 1, 4 * 3 * 3),
        Exchange("scatter_output_gradients", 1, 4 * 3 * 3),
        Exchange("reduce_gradients", 1, params),
    }
    assert counted.counts.exchanged() == ()
