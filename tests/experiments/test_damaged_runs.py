"""Files of a run that are damaged, or of another run: every command that reads them says so in a line, and is not green."""

import csv
import dataclasses
import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import samestep
from samestep.common.errors import ConfigError
from samestep.common.runtime.records import RunResult
from samestep.experiments import export, report
from samestep.experiments.comparing.baseline import load_earlier
from tests.experiments.comparisons import keep
from tests.results import leave, made

GOOD = made("torch:ddp")
OTHER = made("torch:fsdp")
SHORT = dataclasses.replace(
    GOOD,
    steps=20,
    losses=GOOD.losses[:20],
    config=dataclasses.replace(GOOD.config, steps=20),
    parity=dataclasses.replace(GOOD.parity, steps=20, deviations=()),
)
Values = dict[str, object]
Damage = Callable[[Path], object]


def in_place(name: str, change: Callable[[bytes], bytes]) -> Damage:
    return lambda run: (run / name).write_bytes(change((run / name).read_bytes()))


def in_json(name: str, change: Callable[[Values], object]) -> Damage:
    """Changes the values of a file, and leaves it well-formed."""

    def damage(run: Path) -> None:
        change(values := json.loads((run / name).read_text()))
        (run / name).write_text(json.dumps(values))

    return damage


def of_another(name: str, other: RunResult) -> Damage:
    """Puts the file of another run in its place, as if somebody moved directories."""

    def damage(run: Path) -> None:
        (run / name).write_bytes((leave(run.parent / "elsewhere", other) / name).read_bytes())
        for file in (run.parent / "elsewhere").iterdir():
            file.unlink()
        (run.parent / "elsewhere").rmdir()

    return damage


def a_folder(name: str) -> Damage:
    return lambda run: ((run / name).unlink(), (run / name).mkdir())


def set_in(*places: str | int, value: object) -> Callable[[Values], object]:
    def change(values: Values) -> None:
        part: object = values
        for place in places[:-1]:
            part = part[place]
        part[places[-1]] = value

    return change


def windows(change: Callable[[list[Values]], object]) -> Damage:
    """Changes the lines of the losses."""

    def damage(run: Path) -> None:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        change(lines)
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    return damage


