"""The anatomy of a strategy: what is drawn is what was recorded, and the pictures of docs/ are current."""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from documenting import docs_pictures
from samestep.common.catalog import catalogue
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, Unavailable
from samestep.common.ledger import Footprint, Send
from samestep.common.mesh import Mesh
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import DeviceRow, RunResult
from samestep.experiments import strategies
from samestep.experiments.page.drawings.anatomy import LONGEST, Scale, anatomy
from samestep.experiments.page.drawings.device_bars import CLASSES, drawn_from, share, whole_bytes
from samestep.experiments.page.drawings.svg import drawing, file_of
from samestep.experiments.page.drawings.transfers import DrawnTransfer
from samestep.experiments.page.drawings.transfers import transfers as joined_transfers
from samestep.experiments.page.observed import MOST_DRAWN, most_telling, write_anatomies
from samestep.experiments.printing.picture import observe, small_request
from tests.results import made

SVG = "{http://www.w3.org/2000/svg}"
MANY = 100


def device(rank: int, sends: Sequence[Send] = (), role: str = "", name: str = "cpu", held: int = 100) -> DeviceRow:
    footprint = dataclasses.asdict(Footprint.uniform(name, held, 2 * held, "tensors"))
    return DeviceRow(**footprint, role=role or f"rank-{rank}", rank=rank, measures={}, sends=tuple(sends))


def observed(mesh: str, *rows: DeviceRow) -> RunResult:
    return made("torch:ddp", mesh=mesh, processes=list(rows))


def sent(phase: str = "backward", operation: str = "all_reduce", **changes: object) -> Send:
    return Send(**{"phase": phase, "operation": operation, "group": "data", "ranks": 2, "bytes": 8, **changes})


@pytest.mark.parametrize(
    ("held", "said"), [(0, "none"), (500, "500 B, 50 %"), (1000, "1000 B, all"), (1200, "1.2 KiB, all + 200 B")]
)
def test_a_share_is_at_most_all_of_it(held: int, said: str) -> None:
    assert share(held, 1000) == said


def transfers(result: RunResult, most: int) -> list[DrawnTransfer]:
    return joined_transfers(Mesh.parse(result.mesh), result.processes, most)


@pytest.mark.parametrize(
    ("group", "ranks", "place", "found"),
    [
        ("tensor", 2, 3, (2, 3)),
        ("data", 2, 3, (1, 3)),
        ("pipe", 2, 3, (3, 7)),
        ("all", 8, 3, tuple(range(8))),
        ("all", 4, 5, tuple(range(8))),
    ],
)
def test_who_shares_a_group(group: str, ranks: int, place: int, found: tuple[int, ...]) -> None:
    assert Mesh.parse("pipe=2,data=2,tensor=2").members(group, ranks, place) == found


def test_a_collective_that_all_its_ranks_recorded_is_one() -> None:
    result = observed("data=2", *(device(rank, [sent(count=2, bytes=16)]) for rank in range(2)))
    assert transfers(result, MANY) == [DrawnTransfer("backward", "all_reduce", "data", (((0, 1), (0, 1)),), 16, 2, 2)]


def test_a_broadcast_that_all_its_ranks_recorded_is_one() -> None:
    result = observed("data=2", *(device(rank, [sent("update", "broadcast", source="1")]) for rank in range(2)))
    assert [each.paths for each in transfers(result, MANY)] == [(((1,), (0,)),)]


def test_a_process_with_several_devices_records_for_all_their_groups() -> None:
    rows = [device(0, [sent(group="tensor")]), *(device(0) for _ in range(3))]
    (found,) = transfers(observed("data=2,tensor=2", *rows), MANY)
    assert found.paths == (((0, 1), (0, 1)), ((2, 3), (2, 3)))
    assert (found.bytes, found.count) == (8, 1), "what happens in two groups at once counts once"


def test_what_happens_in_several_groups_at_once_stands_once() -> None:
    """Whatever order their times have, unless one waits for the other."""
    first, second = sent(group="tensor", at=1.0), sent(group="tensor", bytes=9, at=2.0)
    late = [dataclasses.replace(each, at=(each.at or 0) + 5) for each in (first, second)]
    rows = [device(0, [first, second]), device(1, [first, second]), device(2, late), device(3, late)]
    both = (((0, 1), (0, 1)), ((2, 3), (2, 3)))
    assert [(each.bytes, each.paths) for each in transfers(observed("data=2,tensor=2", *rows), MANY)] == [
        (8, both),
        (9, both),
    ]


