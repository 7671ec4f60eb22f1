"""Scripts that nobody here wrote, unchanged, under `samestep record` and `samestep diff`.

    python -m benchmarks.public_scripts --sources DIR [--store DIR] [NAME ...]

DIR holds clones of the repositories of `benchmarks.public_list`; for one that is missing, the line that clones it is printed.
Each script is copied into the store with small stand-ins for its data sets, is recorded twice, and where it can once more in two
processes. What came out is kept in STORE/public.jsonl, so the next call goes on from there. A NAME is a part of a script's name,
and tries it again. Packages that scripts need are taken from PYTHONPATH.
"""

import argparse
import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.public_data import MAKERS
from benchmarks.public_keras import KERAS
from benchmarks.public_list import COMMITS, PublicScript
from benchmarks.public_torch import TORCH
from samestep.common.errors import SamestepError
from samestep.common.steps.joining import read_run
from samestep.common.steps.recorded_run import RecordedRun

TIMEOUT_SECONDS = 600
SCRIPTS = (*TORCH, *KERAS)
_LAUNCHERS = {
    "python": [sys.executable],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    "fabric": [sys.executable, "-m", "lightning.fabric.cli", "run", "--accelerator=cpu", "--devices=2"],
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """One script in the store.

    Attributes:
        script: The script.
        home: The folder of its copy, its records and what it printed.
    """

    script: PublicScript
    home: Path

    @property
    def work(self) -> Path:
        """The copy of the script, at a depth that data sets in parents of it stay in this folder."""
        return self.home / "a" / "copy" / "of" / "script"

    def prepare(self, sources: Path) -> None:
        """Copies the script and puts its data beside it, once.

        Args:
            sources: The folder of the clones.
        """
        if self.work.exists():
            return
        original = sources / self.script.repository.split("/")[1] / self.script.folder
        shutil.copytree(original, self.work, ignore=shutil.ignore_patterns(".git"))
        (self.home / "offline").mkdir(exist_ok=True)
        shutil.copy(Path(__file__).with_name("public_offline.py"), self.home / "offline" / "sitecustomize.py")
        for each in self.script.data:
            name, place = each.split(" ")
            MAKERS[name](self.work / place)
        for command in self.script.before:
            self.run([sys.executable, *shlex.split(command)[1:]], "before")

    def run(self, words: Sequence[str], log: str) -> subprocess.CompletedProcess[str]:
        """Runs a command where the script lies, with its environment.

        Args:
            words: The command.
            log: The name of the file that gets what it printed.
        """
        path = os.pathsep.join(filter(None, (str(self.home / "offline"), os.environ.get("PYTHONPATH"))))
        own = {name: value.format(work=self.work) for name, value in self.script.environment.items()}
        always = {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            words,
            cwd=self.work,
            env=os.environ | always | own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        (self.home / f"{log}.log").write_text(f"{done.stdout}\n--- stderr\n{done.stderr}")
        return done

    def record(self, name: str, launched: str) -> subprocess.CompletedProcess[str]:
        """Records the script anew.

        Args:
            name: The name of the record.
            launched: The launcher and the arguments.
        """
        stop = ("--stop-after", str(self.script.stop_after)) if self.script.stop_after else ()
        out = self.home / "records" / name
        shutil.rmtree(out, ignore_errors=True)
        launcher, *arguments = shlex.split(launched)
        command = [*_LAUNCHERS[launcher], self.script.file, *arguments]
        return self.run([sys.executable, "-m", "samestep", "record", "--out", str(out), *stop, "--", *command], name)

    def diff(self, name: str) -> str:
        """Returns the first line of what `samestep diff` says of the first record and another one.

        Args:
            name: The name of the other record.
        """
        records = (str(self.home / "records" / each) for each in ("one", name))
        done = self.run([sys.executable, "-m", "samestep", "diff", *records, "--format", "json"], f"diff-{name}")
        if done.returncode in {0, 3, 4}:
            return json.loads(done.stdout)["headline"]
        return (done.stderr.splitlines() or ["nothing was printed"])[-1]


def seen_of(run: RecordedRun) -> dict[str, object]:
    """Returns what a record holds: its steps, and of how many of them each kind of thing is known.

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
    """Tries a script; returns what came out.

    Args:
        trial: The script, prepared.
    """
    script = trial.script
    one = trial.record("one", f"python {script.arguments}")
    facts = [line for line in one.stderr.splitlines() if line.startswith("samestep")]
    row: dict[str, object] = {"name": script.name, "exit": one.returncode, "facts": facts}
    try:
        row["seen"] = seen_of(read_run(trial.home / "records" / "one"))
    except SamestepError:
        return row | {"seen": None}
    trial.record("again", f"python {script.arguments}")
    row["again"] = trial.diff("again")
    if script.two:
        trial.record("two", script.two)
        row["two"] = trial.diff("two")
    return row


def clone_line(repository: str, sources: Path) -> str:
    """Returns the line of a shell that clones a repository at the commit that was tried.

    Args:
        repository: Owner and name.
        sources: The folder of the clones.
    """
    folder = sources / repository.split("/")[1]
    return f"git clone https://github.com/{repository} {folder} && git -C {folder} checkout -q {COMMITS[repository]}"


def table(rows: Iterable[dict]) -> list[str]:
    """Returns the lines of a table of what came out.

    Args:
        rows: What `tried` returned of each script.
    """
    kinds = ("steps", "data", "loss", "rate")
    lines = [f"| script | {' | '.join(kinds)} | gradients | twice | two processes |", "|--|--|--|--|--|--|--|--|"]
    for row in rows:
        seen = row["seen"]
        if seen is None:
            lines.append(f"| {row['name']} | not recorded: exit {row['exit']} |  |  |  |  |  |  |")
            continue
        cells = [*(seen[kind] for kind in kinds), f"{seen['gradients']} of {seen['parameters']}"]
        said = [row["again"], row.get("two", "")]
        lines.append(f"| {' | '.join(map(str, (row['name'], *cells, *said)))} |")
    return lines


def main() -> None:
    """Tries the scripts that were not tried yet, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names; all scripts that were not tried, unless given")
    parser.add_argument("--sources", type=Path, required=True, help="the folder of the clones")
    parser.add_argument("--store", type=Path, default=Path("runs/public"), help="the folder of what came out")
    given = parser.parse_args()
    sources, store = given.sources.resolve(), given.store.resolve()
    store.mkdir(parents=True, exist_ok=True)
    log = store / "public.jsonl"
    done = {row["name"]: row for row in map(json.loads, log.read_text().splitlines())} if log.exists() else {}
    for script in SCRIPTS:
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
