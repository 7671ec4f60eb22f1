"""False alarms of `samestep diff`: healthy pairs of scripts in other layouts, each judged again in float64.

    python -m benchmarks.alarms [--pairs N] [--store DIR]

500 pairs: 10 scripts x 5 layouts x 5 seeds x {float32, bf16}, 20 steps each. What is judged is kept in DIR/alarms.jsonl and its
records beside it: the next call goes on from there. Processes are forked off after torch is imported, which takes longer than
the scripts.
"""

import argparse
import atexit
import collections
import dataclasses
import itertools
import json
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.alarm_script import LAYOUTS, MODELS, STEPS
from samestep.common.errors import SamestepError, WorkerFailed
from samestep.common.steps.joining import read_run
from samestep.common.steps.record import rank_files
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.diffing import diff, in_float64
from samestep.experiments.recording.reruns import Reruns
from samestep.experiments.recording.start import prepared
from samestep.torch_impl.recording import install

SCRIPT = Path(__file__).parent / "alarm_script.py"
SEEDS = range(5)
ALARM = 4
"""The exit code of a verdict that is wrong here: all pairs are healthy."""


def pairs() -> Iterator[tuple[str, str, int, bool]]:
    """Model, layout, seed, and whether it is in bf16; any beginning of them has a bit of everything."""
    for seed, is_bf16, turn in itertools.product(SEEDS, (False, True), range(len(LAYOUTS))):
        for number, model in enumerate(MODELS):
            yield model, list(LAYOUTS)[(number + turn) % len(LAYOUTS)], seed, is_bf16


def _recorded(store: Path, name: str, model: str, layout: str, seed: int, is_bf16: bool) -> Reruns:
    directory = store / f"{model}-{layout}-{seed}{'-bf16' * is_bf16}"
    if not rank_files(directory):
        words = ["--model", model, "--layout", layout, "--seed", str(seed), *["--bf16"] * is_bf16]
        fork_off([sys.executable, str(SCRIPT), *words], RecordOptions(str(directory)), Path.cwd(), True)
    return Reruns(read_run(directory), directory.resolve(), name, fork_off)


def fork_off(command: Sequence[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
    """Runs a command of ours, and records it, in processes that have torch already: a `Rerun`."""
    world = LAYOUTS.get(command[command.index("--layout") + 1], 1)
    out = prepared(Path(options.out))
    full = dataclasses.replace(options, out=str(out), command=tuple(command))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = []
    for rank in range(world):
        child = os.fork()
        if not child:
            _become(command, full, group | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if world > 1 else {})
        children.append(child)
    ended = [os.waitpid(child, 0)[1] for child in children]
    if any(ended):
        raise WorkerFailed(f"{command} ended with {ended}")


def _become(command: Sequence[str], options: RecordOptions, environment: dict[str, str]) -> None:
    """Turns this process into the command, and ends it."""
    code = 1
    try:
        os.environ.update(environment)
        sys.argv = list(command[1:])
        install(options.to_json())
        runpy.run_path(command[1], run_name="__main__")
        atexit._run_exitfuncs()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _judged(store: Path, model: str, layout: str, seed: int, is_bf16: bool) -> dict[str, object]:
    a = _recorded(store, "A", model, "plain", seed, is_bf16)
    b = _recorded(store, "B", model, layout, seed, is_bf16)
    found = diff(a, b, STEPS).verdict
    exact = diff(*in_float64((a, b)), STEPS).verdict
    return {
        "pair": [model, layout, seed, is_bf16],
        "kind": found.kind,
        "headline": found.headline,
        "worst": found.worst,
        "steps": found.num_steps,
        "float64": exact.kind,
        "float64_headline": exact.headline,
    }


def _print(rows: list[dict]) -> None:
    print(
        "| dtype | pairs | same | amplified | cannot tell | ALARMS | alarms in float64 | worst T of those that are the same |"
    )
    print("|--|--|--|--|--|--|--|--|")
    for is_bf16 in (False, True):
        own = [row for row in rows if row["pair"][3] == is_bf16]
        kinds = collections.Counter(row["kind"] for row in own)
        exact = sum(row["float64"] in ("named", "unnamed") for row in own)
        worst = max((row["worst"] for row in own if row["kind"] in ("same", "amplified")), default=0.0)
        alarms = kinds["named"] + kinds["unnamed"]
        cells = (len(own), kinds["same"], kinds["amplified"], kinds["unknown"], alarms, exact, f"{worst:.2f}")
        print(f"| {'bf16' if is_bf16 else 'float32'} | {' | '.join(map(str, cells))} |")
    wrong = [row for row in rows if {row["kind"], row["float64"]} & {"named", "unnamed"}]
    for row in wrong:
        print(f"ALARM {row['pair']}: {row['headline']} (float64: {row['float64_headline']})")
    if rows and not wrong:
        print(f"No alarm in {len(rows)} pairs: at most {3 / len(rows):.1%} of such pairs have one, at 95 %.")


def main() -> None:
    """Judges as many pairs as are asked for, and prints the alarms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--store", type=Path, default=Path("runs/alarms"))
    given = parser.parse_args()
    given.store.mkdir(parents=True, exist_ok=True)
    log = given.store / "alarms.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {tuple(row["pair"]) for row in rows}
    torch.set_num_threads(1)  # a pool of threads would not survive a fork
    for pair in itertools.islice(pairs(), given.pairs):
        if pair in done:
            continue
        try:
            rows.append(_judged(given.store, *pair))
        except SamestepError as error:
            print(f"{pair}: {error}", file=sys.stderr)
            continue
        with log.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(
            f"{len(rows)}: {pair} {rows[-1]['headline']}; float64: {rows[-1]['float64']}", file=sys.stderr, flush=True
        )
    _print(rows)


if __name__ == "__main__":
    main()