def test_a_group_that_was_not_recorded_is_none() -> None:
    result = observed("data=2,tensor=2", device(0, [sent(group="all")]), *(device(0) for _ in range(3)))
    (found,) = transfers(result, MANY)
    assert found.between("abcd") == "a, b, c, d, in groups of 2"


def test_messages_stand_in_the_order_of_their_times() -> None:
    there, back = sent("forward", "send", to="1", at=1.0), sent("backward", "send", to="0", at=3.0)
    rows = [device(0, [there]), device(1, [sent("forward", "send", to="2", at=2.0), back]), device(2)]
    assert [each.paths[0] for each in transfers(observed("pipe=3", *rows), MANY)] == [
        ((0,), (1,)),
        ((1,), (2,)),
        ((1,), (0,)),
    ]


def test_without_times_phases_and_places_order() -> None:
    result = observed("data=2", device(0, [sent("update", "broadcast"), sent("forward", "all_gather")]), device(1))
    assert [each.phase for each in transfers(result, MANY)] == ["forward", "update"]


@pytest.mark.parametrize(
    ("send", "path", "words"),
    [
        (sent("forward", "pull", to="2"), ((2,), (0,)), "server → one"),
        (sent("backward", "push", to="2"), ((0,), (2,)), "one → server"),
        (sent("forward", "pull", to="rank", source="server"), ((2,), (0, 1)), "server → any of one, two"),
        (sent("update", "broadcast", source="1"), ((1,), (0,)), "two → one"),
        (sent("forward", "copy", to="CPU:2", source="CPU:1"), ((1,), (2,)), "two → server"),
    ],
)
def test_who_sends_and_who_receives(send: Send, path: tuple[tuple[int, ...], ...], words: str) -> None:
    rows = [device(0, [send], name="/device:CPU:0"), device(1, name="/device:CPU:1")]
    (found,) = transfers(observed("data=2", *rows, device(2, role="server-0", name="/device:CPU:2")), MANY)
    assert found.paths == (path,)
    assert found.between(["one", "two", "server"]) == words


def test_a_step_with_many_sends_is_joined_until_it_fits() -> None:
    sends = [sent(bytes=8 + number) for number in range(30)] + [sent("update", "broadcast")]
    result = observed("data=2", *(device(rank, sends) for rank in range(2)))
    assert len(transfers(result, MANY)) == 31
    joined = transfers(result, 12)
    assert [(each.operation, each.count, each.bytes) for each in joined] == [
        ("all_reduce", 30, sum(8 + number for number in range(30))),
        ("broadcast", 1, 8),
    ]


def drawn(cell: str, result: RunResult, scale: Scale | None = None) -> ElementTree.Element:
    run = parse(dataclasses.replace(small_request(cell), mesh=result.mesh, devices=None))
    return ElementTree.fromstring(file_of(anatomy(run, result, scale)))


def marks(root: ElementTree.Element) -> list[str]:
    """What each mark of a transfer says of itself."""
    return [title for each in root.iter(f"{SVG}g") if (title := each.findtext(f"{SVG}title"))]


def test_bars_are_to_scale_and_show_which_part() -> None:
    result = observed("data=2", device(0, held=4000), device(1, held=2000))
    bars = drawn("torch:ddp", result, Scale(40_000, 1)).findall(f".//{SVG}rect[@class='params']")
    assert [float(bar.get("width", 0)) for bar in bars] == [13, 6.5]
    assert float(bars[1].get("x", 0)) == float(bars[0].get("x", 0)) + 13, "the second device holds what follows"


def test_lines_are_as_wide_as_their_bytes() -> None:
    result = observed("data=2", *(device(rank, [sent(bytes=8), sent(bytes=4, count=1)]) for rank in range(2)))
    wires = drawn("torch:ddp", result).findall(f".//{SVG}path[@class='wire']")
    assert [float(wire.get("stroke-width", 0)) for wire in wires] == [6, 3.5]


