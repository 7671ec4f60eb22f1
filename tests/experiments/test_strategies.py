"""What the commands print: the catalogue, `--help`."""

import importlib.util

import pytest

from samestep.common import catalog
from samestep.common.catalog import catalogue, cells
from samestep.common.errors import Unavailable
from samestep.common.workload.table import WORKLOADS
from samestep.experiments import compare, run, strategies

NAMES = cells()
STATUSES = {"stable", "experimental", "alpha", "maintenance", "discouraged", "no API", "ours"}


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert strategies.main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120])
def test_the_catalogue_names_every_row_in_one_line_each(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    printed = told(capsys)
    assert max(map(len, printed.splitlines())) <= width
    assert [line.split()[1] for line in printed.split("\n\n")[0].splitlines()[2:]] == NAMES
    assert "* one strategy in full: samestep strategies torch:ddp" in printed


@pytest.mark.parametrize(
    ("cell", "answer"),
    [
        ("torch:ddp", "yes, on CPU cores"),
        ("torch:rpc_parameter_server", "yes, on CPU cores"),
        ("torch:rpc_parameter_server+consistency=async", "no: gradients are applied in the order in which they arrive"),
        ("tf:parameter_server", "yes, on CPU cores"),
        ("tf:parameter_server+consistency=async", "no: gradients are applied in the order in which they arrive"),
    ],
)
def test_a_row_says_whether_it_repeats_bit_for_bit(capsys: pytest.CaptureFixture[str], cell: str, answer: str) -> None:
    assert f"repeats bit for bit: {answer}\n" in told(capsys, cell)


def test_what_is_piped_is_as_wide_as_a_wide_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    piped = told(capsys)
    monkeypatch.setenv("COLUMNS", "120")
    assert piped == told(capsys)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_in_full_fits_80_columns_but_for_its_code(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = told(capsys, name).splitlines()
    code = next(
        n
        for n, line in enumerate(lines)
        if line.startswith("What makes it differ") or line.endswith(f"{name.partition(':')[2]}.py:")
    )
    assert max(map(len, lines[:code])) <= 80
    assert any(line.startswith("upstream says: ") for line in lines[:code])
    assert lines[code + 1 :]


def test_what_cannot_run_here_says_why_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def require(framework: str) -> str:
        if framework == "tf":
            raise Unavailable("tensorflow is not installed: pip install 'samestep[tf]'")
        return framework

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(catalog, "require", require)
    printed = told(capsys)
    absent = [" tf:", *(["torch:deepspeed"] if importlib.util.find_spec("deepspeed") is None else [])]
    for line in printed.split("\n\n")[0].splitlines()[2:]:
        assert line.endswith("| no   |" if any(row in line for row in absent) else "| yes  |"), line
    assert printed.count("* tensorflow is not installed: pip install 'samestep[tf]' (tf:single,") == 1
    assert max(map(len, printed.splitlines())) <= 80


def test_one_api_has_one_status() -> None:
    """A status begins with its word, and strategies that show the same API have the same word."""
    words: dict[str, set[str]] = {}
    for _, row in catalogue():
        words.setdefault(row.reference.partition(",")[0].partition("(")[0], set()).add(row.status.partition(";")[0])
    assert set().union(*words.values()) == STATUSES
    assert {api: found for api, found in words.items() if len(found) > 1} == {}


def test_help_names_every_workload_and_what_stands_for_a_missing_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (run, compare):
        with pytest.raises(SystemExit):
            command.main(["--help"])
        told = " ".join(capsys.readouterr().out.split())
        drawn = [name.removeprefix("synthetic-") for name in WORKLOADS if name.startswith("synthetic-")]
        real = [name for name in WORKLOADS if not name.startswith("synthetic-")]
        assert f"{', '.join(real)} or synthetic-{', -'.join(drawn)}; sized" in told
        assert told.count("(default: ") >= 10


def test_a_row_says_which_techniques_and_features_it_does_not_take(capsys: pytest.CaptureFixture[str]) -> None:
    printed = " ".join(told(capsys, "torch:rpc").split())
    assert "does not take --clip-norm: no process sees the whole gradient" in printed
    assert "does not take +tied=: " in printed
    assert printed.count("its workers exchange activations") == 1, "once for all flags of compression"
