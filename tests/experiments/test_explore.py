"""`samestep explore`: every row of both frameworks is on the page, and its figures are those of the cost models and of runs."""

import collections
import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from documenting import explorer_picture
from samestep.common.catalog import catalogue
from samestep.common.cell import Cell
from samestep.common.costs.routes import RINGS
from samestep.common.costs.sizes import MESSAGES
from samestep.common.errors import ConfigError, SamestepError
from samestep.common.flags import split_spelling
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments import explore
from samestep.experiments.advising.prediction import Assumptions, Prediction, predict_row
from samestep.experiments.exploring.grid import BASE, Grid, grid_of, key_of, request_of
from samestep.experiments.exploring.measuring import run_row
from samestep.experiments.exploring.steps import MOST_MOVES, played, predicted_devices, sentence
from samestep.experiments.page.drawings.transfers import DrawnTransfer, transfers
from tests.explored import embedded, exchanged, few_points, write
from tests.results import leave, made

OF_EXPERTS = ("torch:ep", "tf:expert")
"""Rows that take no other models than those with experts."""
ROWS = [f"{framework}:{row.name}" for framework, row in catalogue() if framework != "numpy"]
BY_CALLS = {"torch:rpc", "torch:rpc_parameter_server", "tf:parameter_server", "tf:central_storage"}
"""Rows of which only what one process asks for is predicted."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page as users get it: the one that is written with every width."""
    path = tmp_path_factory.mktemp("explored") / "explore.html"
    assert explore.main(["torch:fsdp", "tf:mirrored", "--predicted", "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def data(page: Path) -> Mapping[str, object]:
    return embedded(page)


def row_of(data: Mapping[str, object], cell: str) -> Mapping[str, object]:
    return next(row for row in data["rows"] if row["name"].removesuffix(" (emulated)") == cell)


def prediction(cell: str, mesh: str, width: int) -> Prediction:
    name, sizes = split_spelling(BASE.workload)
    workload = "+".join([name, *(f"{size}={value}" for size, value in {**sizes, "width": width}.items())])
    base = request_of(dataclasses.replace(BASE, workload=workload, mesh=mesh), Cell.parse(cell))
    return predict_row(cell, base, Assumptions())


@pytest.mark.parametrize("cell", ROWS)
def test_the_figures_are_those_of_predict(data: Mapping[str, object], cell: str) -> None:
    """At both ends of the sliders: what every device holds, and what is handed over in every operation."""
    for devices, width in ((1, data["widths"][0]), (2, 128), (8, data["widths"][-1])):
        step = row_of(data, cell)["steps"][key_of(devices, width)]
        ledger = prediction(cell, step["mesh"], width).ledger
        assert [total[0] for total in step["totals"]] == [
            ledger.state_bytes,
            ledger.activations_bytes,
            round(ledger.sent_bytes_per_step),
        ]
        held = [(*(each[1] for each in held), kept[0]) for _, _, held, _, kept in step["devices"]]
        assert held == [
            (each.params_bytes, each.gradients_bytes, each.optimizer_bytes, each.activations_bytes)
            for each in ledger.devices()
        ]
        computing = [name for name, batch, *_ in step["devices"] if batch]
        assert len(computing) == (devices if Cell.parse(cell).info.axes else 1)
        sent = collections.Counter[str]()
        for _, operation, _, links, *_, size in step["moves"]:
            ends = [link.split("-") for link in links.split()]
            own = any("0" in (link[:1] if operation == "send" else link) for link in ends)
            if own or not ends or operation not in MESSAGES:  # what the first device takes part in
                sent[operation] += size
        first = {each.name: each.bytes_per_step for each in ledger.exchanges}
        if cell == "torch:rpc_parameter_server":
            first = {name: devices * size for name, size in first.items()}  # one for each worker, as it is predicted
        if "," in step["mesh"]:  # what two stages reduce is played together, and the last one reduces its loss as well
            assert sent.keys() == first.keys()
            assert all(first[name] <= sent[name] < 1.001 * first[name] for name in first)
        else:
            assert sent == first


def test_every_row_plays_at_every_point(data: Mapping[str, object]) -> None:
    refused = {row["name"]: key for row in data["rows"] for key, step in row["steps"].items() if isinstance(step, str)}
    assert refused == {}


def test_rows_of_experts_have_a_model_with_experts_and_say_so(data: Mapping[str, object]) -> None:
    other = {row["name"] for row in data["rows"] if "8 experts in each block" in row["model"]}
    assert other == {*OF_EXPERTS}
    for cell in OF_EXPERTS:
        step = row_of(data, cell)["steps"][key_of(4, 128)]
        assert step["mesh"] == "expert=4"
        assert any(operation == "all_to_all" for _, operation, *_ in step["moves"])
        begins, ends = zip(
            *((begin, begin + held) for _, _, ((begin, held, _), *_), *_ in step["devices"]), strict=True
        )
        assert [*begins] == sorted({*begins}) and (begins[0], ends[-1]) == (0, step["wholes"][0])


def test_a_broadcast_stays_in_its_group() -> None:
    """Its roots are ranks of that group, and not of the first one."""
    told = prediction("torch:hybrid+shard_optimizer=true", "pipe=2,data=2", 128)
    drawn = transfers(told.run.mesh, predicted_devices(told), MOST_MOVES)
    found = {path for each in drawn if each.operation == "broadcast" for path in each.paths}
    assert found == {((rank,), (rank ^ 1,)) for rank in range(4)}


@pytest.mark.parametrize("cell", ROWS)
def test_every_exchange_goes_between_devices_and_is_explained(data: Mapping[str, object], cell: str) -> None:
    unknown = sentence(DrawnTransfer("forward", "unheard_of", "data", (), 1))
    for step in row_of(data, cell)["steps"].values():
        assert len(step["moves"]) <= MOST_MOVES
        for phase, operation, _, links, _, _, _, told, _ in step["moves"]:
            ends = [tuple(map(int, link.split("-"))) for link in links.split()]
            assert ends or len(step["devices"]) == 1
            assert all(start != end and max(start, end) < len(step["devices"]) for start, end in ends)
            assert told != unknown
            if operation in RINGS:  # each sends to one, and gets of one
                assert len({start for start, _ in ends}) == len({end for _, end in ends}) == len(ends)
            assert 0 <= phase < len(data["phases"])
        assert [move[0] for move in step["moves"]] == sorted(move[0] for move in step["moves"])


def test_twins_lie_along_the_same_axis_and_a_row_of_all_axes_along_several(data: Mapping[str, object]) -> None:
    steps = {row["name"]: row["steps"][key_of(8, 128)] for row in data["rows"]}
    meshes = {name: step["mesh"] for name, step in steps.items()}
    for name, other in ((row["name"], row["counterpart"]) for row in data["rows"]):
        if other is not None:
            assert meshes[name] == meshes[data["rows"][other]["name"]]
    assert meshes["tf:dtensor"] == "tensor=8"
    assert meshes["torch:hybrid"] == "pipe=2,tensor=2,data=2"
    assert meshes["torch:fsdp"] == "shard=8"


def test_shards_lie_side_by_side(data: Mapping[str, object]) -> None:
    step = row_of(data, "torch:fsdp")["steps"][key_of(4, 128)]
    said = [held[2][2] for _, _, held, _, _ in step["devices"]]
    assert [each.partition(", ")[2] for each in said] == ["1 of 4", "2 of 4", "3 of 4", "4 of 4"]
    begins = [held[2][0] for _, _, held, _, _ in step["devices"]]
    assert begins == [held[2][1] * place for place, (_, _, held, _, _) in enumerate(step["devices"])]


def test_replicas_have_the_same_part(data: Mapping[str, object]) -> None:
    step = row_of(data, "torch:hybrid")["steps"][key_of(8, 128)]
    assert step["mesh"] == "pipe=2,tensor=2,data=2"
    first = [held[0] for _, _, held, _, _ in step["devices"][:4]]
    assert first[0] == first[2] != first[1] == first[3]
    begins = [held[0][0] for _, _, held, _, _ in step["devices"]]
    assert len({*begins}) == 4
    assert max(begins[:4]) < min(begins[4:])


def test_stages_wait_for_those_before_them(data: Mapping[str, object]) -> None:
    for cell in ("torch:mp", "torch:pp"):
        links = [move[3] for move in row_of(data, cell)["steps"][key_of(4, 128)]["moves"]]
        assert links == ["0-1", "1-2", "2-3", "3-2", "2-1", "1-0"]


def test_replicas_of_a_stage_send_to_the_same_place_of_the_next() -> None:
    cell = Cell.parse("torch:hybrid+mesh=pipe=2,data=2")
    told = predict_row(str(cell), cell.apply_to(BASE), Assumptions())
    moves = played(told.run, predicted_devices(told), 0)["moves"]
    assert {tuple(move[3].split()) for move in moves if move[1] == "send"} == {("0-2", "1-3"), ("2-0", "3-1")}
    assert {tuple(move[3].split()) for move in moves if move[1] == "all_reduce"} == {("0-1", "1-0"), ("2-3", "3-2")}


def test_what_lends_parameters_hands_them_out(data: Mapping[str, object]) -> None:
    moves = row_of(data, "torch:dp")["steps"][key_of(2, 128)]["moves"]
    assert [move[3] for move in moves] == ["0-1", "0-1", "1-0", "0-1", "1-0"]
    for cell in ("tf:central_storage", "tf:parameter_server"):
        step = row_of(data, cell)["steps"][key_of(2, 128)]
        names = [device[0] for device in step["devices"]]
        out, back = (move[3].split() for move in step["moves"])
        assert {names[int(link[0])] for link in out} <= {"store:0", "ps-0"}
        assert sorted(link[::-1] for link in back) == sorted(out)


def test_an_emulation_says_so_and_counterparts_are_paired(data: Mapping[str, object]) -> None:
    rows = data["rows"]
    for (framework, info), row in zip(((f, r) for f, r in catalogue() if f != "numpy"), rows, strict=True):
        assert row["name"] == f"{framework}:{info.name}" + (" (emulated)" if info.emulation else "")
        assert info.emulation.removeprefix("emulated: ") in row["emulated"]
        assert bool(row["emulated"]) == bool(info.emulation)
        other = row["counterpart"]
        assert (None if other is None else rows[other]["counterpart"]) == (
            rows.index(row) if info.counterpart else None
        )
        assert len(row["about"]) >= 4


def test_the_page_is_one_small_file(page: Path) -> None:
    text = page.read_text()
    assert len(text) < 1_000_000
    assert "<link" not in text
    assert "src=" not in text


def test_a_prediction_needs_no_numpy(tmp_path: Path) -> None:
    line = f"main(['torch:ddp', '--predicted', '--out', {str(tmp_path / 'page.html')!r}])"
    few = "from samestep.experiments import explore; from samestep.experiments.exploring import grid"
    less = "grid.FACTORS = grid.DEVICES = (1,); explore.DEVICES = 1"
    look = f"import sys; {few}; {less}; explore.{line}; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", look], check=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name one strategy or two"),
        (["torch:ddp", "tf:mirrored", "torch:fsdp"], "name one strategy or two"),
        (["torch:fspd"], "fsdp"),
        (["runs/none"], "runs/none is no directory of a run"),
        (["torch:ddp+width=64"], r"torch:ddp\+width=64 sets width, for which the page has a slider"),
        (["torch:tp+mesh=pipe=2"], "tensor"),
        (["torch:fsdp", "numpy:oracle"], "numpy:oracle is the reference"),
        (["torch:ddp", "--predicted", "--out", "no/such/folder/page.html"], "cannot be written"),
    ],
)
def test_bad_input(arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=told) as refused:
        explore.main(arguments)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_a_row_of_one_mesh_says_what_the_slider_lacks(tmp_path: Path) -> None:
    cell = "torch:hybrid+mesh=pipe=2,data=2"
    data = embedded(write(tmp_path, cell))
    row = row_of(data, cell)
    assert data["devices"][data["start"]["devices"]] == 4
    assert row["steps"][key_of(2, 128)] == f"{cell} has a mesh of 4 devices, not of 2."
    assert row["steps"][key_of(4, 128)]["mesh"] == "pipe=2,data=2"


