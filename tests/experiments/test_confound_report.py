"""Planted confounds: each is found in results, under its name and with both values, and nothing else is."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.judging.confounds import CONFOUNDS, find_confounds
from samestep.common.runtime.measured import Conditions
from samestep.common.runtime.records import DeviceRow, RunResult
from samestep.common.techniques import Techniques
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.confound_report import circumstances, explain_confounds
from samestep.experiments.comparing.row import Row
from tests.results import made

CONDITIONS = Conditions(num_parameters=6_922, order_sha256="11" * 32, others_share=0.02, stolen_share=0.0)
MACHINE = {"host": "one", "system": "Linux", "cpu": "EPYC", "cores": 2, "memory_bytes": 8 * 2**30}
REFERENCE = made("torch:ddp", conditions=CONDITIONS, machine=MACHINE)
FAIR = made("torch:fsdp", conditions=CONDITIONS, machine=MACHINE)


def said(other: RunResult, reference: RunResult = REFERENCE) -> list[str]:
    return [str(each) for each in find_confounds(circumstances(reference), circumstances(other))]


def asked(**fields: object) -> RunResult:
    """The fair run, had something else been asked for."""
    return dataclasses.replace(FAIR, config=dataclasses.replace(FAIR.config, **fields))


def watched(**fields: object) -> RunResult:
    """The fair run, had something else been recorded."""
    return dataclasses.replace(FAIR, conditions=dataclasses.replace(CONDITIONS, **fields))


def on_devices(result: RunResult, **fields: object) -> RunResult:
    """A run with something else on each of its devices."""
    rows = [DeviceRow(**dataclasses.asdict(row) | fields) for row in result.processes]
    return dataclasses.replace(result, processes=rows)


def replaced(**fields: object) -> RunResult:
    return dataclasses.replace(FAIR, **fields)


def test_strategies_that_are_equally_matched_are_ranked() -> None:
    assert said(FAIR) == []
    assert said(made("tf:mirrored", conditions=CONDITIONS, machine=MACHINE)) == []


PLANTED: dict[str, tuple[Callable[[], RunResult], str]] = {
    "dtype": (lambda: replaced(dtype="float64"), "dtype (float32 and float64)"),
    "optimizer": (lambda: replaced(optimizer="adamw"), "optimizer (sgd at rate 0.03125 and adamw at rate 0.03125)"),
    "batch": (lambda: replaced(global_batch_size=96), "batch (48 and 96)"),
    "data": (lambda: replaced(dataset_sha256="ab" * 32), " and abababab)"),
    "order": (lambda: watched(order_sha256="22" * 32), "order (drawn 11111111 and 22222222)"),
    "parameters": (lambda: watched(num_parameters=12_345), "parameters (6,922 and 12,345)"),
    "workload": (lambda: replaced(workload_digest="cd" * 32, workload="other"), " and cdcdcdcd)"),
    "techniques": (lambda: asked(techniques=Techniques(clip_norm=1.0)), "techniques (clip_norm None and 1.0)"),
    "threads": (lambda: asked(devices=1, mesh="shard=1", threads=2), "threads (1 and 2)"),
    "bandwidth": (lambda: asked(bandwidth="200mbit"), "bandwidth (loopback and 200mbit)"),
    "cores": (lambda: replaced(cores=3), "cores (2 and 3)"),
    "versions": (lambda: replaced(versions=FAIR.versions | {"torch": "2.12.0"}), " and 2.12.0)"),
    "machine": (lambda: replaced(machine=MACHINE | {"cpu": "Xeon"}), "machine (CPU EPYC and Xeon)"),
    "shared-cores": (lambda: asked(devices=4, mesh="shard=4"), "shared-cores (torch:fsdp: 4 devices on 2 cores)"),
    "hosts": (
        lambda: replaced(hosts=({"host": "a", "cores": "4"}, {"host": "b", "cores": "2"})),
        "hosts (torch:fsdp: cores 4 on a, 2 on b)",
    ),
    "emulation": (
        lambda: made("torch:dp", conditions=CONDITIONS, machine=MACHINE),
        "emulation (torch:dp (emulated): threads; nn.DataParallel needs two GPUs)",
    ),
    "compilation": (lambda: watched(compilations=1), "compilation (torch:fsdp: 1 in timed windows)"),
    "busy": (lambda: watched(others_share=0.34), "busy (torch:fsdp: 34 % to other processes)"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_confound_is_found(name: str) -> None:
    plant, text = PLANTED[name]
    found = said(plant())
    assert [each.partition(" ")[0] for each in found] == [name]
    assert found[0].endswith(text)


def test_the_dtype_of_the_optimizer_state_is_a_confound() -> None:
    reference = on_devices(REFERENCE, optimizer_dtype="float32")
    assert said(on_devices(FAIR, optimizer_dtype="float32"), reference) == []
    assert said(on_devices(FAIR, optimizer_dtype="bfloat16"), reference) == ["optimizer-dtype (float32 and bfloat16)"]
    assert said(FAIR, reference) == [], "an older result does not have it"


def test_every_confound_is_planted_once() -> None:
    assert {*PLANTED, "optimizer-dtype"} == set(CONFOUNDS)


def test_the_page_explains_every_confound() -> None:
    page = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text()
    section = page.partition("\n## Confounds\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == list(CONFOUNDS)


def test_gpus_are_no_match_for_cores() -> None:
    gpus = on_devices(FAIR, device="cuda:0")
    assert said(gpus) == ["cores (2 and 2 with 2 accelerators)"]


def test_the_packages_that_only_one_framework_has_are_no_confound() -> None:
    common = {name: version for name, version in FAIR.versions.items() if name != "torch"}
    torch, tf = ({**common, name: "1"} for name in ("torch", "tensorflow"))
    assert said(replaced(versions=tf), dataclasses.replace(REFERENCE, versions=torch)) == []
    assert said(replaced(git_commit="ab" * 20), dataclasses.replace(REFERENCE, git_commit="cd" * 20)) == [
        "versions (commit cdcdcdcd and abababab)"
    ]


# --- what is printed --------------------------------------------------------------------------------------------------


def explained(allowed: tuple[str, ...] = (), **rows: RunResult) -> list[str]:
    every = {"torch:ddp": [REFERENCE] * 2, **{f"torch:{name}": [row] * 2 for name, row in rows.items()}}
    return explain_confounds(every, "torch:ddp", allowed).splitlines()


def test_what_stops_a_ranking_is_said_once_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    noisy = watched(others_share=0.34)
    assert explained(zero1=replaced(cores=4), zero2=replaced(cores=4), fsdp=noisy, tp=FAIR) == [
        "Not ranked against torch:ddp, unless --allow NAME is given:",
        "* cores: torch:zero1, torch:zero2 (4 and 2)",
        "* busy: torch:fsdp (34 % to other processes)",
    ]
    assert explained(("cores",), zero1=replaced(cores=4), fsdp=FAIR) == [
        "Ranked against torch:ddp despite this, because of --allow:",
        "* cores: torch:zero1 (4 and 2)",
    ]
    assert explained(zero1=FAIR) == explain_confounds({"torch:ddp": [REFERENCE]}, None, ()).splitlines() == []


def test_one_round_ranks_nothing_and_explains_nothing() -> None:
    assert explain_confounds({"torch:ddp": [REFERENCE], "torch:tp": [replaced(cores=4)]}, "torch:ddp", ()) == ""


def test_the_oracle_and_compiled_rows_are_not_ranked_and_not_explained() -> None:
    assert explained(oracle=made("numpy:oracle")) == []


@pytest.mark.parametrize("width", [80, 120])
def test_the_explanation_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = {f"zero{n}": watched(others_share=n / 10, compilations=n) for n in range(2, 10)}
    assert max(map(len, explained(**rows))) <= width


# --- in a comparison --------------------------------------------------------------------------------------------------


def compared(names: dict[str, float], conditions: Conditions = CONDITIONS) -> Comparison:
    """A comparison of five rounds, each row so many times as fast as the first."""
    drift = (100.0, 103.0, 98.0, 101.0, 99.0)
    rows = []
    for name, factor in names.items():
        rounds = [
            made(name, (factor * speed * noise,) * 3, conditions=conditions, machine=MACHINE)
            for speed, noise in zip(drift, (1.0, 1.002, 0.999, 1.001, 0.998), strict=True)
        ]
        rows.append(Row.of(Cell.parse(name), *rounds))
    return Comparison(tuple(rows), repeats=5, reference=next(iter(names)))


def test_a_confounded_row_gets_no_verdict_until_it_is_allowed() -> None:
    fair = compared({"torch:ddp": 1.0, "torch:fsdp": 2.0})
    assert fair.speeds["torch:fsdp"].verdict == "2.00x faster"
    lonely = compared({"torch:ddp": 1.0, "torch:fsdp": 2.0})
    fewer = [dataclasses.replace(result, cores=1) for result in lonely.rows[1].results]
    confounded = dataclasses.replace(lonely, rows=(lonely.rows[0], Row.of(Cell.parse("torch:fsdp"), *fewer)))
    assert "shared-cores" in confounded.speeds["torch:fsdp"].confounds
    assert confounded.speeds["torch:fsdp"].against is None
    assert "* cores: torch:fsdp (1 and 2)" in confounded.report("")
    allowed = confounded.conclude(frozenset({"cores", "shared-cores"}))
    assert allowed.speeds["torch:fsdp"].verdict == "2.00x faster"
    assert "despite this, because of --allow:" in allowed.report("")
    assert '"allowed": [\n  "cores",\n  "shared-cores"\n ]' in allowed.to_json()
