"""What `samestep --completion` prints completes commands, flags and rows in the shell that it is for."""

import re
import shutil
import subprocess
import sys

import pytest

from samestep.common.catalog import catalogue
from samestep.common.errors import ConfigError
from samestep.common.flags import flags, spell_flag
from samestep.common.request import RunConfig
from samestep.common.techniques import Techniques
from samestep.experiments.advising.assumptions import SearchAssumptions
from samestep.experiments.cli.commands import COMMANDS
from samestep.experiments.cli.completion import script
from samestep.experiments.comparing.comparison_request import ComparisonConfig
from samestep.experiments.port import PortRequest

TYPED = [
    ("samestep dif", {"diff"}),
    ("samestep help dif", {"diff"}),
    ("samestep compare --repe", {"--repeats"}),
    ("samestep diff --flo", {"--float64"}),
    ("samestep run tf:mi", {"mirrored"}),  # readline keeps what stands before the colon
    ("samestep run torch:pp --sched", {"--schedule"}),
    ("samestep run torch:pp --schedule 1f", {"1f1b"}),
    ("samestep run torch:rpc_parameter_server --consistency s", {"serial", "sync"}),
    ("samestep run torch:ddp --on sl", {"slurm"}),
    ("samestep run --dtype float3", {"float32"}),
    ("samestep run --dtype=float3", {"float32"}),
    ("samestep demo --mistake clip_by", {"clip_by_local_norm"}),
    ("samestep advise --machine a100-80gb-", {"a100-80gb-server"}),
    ("samestep compare --strategies torch:ddp,torch:fs", {"fsdp"}),
    ("samestep run --fla", set()),
    ("samestep predict --frame", set()),  # which its help only speaks of
    ("samestep diff --nproc", set()),  # which torchrun takes in an example
]


@pytest.fixture(scope="module")
def bash() -> str:
    return script("bash")


@pytest.mark.parametrize(("line", "offered"), TYPED)
def test_bash_offers_what_fits(bash: str, line: str, offered: set[str]) -> None:
    asked = f"COMP_LINE='{line}'; COMP_POINT={len(line)}; _samestep; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run([shutil.which("bash") or "bash"], input=f"{bash}\n{asked}\n", capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == offered


def test_zsh_reads_its_script() -> None:
    shell = shutil.which("zsh")
    if shell is None:
        pytest.skip("zsh is not installed")
    done = subprocess.run([shell, "-n"], input=script("zsh"), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_shell_knows_every_command_and_row(bash: str) -> None:
    for told in (bash, script("zsh"), script("fish")):
        assert not re.search("@[A-Z]+@", told)  # every place of the template is filled
        assert all(command in told for command in COMMANDS)
        assert all(f"{framework}:{row.name}" in told for framework, row in catalogue())


def test_another_shell_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"unknown shell 'tcsh'\. .*Choose from: bash, zsh, fish"):
        script("tcsh")
    done = subprocess.run([sys.executable, "-m", "samestep", "--completion"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "samestep: --completion takes a shell, one of bash, zsh, fish.\n")


@pytest.mark.parametrize(
    ("command", "owner"),
    [
        *(("run", each) for each in (RunConfig, Techniques)),
        ("compare", ComparisonConfig),
        ("port", PortRequest),
        ("advise", SearchAssumptions),
    ],
)
def test_every_choice_of_a_flag_is_offered(bash: str, command: str, owner: type) -> None:
    choices = {name: field.metadata["choices"] for name, field in flags(owner).items() if field.metadata["choices"]}
    assert choices
    for name, values in choices.items():
        assert f'"{command} {spell_flag(name)}") offered+=" {" ".join(map(str, values))}" ;;' in bash
