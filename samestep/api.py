"""The commands as functions: `import samestep` offers them. They print nothing; `docs/api.md` shows them."""

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from samestep.common.cell import Cell, parse_cells
from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import FieldValues, Scalar
from samestep.common.judging.confounds import check_allowed
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.directory import read_config
from samestep.common.runtime.parent.attempts import check_unfinished
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.elastic import whole
from samestep.common.runtime.parent.judging.finishing import raise_if_missed
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult, load_result
from samestep.experiments.advising.forecast import Forecast, forecast
from samestep.experiments.cli.command_line import read_request
from samestep.experiments.comparing import comparison_file, execution, stored
from samestep.experiments.comparing.baseline import load_earlier
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.comparison_request import check_bit_equal
from samestep.experiments.predict import read
from samestep.experiments.printing.progress import show_progress
from samestep.settings import CompareSettings, PredictSettings, RunSettings

if TYPE_CHECKING:
    from samestep.common.judging.recorded.verdict import RecordedVerdict


def run(cell: str, *, progress: bool = False, **settings: Unpack[RunSettings]) -> RunResult:
    """Trains one workload under one strategy and compares every step with the oracle.

    Args:
        cell: A cell such as `torch:ddp+clip_norm=1`; the framework may be left out where only one has the strategy.
        progress: Whether to show progress on stderr.
        **settings: The flags of `samestep run` and of the strategy, by their names in Python: `batch_size=48`.

    Returns:
        The contents of the run's `result.json`.

    Raises:
        ConfigError: The request is wrong; nothing was started.
        Unavailable: This machine lacks something; the message says how to get it.
        ParityFailed: It trained, but did not take the same step. The directory holds the result.
        WorkerFailed: A process died or hung.
        Diverged: The loss is not finite.
    """
    given = _known(settings, RunSettings.__annotations__)
    with Launcher() as launcher:
        config = launcher.describe(read_request(Cell.parse(cell, RunConfig.framework), given))
        checked, launch = parse(config), launch_of(config)
        if note := check_launch(checked, launch):
            warnings.warn(note, stacklevel=2)
        with show_progress(checked, checked.name) if progress else contextlib.nullcontext() as watcher:
            result = launcher.run(checked, launch, watcher)
    raise_if_missed(result)
    return result


def resume(directory: str | os.PathLike[str], *, progress: bool = False) -> RunResult:
    """Continues a run that was cut off, from its newest checkpoint if it saved one, else from its first step.

    Args:
        directory: The directory of the run.
        progress: Whether to show progress on stderr.

    Returns:
        The contents of the run's `result.json`.

    Raises:
        ConfigError: There is no such run, it has ended, or its files are damaged.
        Unavailable: This machine lacks something; the message says how to get it.
        ParityFailed: It trained, but did not take the same step. The directory holds the result.
        WorkerFailed: A process died or hung.
        Diverged: The loss is not finite.
    """
    path = check_unfinished(Path(directory))
    config = whole(read_config(path))
    with Launcher() as launcher:
        checked, launch = parse(config), launch_of(config)
        check_launch(checked, dataclasses.replace(launch, out=None))
        with show_progress(checked, checked.name) if progress else contextlib.nullcontext() as watcher:
            result = launcher.run(checked, launch, watcher, resume=path)
    raise_if_missed(result)
    return result


def compare(
    cells: Sequence[str] | None = None,
    *,
    require: Sequence[str] = (),
    reference: str | None = None,
    repeats: int | None = None,
    vary: Mapping[str, Sequence[Scalar]] | None = None,
    scaling: str | None = None,
    file: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    against: str | os.PathLike[str] | None = None,
    bit_equal: bool = False,
    allow: Sequence[str] = (),
    progress: bool = False,
    **settings: Unpack[CompareSettings],
) -> Comparison:
    """Trains one workload under many strategies, in rounds, one run after the other, the oracle first.

    A row that fails, misses parity or is unavailable does not end the comparison: `Comparison.require` raises for it.

    Args:
        cells: As in `["torch:ddp", "tf:mirrored"]`; by default every strategy.
        require: Cells that must be judged; those that are not among `cells` are added.
        reference: The row that the others are compared with; by default the first that trains, after the oracle.
        repeats: The number of rounds: how often each row but the oracle's is measured; by default once.
        vary: Name -> values: each row that has the name is run with each value, as in `{"devices": [1, 2, 4]}`.
        scaling: "strong", the default, keeps the global batch; "weak" keeps the batch of each device, so the global batch grows.
        file: A file that gives all of this, such as `compare.toml`; arguments take precedence.
        against: An earlier comparison, a run or a directory of runs: every row is compared with the same row there.
        bit_equal: Whether the steps must equal those of `against` in every bit; needs the same versions and machine.
        allow: The confounds despite which rows are ranked by their speed.
        resume: The directory of a comparison to continue; other arguments must agree with its request.
        progress: Whether to show progress on stderr.
        **settings: The flags of `samestep compare`, by their names in Python: `batch_size=48`.

    Raises:
        ConfigError: The request is wrong; nothing was started.
        Unavailable: The package with the data is not installed.
        KeyboardInterrupt: Ctrl-C ended it; the runs that were done are in their directories.
    """
    given = _known(settings, CompareSettings.__annotations__)
    out = given.pop("out", None)
    given |= {} if cells is None else {"strategies": _cells("cells", cells)}
    given |= {"require": _cells("require", require)} if require else {}
    allowed = check_allowed([allow] if isinstance(allow, str) else allow)
    check_bit_equal(bit_equal, against)
    earlier = None if against is None else load_earlier(Path(against))
    given |= {"reference": reference, "repeats": repeats, "vary": vary or {}, "scaling": scaling}
    if resume is not None:
        if file is not None or out is not None:
            raise ConfigError(f"resume={str(resume)!r} continues what is there; leave out file and out.")
        comparison = execution.resume(Path(resume), given, quiet=not progress)
    else:
        asked = execution.ask(None if file is None else Path(file), given, quiet=not progress)
        comparison = execution.compare(asked, out, quiet=not progress)
    if comparison.interrupt:
        raise comparison.interrupt
    return comparison.conclude(allowed, earlier, bit_equal)


