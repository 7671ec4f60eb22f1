"""Which process an engine started, from its variables alone; and what is said where they contradict each other."""

import re

import pytest

from samestep.common.errors import ConfigError
from samestep.common.runtime.engines.placing import take_place
from samestep.common.runtime.engines.table import ENGINES, find_place
from samestep.common.runtime.topology import RESTARTS, tf_cluster
from samestep.common.strategy import ProcessSpec

ELASTIC = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "x", RESTARTS: "2"}
STEP = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0"}
STEP |= {"SLURM_RESTART_COUNT": "5", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2"}
OPEN_MPI |= {"OMPI_MCA_orte_hnp_uri": "2490826752.0;tcp://172.17.0.2,10.0.0.3:53641"}
TWO = tf_cluster({"worker": 2})
RANKS = [ProcessSpec(f"rank-{n}", {"RANK": str(n), "WORLD_SIZE": "2", "MASTER_PORT": "${port0}"}) for n in (0, 1)]


@pytest.mark.parametrize(
    ("environment", "processes", "place"),
    [
        (ELASTIC | {"MASTER_ADDR": "node-a"}, 4, ("torchrun", 3, 1, 2, "node-a")),
        ({"RANK": "0", "WORLD_SIZE": "2", "RAY_JOB_ID": "0100"}, 2, ("Ray", 0, None, 0, "")),
        (OPEN_MPI, 4, ("Open MPI", 2, 2, 0, "172.17.0.2")),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, 2, ("MPI", 1, 1, 0, "")),
        (STEP, 2, ("Slurm", 1, 0, 5, "10.0.0.7")),
        (
            {"PET_NODE_RANK": "1", "PET_NNODES": "2", "PET_MASTER_ADDR": "job-0.svc"},
            2,
            ("a TrainJob", 1, None, 0, "job-0.svc"),
        ),
        ({"JOB_COMPLETION_INDEX": "3"}, 4, ("an indexed Job", 3, None, 0, "")),
        (
            {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n"},
            2,
            ("SkyPilot", 1, None, 0, "10.0.0.1"),
        ),
        (
            {"DSTACK_NODE_RANK": "0", "DSTACK_NODES_NUM": "2", "DSTACK_MASTER_NODE_IP": "10.0.0.9"},
            2,
            ("dstack", 0, None, 0, "10.0.0.9"),
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_each_engine_gives_a_place(environment: dict[str, str], processes: int, place: tuple[object, ...]) -> None:
    found = find_place(environment, processes)
    assert found is not None
    assert (found.engine.name, found.rank, found.local_rank, found.attempt, found.address) == place
    assert found.around == ()


def test_every_engine_is_tried_above() -> None:
    (mark,) = test_each_engine_gives_a_place.pytestmark
    assert {case[2][0] for case in mark.args[1]} == {each.name for each in ENGINES} - {"by hand"}


@pytest.mark.parametrize(
    ("environment", "inner", "around"),
    [
        (STEP | ELASTIC, "torchrun", ["Slurm"]),
        (STEP | OPEN_MPI, "Open MPI", ["Slurm"]),
        (STEP | OPEN_MPI | ELASTIC, "torchrun", ["Open MPI", "Slurm"]),
        (
            {"JOB_COMPLETION_INDEX": "0", "PET_NODE_RANK": "0", "PET_NNODES": "1"} | ELASTIC,
            "torchrun",
            ["a TrainJob", "an indexed Job"],
        ),
        ({k: v for k, v in STEP.items() if k != "SLURM_STEP_ID"} | ELASTIC, "torchrun", []),
    ],
)
def test_the_innermost_engine_counts(environment: dict[str, str], inner: str, around: list[str]) -> None:
    found = find_place(environment, 4)
    assert found is not None
    assert found.engine.name == inner
    assert [each.name for each in found.around] == around


def test_why_the_innermost_counts_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for rank in "01":
        environment = STEP | {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2"}
        assert take_place(TWO, environment) == int(rank)
        told += capsys.readouterr().err.splitlines()
    first = "OMPI_COMM_WORLD_RANK of Open MPI takes precedence over SLURM_PROCID of Slurm, which started it."
    assert told == [f"samestep: {first}"]


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        (STEP, "SLURM_STEP_NUM_TASKS is 2, but the run was prepared for 3 processes; start 3."),
        (
            STEP | {"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "7"},
            "SLURM_PROCID is '7'; give a whole number from 0 to 2.",
        ),
        (
            STEP | ELASTIC,
            "WORLD_SIZE is 4, but the run was prepared for 3 processes; start 3. RANK of torchrun takes precedence over",
        ),
        ({"JOB_COMPLETION_INDEX": "x"}, "JOB_COMPLETION_INDEX is 'x'; give a whole number from 0 to 2."),
    ],
)
def test_a_place_that_cannot_be_is_one_line(environment: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)) as caught:
        find_place(environment, 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("specs", "by_hand", "said"),
    [
        (
            RANKS,
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_PORT": "1"},
            "RANK says that this is process 0",
        ),
        (
            TWO,
            {"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'},
            "TF_CONFIG says",
        ),
    ],
)
def test_a_place_by_hand_that_an_engine_contradicts_is_refused(
    specs: list[ProcessSpec], by_hand: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"{said}.*SLURM_PROCID of Slurm says 1; unset"):
        take_place(specs, STEP | by_hand)
    assert take_place(specs, STEP | by_hand | {"SLURM_PROCID": "0"}) == 0
    assert take_place(specs, STEP | by_hand | {"SLURM_STEP_NUM_TASKS": "1"}) == 0, "a shell in a step of one task"


def test_a_run_of_one_process_takes_any_engine_that_starts_one() -> None:
    alone = [ProcessSpec("rank-0", {})]
    assert take_place(alone, {}) == take_place(alone, {"SLURM_PROCID": "0"}) == 0
    assert take_place(alone, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}) == 0
    with pytest.raises(ConfigError, match="OMPI_COMM_WORLD_SIZE is 4, but the run was prepared for 1 process"):
        take_place(alone, OPEN_MPI)