def test_numbers_stand_for_the_order_whatever_the_phase() -> None:
    """In 1F1B a forward pass follows a backward pass."""
    phases = ("forward", "backward", "forward", "update")
    sends = [sent(phase, bytes=8 + n, at=float(n)) for n, phase in enumerate(phases)]
    root = drawn("torch:ddp", observed("data=2", *(device(rank, sends) for rank in range(2))))
    assert marks(root) == [
        "1: all_reduce, 8 B",
        "3: all_reduce, 10 B",
        "2: all_reduce, 9 B",
        "4: all_reduce, 11 B",
    ]


def test_more_devices_than_there_is_room_for_are_counted() -> None:
    result = observed("data=12", *(device(rank, [sent(ranks=12)]) for rank in range(12)))
    text = "".join(drawn("torch:ddp", result).itertext())
    assert "and 4 more devices" in text
    assert "rank-0 to rank-11" in text


def test_a_file_is_readable_alone_in_light_and_dark_and_loads_nothing() -> None:
    text = file_of(anatomy(parse(small_request("torch:ddp")), observed("data=2", device(0, [sent()]), device(1))))
    root = ElementTree.fromstring(text)
    assert root.find(f"{SVG}title") is not None
    assert "backward, rank-0, rank-1: all_reduce 8 B." in (root.findtext(f"{SVG}desc") or "")
    assert "prefers-color-scheme: dark" in text
    assert "http" not in text.replace(SVG[1:-1], "")