FILES = ("result.json", "config.json", "metrics.jsonl")
CHANGES: Mapping[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "truncated": lambda text: text[: len(text) // 2],
    "garbage": lambda text: b"\x00\xff\x1b[31m" * 40,
    "text": lambda text: b"nothing of the kind\n",
    "list": lambda text: b"[1, 2]\n",
    "null": lambda text: b"null\n",
    "deep": lambda text: b"[" * 100_000,
}
DAMAGES: dict[str, Damage] = {
    f"{file}: {how}": in_place(file, change) for file in FILES for how, change in CHANGES.items()
}
DAMAGES |= {f"{file}: folder": a_folder(file) for file in FILES}
DAMAGES |= {f"{file}: of another row": of_another(file, OTHER) for file in ("result.json", "config.json")}
DAMAGES |= {f"{file}: other steps": of_another(file, SHORT) for file in FILES}
DAMAGES |= {
    f"result.json: NaN in {'.'.join(map(str, place))}": in_json("result.json", set_in(*place, value=math.nan))
    for place in (
        ("losses", 3),
        ("examples_per_second", "median"),
        ("parity", "max_relative_loss"),
        ("startup_seconds",),
        ("processes", 0, "sent_bytes_per_step"),
        ("conditions", "others_share"),
    )
}
DAMAGES |= {
    f"result.json: {'.'.join(map(str, place))} = {value!r}": in_json("result.json", set_in(*place, value=value))
    for place, value in (
        (("colour",), "red"),
        (("parity", "colour"), "red"),
        (("processes", 1, "colour"), 1),
        (("config", "colour"), "red"),
        (("losses",), []),
        (("processes",), []),
        (("dtype",), "float128"),
        (("strategy",), "nope"),
        (("strategy",), "zero2"),
        (("framework",), "tf"),
        (("seed",), 7),
        (("steps",), 60),
        (("first_step",), 3),
        (("parity", "steps"), 100),
        (("global_batch_size",), 0),
        (("workload",), "mnist-cnn"),
    )
}
DAMAGES |= {
    f"both requests: {name} = {value!r}": lambda run, name=name, value=value: [
        in_json("config.json", set_in(name, value=value))(run),
        in_json("result.json", set_in("config", name, value=value))(run),
    ]
    for name, value in (("options", {"colour": "red"}), ("dtype", "float128"), ("strategy", "nope"), ("steps", 0))
}
DAMAGES |= {
    "config.json: unknown field": in_json("config.json", set_in("colour", value="red")),
    "config.json: another seed": in_json("config.json", set_in("seed", value=5)),
    "config.json: another technique": in_json("config.json", set_in("techniques", "clip_norm", value=1.0)),
    "metrics.jsonl: missing": lambda run: (run / "metrics.jsonl").unlink(),
    "metrics.jsonl: NaN": windows(lambda lines: lines[1]["losses"].__setitem__(2, math.nan)),
    "metrics.jsonl: a line is lost": windows(lambda lines: lines.pop()),
    "metrics.jsonl: the first line is lost": windows(lambda lines: lines.pop(0)),
    "metrics.jsonl: a line is there twice": windows(lambda lines: lines.append(lines[-1])),
    "metrics.jsonl: a loss is lost": windows(lambda lines: lines[1]["losses"].pop()),
    "metrics.jsonl: a loss is another": windows(lambda lines: lines[1]["losses"].__setitem__(2, 0.5)),
    "metrics.jsonl: no losses": windows(lambda lines: lines[1].pop("losses")),
    "metrics.jsonl: no seconds": windows(lambda lines: lines[1].update(seconds="many")),
    "metrics.jsonl: other steps of the same losses": windows(
        lambda lines: [line.update(step=line["step"] + 10) for line in lines]
    ),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A single run that is whole, one that will be damaged, and a comparison with one that will be."""
    monkeypatch.chdir(tmp_path)
    for name in ("whole", "damaged"):
        leave(tmp_path / name, GOOD)
    keep(
        tmp_path / "compared",
        {"numpy:oracle": [made("numpy:oracle")], "torch:ddp": [GOOD, GOOD], "torch:pp": [made("torch:pp")] * 2},
    )
    return tmp_path


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_told_by_every_command(
    home: Path, damage: Damage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    single, row = home / "damaged", home / "compared" / "torch-ddp" / "2"
    damage(single)
    damage(row)
    for read in (samestep.load, load_earlier):
        for place in (single, home / "compared"):
            with pytest.raises(ConfigError) as refused:
                read(place)
            assert "\n" not in str(refused.value)
            assert str(single if place == single else row) in str(refused.value)
    assert report.main(["whole", "damaged", "compared", "--format", "csv"]) == 1
    told = capsys.readouterr()
    assert [line.split(": ")[:2] for line in told.err.splitlines()] == [
        ["not reported", "damaged"],
        ["not reported", "compared/torch-ddp/2"],
    ]
    statuses = [(line["comparison"], line["cell"], line["status"]) for line in csv.DictReader(io.StringIO(told.out))]
    assert {status for name, cell, status in statuses if (name, cell) == ("compared", "torch:ddp")} == {"failed"}
    assert ("compared", "torch:pp", "same step") in statuses
    with pytest.raises(ConfigError, match="there is nothing to report: damaged: "):
        report.main(["damaged"])
    monkeypatch.setattr("samestep.experiments.exporting.to_tensorboard.write", lambda replay, folder: replay.name)
    assert export.main(["whole", "damaged", "--to", "tensorboard"]) == 1
    told = capsys.readouterr()
    assert told.out == "whole\n"
    assert [line.partition(": ")[0] for line in told.err.splitlines()] == ["not exported"]


@pytest.mark.parametrize(
    "damage",
    [
        *(in_place("error.json", change) for how, change in CHANGES.items()),
        in_json("error.json", set_in("type", value="Nothing")),
        in_json("error.json", set_in("message", value={})),
        in_json("error.json", lambda values: values.pop("role")),
    ],
)
def test_an_error_that_cannot_be_read_is_listed(home: Path, damage: Damage, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["whole", "damaged"]) == 0, "two rounds of one row"
    for run in (home / "damaged", home / "compared" / "torch-ddp" / "2"):
        (run / "result.json").unlink()
        (run / "error.json").write_text(json.dumps({"type": "WorkerFailed", "role": "rank-1", "message": "it died"}))
    assert report.main(["whole", "damaged", "compared", "--format", "csv"]) == 0
    assert capsys.readouterr().out.count("it died") == 2
    for run in (home / "damaged", home / "compared" / "torch-ddp" / "2"):
        damage(run)
    assert report.main(["whole", "damaged", "compared", "--format", "csv"]) == 1
    assert capsys.readouterr().err.count("error.json") == 2


@pytest.mark.parametrize(
    "config", [{"strategy": "nope"}, {"options": []}, {"learning_rate": "x"}, {"options": {"a": 1}}]
)
def test_a_request_that_nobody_made_is_listed(home: Path, config: Values, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "damaged" / "result.json").unlink()
    in_json("config.json", lambda values: values.update(config))(home / "damaged")
    assert report.main(["whole", "damaged"]) == 1
    assert capsys.readouterr().err.startswith("not reported: damaged: ")


def test_results_that_were_swapped_belong_to_no_row(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (home / "compared" / name / "1" for name in ("torch-ddp", "torch-pp"))
    one.rename(home / "kept")
    other.rename(one)
    (home / "kept").rename(other)
    assert report.main(["compared", "--format", "csv"]) == 1
    told = capsys.readouterr()
    assert told.err.count("holds another run than compare.toml asks for: --strategy is") == 2
    assert told.out.count(",failed,") == 2
    with pytest.raises(ConfigError, match="holds another run than compare"):
        samestep.compare(resume="compared")


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("steps = 20", "--steps"),
        ("seed = 1", "--seed"),
        ('dtype = "float64"', "--dtype"),
        ("clip_norm = 1", "--clip-norm"),
    ],
)
def test_a_comparison_that_was_changed_has_no_results(
    home: Path, line: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = home / "compared" / "compare.toml"
    asked.write_text(f"{line}\n{asked.read_text()}")
    assert report.main(["compared", "--format", "csv"]) == 1
    told = capsys.readouterr().err
    assert f"{flag} is " in told and told.count("not reported: compared/torch-ddp/") == 2


def test_a_row_whose_result_is_gone_is_no_baseline(home: Path) -> None:
    for number in "12":
        (home / "compared" / "torch-ddp" / number / "result.json").unlink()
    with pytest.raises(ConfigError, match=r"has no result of torch:ddp: 2 of .* runs are missing; continue with: "):
        load_earlier(home / "compared")


def test_a_trace_that_cannot_be_read_is_listed_and_its_row_reported(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "whole" / "trace.json").write_text("{")
    assert report.main(["whole", "--format", "csv"]) == 1
    told = capsys.readouterr()
    assert told.err.startswith("not reported: whole: whole/trace.json is not a trace of a run")
    assert "torch:ddp" in told.out


def test_a_metric_may_be_no_number(home: Path) -> None:
    """There is no area under the curve of examples of one class."""
    in_json("result.json", set_in("metric_value", value=math.nan))(home / "whole")
    assert report.main(["whole"]) == 0
    assert math.isnan(samestep.load("whole").metric_value)


def test_a_result_that_lies_alone_is_read(home: Path) -> None:
    for name in ("config.json", "metrics.jsonl"):
        (home / "whole" / name).unlink()
        (home / "compared" / "torch-ddp" / "1" / name).unlink()
    assert samestep.load("whole") == GOOD
    assert samestep.load("compared").exit_code == 0
    assert report.main(["whole", "compared"]) == 0
