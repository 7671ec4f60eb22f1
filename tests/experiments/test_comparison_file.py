"""`compare.toml` says what the flags say, and a mistake in it is one line that names the file."""

import re
import tomllib
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.experiments import compare
from samestep.experiments.comparing.comparison_file import NAME, read_file, write_file
from samestep.experiments.comparing.comparison_request import describe, merge
from samestep.experiments.comparing.plan import make_plan
from tests.experiments.comparisons import make_up

ODD = 'my "data"\\in \x7f é \U0001f600\t.npz'


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"framework": "tf", "repeats": 5},
        {"strategies": "torch:ddp,torch:hybrid+mesh=pipe=2,tensor=2", "require": "ddp", "reference": "ddp"},
        {
            "devices": "1,2,4",
            "vary": {"microbatches": [2, 4], "learning_rate": ["0.1", "1e-3"], "ring": ["true", "false"]},
        },
        {"dtype": "float64", "learning_rate": 1e-7, "clip_norm": 2, "parity": True, "keep_state": True, "seed": 7},
        {"parity": False, "data": ODD, "devices": 3, "workload": "digits-mlp+width=32", "timeout_seconds": 2.5},
        {"vary": {"schedule": ["gpipe", "1f1b"], "tpu": ["v5e:2x2", "nan"]}},
    ],
)
def test_a_file_reads_as_what_was_written(given: dict[str, object], tmp_path: Path) -> None:
    asked = describe(given)
    write_file(tmp_path / NAME, asked)
    assert describe(read_file(tmp_path / NAME)) == asked
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_file_is_written_as_people_would(tmp_path: Path) -> None:
    asked = describe(
        {"strategies": ["ddp", "tf:mirrored"], "repeats": 3, "steps": 20, "devices": "1,2", "parity": True}
    )
    write_file(tmp_path / NAME, asked)
    _, *lines = (tmp_path / NAME).read_text().splitlines()
    assert lines == [
        "strategies = [",
        '    "torch:ddp",',
        '    "tf:mirrored",',
        "]",
        "repeats = 3",
        'workload = "digits-mlp"',
        "steps = 20",
        "parity = true",
        "",
        "[vary]",
        "devices = [",
        "    1,",
        "    2,",
        "]",
    ]


def test_the_file_in_the_documentation_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / NAME).write_text(text)
    asked = describe(read_file(tmp_path / NAME))
    assert len(make_plan(asked).cells) == 1 + 3 + 3 * 2 + 1
    write_file(tmp_path / NAME, asked)
    assert tomllib.loads((tmp_path / NAME).read_text()) == tomllib.loads(text)


def test_what_is_given_beside_a_file_counts_more() -> None:
    file = {"strategies": ["ddp"], "steps": 20, "repeats": 3, "vary": {"width": [8, 16], "seed": [0, 1]}}
    line = {"steps": "5", "vary": {"seed": "3"}}
    wanted = {"strategies": "ddp", "steps": 5, "repeats": 3, "vary": {"width": "8,16", "seed": "3"}}
    assert describe(merge(file, line)) == describe(wanted)


def test_the_command_reads_the_file_and_writes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    started = make_up(monkeypatch, {})
    Path("mine.toml").write_text('strategies = ["torch:ddp"]\nsteps = 3\ndevices = [2, 4]\n')
    assert compare.main(["--file", "mine.toml", "--steps", "4", "--out", "out"]) == 0
    assert [(run.num_devices, run.steps) for run, _ in started] == [(1, 4), (2, 4), (4, 4)]
    assert "Again: samestep compare --file mine.toml --steps 4\nRuns: out\n" in capsys.readouterr().out
    assert describe(read_file(Path("out") / NAME)) == describe({"strategies": "ddp", "steps": 4, "devices": "2,4"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b'strategys = ["torch:ddp"]', "unknown key of FILE 'strategys'. Did you mean 'strategies'?"),
        (b'out = "here"', "unknown key of FILE 'out'"),
        (b"steps = 20\nsteps = = 30", "FILE cannot be read: it is not TOML: Invalid value (at line 2, column 9);"),
        (b"steps = [", "FILE cannot be read: it is not TOML: "),
        (b"\xff", "FILE cannot be read: it is not utf-8: byte 0"),
        (b'steps = "many"', "FILE: --steps is 'many'; give a whole number."),
        (b"steps = true", "FILE: --steps is True; give a whole number."),
        (b"steps = 0", "FILE: --steps is 0; give a whole number from 1 up."),
        (b"workload = 2020-01-01", "FILE: --workload is datetime.date(2020, 1, 1); give text."),
        (b"strategies = []", "FILE: --strategies '' has an empty cell"),
        (b'framework = "ft"', "FILE: unknown framework 'ft'. Did you mean 'tf'?"),
        (b"vary = 3", "FILE: vary is 3, not names with their values"),
        (b"[vary]\nwidth = []", "FILE: --vary 'width=' has an empty value"),
        (b"seed = 1\n[vary]\nseed = [1, 2]", "FILE: --vary seed and --seed both set seed; give it once."),
        (b"#" * 2**21, "FILE cannot be read: it has more than 1048576 bytes"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file(text: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_bytes(text)
    with pytest.raises(ConfigError) as caught:
        read_file(file)
    assert told.replace("FILE", str(file)) in str(caught.value)


@pytest.mark.parametrize("name", ["none.toml", "."])
def test_what_is_no_file_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_file(tmp_path / name)
