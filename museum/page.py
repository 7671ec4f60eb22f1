"""Writes docs/museum.md: what the museum is, a table of its pieces, and what was seen of each."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from museum.piece import ROOT, Piece
from museum.showing import Losses, Shown

PAGE: Path = ROOT / "docs" / "museum.md"
_ABOUT = """# The museum

This museum shows released packages that were silently wrong. Each piece runs a short script twice: once with the package as it
was released, and once with a version that is right or with the line that makes it right. Both runs are recorded with
`samestep record`, and the answer of `samestep diff` is printed here, unedited. `make museum` writes this page. It
installs {packages} packages with pip, each into its own folder in `.museum/`, and continues where it was interrupted. {effort}

{summary}

The name that `samestep diff` gives a mistake is in bold; names come from [common/mistakes](../common/mistakes). A mistake is
named only if its arithmetic explains the difference of every tensor. The scripts are in [museum/scripts](../museum/scripts), and
the table of pieces is in [museum/pieces](../museum/pieces).
"""


def render(shown: Mapping[Piece, Shown | None], effort: str = "") -> str:
    """Returns the page.

    Args:
        shown: What became of every piece; None if it has not been run yet.
        effort: A sentence on what it took.
    """
    packages = {package for piece in shown for package in piece.packages}
    rows = [_row(piece, found) for piece, found in shown.items()]
    table = [
        "| Piece | Thread | Wrong | Right | First difference | Name |",
        "| --- | --- | --- | --- | --- | --- |",
        *rows,
    ]
    parts = [_part(piece, found) for piece, found in shown.items()]
    about = _ABOUT.format(packages=len(packages), effort=effort, summary=_summary(shown)).replace(" \n", "\n")
    return "\n".join([about, *table, "", "## What was seen", "", *parts])


def _summary(every: Mapping[Piece, Shown | None]) -> str:
    shown = {piece: found for piece, found in every.items() if found}
    different = sum(found.kind in ("named", "unnamed") for found in shown.values())
    named = sum(found.is_named(piece) for piece, found in shown.items())
    wrongly = sum(found.is_named_wrongly(piece) for piece, found in shown.items())
    located = sum(found.is_located(piece) for piece, found in shown.items())
    waiting = (
        f"{len(every) - len(shown)} more are in the table and have not been run yet: nothing is claimed of them.\n\n"
    )
    return (waiting if len(shown) < len(every) else "") + (
        f"Of {len(shown)} pieces, {different} are found to differ from the right version, {named} are given their own name and "
        f"{wrongly} a wrong one, and for {located} the first difference is where the mistake is made: the step, phase, layer "
        "and rank."
    )


def _row(piece: Piece, found: Shown | None) -> str:
    name = ", ".join(f"`{each}`" for each in found.names) or "none" if found else ""
    sides = (f"`{piece.spell(side)}`" for side in (piece.wrong, piece.right))
    where = found.where if found else "not run yet"
    return f"| [{piece.name}](#{piece.name}) | {link(piece.thread)} | {' | '.join(sides)} | {where} | {name} |"


def link(thread: str) -> str:
    """Returns a link to a thread."""
    repository, number = thread.split("#")
    return f"[{repository.split('/')[1]}#{number}](https://github.com/{repository}/issues/{number})"


def _part(piece: Piece, found: Shown | None) -> str:
    if found is None:
        return f"### {piece.name}\n\n{piece.about} It has not been run yet.\n"
    said = found.said
    for each in found.names:
        said = said if f"**{each}**" in said else f"{said} (**{each}**)"
    lines = [
        f"### {piece.name}",
        "",
        f"{piece.about} What was noticed: {piece.noticed[0].lower()}{piece.noticed[1:]}",
        "",
        f"* Script: [{piece.script}.py](../museum/scripts/{piece.script}.py)"
        + (f", with {', '.join(f'`{each}`' for each in piece.shared)}" if piece.shared else "")
        + (f", {piece.processes} processes" if piece.processes else ""),
        f"* Loss of the first and of the last step: {_losses(found.losses)}.",
        f"* `samestep diff`: {said}",
        "",
    ]
    return "\n".join(lines)


def _losses(losses: Sequence[Losses]) -> str:
    """Returns the losses of the right run and of the wrong one."""
    right, wrong = ([f"{each:.4g}" if each is not None else "unknown" for each in pair] for pair in losses)
    return f"{right[0]} and {right[1]} where it is right, {wrong[0]} and {wrong[1]} where it is wrong"