# --- measured ---------------------------------------------------------------------------------------------------------


def test_finished_runs_are_shown_as_they_were_measured(tmp_path: Path) -> None:
    held = made("torch:ddp").processes
    more = [dataclasses.replace(row, params_bytes=row.params_bytes + 4096) for row in held]
    paths = [
        leave(tmp_path / name, made(cell, processes=rows))
        for name, cell, rows in (("a", "torch:ddp", more), ("b", "tf:mirrored", held))
    ]
    out = tmp_path / "page.html"
    with few_points():
        assert explore.main([*map(str, paths), "--out", str(out)]) == 0
    data = embedded(out)
    for side, rows in (("left", more), ("right", held)):
        row = data["rows"][data["start"][side]]
        measured = row["measured"]
        assert measured["key"] in row["steps"]
        assert [device[2][0][1] for device in measured["step"]["devices"]] == [each.params_bytes for each in rows]
        assert measured["step"]["totals"][2][0] == round(sum(each.sent_bytes_per_step for each in rows))
        assert data["devices"][data["start"]["devices"]] == len(rows)
    assert sum(row["measured"] is not None for row in data["rows"]) == 2


def test_runs_of_different_models_are_not_put_side_by_side(tmp_path: Path) -> None:
    one = made("torch:ddp")
    other = dataclasses.replace(one, config=dataclasses.replace(one.config, optimizer="adamw"), optimizer="adamw")
    paths = [leave(tmp_path / name, result) for name, result in (("a", one), ("b", other))]
    with pytest.raises(ConfigError, match="give two runs of the same"):
        explore.main([*map(str, paths), "--out", str(tmp_path / "page.html")])


