"""The page on one record, or on two: the verdict, their curves, and the tensors of the step that matters."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from samestep.common.errors import ConfigError, count
from samestep.common.steps.joining import read_run
from samestep.common.steps.record import RecordHeader, rank_files
from samestep.experiments.page.records import record_figures
from samestep.experiments.page.records.gathered import GatheredPair, gather_pair, gather_record
from samestep.experiments.page.rendering import assembled, render
from samestep.experiments.printing.diff_report import diff_document, facts_of_diff, next_step
from samestep.experiments.printing.formats import write
from samestep.experiments.recording.diffing import judge_as_kept
from samestep.experiments.recording.facts import facts_of
from samestep.experiments.recording.reruns import Reruns


def are_records(paths: Sequence[Path]) -> bool:
    """Returns whether any of the directories is a record."""
    return any(os.path.isdir(path) and rank_files(path) for path in paths)


def report_records(paths: Sequence[Path], form: str) -> str:
    """Returns the report on one record, or on two.

    Args:
        paths: Their directories.
        form: "html", or a format of `experiments.printing.formats`.

    Raises:
        ConfigError: There are more than two directories, one cannot be read, or two records have nothing in common.
    """
    if len(paths) > 2:
        raise ConfigError(f"{len(paths)} directories are named, with records among them; name one record, or two.")
    if form != "html" and len(paths) == 1:
        raise ConfigError(f"--format {form} of one record is not there; leave it out, or name two records.")
    if len(paths) == 1:
        return page_of_record(paths[0])
    if form == "html":
        return page_of_pair(paths)
    return write(diff_document(judge_as_kept(*_sides(paths))[0], [*map(str, paths)]), form)


def page_of_record(path: Path) -> str:
    """Returns the page on one record.

    Raises:
        ConfigError: It cannot be read.
    """
    record = gather_record(read_run(path), path)
    said, *facts = facts_of(path) or [f"{path} has no step"]
    sections = [
        ("facts", "What it proves", render("record_verdict", {"headline": f"{said}.", "facts": facts, "next": ""})),
        *_drawn("curves", "Curves", record_figures.single_figures(record)),
        ("provenance", "Where it comes from", _provenance({"value": (path, record.run.header)})),
    ]
    return assembled(path.resolve().name, f"A record of {shlex.join(record.run.header.command)}", sections)


def page_of_pair(paths: Sequence[Path]) -> str:
    """Returns the page on two records.

    Args:
        paths: Their directories.

    Raises:
        ConfigError: One cannot be read, or they have nothing in common.
    """
    a, b = _sides(paths)
    pair, sides = gather_pair(a, b), {"A": (a.directory, a.run.header), "B": (b.directory, b.run.header)}
    verdict = pair.found.verdict
    said = {
        "headline": f"{verdict.headline}.",
        "facts": facts_of_diff(pair.found),
        "next": next_step(verdict, [*map(str, paths)]),
    }
    curves = [
        record_figures.loss_figure({"A": pair.losses[0], "B": pair.losses[1]}),
        record_figures.rounding_figure(pair),
    ]
    sections = [
        ("verdict", "Verdict", render("record_verdict", said)),
        *_drawn("curves", "Curves", [each for each in curves if each is not None]),
        *_tensors(pair),
        ("provenance", "Where it comes from", _provenance(sides)),
    ]
    about = f"Two records, judged at {count(verdict.num_steps, 'step')}"
    return assembled(" against ".join(path.resolve().name for path in paths), about, sections)


def _sides(paths: Sequence[Path]) -> tuple[Reruns, Reruns]:
    a, b = (Reruns(read_run(path), path.resolve(), name) for path, name in zip(paths, "AB", strict=True))
    return a, b


def _drawn(name: str, title: str, figures: Sequence[record_figures.RecordFigure]) -> list[tuple[str, str, Markup]]:
    return [(name, title, render("record_curves", {"figures": figures}))] if figures else []


def _tensors(pair: GatheredPair) -> list[tuple[str, str, Markup]]:
    rows = record_figures.most_telling(pair.tensors)
    if not rows:
        return []
    figure = record_figures.projection_figure(pair)
    left = len(pair.tensors) - len(rows)
    content = {
        "figures": [figure] if figure else [],
        "rows": rows,
        "step": pair.step,
        "phase": pair.phase,
        "left": left,
    }
    return [("tensors", "Tensors", render("record_tensors", content))]


def _provenance(sides: dict[str, tuple[Path, RecordHeader]]) -> Markup:
    facts = {name: _facts(path, header) for name, (path, header) in sides.items()}
    names = list(dict.fromkeys(name for each in facts.values() for name in each))
    rows = [(name, [each.get(name, "") for each in facts.values()]) for name in names]
    marked = [(name, values, len(set(values)) > 1) for name, values in rows]
    return render("record_sides", {"sides": list(sides), "rows": marked})


def _facts(path: Path, header: RecordHeader) -> dict[str, str]:
    shared = f", {' and '.join(header.layouts)}" if header.layouts else ""
    return {
        "record": str(path),
        "command": shlex.join(header.command),
        "started in": header.directory,
        "processes": f"{header.world}{shared}",
        "tensors": str(len(header.tensors)),
        "framework": header.framework,
        "float64": "yes" if header.is_float64 else "no",
        **header.versions,
        **header.environment,
    }
