"""samestep advise --vary and --context: the best layout for each value in one table."""

import csv
import io
import json

import pytest

from samestep.common.errors import ConfigError
from samestep.experiments import advise as command

SMALL = ["--workload", "synthetic-gpt+layers=2+width=64+heads=4+context=32+vocabulary=64"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command.main([*SMALL, *arguments]) == 0
    return capsys.readouterr().out


def test_each_value_has_the_first_layout_of_its_own_advice(capsys: pytest.CaptureFixture[str]) -> None:
    swept = json.loads(printed(capsys, "--vary", "devices=8,16", "--batch-size", "32", "--format", "json"))
    assert [row["devices"] for row in swept["rows"]] == ["8", "16"]
    alone = json.loads(printed(capsys, "--nodes", "2", "--batch-size", "32", "--format", "json"))
    first = alone["layouts"][0]
    assert {name: swept["rows"][1][name] for name in first} == first


def test_several_names_vary_together_and_what_has_no_layout_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(capsys, "--vary", "context=32,64", "--vary", "batch-size=7,8", "--mesh", "data=8")
    lines = [line for line in told.splitlines() if line.startswith("| ")]
    assert len(lines) == 1 + 4
    assert "MFU" in lines[0] and "days" not in lines[0]
    caption = "of synthetic-gpt+layers=2+width=64+heads=4+vocabulary=64 for each"
    assert caption in " ".join(told.split())  # neither of its contexts
    assert "context=64, batch_size=7: no strategy can take it" in " ".join(told.split())


def test_a_value_without_a_layout_is_a_line_of_the_same_columns_in_csv(capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(capsys, "--vary", "batch_size=7,8", "--mesh", "data=8", "--format", "csv")
    none, found = csv.DictReader(io.StringIO(told), strict=True)
    assert none["why_not"].startswith("no strategy can take it") and none["cell"] == ""
    assert found["why_not"] == "" and found["mesh"] == "data=8"
    assert None not in {*none, *found}


def test_days_are_told_of_so_many_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(capsys, "--vary", "layers=2,4", "--tokens", "1e9")
    header, _, *rows = [line for line in told.splitlines() if line.startswith("|")]
    begun = [row for row in rows if row.split("|")[1].strip()]  # a cell may go on below
    assert header.endswith("| days |") and len(begun) == 2


def test_a_published_batch_keeps_its_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    line = "--workload llama3-8b --nodes 4 --mesh tensor=8,context=4 --context 131072 --format json"
    assert command.main(line.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["workload"] == "llama3-8b+context=131072"
    assert found["global_batch_size"] == 512 * 8192 // 131072


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--vary", "depth=2,4"], ["unknown name in --vary 'depth'", "devices"]),
        (["--vary", "nodes"], ["not NAME=VALUE"]),
        (["--vary", "nodes=1,1"], ["lists 1 twice"]),
        (["--vary", "nodes=1,2", "--nodes", "2"], ["both set nodes"]),
        (["--vary", "devices=12"], ["--vary devices=12", "fills nodes of 8", "a multiple of 8"]),
        (["--vary", "devices=8,a"], ["--vary devices=a", "a multiple of 8"]),
        (["--vary", "nodes=1,a"], ["--vary nodes=a", "give a whole number"]),
        (["--vary", "nodes=0,1"], ["--vary nodes=0", "from 1 up"]),
        (["--vary", "layers=2,0"], ["--vary layers=0", "is not a size"]),
        (["--vary", "heads=2,7"], ["--vary heads=7", "7 heads"]),
        (["--vary", "mesh=data=8;data=4,tensor=x"], ["--vary mesh=data=4,tensor=x", "mesh axis 'tensor' has size 'x'"]),
        (["--vary", "mesh=data=8,x"], ["--vary mesh=x", "unknown mesh axis 'x'"]),
        (["--vary", "machine=a100-80gb,nope"], ["--vary machine=nope", "Choose from: a100-80gb"]),
        (["--vary", "optimizer=adamw,sdg", "--vary", "layers=2,4"], ["--vary optimizer=sdg", "Did you mean 'sgd'"]),
        (["--vary", "depth="], ["unknown name in --vary 'depth'"]),
        (["--vary", "devices=4", "--machine", "here"], ["--machine here has its own cores", "--vary nodes"]),
        (["--workload", "mnist-cnn", "--context", "64"], ["mnist-cnn has no size of that name"]),
    ],
)
def test_one_line_for_what_cannot_vary(arguments: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        command.main([*SMALL, *arguments] if "--workload" not in arguments else arguments)
    assert all(word in str(caught.value) for word in words), caught.value
