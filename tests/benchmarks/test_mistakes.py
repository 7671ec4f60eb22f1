"""`benchmarks.mistakes` counts what it found: a mistake that is missed, unnamed or misnamed shows, and so does a healthy run."""

import dataclasses
import itertools
import math
from pathlib import Path

import pytest

from benchmarks.mistakes.__main__ import table_of_healthy, table_of_mistakes
from benchmarks.mistakes.grid import MISTAKES, Outcome, Setting, cells, make
from benchmarks.mistakes.healthy import Answer, ask, requests
from samestep.common.cell import Cell
from samestep.common.reference.diagnosis import UNEXPLAINED
from samestep.common.reference.known import KNOWN
from samestep.common.request import Launch, RunConfig
from samestep.common.run import as_config
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from tests.lent import LentLauncher

MLP = "digits-mlp+width=8"
SHORT = "prose-gpt+layers=1+heads=2+width=8+context=2+ignored=0.5"
"""With micro-batches of one example, many of which have no target that counts."""


def made(mistake: str, *named: str, farthest: float = 1e3, is_caught: bool = True, dtype: str = "float64") -> Outcome:
    return Outcome(Setting(mistake, MLP, "", "sgd", 2, dtype, 0), farthest, is_caught, named)


def row(table: str, name: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {name} ")]
    return [part.strip() for part in line.strip("|").split("|")][1:]


def test_mistakes_are_counted_where_they_matter() -> None:
    table = table_of_mistakes(
        [
            made("a", "a"),
            made("a", "a", "b"),
            made("a", farthest=99.0, is_caught=False),
            made("a", farthest=math.inf),
            made("b", "a", "b", farthest=200.0),
            made("b", is_caught=False, dtype="float32"),
            made("b", "c"),
            made("b"),
        ]
    )
    assert row(table, "a") == ["2", "2", "2", "1", "1e+03"]
    assert row(table, "b") == ["4", "3", "1", "0", "2e+02"]
    assert row(table, "all 2") == ["6", "5", "3", "1", ""]
    assert "perhaps one function with another one: b\n" in table
    assert "not caught: 1, of which in float32: 1\n" in table
    complaints = table.partition("by another name only: 3\n")[2]
    assert complaints == (
        f"    b in {MLP} sgd float32 devices=2 first=0: NOT caught, called nothing\n"
        f"    b in {MLP} sgd float64 devices=2 first=0: caught, called c\n"
        f"    b in {MLP} sgd float64 devices=2 first=0: caught, called nothing"
    )


def test_healthy_runs_are_counted_by_framework_and_arithmetic() -> None:
    table = table_of_healthy(
        [
            Answer("torch:ddp+clip_norm=1", MLP, "float64", 0.5, 1.0, ()),
            Answer("torch:ddp", MLP, "float64", 2.0, 0.01, ("clip_forgotten",)),
            Answer("torch:ddp+precision=bf16", MLP, "float32", 0.25, 0.9, ()),
        ]
    )
    assert row(table, "torch float64") == ["2", "1", "1", "2", "0.01"]
    assert row(table, "torch bf16") == ["1", "0", "0", "0.2", "0.90"]
    assert row(table, "all") == ["3", "1", "1", "2", "0.01"]
    assert table.endswith(f"    torch:ddp {MLP} float64: clip_forgotten")


def test_every_mistake_is_made_in_its_own_cell_and_elsewhere() -> None:
    places = {mutant.name: {each.workload for each in cells() if each.mistake == mutant.name} for mutant in KNOWN}
    assert min(map(len, places.values())) >= 8
    sizes = [sentence.partition("{devices}") for sentence in (mutant.sentence for mutant in KNOWN)]
    inside = [(a, b) for a, b in itertools.permutations(sizes, 2) if a[0] and a[0] in b[0] and a[2] in b[2]]
    assert inside == [], "one sentence is in another, and would be counted with it"


@pytest.mark.parametrize(
    ("cell", "named"),
    [
        (Setting("times_microbatches", MLP, "+accumulation_steps=2", "sgd", 2, "float64", 0), 2),
        (Setting("times_microbatches", MLP, "+accumulation_steps=4", "sgd", 2, "float64", 3), 1),
        (Setting("clip_before_unscaling", MLP, "+clip_norm=0.05", "sgd", 2, "float32", 0), 1),
        (Setting("running_statistics_lost", f"{MLP}+norm=batch", "", "sgd", 2, "float64", 3), 1),
        (Setting("forgotten_exchange", MLP, "+compress=int8+accumulation_steps=2", "sgd", 4, "float64", 0), 1),
        (Setting("ignored_counted", SHORT, "+accumulation_steps=4", "sgd", 4, "float64", 0), 1),
    ],
    ids=lambda value: value.mistake if isinstance(value, Setting) else "",
)
def test_a_mistake_is_named_with_what_is_the_same_step(cell: Setting, named: int) -> None:
    outcome = make(cell)
    assert outcome is not None
    assert outcome.is_caught and outcome.matters
    assert cell.mistake in outcome.named
    assert len(outcome.named) == named


def test_what_cannot_be_made_is_left_out() -> None:
    assert make(Setting("untied_head", MLP, "+tied=true", "sgd", 2, "float64", 0)) is None
    assert make(Setting("epsilon_hat", MLP, "", "sgd", 2, "float64", 0)) is None


class Unclipped(LentLauncher):
    """Has a run forget to clip."""

    def execute(self, directory: Path, run: Run, launch: Launch, **more: object) -> None:
        """Executes as the launcher does; the arguments are the same."""
        forgetful = dataclasses.replace(run, techniques=Techniques())
        write_json(directory / "config.json", as_config(forgetful, launch))
        super().execute(directory, forgetful, launch, **more)


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "named"), [(LentLauncher, ()), (Unclipped, ("clip_forgotten",))])
def test_a_run_is_named_only_if_something_is_wrong(
    launcher: Launcher, kind: type[LentLauncher], named: tuple[str, ...]
) -> None:
    base = RunConfig(workload=MLP, devices=2, batch_size=16, steps=3, optimizer="sgd", parity=False, keep_state=True)
    cell = "torch:ddp+clip_norm=0.05"
    answer = ask(kind(launcher, "benchmarks.mistakes.steps_worker"), cell, Cell.parse(cell).apply_to(base))
    assert answer.named == named
    assert (answer.distance > 1) == (answer.left < UNEXPLAINED) == bool(named)


def test_healthy_runs_are_drawn_over_everything() -> None:
    drawn = list(itertools.islice(requests(), 80))
    assert len({asked.seed for _, asked in drawn}) == 80
    assert {cell.partition(":")[0] for cell, _ in drawn} == {"torch", "tf"}
    assert len({asked.workload for _, asked in drawn}) == 9
    assert {*MISTAKES} == {mutant.name for mutant in KNOWN}
