"""Ranks that hold shards or replicas write records that add up to that of one process."""

from pathlib import Path

import numpy as np
import pytest

from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.pairing import pair
from samestep.common.steps.joining import read_run
from samestep.experiments.recording.facts import facts_of
from tests.recording.records import Rank, distance, examples, joined, loss, read_many, recorded_once

pytestmark = pytest.mark.torch
TEACHERS = {"plain": 1, "fsdp1": 2, "fsdp2": 2}
SPREAD = ("ddp", "fsdp1", "fsdp1_orig", "fsdp2")
FAULTS = {
    "no_sync": "replicas differ: since step 0, used.weight and 1 other tensor on ranks 0 and 1",
    "same": "ranks 0 and 1 got the same examples at each of 8 steps",
    "padded": "1 of 15 examples was used 2 times, and others 1 time",
    "fast": "the learning-rate schedule took 2 steps at each of 4 optimizer steps",
}
EXCHANGE = {
    "alone": ["replicas differ", "gradients were not exchanged: since step 0, used.weight and 1 more of each rank"],
    "left_out": ["the gradient of rank 1 was left out: since step 0, used.weight and 1 more was updated on all ranks"],
}


def cases() -> dict[str, tuple[str, dict[str, object]]]:
    cases: dict[str, tuple[str, dict[str, object]]] = {"plain": ("layouts.py plain", {})}
    cases |= {name: (f"layouts.py {name}", {"world": 2}) for name in (*SPREAD, "tp")}
    cases |= {f"{name}-moved": (f"layouts.py {name}", {"perturb": 3, "world": 2}) for name in ("fsdp1", "fsdp2")}
    cases |= {
        f"{name}-clipped": (f"layouts.py {name} clipped", {"world": n}) for name, n in (("plain", 1), ("fsdp2", 2))
    }
    cases["plain-moved"] = ("layouts.py plain", {"perturb": 3})
    cases |= {name: (f"faulty.py {name}", {"world": 2}) for name in (*FAULTS, *EXCHANGE, "right")}
    cases |= {
        f"{kind}-{world}": (f"partitions.py {kind}", {"world": world, "perturb": 7})
        for kind, world in (("plain", 1), ("mapped", 1), ("mapped", 2), ("shards", 2))
    }
    cases["unused"] = ("faulty.py unused", {})
    cases |= {f"copied-{world}": ("copied.py", {"world": world}) for world in (1, 2)}
    cases |= {f"teacher-{kind}": (f"teachers.py {kind}", {"world": world}) for kind, world in TEACHERS.items()}
    cases["owner"] = ("copied.py owner", {"world": 2})
    cases |= {f"stages-{world}": ("stages.py", {"world": world}) for world in (1, 2)}
    return cases


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_once(tmp_path_factory, "records-of-layouts", cases())


@pytest.fixture(scope="module")
def records(folder: Path) -> dict[str, list[Rank]]:
    return read_many(folder)


def test_the_norm_before_clipping_is_that_of_all_shards(folder: Path) -> None:
    plain, sharded = ([*read_run(folder / f"{name}-clipped").steps][1:] for name in ("plain", "fsdp2"))
    assert len(plain) == len(sharded) == 6 and not any(step.splits for step in sharded)
    for one, other in zip(plain, sharded, strict=True):
        assert other.scalars["clip_norm"] == pytest.approx(one.scalars["clip_norm"], rel=1e-6)


@pytest.mark.parametrize("layout", [*SPREAD, "tp"])
def test_a_layout_adds_up_to_one_process(records: dict[str, list[Rank]], layout: str) -> None:
    plain, spread = records["plain"], records[layout]
    assert [header.rank for header, _ in spread] == [0, 1]
    assert spread[0][0].layouts == (layout.removesuffix("_orig"),)
    assert distance(plain, spread) < 3e-6
    before = joined(plain, 0)
    assert {key: value[2] for key, value in joined(spread, 0).items()} == {
        key: value[2] for key, value in before.items()
    }
    for place in range(1, 7):
        assert loss(plain, place) == pytest.approx(loss(spread, place), rel=1e-6)
        times = 2 if layout == "tp" else 1
        assert examples(spread, place) == {row: times * n for row, n in examples(plain, place).items()}


