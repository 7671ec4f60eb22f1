"""The museum's table of pieces and its page agree. Nothing is run: `make museum` does that."""

import re

import pytest

from museum.page import PAGE, render
from museum.piece import SCRIPTS, STORE, Piece, Side
from museum.pieces import PIECES
from museum.showing import Shown
from samestep.common.mistakes.table import MISTAKES

ROW = re.compile(
    r"^\| \[([\w-]+)\]\(#\1\) \| \[([\w.-]+#\d+)\]\(https://github\.com/(\S+)/issues/(\d+)\) \|", re.MULTILINE
)
PACKAGE = re.compile(r"[\w.-]+==[\w.]+")


def test_every_piece_has_a_row_and_every_row_a_piece() -> None:
    rows = {name: f"{repository}#{number}" for name, _, repository, number in ROW.findall(PAGE.read_text())}
    assert rows == {piece.name: piece.thread for piece in PIECES}


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.name)
def test_a_piece_can_be_shown(piece: Piece) -> None:
    assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", piece.thread)
    assert (SCRIPTS / f"{piece.script}.py").exists()
    assert all(PACKAGE.fullmatch(package) for package in piece.packages)
    assert piece.right != piece.wrong
    assert not piece.mistake or piece.mistake in {mistake.name for mistake in MISTAKES}
    steps = r"step \d+, (data|hyper-parameters|loss|gradient|clipping|update|replicas)"
    assert re.match(rf"({steps}|before the first step, initial weights)(, |$)", piece.where)


def test_every_script_is_used_and_every_name_is_its_own() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == {piece.script for piece in PIECES}
    assert len({piece.name for piece in PIECES}) == len(PIECES)


def test_the_page_counts_what_went_wrong() -> None:
    sides = Side(("x==1",)), Side(("x==2",))
    piece = Piece("p", "a/b#1", "It is wrong.", "Nothing.", "s", *sides, "loss_times", "step 0, loss")
    losses = ((1.0, 2.0), (3.0, None))
    good = Shown("named", "step 0, loss", ("loss_times",), "not the same", losses)
    wrong = Shown("named", "step 1, loss", ("mean_twice",), "not the same", losses)
    same = Shown("same", "", (), "same: 8 steps", losses)
    for shown, counts in ((good, "1 1 1 0 1"), (wrong, "1 1 0 1 0"), (same, "1 0 0 0 0")):
        summary = next(line for line in render({piece: shown}).splitlines() if line.startswith("Of 1 pieces"))
        assert " ".join(re.findall(r"\d+", summary)) == counts
    assert "1 more are in the table" in render({piece: None})
    assert ROW.findall(render({piece: None})) == ROW.findall(render({piece: good})) == [("p", "b#1", "a/b", "1")]


def test_the_store_is_not_in_the_repository() -> None:
    ignored = (STORE.parent / ".gitignore").read_text().splitlines()
    assert f"{STORE.name}/" in ignored
