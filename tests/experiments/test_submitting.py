"""What `--for` writes: read by the engine's own reader, or held against every field that the engine has."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.experiments import run
from samestep.experiments.submitting.targets import SCRIPTS, read_target, render

FIELDS = Path(__file__).parents[1] / "engines" / "fields"
"""Names and types of all fields: of a Job of Kubernetes 1.37, and of a TrainJob (trainer.kubeflow.org/v1alpha1, at 8c0f5059b)."""
DDP = parse(RunConfig(strategy="ddp", devices=4, workload="digits-mlp+width=32", batch_size=48, steps=3))
KINDS = {"string": str, "integer": int, "boolean": bool, "number": (int, float), "integer or string": (int, str)}


def check(fields: object, value: object, at: str = "") -> None:
    """Refuses a field that there is not, or one of another type."""
    if fields == "any":
        return
    if isinstance(fields, str):
        assert isinstance(value, KINDS[fields]), f"{at} is {value!r}, not {fields}"
    elif isinstance(fields, list):
        assert isinstance(value, list), f"{at} is not a list"
        for number, each in enumerate(value):
            check(fields[0], each, f"{at}[{number}]")
    else:
        assert isinstance(fields, dict) and isinstance(value, dict), f"{at} is not an object"
        for name, each in value.items():
            assert name in fields or "*" in fields, f"{at} has no field {name}"
            check(fields.get(name, fields.get("*")), each, f"{at}.{name}")


def fields(name: str) -> dict[str, object]:
    return json.loads((FIELDS / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("target", "name"), [("k8s:nodes=2,image=registry/samestep:1", "job"), ("trainjob:nodes=2", "trainjob")]
)
def test_manifests_have_fields_that_there_are(target: str, name: str) -> None:
    manifest = yaml.safe_load(render(read_target("--for", target), DDP, Path("/shared/a run")))
    check(fields(name), manifest)
    text = json.dumps(manifest)
    assert '"/runs/a run"' in text
    for wrong in (text.replace('"spec"', '"specs"', 1), text.replace('"name": "samestep', '"names": "samestep', 1)):
        with pytest.raises(AssertionError, match="has no field"):
            check(fields(name), json.loads(wrong))


def test_manifests_start_every_process() -> None:
    job = yaml.safe_load(render(read_target("--for", "k8s"), DDP, Path("run")))["spec"]
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (4, 4, "Indexed")
    trainer = yaml.safe_load(render(read_target("--for", "trainjob:nodes=2"), DDP, Path("run")))["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 2)
    with pytest.raises(AssertionError, match=r"spec\.trainer has no field numNode"):
        check(fields("trainjob"), {"spec": {"trainer": {"numNode": 2}}})


@pytest.mark.parametrize("engine", [name for name, each in SCRIPTS.items() if each.file.endswith(".sh")])
@pytest.mark.parametrize("nodes", [1, 2])
def test_shells_read_the_scripts(engine: str, nodes: int) -> None:
    text = render(read_target("--for", f"{engine}:nodes={nodes}"), DDP, Path("/tmp/it's a run"))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert text.startswith("#!/bin/bash\n") and not re.search(r"\{\{|\{%|^\s*$\n\s*$", text, re.MULTILINE)


@pytest.mark.parametrize("nodes", [1, 2])
def test_python_and_yaml_read_the_others(nodes: int) -> None:
    compile(render(read_target("--for", f"ray:nodes={nodes}"), DDP, Path('/tmp/a "run"')), "ray_job.py", "exec")
    sky = yaml.safe_load(render(read_target("--for", f"skypilot:nodes={nodes}"), DDP, Path("run")))
    assert sky["num_nodes"] == nodes
    subprocess.run(["bash", "-n"], input=sky["run"], text=True, check=True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("slurn", "unknown engine 'slurn'. Did you mean 'slurm'?"),
        ("slurm:node=2", "unknown setting of slurm 'node'. Did you mean 'nodes'?"),
        ("slurm:nodes=0", "nodes is '0'; give a whole number from 1 to 9999."),
        ("slurm:nodes=2,", "'slurm:nodes=2,' has an empty setting; write it as in slurm:nodes=2."),
        ("slurm:nodes", "nodes has no value; write it as in nodes=2"),
        ("slurm:partition=a b", "'a b' is no partition; write it as in partition=all, without blanks."),
        ("slurm:partition=$(reboot)", "is no partition"),
        ("slurm:time=yesterday", "'yesterday' is no time; write it as in time=1:30:00, without blanks."),
        ("slurm:mem=lots", "write it as in mem=16G"),
        ("slurm:gpus=-1", "write it as in gpus=8"),
        ("torchrun:port=abc", "write it as in port=29500"),
        ("mpi:hostfile=", "hostfile has no value; write it as in hostfile=hosts"),
        ("ray://", "'ray://' is no address; write it as in address=ray://head:10001"),
        ("ray:address=banana", "is no address"),
        ("ray://head:65536", "'ray://head:65536' is no address"),
        ("torchrun:port=65536", "'65536' is no port; write it as in port=29500"),
        ("k8s:image=a\nb", "is no image"),
    ],
)
def test_a_target_that_is_none_is_one_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        read_target("--for", text)


def test_nodes_that_the_processes_do_not_divide_among_are_refused() -> None:
    assert "--ntasks-per-node=2" in render(read_target("--for", "slurm:nodes=3"), DDP, Path("run"))
    for target, told in (
        ("slurm:nodes=5", "nodes=5 is more than the processes of the run, 4"),
        ("torchrun:nodes=3", "do not divide"),
    ):
        with pytest.raises(ConfigError, match=told):
            render(read_target("--for", target), DDP, Path("run"))


def test_a_script_finds_its_hosts_file_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "a b").mkdir()
    monkeypatch.chdir(folder)
    assert f" --hostfile '{folder}/hosts' " in render(read_target("--for", "mpi:hostfile=hosts"), DDP, Path("run"))


def test_a_target_is_taken_out_of_a_command_line() -> None:
    parser = run._first_parser()
    given, rest = parser.parse_known_args(["torch:ddp", "--for", "mpi:hostfile=hosts", "--prepare"])
    assert (rest, "started_on" in given) == (["torch:ddp", "--prepare"], False)
    assert (given.written_for.engine, given.written_for.settings) == ("mpi", {"hostfile": "hosts"})
    for each in ("mpi", "slurm:nodes=2,partition=all,mem=4G", "ray:nodes=3,address=ray://head:10001"):
        assert str(read_target("--on", each)) == each
    ray = parser.parse_args(["--for=ray://head:10001"])
    assert ray.written_for == read_target("--for", "ray:address=ray://head:10001")
    for words, told in (
        (["mpi", "--for=mpi"], "--for is given twice"),
        ([""], "unknown engine ''"),
        ([], "has no value"),
    ):
        with pytest.raises(ConfigError, match=told):
            parser.parse_known_args(["--for", *words])


def test_a_script_is_written_beside_the_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        "--framework",
        "numpy",
        "--strategy",
        "oracle",
        "--dtype",
        "float64",
        "--steps",
        "3",
        "--out",
        str(tmp_path / "run"),
    ]
    with pytest.raises(ConfigError, match="add --prepare"):
        run.main([*line, "--for", "slurm"])
    with pytest.raises(ConfigError, match="more than the processes of the run, 1; leave out nodes, or --devices 2"):
        run.main([*line, "--for", "slurm:nodes=2", "--prepare"])
    assert not (tmp_path / "run").exists()
    assert run.main([*line, "--for", "slurm", "--prepare"]) == 0
    script = tmp_path / "run" / "slurm.sh"
    assert capsys.readouterr().out.endswith(f"Start it with: sbatch {script}\n\n{script.read_text()}\n")


def test_the_image_has_all_that_samestep_is_made_of() -> None:
    root = Path(__file__).parents[2]
    lines = [line.split() for line in (root / "Containerfile").read_text().splitlines()]
    copied = {source for word, *rest in filter(None, lines) if word == "COPY" for source in rest[:-1]}
    assert all((root / source).exists() for source in copied)
    assert copied >= {
        "pyproject.toml",
        "samestep",
        *(each.resolve().name for each in (root / "samestep").iterdir() if each.is_symlink()),
    }


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--on", "slurm", "--prepare"], "--on slurm starts the run; leave out --prepare"),
        (["--on", "k8s"], "samestep starts no runs there; write what does with --prepare --for k8s."),
        (["--on", "torchrun:nodes=2"], "leave out nodes"),
        (["--on", "mpi:nodes=3"], "the processes of the run, 2; give nodes from 1 to 2, or --devices 3 or more and"),
        (["--on", "mpi", "--bandwidth", "1gbit"], "--bandwidth limits links on this machine"),
    ],
)
def test_what_cannot_be_started_elsewhere_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    for engine in ("sbatch", "mpirun"):  # as on a machine that has them
        (tmp_path / engine).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ConfigError, match=re.escape(told)):
        run.main(["torch:ddp", "--devices", "2", "--steps", "3", "--out", str(tmp_path / "run"), *words])
    assert not (tmp_path / "run").exists()


def test_an_engine_that_is_not_here_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        Unavailable, match="sbatch is not on this machine; start the run where it is, or: apt-get install slurm-client"
    ):
        run.main(["torch:ddp", "--devices", "2", "--steps", "3", "--out", str(tmp_path / "run"), "--on", "slurm"])
