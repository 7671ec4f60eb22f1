"""Models that an installed package offers, beside those of files; and how errors of their code are told."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import samestep
from samestep.common.errors import ConfigError
from samestep.common.workload.declaration import Model, split_file
from samestep.common.workload.declared import absolute_source, call_user, import_file, load_model, own_lines, raised_in


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with two models in its entry points, of which one is none."""
    about = tmp_path / "offers-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: offers\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[samestep.models]\nacme-net = offers.zoo:NET\nacme-five = offers.zoo:FIVE\n"
    )
    (tmp_path / "offers").mkdir()
    (tmp_path / "offers" / "__init__.py").write_text("SIZE = 5\n")
    (tmp_path / "offers" / "zoo.py").write_text(
        "import samestep\nfrom . import SIZE\n\n\ndef broken():\n    return SIZE / 0\n\n\n"
        "NET = samestep.Model(torch=broken)\nFIVE = 5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_package_offers_a_model_by_name(package: Path) -> None:
    assert absolute_source("acme-net") == "acme-net"
    model = load_model("acme-net", "torch")
    assert isinstance(model, Model) and model.torch is not None
    with pytest.raises(ConfigError, match=r"failed: ZeroDivisionError: .*\(zoo.py:6 `return SIZE / 0`\)"):
        call_user(model.torch, "acme-net", "the function given as torch=")


def test_what_is_offered_has_to_be_a_model(package: Path) -> None:
    with pytest.raises(ConfigError, match="zoo:FIVE is no"):
        load_model("acme-five", "torch")


def test_another_name_is_told_what_is_offered(package: Path) -> None:
    with pytest.raises(ConfigError, match=r"names no Python file; .* offers \(acme-five, acme-net\)"):
        absolute_source("acme-nett")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (folder := tmp_path / "net.py").mkdir()
    with pytest.raises(ConfigError, match=r"there is no file .*net\.py, but a folder\."):
        absolute_source(str(folder))


def raised(error: Exception, cause: BaseException | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


def test_an_error_is_told_with_what_caused_it() -> None:
    cause = raised(RuntimeError("operator a::b does not exist"))
    inner = raised(ImportError("see above"), cause)
    assert own_lines(raised(ModuleNotFoundError("no T5"), inner), "/nowhere/net.py") == (
        "ModuleNotFoundError: no T5; the cause is RuntimeError: operator a::b does not exist"
    )
    assert own_lines(raised(ConfigError("refused"), cause), "/nowhere/net.py") == "ConfigError: refused"


def test_of_keras_the_layer_is_told_and_what_is_wrong_with_it() -> None:
    said = "Exception encountered when calling Mix.call().\n\n\x1b[1mcannot multiply\x1b[0m\n\nArguments received:"
    assert own_lines(ValueError(said), "/nowhere/net.py") == (
        "ValueError: Exception encountered when calling Mix.call(). cannot multiply"
    )


def coded(path: Path) -> Callable[[], object]:
    """A function that fails, as if it were in a file."""
    found: dict[str, Callable[[], object]] = {}
    exec(compile("def fail(): return {}['x']", str(path), "exec"), found)
    return found["fail"]


def test_an_error_of_a_run_is_theirs_if_their_own_line_raised_it(tmp_path: Path) -> None:
    (file := tmp_path / "net.py").write_text("def later(call):\n    call()\n    raise ValueError('later')\n")
    later = import_file(str(file), "torch").later

    def fails(call: Callable[[], object]) -> Exception:
        with pytest.raises((ValueError, KeyError), match=r"later|x|array") as caught:
            later(call)
        return caught.value

    assert raised_in(fails(lambda: None), str(file)) == ("ValueError: later (net.py:3 `raise ValueError('later')`)")
    assert raised_in(fails(coded(Path(samestep.__file__).parent / "ours.py")), str(file)) == ""
    inside = raised_in(fails(functools.partial(np.linalg.cholesky, np.zeros(2))), str(file))
    assert inside.startswith("LinAlgError: 1-dimensional array given.") and inside.endswith("(net.py:2 `call()`)")
    assert raised_in(fails(coded(Path("/packages/torch/distributed/reached.py"))), str(file)) == ""
    assert raised_in(ConfigError("ours"), str(file)) == ""


def test_a_file_can_import_what_lies_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `queue.py` there does not take the place of Python's, but its `datasets` takes that of what is installed."""
    (tmp_path / "of_the_project.py").write_text("SIZE = 5\n")
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "net.py").write_text("from of_the_project import SIZE\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    assert import_file(str(tmp_path / "nets" / "net.py"), "torch").SIZE == 5
    assert sys.path[0] == str(tmp_path / "nets")
    places = [
        sys.path.index(str(each)) for each in (Path(os.__file__).parent, tmp_path, Path(pytest.__file__).parents[1])
    ]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("net.py", ("net.py", "")),
        ("/a:b/net.py:wide", ("/a:b/net.py", "wide")),
        ("a:b.py", ("a:b.py", "")),
        ("acme-net", ("", "acme-net")),
        ("arrays.npz:x", ("", "arrays.npz:x")),
    ],
)
def test_a_file_and_a_name_in_it_are_told_apart(text: str, split: tuple[str, str]) -> None:
    assert split_file(text) == split
