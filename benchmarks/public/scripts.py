"""Records unchanged public scripts, records them again, and records them in two processes if they support that.

    python -m benchmarks.public.scripts torch --sources DIR [--store DIR] [NAME ...]
    python -m benchmarks.public.scripts tf --sources DIR [--store DIR] [NAME ...]

DIR holds clones of the repositories of `benchmarks.public.sources`; for one that is missing, the line that clones it is printed.
Each script is copied into the store, with small stand-ins for its data sets. Results are kept in STORE/public.jsonl, and the next
call continues from there. A NAME is a part of a script's name; that script is tried again. Packages that scripts need are taken
from PYTHONPATH.
"""

import argparse
import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.public.data import MAKERS
from benchmarks.public.forks import begin, record
from benchmarks.public.of_keras import KERAS
from benchmarks.public.of_torch import TORCH
from benchmarks.public.sources import COMMITS, EARLIER, PublicScript
from samestep.common.errors import SamestepError
from samestep.common.judging.recorded.judge import judge
from samestep.common.steps.joining import read_run
from samestep.common.steps.recorded_run import RecordedRun
from samestep.common.steps.recording import RecordOptions

SCRIPTS = (*TORCH, *KERAS)


@dataclasses.dataclass(frozen=True)
class Trial:
    """One script in the store.

    Attributes:
        script: The script.
        home: The folder of its copy, its records and its output.
    """

    script: PublicScript
    home: Path

    @property
    def work(self) -> Path:
        """The folder of the copy, nested so data sets in its parent folders stay below `home`."""
        return self.home / "a" / "copy" / "of" / "script"

    def prepare(self, sources: Path) -> None:
        """Copies the script and writes its data, unless that was done before.

        Args:
            sources: The folder of the clones.
        """
        if self.work.exists():
            return
        original = sources / self.script.repository.split("/")[1] / self.script.folder
        shutil.copytree(original, self.work, ignore=shutil.ignore_patterns(".git"))
        for each in self.script.data:
            name, place = each.split(" ")
            MAKERS[name](self.work / place)
        for command in self.script.before:
            subprocess.run([sys.executable, *shlex.split(command)[1:]], cwd=self.work, check=True, capture_output=True)

    def record(self, name: str, arguments: str, num: int = 1) -> bool:
        """Records the script; returns whether it succeeded.

        Args:
            name: The name of the record.
            arguments: Environment variables, followed by the arguments of the script.
            num: The number of processes.
        """
        given = shlex.split(arguments)
        variables = [each for each in given if re.match("[A-Z_]+=", each)]
        environment = {**self.script.environment, **dict(each.split("=") for each in variables)}
        words = (self.script.file, *given[len(variables) :])
        options = RecordOptions(
            str(self.home / "records" / name), command=words, stop_after=self.script.stop_after or None
        )
        return record(self.script.framework, words, self.work, environment, options, num)

    def verdict(self, name: str) -> str:
        """Returns the headline of the verdict on the first record and another one.

        Args:
            name: The name of the other record.
        """
        one, other = (read_run(self.home / "records" / each) for each in ("one", name))
        return judge(one, other).headline


def seen_of(run: RecordedRun) -> dict[str, object]:
    """Returns what a record contains: its number of steps, and in how many of them each kind of content is known.

    Args:
        run: The record.
    """
    steps = [step for step in run.steps if step.number >= 0]
    trained = [each.name for each in run.tensors if each.role == "parameter"]
    seen = set[str]()
    for step in steps:
        sums = (step.sums or {}).get("gradient")
        if sums is not None:
            seen |= {each.name for each, square in zip(run.tensors, sums.square, strict=True) if square == square}
    return {
        "steps": len(steps),
        "data": sum(step.rows is not None for step in steps),
        "loss": sum(step.loss is not None for step in steps),
        "rate": sum("lr" in step.scalars for step in steps),
        "parameters": len(trained),
        "gradients": len(seen & {*trained}),
    }