@pytest.mark.parametrize("layout", ["fsdp1", "fsdp2"])
def test_a_teacher_that_is_sharded_moves_as_a_whole_one(folder: Path, layout: str) -> None:
    a, b = read_run(folder / "teacher-plain"), read_run(folder / f"teacher-{layout}")
    for one, other in ((a, b), (b, a)):
        pairing = pair(one, other)
        assert sum(each.role == "follower" for each in pairing.tensors) == 6 and not pairing.strangers
        assert judge(one, other).kind == "same"


@pytest.mark.parametrize("layout", ["fsdp1", "fsdp2"])
def test_shards_are_perturbed_alike(records: dict[str, list[Rank]], layout: str) -> None:
    plain, spread = joined(records["plain-moved"], 0), joined(records[f"{layout}-moved"], 0)
    assert {key: value[2] for key, value in plain.items()} == {key: value[2] for key, value in spread.items()}
    assert plain["weight", "head.weight"][2] != joined(records["plain"], 0)["weight", "head.weight"][2]


@pytest.mark.parametrize("partitions", ["mapped-1", "mapped-2", "shards-2"])
def test_flat_partitions_add_up_to_the_parameters_they_hold(records: dict[str, list[Rank]], partitions: str) -> None:
    assert distance(records["plain-1"], records[partitions]) < 3e-6
    for place in range(1, 6):
        assert records[partitions][0][1][place].scalars == records["plain-1"][0][1][place].scalars
        assert loss(records["plain-1"], place) == pytest.approx(loss(records[partitions], place), rel=1e-6)


@pytest.mark.parametrize("exchange", ["copied-2", "owner"])
def test_gradients_that_are_exchanged_elsewhere_are_those_of_the_update(folder: Path, exchange: str) -> None:
    assert judge(read_run(folder / "copied-1"), read_run(folder / exchange)).headline == "same: 4 steps"
    assert len(facts_of(folder / exchange)) == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_record_proves_is_told(records: dict[str, list[Rank]], folder: Path, fault: str) -> None:
    _, *found = facts_of(folder / fault)
    assert len(found) == 1 and FAULTS[fault] in found[0]


@pytest.mark.parametrize("fault", EXCHANGE)
def test_what_became_of_the_gradients_is_told(records: dict[str, list[Rank]], folder: Path, fault: str) -> None:
    _, *found = facts_of(folder / fault)
    assert len(found) == len(EXCHANGE[fault])
    assert all(expected in line for expected, line in zip(EXCHANGE[fault], found, strict=True))


def test_each_rank_has_its_own_gradient(records: dict[str, list[Rank]]) -> None:
    for layout in ("ddp", "right"):
        (_, first), (_, second) = records[layout]
        for one, other in zip(first[1:], second[1:], strict=True):
            own = [each.stats["local"]["projections"].astype(float) for each in (one, other)]
            given = one.stats["gradient"]["projections"]
            assert np.abs(own[0] - own[1]).max() > 0.1 * np.abs(given).max()
            np.testing.assert_allclose((own[0] + own[1]) / 2, given, atol=1e-5 * np.abs(given).max())


def test_a_layer_without_a_use_is_told(records: dict[str, list[Rank]], folder: Path) -> None:
    assert facts_of(folder / "unused")[1:] == ["had no gradient at any update: unused.weight, unused.bias."]


@pytest.mark.parametrize("layout", ["plain", "right", *SPREAD, "tp"])
def test_nothing_is_told_of_what_is_right(records: dict[str, list[Rank]], folder: Path, layout: str) -> None:
    (line,) = facts_of(folder / layout)
    assert line.startswith("recorded ")


def test_stages_of_a_pipeline_that_are_seeded_alike_are_no_replicas(folder: Path) -> None:
    a, b = read_run(folder / "stages-1"), read_run(folder / "stages-2")
    assert [each.name for each in b.tensors] == ["0.weight", "0.bias", "rank1.0.weight", "rank1.0.bias"]
    assert judge(a, b).kind == "same"
    assert not [line for line in facts_of(folder / "stages-2") if "replicas" in line or "exchanged" in line]
