"""Shows the pieces of the museum and writes docs/museum.md: `python -m museum [PIECE ...]`.

What is there already is not done again, so that an interrupted call can be repeated. With names, only these pieces are shown,
and the page is left as it is.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from museum.effort import measured, sentence
from museum.overlays import PieceFailed
from museum.page import PAGE, render
from museum.piece import Piece
from museum.pieces import PIECES
from museum.showing import Shown, show

WORKERS = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Shows the pieces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", metavar="PIECE", choices=[*(p.name for p in PIECES), []], help="which")
    given = parser.parse_args(arguments)
    chosen = [piece for piece in PIECES if not given.pieces or piece.name in given.pieces]
    with measured(), ThreadPoolExecutor(WORKERS) as pool:
        shown = {piece: found for piece, found in zip(chosen, pool.map(_shown, chosen), strict=True) if found}
        if len(shown) < len(chosen):
            raise SystemExit(f"museum: {len(chosen) - len(shown)} pieces failed.")
    if not given.pieces:
        PAGE.write_text(render(shown, sentence()))
        print(f"museum: {PAGE} is written.")


def _shown(piece: Piece) -> Shown | None:
    try:
        found = show(piece)
    except PieceFailed as error:
        print(f"{piece.name}: FAILED: {error}", flush=True)
        return None
    flags = [
        "" if found.kind in ("named", "unnamed") else f"NOT DIFFERENT ({found.kind})",
        "NAMED WRONGLY" if found.is_named_wrongly(piece) else "" if found.is_named(piece) else "not named",
        "" if found.is_located(piece) else f"NOT LOCATED: {found.where}, not {piece.where}",
    ]
    print(f"{piece.name}: {', '.join(filter(None, flags)) or 'named and located'}\n    {found.said}", flush=True)
    return found


if __name__ == "__main__":
    main()
