"""Processes meet in files of the run directory: all of them, once, and never with what an earlier attempt left."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from samestep.common.errors import WorkerFailed
from samestep.common.files.writing import open_directory
from samestep.common.runtime.engines import placing
from samestep.common.runtime.engines.placing import interface_of, join, own_address
from samestep.common.runtime.engines.rendezvous import (
    RENDEZVOUS,
    Arrival,
    find_differences,
    forget_rendezvous,
    meet,
    read_hosts,
)
from samestep.common.runtime.topology import tf_cluster
from samestep.common.strategy import ProcessSpec

ROLES = ["worker-0", "worker-1", "worker-2"]
SPECS = [
    ProcessSpec(
        f"rank-{n}", {"RANK": str(n), "LOCAL_RANK": str(n), "MASTER_ADDR": "${host0}", "MASTER_PORT": "${port0}"}
    )
    for n in range(3)
]


def arrival(name: str, host: str = "h") -> Arrival:
    return Arrival(name, host, ("127.0.0.1", 1000 + int(name[-1])), {"host": name})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    open_directory(tmp_path / "run")
    return tmp_path / "run"


def together(directory: Path, names: list[str], seconds: float = 10.0) -> list[list[str]]:
    """All processes at once; returns whom each of them met."""
    with ThreadPoolExecutor(len(names)) as pool:
        tasks = [pool.submit(meet, directory, ROLES, n, arrival(name), seconds) for n, name in enumerate(names)]
        return [[each.nonce for each in task.result()] for task in tasks]


def test_all_meet_and_what_an_earlier_attempt_left_is_never_taken(directory: Path) -> None:
    assert together(directory, ["a0", "a1", "a2"]) == [["a0", "a1", "a2"]] * 3
    assert together(directory, ["b0", "b1", "b2"]) == [["b0", "b1", "b2"]] * 3, "with the files of a still there"
    with ThreadPoolExecutor(3) as pool:  # the last one is late, and its old file is complete and confirmed
        early = [pool.submit(meet, directory, ROLES, n, arrival(f"c{n}"), 10) for n in (0, 1)]
        waited = threading.Event().wait(0.3)
        assert not waited and not any(each.done() for each in early)
        late = pool.submit(meet, directory, ROLES, 2, arrival("c2"), 10)
        assert [[a.nonce for a in each.result()] for each in (*early, late)] == [["c0", "c1", "c2"]] * 3
    forget_rendezvous(directory, ROLES)
    assert not list(directory.glob("rendezvous*"))


def test_a_directory_that_is_not_shared_is_one_line(tmp_path: Path) -> None:
    for name in ("here", "there"):
        open_directory(tmp_path / name)
    with ThreadPoolExecutor(2) as pool:
        tasks = [
            pool.submit(meet, tmp_path / name, ROLES[:2], n, arrival(f"a{n}"), 0.3)
            for n, name in enumerate(["here", "there"])
        ]
        told = [str(task.exception()) for task in tasks]
    assert told[0] == (
        f"worker-0: within 0.3 s, worker-1 wrote nothing to {tmp_path / 'here'}; either not every process was started, or their "
        "hosts do not share this directory: prepare the run on a file system that all of them have"
    )
    assert told[1].startswith("worker-1: within 0.3 s, worker-0 wrote nothing to ")


def test_damaged_files_are_waited_for(directory: Path) -> None:
    (directory / RENDEZVOUS).write_text('{"version": 5}')
    (directory / "rendezvous-worker-1.json").write_text("[")
    with pytest.raises(WorkerFailed, match="worker-1, worker-2 wrote nothing"):
        meet(directory, ROLES, 0, arrival("a0"), 0.2)


def joined(directory: Path, specs: list[ProcessSpec], environments: list[dict[str, str]]) -> list[dict[str, str]]:
    with ThreadPoolExecutor(len(specs)) as pool:
        list(pool.map(lambda n: join(directory, specs, n, environments[n], 10, {"torch": "2"}), range(len(specs))))
    return environments


def test_what_a_strategy_reads_is_filled_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = [{"SLURM_PROCID": str(n), "SLURM_STEP_ID": "0", "SLURM_LOCALID": "0"} for n in range(3)]
    slurm[2]["SLURM_LOCALID"] = "2"
    filled = joined(directory, SPECS, slurm)
    assert [each["RANK"] for each in filled] == ["0", "1", "2"]
    assert {each["MASTER_ADDR"] for each in filled} == {"127.0.0.1"}, "all are on one host"
    assert len({each["MASTER_PORT"] for each in filled}) == 1
    assert [each["LOCAL_RANK"] for each in filled] == ["0", "0", "2"], "as Slurm says"
    assert {each["LOCAL_WORLD_SIZE"] for each in filled} == {"3"}
    assert filled[0]["no_proxy"] == "127.0.0.1"


def test_hosts_are_told_apart_and_clusters_get_every_address(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = iter(["a", "b", "a"])
    lock = threading.Lock()
    monkeypatch.setattr(placing, "own_host", lambda: "one" if lock.locked() else next(hosts))
    monkeypatch.setattr(placing, "own_address", lambda towards: "10.1.1.1")
    filled = joined(directory, tf_cluster({"worker": 3}), [{"JOB_COMPLETION_INDEX": str(n)} for n in range(3)])
    assert all("10.1.1.1:" in each["TF_CONFIG"] for each in filled)
    assert sorted(each["LOCAL_RANK"] for each in filled) == ["0", "0", "1"], "two share a host"


def test_an_address_that_was_given_stays(directory: Path) -> None:
    given = [{"RANK": str(n), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "5"} for n in range(3)]
    before = [dict(each) for each in given]
    for after, each in zip(joined(directory, SPECS, given), before, strict=True):
        assert {name: after[name] for name in each} == each


def test_this_host_has_an_address_on_a_device() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.77") == ""
    assert own_address("127.0.0.1") == "127.0.0.1"


def test_what_hosts_are_is_joined_and_a_difference_is_named(directory: Path) -> None:
    hosts = [{"host": "a", "cores": "4", "memory": "8 GiB"}, {"host": "b", "cores": "2", "memory": "8 GiB"}]
    names = iter(["a", "b", "b"])
    with ThreadPoolExecutor(3) as pool:
        for n, name in enumerate(names):
            own = Arrival(f"x{n}", name, ("127.0.0.1", 1), hosts[name == "b"])
            pool.submit(meet, directory, ROLES, n, own, 10)
    found = read_hosts(directory, ROLES)
    assert found == (
        {"host": "a", "cores": "4", "memory": "8 GiB", "processes": "worker-0"},
        {"host": "b", "cores": "2", "memory": "8 GiB", "processes": "worker-1 worker-2"},
    )
    assert find_differences(found) == "cores 4 on a, 2 on b"
    assert find_differences(found[1:]) == find_differences(()) == ""
    assert read_hosts(directory, ROLES[:2]) == (), "of another run"


def test_a_clock_that_is_off_is_told(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time

    def clock() -> float:
        if threading.current_thread().name != "late":
            return now()
        while not (directory / RENDEZVOUS).exists():  # the first has seen what this one wrote ahead of its clock
            time.sleep(0.001)
        return now() + 90

    monkeypatch.setattr(time, "time", clock)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(meet, directory, ROLES[:2], 0, arrival("a0", "x"), 10)
        late = threading.Thread(target=meet, args=(directory, ROLES[:2], 1, arrival("a1", "y"), 10), name="late")
        late.start()
        late.join()
        first.result()
    assert find_differences(read_hosts(directory, ROLES[:2])) == "clock none on a0, +90 s off on a1"