def tried(trial: Trial) -> dict[str, object]:
    """Tries a script; returns the results.

    Args:
        trial: The prepared script.
    """
    script = trial.script
    row: dict[str, object] = {"name": script.name, "ended": trial.record("one", script.arguments)}
    try:
        row["seen"] = seen_of(read_run(trial.home / "records" / "one"))
        trial.record("again", script.arguments)
        row["again"] = trial.verdict("again")
        if script.two:
            trial.record("two", script.two, 2)
            row["two"] = trial.verdict("two")
    except SamestepError as error:
        row["error"] = str(error)
    return row


def clone_line(repository: str, sources: Path) -> str:
    """Returns the shell command that clones a repository at the commit that was tried.

    Args:
        repository: The owner and name.
        sources: The folder of the clones.
    """
    folder = sources / repository.split("/")[1]
    checkouts = [COMMITS[repository], *EARLIER.get(repository, ())]
    clone = f"git clone https://github.com/{repository} {folder}"
    return " && ".join([clone, *(f"git -C {folder} checkout -q {each}" for each in checkouts)])


def table(rows: Iterable[dict]) -> list[str]:
    """Returns the lines of a table of the results.

    Args:
        rows: The result of `tried` for each script.
    """
    kinds = ("steps", "data", "loss", "rate")
    lines = [
        f"| script | {' | '.join(kinds)} | gradients | again | in two processes |",
        "|--|--|--|--|--|--|--|--|",
    ]
    for row in rows:
        seen = row.get("seen", {})
        cells = [*(seen.get(kind, "") for kind in kinds), f"{seen.get('gradients', 0)} of {seen.get('parameters', 0)}"]
        said = [row.get("again", row.get("error", "")), row.get("two", "")]
        said = [each.removesuffix(f": {seen.get('steps')} steps") for each in said]
        lines.append(f"| {' | '.join(map(str, (row['name'], *cells, *said)))} |")
    return lines


def set_up(store: Path) -> None:
    """Sets the environment variables of all scripts.

    Args:
        store: The folder of the results, in which Keras also finds its data sets.
    """
    (store / ".keras" / "datasets").mkdir(parents=True, exist_ok=True)
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "KERAS_HOME": str(store / ".keras"),
        "MPLBACKEND": "agg",
        "WANDB_MODE": "disabled",
        "USE_TF": "0",
    }
    MAKERS["keras"](store / ".keras" / "datasets")


def begun(about: str | None, store: str) -> tuple[argparse.Namespace, Path, Path]:
    """Reads the arguments, and prepares this process, from which scripts are forked.

    Args:
        about: A description of the command.
        store: The default folder of the results.

    Returns:
        The arguments, the folder of the clones, and the folder of the results.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=("torch", "tf"))
    parser.add_argument("names", nargs="*", help="parts of names of scripts; all that are to do, unless given")
    parser.add_argument("--sources", type=Path, required=True, help="the folder of the clones")
    parser.add_argument("--store", type=Path, default=Path(store), help="the folder of what came out")
    given = parser.parse_intermixed_args()  # names may come last
    sources, out = given.sources.resolve(), given.store.resolve()
    set_up(out)
    begin(given.framework)
    return given, sources, out


def main() -> None:
    """Tries the scripts that have not been tried, and prints the table."""
    given, sources, store = begun(__doc__, "runs/public")
    log = store / "public.jsonl"
    done = {row["name"]: row for row in map(json.loads, log.read_text().splitlines())} if log.exists() else {}
    for script in (each for each in SCRIPTS if each.framework == given.framework):
        if not any(name in script.name for name in given.names) if given.names else script.name in done:
            continue
        if not (sources / script.repository.split("/")[1]).is_dir():
            print(clone_line(script.repository, sources), file=sys.stderr)
            continue
        trial = Trial(script, store / script.name.replace("/", "."))
        trial.prepare(sources)
        done[script.name] = row = tried(trial)
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), file=sys.stderr, flush=True)
    print("\n".join(table(done[script.name] for script in SCRIPTS if script.name in done)))


if __name__ == "__main__":
    main()