def predict(cell: str | None = None, *, observe: bool = False, **settings: Unpack[PredictSettings]) -> Forecast:
    """Predicts what a step holds and sends, without running anything.

    Args:
        cell: A cell such as `torch:fsdp`; by default every strategy that can take the request.
        observe: Whether to also take one real step of the strategy, as rank 0 among ranks that do not exist.
        **settings: The flags of `samestep predict` and of the strategy, by their names in Python: `device_memory="80GiB"`.

    Raises:
        ConfigError: The request is wrong, or no strategy can take it.
    """
    given = _known(settings, PredictSettings.__annotations__)
    full = None if cell is None else Cell.parse(cell, RunConfig.framework)
    return forecast(full, *read(full, given), observe)


@contextlib.contextmanager
def record(out: str | os.PathLike[str] | None = None, *, every: int = 1) -> Iterator[Path]:
    """Records what this process trains within a `with` block; import torch or keras first. Yields the record's directory.

    On exit, it warns of the mistakes that the record alone proves, as `samestep record` does.

    Args:
        out: A new or an empty directory; by default a new one in runs/.
        every: After the first 10 steps, tensors are recorded in every so many steps.

    Raises:
        ConfigError: The directory is not empty, or cannot be written.
        Unavailable: No framework is imported yet.
    """
    from samestep.experiments.recording.facts import facts_of
    from samestep.experiments.recording.start import default_directory, prepared, started_here

    directory = prepared(Path(out or default_directory(["notebook"])))
    stops = started_here(directory, every)
    try:
        yield directory
    finally:
        for stop in stops:
            stop()
    for fact in facts_of(directory)[1:]:
        warnings.warn(fact, stacklevel=3)


def diff(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    float64: bool = False,
    weights_from: Literal["A"] | None = None,
    steps: int = 20,
    progress: bool = False,
) -> "RecordedVerdict":
    """Compares two records of training, or two commands, and says whether they took the same steps.

    Args:
        a: The directory of a record; or a command, which is recorded first, into a new directory in runs/. Where rounding has
            to be measured, its command is run again.
        b: The record or command that A is compared with.
        float64: Run both commands again in float64, and compare those runs.
        weights_from: "A" starts B from A's initial weights.
        steps: How many steps reruns take, at most.
        progress: Whether to show on stderr what is running, and the output of commands.

    Raises:
        ConfigError: Something is neither a record nor a command, is damaged, or has nothing in common with the other.
        Unavailable: A command took no step that can be recorded, or cannot be run again in float64.
        WorkerFailed: A command failed.
    """
    from samestep.experiments.diff import check_steps
    from samestep.experiments.recording import diffing
    from samestep.experiments.recording.sides import read_sides

    check_steps(steps)
    if weights_from not in (None, "A"):
        raise unknown("side", str(weights_from), ["A"])
    sides = read_sides(a, b, weights_from is not None, is_quiet=not progress)
    found = diffing.diff(*(diffing.in_float64(sides) if float64 else sides), steps)
    return dataclasses.replace(found.verdict, notes=(*found.verdict.notes, *found.notes))


def load(path: str | os.PathLike[str]) -> RunResult | Comparison:
    """Reads the result of a finished run, or a comparison as far as it got.

    Args:
        path: The directory of the run or of the comparison.

    Raises:
        ConfigError: It holds neither, or is damaged.
    """
    directory = Path(path)
    return stored.load(directory) if os.path.exists(directory / comparison_file.NAME) else load_result(directory)


def _cells(name: str, cells: Sequence[str]) -> list[str]:
    return [str(cell) for cell in parse_cells(name, cells if isinstance(cells, str) else ",".join(cells))]


def _known(settings: Mapping[str, object], names: Iterable[str]) -> FieldValues:
    """Returns the settings; raises ConfigError for one whose name is unknown."""
    for name in settings:
        if name not in names:
            raise unknown("setting", name, names)
    return dict(settings)