def test_what_cannot_be_run_is_predicted_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise SamestepError("it is not installed here")

    monkeypatch.setattr("samestep.experiments.exploring.measuring.run_row", fails)
    out = tmp_path / "page.html"
    with few_points():
        assert explore.main(["torch:ddp", "--out", str(out)]) == 0
    assert "torch:ddp is only predicted: it is not installed here" in capsys.readouterr().err
    assert not any(row["measured"] for row in embedded(out)["rows"])


@pytest.mark.torch
def test_a_run_of_the_page_sends_what_is_predicted(launcher: Launcher) -> None:
    check_run(launcher, "torch:c10d")


@pytest.mark.slow
@pytest.mark.parametrize("cell", sorted({*ROWS} - {"torch:c10d"}))
def test_all_runs_of_the_page_send_what_is_predicted(launcher: Launcher, cell: str) -> None:
    check_run(launcher, cell)


def check_run(launcher: Launcher, cell: str) -> None:
    """Runs a row as the page does, on a narrower model; holds every exchange to the predicted one, if all are predicted."""
    name, sizes = split_spelling(BASE.workload)
    workload = "+".join([name, *(f"{size}={value}" for size, value in {**sizes, "layers": 1, "width": 16}.items())])
    grid = grid_of(dataclasses.replace(BASE, workload=workload), [])
    grid = Grid(grid.base, grid.devices, (), grid.rows)
    try:
        key, step = run_row(launcher, grid, Cell.parse(cell), 2, None)
    except SamestepError as error:
        pytest.skip(str(error))
    told = predict_row(
        cell, request_of(dataclasses.replace(grid.base, mesh=step["mesh"]), Cell.parse(cell)), Assumptions()
    )
    predicted = played(told.run, predicted_devices(told), told.ledger.sent_bytes_per_step)
    assert key == "2"
    assert [held for _, _, held, *_ in step["devices"]] == [held for _, _, held, *_ in predicted["devices"]]
    if cell not in {*BY_CALLS, *OF_EXPERTS}:  # a router decides what experts take
        assert exchanged(step["moves"]) == exchanged(predicted["moves"])
    else:
        assert {move[1] for move in step["moves"]} == {move[1] for move in predicted["moves"]}


def test_the_picture_in_the_docs_is_current(page: Path) -> None:
    stale = "run: python -m documenting.explorer_picture"
    assert explorer_picture.digest(page.read_text()) == json.loads(explorer_picture.DIGEST.read_text()), stale
