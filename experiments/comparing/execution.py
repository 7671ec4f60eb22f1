"""Starts a comparison, or continues one: all its cells are checked before any is run."""

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, Refused, SamestepError
from samestep.common.files.locks import sole_user
from samestep.common.files.removing import discard_all
from samestep.common.files.writing import open_directory
from samestep.common.flags import spell_flag, split_spelling
from samestep.common.request import launch_of
from samestep.common.run import as_config, parse
from samestep.common.runtime.directory import refuse_run, refuse_taken, write_error
from samestep.common.runtime.parent.attempts import first_new, new_directory
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments.comparing import comparison_file
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.comparison_file import check_code
from samestep.experiments.comparing.comparison_request import ComparisonConfig, Given, describe, merge
from samestep.experiments.comparing.plan import Plan, make_plan, refuse_other, request_of
from samestep.experiments.comparing.rounds import Ready, measure, tell
from samestep.experiments.comparing.stored import Found, compose, find, make_place, read_asked, run_directory

if TYPE_CHECKING:
    from samestep.common.runtime.parent.job_executor import JobExecutor

Checked = Mapping[Cell, Ready | SamestepError]
"""Cell -> the run, or the error because of which it cannot be run."""
Begin = Callable[[Path], object]
"""The directory of a comparison -> anything, which is ignored."""


def compare(
    asked: ComparisonConfig,
    out: str | None = None,
    quiet: bool = False,
    executor: "JobExecutor | None" = None,
    begin: Begin = lambda directory: None,
) -> Comparison:
    """Runs a comparison.

    Args:
        asked: The comparison.
        out: Its directory; by default a new one below `runs/`.
        quiet: Whether to print nothing; otherwise the progress goes to stderr.
        executor: Starts each row as a job of an engine; without it, rows run on this machine.
        begin: Called with the directory before the first run.

    Raises:
        SamestepError: The request is wrong; nothing was started, and nothing is left.
    """
    plan = make_plan(asked)
    trained = split_spelling(asked.base.workload)[0] if asked.base.model is None else Path(asked.base.model).stem
    name = f"comparison-{trained}"
    directory = new_directory(name) if out is None else Path(out)
    refuse_taken(directory)
    for cell in plan.cells:
        refuse_run(run_directory(directory, cell, 1))  # refuses a name that is too long as well
    with Launcher(executor=executor) as launcher:
        checked = _check(plan, launcher, quiet)
        if out is None:
            directory = first_new(lambda: new_directory(name))
        else:
            _make(directory)
        with sole_user(directory, "measured"):
            comparison_file.write_file(directory / comparison_file.NAME, asked)
            begin(directory)
            try:
                return _conduct(plan, checked, {cell: Found() for cell in plan.cells}, directory, launcher, quiet)
            except Refused:
                discard_all(directory)
                raise


def ask(file: Path | None, given: Given, quiet: bool = False) -> ComparisonConfig:
    """Makes a comparison from a file and from other settings.

    Args:
        file: The request in `compare.toml`, if there is one.
        given: The other settings, which take precedence.
        quiet: Whether to print nothing; otherwise the code that the file names goes to stderr.

    Raises:
        ConfigError: Something is wrong, or the code has changed since the file was written.
    """
    if file is None:
        return describe(given)
    stored = comparison_file.read_file(file)
    _tell_code(file, stored, given, quiet)
    return describe(merge(stored, given))


def _tell_code(file: Path, stored: Given, given: Given, quiet: bool) -> None:
    for line in check_code(file, stored, given):
        tell(f"samestep: {line}", quiet)


def resume(
    directory: Path,
    given: Given,
    quiet: bool = False,
    executor: "JobExecutor | None" = None,
    begin: Begin = lambda directory: None,
) -> Comparison:
    """Continues a comparison: rows with a result are not run again, all others are.

    Args:
        directory: The directory of the comparison.
        given: Settings, which must agree with those of the comparison.
        quiet: Whether to print nothing; otherwise the progress goes to stderr.
        executor: Starts each row as a job of an engine; without it, rows run on this machine.
        begin: Called with the directory before the first run.

    Raises:
        SamestepError: It is not a comparison, or a different one; nothing was started.
    """
    stored = read_asked(directory)
    _tell_code(directory / comparison_file.NAME, stored, {}, quiet)
    asked = describe(merge(stored, given))
    _refuse_another(directory, describe(stored), asked)
    plan = make_plan(asked)
    with Launcher(executor=executor) as launcher, sole_user(directory, "measured"):
        checked = _check(plan, launcher, quiet)
        found = {cell: find(directory, cell, plan) for cell in plan.cells}
        for cell, each in found.items():
            each.error = None
            for number, result in each.results.items():
                if not isinstance(ready := checked[cell], SamestepError):  # including defaults of the workload
                    refuse_other(run_directory(directory, cell, number), result, as_config(*ready))
        begin(directory)
        return _conduct(plan, checked, found, directory, launcher, quiet)