def test_what_comes_from_a_run_is_escaped() -> None:
    result = observed("data=2", device(0, role="<script>alert(1)</script>"), device(1))
    text = file_of(anatomy(parse(small_request("torch:ddp")), result))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--picture"], "a picture is drawn by --picture of one strategy"),
        (["torch:ddp", "--beside", "tf:mirrored"], "a picture is drawn by --picture"),
        (["torch:ddp", "--picture", "-o", "nowhere/there.svg"], "-o .*nowhere/there.svg cannot be written"),
        (["torch:ddp", "--picture", "--beside", "tf:miror"], "unknown strategy 'tf:miror'|Did you mean 'mirrored'"),
    ],
)
def test_a_picture_that_cannot_be_drawn(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        strategies.main(arguments)


# --- the pictures of docs/ --------------------------------------------------------------------------------------------

CHEAP = ("torch:single", "torch:fsdp", "torch:pp", "tf:mirrored")
CELLS = [
    pytest.param(
        cell,
        marks=[getattr(pytest.mark, cell.partition(":")[0]), *([] if cell in CHEAP else [pytest.mark.slow])],
    )
    for cell in docs_pictures.cells()
]


@pytest.mark.parametrize("cell", CELLS)
def test_a_picture_is_current(cell: str, launcher: Launcher) -> None:
    try:
        _, result = observe(launcher, cell)
    except Unavailable as error:
        pytest.skip(str(error))
    found = re.search(r'data-drawn-from="(\w+)"', docs_pictures.place(cell).read_text())
    assert found, f"{docs_pictures.place(cell)} is no picture"
    assert found[1] == drawn_from(result), f"{cell} holds or sends something else: run `make docs-pictures`"


def test_every_row_has_a_picture_that_a_page_shows() -> None:
    pages = {name: (docs_pictures.FOLDER.parent / name).read_text() for name in ("pytorch.md", "tensorflow.md")}
    for cell in docs_pictures.cells():
        page = pages["pytorch.md" if cell.startswith("torch:") else "tensorflow.md"]
        assert f"(pictures/{docs_pictures.place(cell).name})" in page, cell
    assert {path.name for path in docs_pictures.FOLDER.glob("t*-*.svg")} == {
        docs_pictures.place(cell).name for cell in docs_pictures.cells()
    }


@pytest.mark.parametrize("path", sorted(docs_pictures.FOLDER.glob("*-*.svg")), ids=lambda path: path.stem)
def test_a_picture_has_the_looks_of_today_in_light_and_dark(path: Path) -> None:
    today = ElementTree.fromstring(file_of(drawing(1, 1, "", ""))).findtext(f"{SVG}style")
    assert ElementTree.parse(path).getroot().findtext(f"{SVG}style") == today, "run `make docs-pictures`"


def test_what_a_picture_is_drawn_from_is_every_byte_and_no_time() -> None:
    before = observed("data=2", device(0, [sent(at=1.0)]), device(1))
    assert drawn_from(before) == drawn_from(observed("data=2", device(0, [sent(at=2.0)]), device(1)))
    changed = [
        observed("data=2", device(0, [sent(bytes=9)]), device(1)),
        observed("data=2", device(0, [sent()]), device(1, held=99)),
        observed("data=2", device(0, [sent(source="1")]), device(1)),
    ]
    assert len({drawn_from(each) for each in (before, *changed)}) == 4


@pytest.mark.torch
def test_a_picture_is_written_where_it_is_asked_for(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("samestep.common.runtime.parent.launcher.Launcher", lambda: contextlib.nullcontext(launcher))
    out = tmp_path / "two.svg"
    assert strategies.main(["torch:single", "--picture", "--beside", "c10d", "-o", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    root = ElementTree.parse(out).getroot()
    assert [each.get("x") for each in root.findall(f"{SVG}svg")] == ["0", "760"]


def test_a_page_draws_its_rows_and_only_as_many_as_it_has_room_for() -> None:
    rows = [device(rank, [sent()]) for rank in range(2)]
    results = [made(cell, mesh="data=2", processes=rows) for cell in ("numpy:oracle", "torch:ddp", "tf:mirrored")]
    entries = [
        SimpleNamespace(key="r0", name=f"{r.framework}:{r.strategy}", framework=r.framework, result=r) for r in results
    ]
    section = write_anatomies(SimpleNamespace(entries=entries))
    assert section is not None
    assert re.findall("<summary>(.*?)</summary>", section) == ["torch:ddp", "tf:mirrored"]
    section = write_anatomies(SimpleNamespace(entries=entries[1:] * MANY))
    assert section.count("<details ") == MOST_DRAWN
    assert "There are more rows" in section
    assert write_anatomies(SimpleNamespace(entries=entries[:1])) is None


def test_every_strategy_is_drawn_before_any_is_drawn_twice_and_twins_stand_together() -> None:
    cells = [f"{framework}:{row.name}" for framework, row in catalogue() if framework != "numpy"]
    assert len(cells) <= MOST_DRAWN
    crowd = [cell for cell in cells if cell.startswith("torch")] * 3 + [cell for cell in cells if cell.startswith("tf")]
    rows = [(SimpleNamespace(name=cell), made(cell)) for cell in crowd]
    names = [entry.name for entry, _ in most_telling(rows)]
    assert sorted(names[: len(cells)]) == sorted(cells)
    assert sorted(names) == sorted(crowd)
    twins = {f"{framework}:{row.name}": row.counterpart for framework, row in catalogue() if row.counterpart}
    apart = {cell for cell, twin in twins.items() if abs(names.index(cell) - names.index(twin)) > 1}
    assert len(twins) >= 10 and apart == set()


def test_bars_lie_where_the_parts_of_their_owners_lie() -> None:
    """On three axes: replicas along `data` hold the same bytes, and what the others hold adds up to all of it."""
    asked = Cell.parse("torch:hybrid").apply_to(
        RunConfig(workload="prose-gpt", mesh="pipe=2,data=2,tensor=2", batch_size=16)
    )
    run = parse(asked)
    rows = [device(rank, held=0) for rank in range(run.mesh.size)]
    predicted = run.strategy.cost(run, run.strategy.backend).devices()
    rows = [dataclasses.replace(row, **dataclasses.asdict(each)) for row, each in zip(rows, predicted, strict=True)]
    result = dataclasses.replace(observed(str(run.mesh), *rows), workload=run.workload.name)
    root = anatomy(run, result)
    scale, near = LONGEST / Scale.of(run, result).longest_bytes, 0.015  # three places, each rounded to 0.01 pixels
    for number, each in enumerate(CLASSES):
        bars = [rect for rect in root.iter("rect") if rect.get("class") == each.kind]
        places = [(float(rect.attrib["x"]), float(rect.attrib["x"]) + float(rect.attrib["width"])) for rect in bars]
        owners = [(run.mesh.part(rank, "layers"), run.mesh.part(rank, "features")) for rank in range(run.mesh.size)]
        assert len({*owners}) == 4 and len({*places}) == 4
        assert len({*zip(owners, places, strict=True)}) == 4, "replicas hold the same part"
        first, *rest = sorted({*places})
        for left, right in itertools.pairwise((first, *rest)):  # layer norms are whole on each device along `tensor`
            assert left[0] < right[0] <= left[1] + near
        assert rest[-1][1] - first[0] == pytest.approx(whole_bytes(run)[number] * scale, abs=near)