def _conduct(
    plan: Plan,
    checked: Checked,
    found: Mapping[Cell, Found],
    directory: Path,
    launcher: Launcher,
    quiet: bool,
) -> Comparison:
    ready = {cell: each for cell, each in checked.items() if not isinstance(each, SamestepError)}
    for cell, why in checked.items():
        missing = [number for number in range(1, plan.rounds(cell) + 1) if number not in found[cell].results]
        if isinstance(why, SamestepError) and missing:
            found[cell].error = why
            _record(directory, run_directory(directory, cell, missing[0]), why)
    interrupt = measure(plan, ready, found, directory, launcher, quiet)
    return compose(plan, directory, found, interrupt)


def _make(directory: Path) -> None:
    """Makes the directory of a comparison."""
    try:
        open_directory(directory)
    except OSError as error:
        raise ConfigError(f"--out {directory} cannot be made ({error.strerror}); name another directory.") from None


def _record(directory: Path, run: Path, why: SamestepError) -> None:
    """Writes why a cell cannot be run into the directory of its first round."""
    with contextlib.suppress(OSError):  # on a full disk it is only printed, and `load` finds no row
        make_place(run, directory)
        open_directory(run)
        write_error(run, "parent", why, first=False)


# --- checks -----------------------------------------------------------------------------------------------------------


def _check(plan: Plan, launcher: Launcher, quiet: bool) -> Checked:
    """Checks every cell. The oracle must be possible, and so must at least one of the cells that the user named."""
    checked: dict[Cell, Ready | SamestepError] = {}
    notes, described = {}, {}
    for cell in plan.cells:
        config = request_of(cell, plan)
        try:
            config = launcher.describe(config)
            run, launch = parse(config), launch_of(config)
            notes[check_launch(run, launch, launcher.executor is None)] = None
            checked[cell] = run, launch
        except SamestepError as error:
            # NumPy is always installed, so if the oracle lacks something, it is the data
            if cell.is_oracle:
                raise
            checked[cell] = error
            continue
        first = described.setdefault(json.dumps([run.described(), launch.bandwidth], default=str), cell)
        if first != cell:
            raise ConfigError(
                f"{first} and {cell} are the same run; name it once, and measure it more often with --repeats."
            )
    refused = _refused(plan, checked)
    for note in (*filter(None, notes), *(f"{cell} is not possible: {why}" for cell, why in refused.items())):
        tell(note, quiet)
    return checked


def _refused(plan: Plan, checked: Checked) -> dict[Cell, ConfigError]:
    """Returns the named cells that cannot be run as requested, with the reasons.

    Raises:
        ConfigError: No other named cell can be run, so the request is wrong as a whole.
    """
    refused = {cell: why for cell in plan.named if isinstance(why := checked[cell], ConfigError)}
    for why in refused.values():
        if all(cell.is_oracle or isinstance(checked[cell], SamestepError) for cell in plan.named):
            raise why
    return refused


def _refuse_another(directory: Path, stored: ComparisonConfig, asked: ComparisonConfig) -> None:
    """Refuses to continue a comparison with other settings.

    More rounds are refused as well: adding rounds until a verdict appears produces verdicts by chance.
    """
    before, now = comparison_file.settings(stored), comparison_file.settings(asked)
    for name, was in before.items():
        wanted = now[name]
        if was != wanted:
            raise ConfigError(
                f"--resume {directory} is another comparison: {spell_flag(name)} is {_spell(was)} there, and {_spell(wanted)} "
                f"here; leave out {spell_flag(name)} to continue it, or start another one with --out."
            )


def _spell(value: object) -> str:
    """Returns a setting as it is given on the command line."""
    if value is None or value == {}:
        return "not given"
    if isinstance(value, Mapping):
        return " ".join(f"{name}={','.join(values)}" for name, values in value.items())
    return str(value)
